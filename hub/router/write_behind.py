"""A bounded queue into storage, for what must never hold up routing: dead letters, broadcasts, sightings."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from hub.delivery.connection import Connection
from hub.service.flood import FloodBrake
from hub.storage.errors import StorageUnavailable
from hub.storage.records import MAX_BATCH, BatchReport

log = structlog.get_logger(__name__)

MOST_BYTES: Final = 64 * 1024 * 1024  # of the items that wait in one queue: an outage of storage must not fill memory
FLUSH_SECS: Final = 5.0  # at a stop; storage that does not answer by then is down
RETRY_MIN_SECS: Final = 0.2
RETRY_MAX_SECS: Final = 5.0

T = TypeVar("T")


class WriteBehind(Generic[T]):
    """Takes items at once and writes them in batches of at most 256, each taking what came while the last one ran.

    Args:
        connection: owns the writing task: should it die, the process ends loudly.
        name: for logs.
        write: writes one batch; `StorageUnavailable` makes it try again, the queue filling meanwhile. What its report
            says is refused is lost.
        most: items that wait at most; one more is lost, and so is what would make them more than 64 MiB.
        on_lost: told of each item that was lost, and why.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        name: str,
        write: Callable[[list[T]], Awaitable[BatchReport]],
        most: int,
        on_lost: Callable[[T, str], None],
    ) -> None:
        self._connection = connection
        self._name = name
        self._write = write
        self._most = most
        self._on_lost = on_lost
        self._items: deque[tuple[T, int]] = deque()  # with the size of each
        self._bytes = 0
        self._brake = FloodBrake()
        self._came = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def offer(self, item: T, size: int) -> bool:
        """Take an item of about so many bytes, or lose it when the queue is full; never waits."""
        if len(self._items) >= self._most or self._bytes + size > MOST_BYTES:
            self._on_lost(item, "the queue is full")
            return False
        self._items.append((item, size))
        self._bytes += size
        self._idle.clear()
        self._came.set()
        return True

    def start(self) -> None:
        """Begin to write. Starting twice is fine."""
        if self._task is None:
            self._task = self._connection.own(self._run(), name=self._name)

    async def stop(self) -> None:
        """Write what waits, for at most 5 s; what is left then, or was never begun, is lost and told."""
        task, self._task = self._task, None
        if task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SECS):
                    await self._idle.wait()
            task.cancel()
            await asyncio.wait({task})
        while self._items:
            self._on_lost(self._take(), "storage did not answer before the stop")

    async def _run(self) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            while self._items:
                batch = [self._items[index][0] for index in range(min(MAX_BATCH, len(self._items)))]
                async for attempt in AsyncRetrying(
                    retry=retry_if_exception_type(StorageUnavailable),
                    wait=wait_exponential(min=RETRY_MIN_SECS, max=RETRY_MAX_SECS),
                    before_sleep=self._say,
                ):
                    with attempt:
                        report = await self._write(batch)
                for _ in batch:
                    self._take()
                for refused in report.refused:
                    if self._brake.lets_through():
                        log.error(
                            "storage cannot hold it",
                            queue=self._name,
                            reason=refused.reason,
                            lines_held_back=self._brake.take_held_back(),
                        )
                    self._on_lost(batch[refused.index], refused.reason)
            self._idle.set()

    def _take(self) -> T:
        item, size = self._items.popleft()
        self._bytes -= size
        return item

    def _say(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        log.warning("storage is down; writes wait", queue=self._name, waiting=len(self._items), error=str(error))
