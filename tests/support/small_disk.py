"""A disk that is really full: a tmpfs that is made as small as what it holds, and large again."""

import os
import subprocess
from pathlib import Path

SIZE_BYTES = 400 * 1024 * 1024  # above the 256 MB below which a worker pulls nothing; memory is used only as written


class SmallDisk:
    """A mounted tmpfs of its own. Needs the right to mount.

    Args:
        folder: where it is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        _mount("-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "none", str(folder))

    @staticmethod
    def can_be_made() -> bool:
        """May this process mount?"""
        return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0

    def fill(self) -> None:
        """From now on every new block is refused with ENOSPC."""
        self.leave(0)

    def leave(self, free_bytes: int) -> None:
        """Let so much be free."""
        status = os.statvfs(self.folder)
        self._resize((status.f_blocks - status.f_bfree) * status.f_frsize + free_bytes)

    def make_room(self) -> None:
        """As large as it was."""
        self._resize(SIZE_BYTES)

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)

    def _resize(self, size: int) -> None:
        _mount("-o", f"remount,size={size}", str(self.folder))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)
