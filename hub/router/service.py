"""The router of a process: router, mirrors, dead letters and the recorder of agents, started and stopped as one."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from hub.delivery import streams
from hub.delivery.config import DeliveryConfig
from hub.delivery.connection import Connection
from hub.delivery.errors import DeliveryError
from hub.delivery.jetstream import JetStreamApi
from hub.router import mirror_consumer
from hub.router.core import CoreRouter
from hub.router.dead_letters import DeadLetters
from hub.router.durable import DurableRouter
from hub.router.live_mirror import LiveMirror
from hub.router.metrics import RouterMetrics
from hub.router.mirror import StreamMirror
from hub.router.presence import PresenceRecorder
from hub.service.stopping import stop_at_once
from hub.storage import Storage
from hub.storage.errors import StorageUnavailable

log = structlog.get_logger(__name__)

REPAIR_MIN_SECS: Final = 0.5
REPAIR_MAX_SECS: Final = 10.0


class RouterService:
    """Everything that routes and records, for one process.

    Args:
        connection: the hub's connection.
        config: the delivery config; None routes in core mode and makes no JetStream request.
        storage: where history is kept; None keeps none. It need not answer: routing never waits for it.
        metrics: where it counts.
        on_step: see `DurableRouter`.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        config: DeliveryConfig | None,
        storage: Storage | None,
        metrics: RouterMetrics,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        self._connection = connection
        self._config = config
        self._storage = storage
        self._metrics = metrics
        self._dead_letters = DeadLetters(connection, storage, metrics)
        self._live_mirror = LiveMirror(connection, storage, metrics)
        self._presence = PresenceRecorder(connection, storage)
        self._router: CoreRouter | DurableRouter
        if config is None:
            self._router = CoreRouter(
                connection, metrics=metrics, dead_letters=self._dead_letters, live_mirror=self._live_mirror
            )
        else:
            self._router = DurableRouter(
                connection,
                config,
                metrics=metrics,
                dead_letters=self._dead_letters,
                live_mirror=self._live_mirror,
                on_gone=self._on_gone,
                on_step=on_step,
            )
        self._standing: streams.Standing | None = None
        self._mirrors: list[StreamMirror] = []
        self._recording: asyncio.Task[None] | None = None
        self._repair: asyncio.Task[None] | None = None
        self._remove_reconnect: Callable[[], None] | None = None
        self._were_mended = asyncio.Event()  # the streams, so that the mirrors must be made anew
        self._mending = asyncio.Lock()
        self.is_recording = False

    async def start(self) -> None:
        """Make the streams when durable, and begin to route; history follows when storage answers.

        Raises:
            DeliveryError: the streams are not what a hub can stand on; the error says what to do.
        """
        if self._config is not None:
            self._standing = await streams.ensure(JetStreamApi(self._connection), self._config)
            self._remove_reconnect = self._connection.on_reconnect(self._mend)
        await self._router.start()
        if self._storage is not None:
            self._recording = self._connection.own(self._record(self._storage), name="recording")

    async def stop(self) -> None:
        """Stop intake, finish what is in flight, write what waits. Stopping twice is fine."""
        if self._remove_reconnect is not None:
            self._remove_reconnect()
        for task in (self._recording, self._repair):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait({task})
        try:
            await self._router.stop()
        finally:
            mirrors = [mirror.stop for mirror in self._mirrors]
            await stop_at_once(*mirrors, self._presence.stop, self._live_mirror.stop, self._dead_letters.stop)

    def describe(self) -> dict[str, Any]:
        """Its numbers, for status."""
        return {
            "router": self._router.describe(),
            "mirrors": [mirror.describe() for mirror in self._mirrors],
            "recording": self.is_recording,
        }

    async def _record(self, storage: Storage) -> None:
        """Open storage, however long it takes, then begin to record."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(StorageUnavailable),
            wait=wait_exponential(min=REPAIR_MIN_SECS, max=REPAIR_MAX_SECS),
            before_sleep=_say_storage_down,
        ):
            with attempt:
                await storage.open()
        self._dead_letters.start()
        self._live_mirror.start()
        await self._presence.start()
        if self._config is not None:
            await self._start_mirrors(storage, self._config)
        self.is_recording = True
        log.info("recording", storage=storage.url, storage_id=storage.storage_id)
        while self._config is not None:
            await self._were_mended.wait()
            await self._start_mirrors(storage, self._config)

    async def _start_mirrors(self, storage: Storage, config: DeliveryConfig) -> None:
        """Make the mirrors, in place of those that there are; waits for storage, and nothing waits for this."""
        self._were_mended.clear()
        for mirror in self._mirrors:
            await mirror.stop()
        js = JetStreamApi(self._connection)
        mirrors = []
        for stream in (config.inbox.name, config.tasks.name):
            created = None
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type((StorageUnavailable, DeliveryError)),
                wait=wait_exponential(min=REPAIR_MIN_SECS, max=REPAIR_MAX_SECS),
                before_sleep=_say_not_mirrored,
            ):
                with attempt:
                    created = await mirror_consumer.ensure(
                        js,
                        config,
                        stream=stream,
                        storage_id=storage.storage_id,
                        read_position=storage.envelopes.mirror_position,
                    )
            assert created is not None
            mirrors.append(
                StreamMirror(
                    self._connection,
                    storage,
                    stream=stream,
                    consumer=mirror_consumer.consumer_name(storage.storage_id),
                    created=created,
                    metrics=self._metrics,
                    on_gone=self._on_gone,
                )
            )
        self._mirrors = mirrors
        for mirror in mirrors:
            await mirror.start()

    def _on_gone(self, reason: str) -> None:
        """A consumer is not there: make what is missing again, once for however many say so."""
        if self._repair is None or self._repair.done():
            log.error("a stream or consumer is gone; making it again", reason=reason)
            self._repair = self._connection.own(self._mend(), name="repair")

    async def _mend(self) -> None:
        """After a reconnect, or when something is missing: the streams and consumers as they must be."""
        if self._config is None:
            return
        async with self._mending:
            await self._mend_once(self._config)

    async def _mend_once(self, config: DeliveryConfig) -> None:
        js = JetStreamApi(self._connection)
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(DeliveryError),
            wait=wait_exponential(min=REPAIR_MIN_SECS, max=REPAIR_MAX_SECS),
            before_sleep=_say_not_mended,
        ):
            with attempt:
                if self._standing is None:
                    self._standing = await streams.ensure(js, config)
                else:
                    self._standing = await streams.keep(js, config, self._standing)
        self._metrics.streams_made_again += len(self._standing.lost) if self._standing else 0
        self._were_mended.set()


def _say_storage_down(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.error("storage does not answer; routing goes on, history waits", error=str(error))


def _say_not_mirrored(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.error("history cannot be mirrored yet", error=str(error))


def _say_not_mended(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.error("the streams are not as they must be; routing waits", error=str(error))
