"""Signals of a service: a handler only notes, the main loop acts."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager


class StopRequest:
    """Set by SIGTERM or SIGINT; `is_hurried` by a second one. A drain is asked for by SIGUSR1."""

    def __init__(self) -> None:
        self._drain = asyncio.Event()
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

    def ask_drain(self) -> None:
        """Note that it is to finish what it has, and then stop."""
        self._drain.set()

    async def wait_drain(self) -> None:
        """Return when the process was asked to drain."""
        await self._drain.wait()

    async def wait(self) -> None:
        """Return when the process was asked to stop."""
        await self._asked.wait()

    async def wait_hurried(self) -> None:
        """Return when the process was asked twice."""
        await self._hurried.wait()


@contextmanager
def stop_on_signals(*, drains: bool = False) -> Iterator[StopRequest]:
    """While inside, SIGTERM and SIGINT set the request that is given, and end nothing.

    Args:
        drains: SIGUSR1 asks for a drain. Where nobody listens for it it is not caught, so that a supervisor can tell.
    """
    loop = asyncio.get_running_loop()
    request = StopRequest()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, request.ask, number)
    if drains:
        loop.add_signal_handler(signal.SIGUSR1, request.ask_drain)
    try:
        yield request
    finally:
        for number in (*numbers, *((signal.SIGUSR1,) if drains else ())):
            loop.remove_signal_handler(number)
