"""The mirror of one stream: from a stored channel's stream into history, batch by batch (contract §3.2).

Take → commit → ack: a batch is acked after the transaction that stored it, so whatever is killed, history has no gap.
A commit takes what came while the last one ran, and of little traffic what comes within 20 ms: for one message it would
cost as much, in the very moment in which that one is delivered. Storage that is down is lag, within the stream's
retention; routing does not know.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from hub.delivery.connection import Connection
from hub.delivery.nats_client import Incoming
from hub.delivery.pull import ACK, ContinuousPull, answer, read_delivery
from hub.protocol import BadEnvelope, parse
from hub.router.metrics import RouterMetrics
from hub.storage import Storage
from hub.storage.errors import StorageUnavailable
from hub.storage.records import MAX_BATCH, NewEnvelope, Position

log = structlog.get_logger(__name__)

WINDOW: Final = 4 * MAX_BATCH  # one batch in the commit, one waiting, two on their way
GATHER_SECS: Final = 0.02  # nobody reads history that soon; delivery takes some 3 ms
RETRY_MIN_SECS: Final = 0.2
RETRY_MAX_SECS: Final = 5.0

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class StreamMirror:
    """Mirrors one stream through a durable consumer that all routers on the same storage share.

    Args:
        connection: the hub's connection.
        storage: where history is kept.
        stream: the stream's name.
        consumer: the consumer's name (`mirror_consumer.ensure` makes it).
        created: when the stream was made; with a sequence it is a position (contract §4).
        metrics: where the lag is told.
        on_gone: told when the consumer is not there.
    """

    def __init__(
        self,
        connection: Connection,
        storage: Storage,
        *,
        stream: str,
        consumer: str,
        created: datetime,
        metrics: RouterMetrics,
        on_gone: Callable[[str], None] | None = None,
    ) -> None:
        self._connection = connection
        self._storage = storage
        self._stream = stream
        self._created = created
        self._metrics = metrics
        self._waiting: deque[tuple[Incoming, int, NewEnvelope | None]] = deque()
        self._came = asyncio.Event()
        self._is_stopping = False
        self._writer: asyncio.Task[None] | None = None
        self._pull = ContinuousPull(
            connection, stream=stream, consumer=consumer, callback=self._on_message, window=WINDOW, on_gone=on_gone
        )

    async def start(self) -> None:
        """Begin to mirror. Starting twice is fine."""
        if self._writer is None:
            self._writer = self._connection.own(self._write(), name=f"mirror {self._stream}")
            await self._pull.start()

    async def stop(self) -> None:
        """Stop at once: what is not committed was not acked and comes again, to whoever mirrors then."""
        if self._writer is None:
            return
        await self._pull.stop()
        self._is_stopping = True
        self._came.set()
        writer, self._writer = self._writer, None
        # One commit under way may finish, so that its acks go out; storage that hangs is left.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY_MAX_SECS):
                await asyncio.wait({writer})
        if not writer.done():
            writer.cancel()
            await asyncio.wait({writer})

    def describe(self) -> dict[str, Any]:
        """Its numbers, for status."""
        return {"waiting": len(self._waiting), "lag": self._metrics.mirror_lag.get(self._stream, 0)}

    def _on_message(self, message: Incoming) -> None:
        delivery = read_delivery(message.raw_reply)
        if delivery is None:
            self._pull.done(message.size)
            return
        self._metrics.mirror_lag[self._stream] = delivery.pending + len(self._waiting) + 1
        row: NewEnvelope | None = None
        try:
            stored_at = _EPOCH + timedelta(microseconds=delivery.stored_ns // 1000)
            row = NewEnvelope.of(parse(message.data), message.subject, stored_at)
        except BadEnvelope as error:
            # No router stores such a message; on an unbound server anybody can. It is acked and left out.
            log.warning("not mirrored: no envelope", stream=self._stream, subject=message.subject, error=str(error))
        self._waiting.append((message, delivery.stream_sequence, row))
        self._came.set()

    async def _write(self) -> None:
        while not self._is_stopping:
            await self._came.wait()
            self._came.clear()
            while self._waiting and not self._is_stopping:
                if len(self._waiting) < MAX_BATCH:
                    await asyncio.sleep(GATHER_SECS)
                batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
                await self._commit(batch)
                for message, _, _ in batch:
                    answer(self._connection, message.raw_reply, ACK)
                self._pull.done(sum(message.size for message, _, _ in batch), len(batch))
                lag = self._metrics.mirror_lag.get(self._stream, 0)
                self._metrics.mirror_lag[self._stream] = max(0, lag - len(batch)) if self._waiting else 0

    async def _commit(self, batch: list[tuple[Incoming, int, NewEnvelope | None]]) -> None:
        rows = [row for _, _, row in batch if row is not None]
        reached = Position(
            stream=self._stream, created=self._created, sequence=max(sequence for _, sequence, _ in batch)
        )
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(StorageUnavailable),
            wait=wait_exponential(min=RETRY_MIN_SECS, max=RETRY_MAX_SECS),
            before_sleep=self._say,
        ):
            with attempt:
                report = await self._storage.envelopes.insert_mirrored(rows, [reached])
        for refused in report.refused:
            log.error(
                "not mirrored: storage cannot hold it",
                stream=self._stream,
                id=rows[refused.index].id,
                sender=rows[refused.index].sender,
                reason=refused.reason,
            )

    def _say(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        lag = self._metrics.mirror_lag.get(self._stream, 0)
        log.warning("storage is down; the history lags", stream=self._stream, lag=lag, error=str(error))
