"""Lock of an identity: at most one process on this machine has its mailbox open.

The kernel lets go of it when the process ends, however it ends, so there is no stale lock and no pid to trust; the pid
inside is for people. It says nothing of other machines (the presence does), and a network folder may not keep it.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

from hub.mailbox.errors import IdentityInUse

_PID_MOST_BYTES: Final = 20


class IdentityLock:
    """The lock of one identity, held from `acquire` to `release`."""

    def __init__(self, path: Path, identity: str) -> None:
        self._path = path
        self._identity = identity
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take it.

        Raises:
            IdentityInUse: another process (or this one) has it; names its pid.
        """
        # Never O_TRUNC here: the pid inside is the holder's until the lock is ours.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.read(descriptor, _PID_MOST_BYTES).strip()
            os.close(descriptor)
            pid = int(text) if text.isdigit() else None
            raise IdentityInUse(self._identity, pid, self._path) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        self._descriptor = descriptor
        _held.add(self)

    def release(self) -> None:
        """Let go of it; twice is fine."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _held.discard(self)
            os.close(descriptor)

    def forget_in_child(self) -> None:
        """In a forked child: close its copy, so that a child which outlives its worker does not keep the identity."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


_held: set[IdentityLock] = set()  # strong: a lock that nobody refers to any more is held all the same


def _forget_all_in_child() -> None:
    for lock in list(_held):
        lock.forget_in_child()


os.register_at_fork(after_in_child=_forget_all_in_child)
