"""The bell: rung at every change of state; whoever waits looks again whether what he waits for is true."""

import asyncio
from collections.abc import Callable
from typing import Final

FOREVER: Final = 1e9  # seconds; a deadline where there is none, for those who wait for the operator


class Bell:
    """One a supervisor. Waiting for a condition, with a deadline, is the only way its parts wait for each other."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    @staticmethod
    def now() -> float:
        """The monotonic clock of all deadlines."""
        return asyncio.get_running_loop().time()

    def ring(self) -> None:
        """Something changed."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def until(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Wait until the condition holds; False when the deadline (of `now()`) came first."""
        while not condition():
            remaining = deadline - self.now()
            if remaining <= 0:
                return False
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                await asyncio.wait({future}, timeout=min(remaining, FOREVER))
            finally:
                self._waiting.discard(future)
        return True
