"""Exit codes: a table, one line each (contract §11)."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of commands for people and of services."""

    OK = 0  # done; a service: orderly
    ERROR = 1  # failed; a service: internal error, restarted by its supervisor
    USAGE = 2  # wrong arguments; never restarted
    TIMED_OUT = 3  # commands only
    CANCELLED = 4  # commands only
    BAD_INPUT = 64  # never restarted
    NO_INPUT = 66  # a file that was named is not there; never restarted
    UNAVAILABLE = 69  # what it needs is not there now; restarted
    GAVE_UP = 70  # `runtime up`: a `stop_all` process exceeded its restart limit
    ALREADY_RUNS = 73  # `runtime up`: another one runs here
    TRY_LATER = 75  # not now; restarted
    CONFIG = 78  # configuration; never restarted
    INTERRUPTED = 130  # commands only: second Ctrl-C, or a cancel that was not confirmed
