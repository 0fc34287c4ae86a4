"""Reaps children: every one that ends, also orphans that a dead shim or a container left to us."""

import asyncio
import os
import signal
from collections.abc import Callable


class Reaper:
    """Waits for all children of this process, by SIGCHLD. One a process; nobody else may wait.

    Args:
        on_stranger: told the pid of a child that nobody watched.
    """

    def __init__(self, on_stranger: Callable[[int], None] = lambda _: None) -> None:
        self._watched: dict[int, asyncio.Future[int]] = {}
        self._on_stranger = on_stranger
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to reap. Starting twice is fine."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
            self._reap()

    def stop(self) -> None:
        """Reap no more. Stopping twice is fine."""
        if self._loop is not None:
            self._loop.remove_signal_handler(signal.SIGCHLD)
            self._loop = None

    def watch(self, pid: int) -> "asyncio.Future[int]":
        """The exit status (as wait gives it) of a child; ask in the same step of the loop that started it."""
        assert self._loop is not None, "start the reaper first"
        future: asyncio.Future[int] = self._loop.create_future()
        self._watched[pid] = future
        return future

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            future = self._watched.pop(pid, None)
            if future is None:
                self._on_stranger(pid)
            elif not future.done():
                future.set_result(status)
