"""A thread of one's own: carries out calls in their order, and keeps no process from ending.

A pool's threads are waited for when the interpreter ends, also for a call that never comes back; this one is not.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Job(NamedTuple):
    call: Callable[[], Any]
    future: "asyncio.Future[Any]"


class OwnThread:
    """One thread; it starts with the first call.

    Args:
        name: its name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, call: Callable[[], T]) -> T:
        """Run something there; what it raises is raised here. A cancelled call is carried out all the same."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(call, future))
        return await future

    def stop(self) -> None:
        """End it behind what is queued, without waiting; nothing may be called after this."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            value: Any = None
            failed: BaseException | None = None
            try:
                value = job.call()
            except BaseException as error:  # noqa: BLE001 - it is the caller's, and reaches it through the future
                failed = error
            try:
                job.future.get_loop().call_soon_threadsafe(_deliver, job.future, value, failed)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more


def _deliver(future: "asyncio.Future[Any]", value: Any, failed: BaseException | None) -> None:
    if future.done():
        return  # its caller was cancelled
    if failed is not None:
        future.set_exception(failed)
    else:
        future.set_result(value)
