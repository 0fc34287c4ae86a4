"""The workplaces: in which folder a turn works (contract §9: a session's `cwd`, inside the worker's root)."""

import asyncio
import hashlib
import shutil
from pathlib import Path

import msgspec
import structlog

from hub.mailbox import SessionName

log = structlog.get_logger(__name__)


class BadWorkplace(ValueError):
    """A session's `cwd` is not there, or outside of where this worker works."""


class Workplace(msgspec.Struct, frozen=True):
    """A folder to work in.

    Attributes:
        path: the folder; a private one may not be made yet.
        is_private: nobody else works there; it is deleted when its task or session ends.
    """

    path: Path
    is_private: bool


class Workplaces:
    """Gives turns their folders.

    Args:
        root: the folder that the operator named: turns without a `cwd` work there. None: each task and each session
            has a folder of its own, and no session may name one.
        private_root: where those are.
    """

    def __init__(self, root: Path | None, private_root: Path) -> None:
        self._root = root
        self._private_root = private_root

    def of_task(self, seq: int) -> Workplace:
        """Where a task of its own works."""
        return Workplace(self._root, False) if self._root else Workplace(self._private_root / f"task-{seq}", True)

    def of_session(self, name: SessionName, cwd: str | None) -> Workplace:
        """Where a session works.

        Raises:
            BadWorkplace: its `cwd` is no folder inside the root.
        """
        if cwd is not None:
            return Workplace(self._inside(cwd), False)
        if self._root is not None:
            return Workplace(self._root, False)
        digest = hashlib.sha256(msgspec.json.encode(name)).hexdigest()[:24]
        return Workplace(self._private_root / f"session-{digest}", True)

    async def clear(self, place: Workplace) -> None:
        """Delete a private folder, best effort."""
        if place.is_private and place.path.exists():
            await asyncio.to_thread(shutil.rmtree, place.path, ignore_errors=True)

    def _inside(self, cwd: str) -> Path:
        if self._root is None:
            raise BadWorkplace(
                f"cwd {cwd!r}: this worker has no folder for it; its operator names one (--workdir-root)"
            )
        base = self._root.resolve()
        try:
            folder = (base / cwd).resolve()
            is_folder = folder.is_dir()
        except (OSError, ValueError) as error:  # a name too long, a NUL in it
            raise BadWorkplace(f"cwd {cwd[:200]!r} is no folder: {error}") from error
        if not folder.is_relative_to(base):
            raise BadWorkplace(f"cwd {cwd!r} is outside of {base}, where this worker works")
        if not is_folder:
            raise BadWorkplace(f"cwd {cwd!r} is no folder in {base}")
        return folder
