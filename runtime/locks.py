"""Locks: one `up` a state directory, and none before the last one's children are gone.

By flock: a stale file blocks nobody.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import Final

import msgspec

from runtime.errors import AlreadyRuns

_LOOKS: Final = 3
_LOOK_SECS: Final = 0.05


class Holder(msgspec.Struct):
    """Who holds the lock, for people and for `status`.

    Attributes:
        pid: its process.
        since: when it started, RFC 3339.
    """

    pid: int
    since: str


def try_lock(path: Path) -> int | None:
    """Take an exclusive lock on a file; None when somebody holds it.

    It is held as long as the descriptor is open anywhere: a shim that it is passed to keeps it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def lock_as_up(path: Path) -> int:
    """Take the lock of the running `up`; returns the descriptor, which holds it.

    Raises:
        AlreadyRuns: another one has it.
    """
    fd = try_lock(path)
    for _ in range(_LOOKS):
        if fd is not None:
            break
        time.sleep(_LOOK_SECS)  # somebody who only looks whether it is free (`down`) holds it for a moment
        fd = try_lock(path)
    if fd is None:
        holder = read_holder(path)
        raise AlreadyRuns(str(path.parent.parent), holder.pid if holder else 0, holder.since if holder else "")
    os.ftruncate(fd, 0)
    os.pwrite(fd, msgspec.json.encode(Holder(os.getpid(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))), 0)
    return fd


def is_free(path: Path) -> bool:
    """Does nobody hold the lock?"""
    try:
        fd = try_lock(path)
    except FileNotFoundError:
        return True
    if fd is None:
        return False
    os.close(fd)
    return True


def read_holder(path: Path) -> Holder | None:
    """What the lock file says; None when it says nothing yet."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
