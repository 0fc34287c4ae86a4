"""Look at the free space of the mailbox's disk (contract §8: pulling stops below 256 MB)."""

import os
from pathlib import Path
from typing import Final

LEAST_FREE_BYTES: Final = 256 * 1024 * 1024  # contract §8: below it a worker takes nothing more and is `degraded`


def free_bytes(folder: Path) -> int:
    """How much a process without privileges may still write to the disk that holds `folder`. A system call: fast."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def has_room(folder: Path, least_bytes: int = LEAST_FREE_BYTES) -> bool:
    """May more be taken in?"""
    return free_bytes(folder) >= least_bytes
