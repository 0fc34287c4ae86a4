"""Signals of a service: a handler only notes, the main loop acts."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager


class StopRequest:
    """Set by SIGTERM or SIGINT; `is_hurried` by a second one."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._hurried = asyncio.Event()
        self.signal: signal.Signals | None = None

    @property
    def is_set(self) -> bool:
        """Was the process asked to stop?"""
        return self._asked.is_set()

    @property
    def is_hurried(self) -> bool:
        """Was it asked twice?"""
        return self._hurried.is_set()

    def ask(self, number: signal.Signals) -> None:
        """Note a signal."""
        if self._asked.is_set():
            self._hurried.set()
        self.signal = self.signal or number
        self._asked.set()

    async def wait(self) -> None:
        """Return when the process was asked to stop."""
        await self._asked.wait()

    async def wait_hurried(self) -> None:
        """Return when the process was asked twice."""
        await self._hurried.wait()


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """While inside, SIGTERM and SIGINT set the request that is given, and end nothing."""
    loop = asyncio.get_running_loop()
    request = StopRequest()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, request.ask, number)
    try:
        yield request
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
