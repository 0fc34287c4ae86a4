"""The brake on log lines that others can cause: a flood of bad input is told by its number, not piece by piece."""

import time
from collections.abc import Callable
from typing import Final

WINDOW_SECS: Final = 10.0
LINES_A_WINDOW: Final = 100  # a person reads no more; a line costs as much as routing two messages


class FloodBrake:
    """Lets through at most 100 lines in 10 seconds and counts the others.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._window_began = clock()
        self._lines = 0
        self.held_back = 0

    def lets_through(self) -> bool:
        """May this line be logged?"""
        now = self._clock()
        if now - self._window_began >= WINDOW_SECS:
            self._window_began, self._lines = now, 0
        self._lines += 1
        if self._lines <= LINES_A_WINDOW:
            return True
        self.held_back += 1
        return False

    def take_held_back(self) -> int:
        """How many lines were held back since this was last asked; to be told with the next line."""
        held_back, self.held_back = self.held_back, 0
        return held_back
