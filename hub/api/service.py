"""The API of a process: storage that is opened however long it takes, the ingress sender and the server, as one."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from hub.api.ingress import IngressSender
from hub.api.metrics import ApiMetrics
from hub.api.operation import Context, Facts, WaveControl
from hub.api.pages import Room
from hub.api.server import ApiServer
from hub.delivery.connection import Connection
from hub.storage import Storage, StorageUnavailable

log = structlog.get_logger(__name__)

RETRY_MIN_SECS: Final = 0.5
RETRY_MAX_SECS: Final = 10.0


def _now() -> datetime:
    return datetime.now(UTC)


class ApiService:
    """The query API of one process. It answers from its start; what needs storage, once that is open.

    Args:
        connection: the hub's.
        ingress: the ingress stream's name; None in core mode.
        storage: where history is kept; None keeps none. It may be shared with other parts of the process.
        facts: what `ping` says.
        admins: identities that may do everything.
        metrics: where it counts.
        waves: what runs waves in this process, if anything does.
        clock: the time now, aware.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        ingress: str | None,
        storage: Storage | None,
        facts: Facts,
        admins: frozenset[str],
        metrics: ApiMetrics,
        waves: WaveControl | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._connection = connection
        self._ingress = IngressSender(connection, ingress)
        self._storage = storage
        self._facts = facts
        self._waves = waves
        self._clock = clock
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False
        self._server = ApiServer(connection, self._context, admins=admins, on_outcome=metrics.take)
        metrics.watch(lambda: self._server.under_way)

    @property
    def is_open(self) -> bool:
        """Does it have its storage?"""
        return self._is_open

    async def start(self) -> None:
        """Answer; what needs storage follows when that answers. Starting twice is fine."""
        await self._ingress.start()
        if self._storage is not None and self._opening is None:
            self._opening = self._connection.own(self._open(self._storage), name="api-storage")
        await self._server.start()

    async def stop(self) -> None:
        """Take no more, let end what came. Stopping twice is fine; the storage is its owner's to close."""
        await self._server.stop()
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait({self._opening})
        await self._ingress.stop()

    def describe(self) -> Mapping[str, Any]:
        """Its numbers, for `$SRV.STATS`."""
        return {**self._server.describe(), "storage_open": self._is_open}

    def _context(self) -> Context:
        return Context(
            facts=self._facts,
            clock=self._clock,
            room=Room.of(self._connection.usable_size),
            ingress=self._ingress,
            waves=self._waves,
            recorded=self._storage if self._is_open else None,
            has_storage=self._storage is not None,
        )

    async def _open(self, storage: Storage) -> None:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(StorageUnavailable),
            wait=wait_exponential(min=RETRY_MIN_SECS, max=RETRY_MAX_SECS),
            before_sleep=_say_storage_down,
        ):
            with attempt:
                await storage.open()
        self._is_open = True
        log.info("the api has its storage", storage=storage.url, storage_id=storage.storage_id)


def _say_storage_down(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.error("storage does not answer; the api answers `unavailable`", error=str(error))
