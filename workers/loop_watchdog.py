"""The watchdog of the loop: ends a worker whose loop a handler blocks (contract §8: the turn is then interrupted).

A handler that does not give the loop back stops heartbeats, cancels and every other turn; a thread cannot be killed. So
the process ends, its supervisor starts it anew, and what ran is settled as interrupted. The timer is C code
(faulthandler) and fires also when the GIL is held; it writes every thread's traceback to stderr first.
"""

import asyncio
import faulthandler
import sys
from typing import Final

BLOCKED_SECS: Final = 30.0  # far above a busy machine's hiccups, below the 90 s after which the worker counts as dead
BEATS: Final = 10  # within BLOCKED_SECS


class LoopWatchdog:
    """Ends the process with code 1 when the loop did not come round for a while.

    A process that was stopped by a signal for that long (SIGSTOP) is ended when it goes on.

    Args:
        blocked_secs: for how long; 0 switches it off.
    """

    def __init__(self, blocked_secs: float = BLOCKED_SECS) -> None:
        self._blocked_secs = blocked_secs
        self._beat: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin. Starting twice is fine."""
        if self._blocked_secs and self._beat is None:
            self._arm()

    def stop(self) -> None:
        """End. Stopping twice is fine."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
            faulthandler.cancel_dump_traceback_later()

    def _arm(self) -> None:
        faulthandler.dump_traceback_later(self._blocked_secs, exit=True, file=sys.__stderr__ or 2)
        self._beat = asyncio.get_running_loop().call_later(self._blocked_secs / BEATS, self._arm)
