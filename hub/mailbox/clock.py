"""Clock of a mailbox: milliseconds since 1970 that survive a restart and do not jump while the process lives.

Ages on disk (dedupe records, early cancels, delayed turns) need a time that means the same after a restart, so it is
the wall clock's; but a wall clock that is set while the process runs must not make a record a week older. So the wall
clock is read once, and what passes since is measured with a steady one. A wall clock that was set back between two runs
is caught at the opening: time in a mailbox never goes below what is written in it.
"""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Milliseconds since 1970; never goes back."""

# CLOCK_BOOTTIME goes on while a laptop sleeps, as retry delays should; where there is none, the monotonic clock.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_clock() -> Clock:
    """A clock that is the wall clock now, and steady from here on."""
    start = time.time_ns() - time.clock_gettime_ns(_STEADY)

    def now_ms() -> int:
        return (start + time.clock_gettime_ns(_STEADY)) // 1_000_000

    return now_ms


def not_before(clock: Clock, newest_ms: int) -> Clock:
    """The same clock, set forward as a whole when it is now behind `newest_ms`, the newest time on disk."""
    behind = newest_ms - clock()
    if behind <= 0:
        return clock
    return lambda: clock() + behind
