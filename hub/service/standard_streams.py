"""The standard streams: descriptors 0, 1 and 2 are always taken, also when whoever started us closed them."""

import os
from typing import Final

_STANDARD: Final = (0, 1, 2)


def occupy_standard_descriptors() -> None:
    """Open the null device where a standard stream is closed; to be called before a loop is made.

    Else the next socket or file gets that number: a stray print would go into it, and libuv ends a process that
    closes one (`Assertion fd > STDERR_FILENO failed`).
    """
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
