"""Exit codes of the supervisor and its commands, and those of children that a retry cannot mend (contract §11)."""

from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """One line each."""

    OK = 0  # orderly
    ERROR = 1  # a command failed
    USAGE = 2  # wrong arguments
    TIMED_OUT = 3  # a command's deadline passed
    GAVE_UP = 70  # `up`: a `stop_all` process exceeded its restart limit
    ALREADY_RUNS = 73  # `up`: another one runs on this state directory
    CONFIG = 78  # `up` and `check`: the configuration
    INTERRUPTED = 130  # a command was interrupted


NOT_RETRIED: Final = frozenset({2, 64, 66, 78})
"""A child's usage, input and configuration errors: it would end the same way again."""
