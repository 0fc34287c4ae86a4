"""The best-effort mirror: what no stream keeps (broadcasts, everything in core mode) into history (contract §3.2)."""

from datetime import UTC, datetime
from typing import Final

from hub.delivery.connection import Connection
from hub.protocol import Envelope
from hub.router.metrics import RouterMetrics
from hub.router.write_behind import WriteBehind
from hub.storage import Storage
from hub.storage.records import NewEnvelope

MOST_WAITING: Final = 4096  # contract §3.2


class LiveMirror:
    """Takes routed envelopes and never holds anyone up; drops are counted, a stop flushes.

    Args:
        connection: owns the writing task.
        storage: where history is kept; None keeps none.
        metrics: counts the drops.
    """

    def __init__(self, connection: Connection, storage: Storage | None, metrics: RouterMetrics) -> None:
        self._metrics = metrics
        self._queue: WriteBehind[NewEnvelope] | None = None
        if storage is not None:
            self._queue = WriteBehind(
                connection,
                name="live-mirror",
                write=storage.envelopes.insert_mirrored,
                most=MOST_WAITING,
                on_lost=self._lost,
            )

    def start(self) -> None:
        """Begin to write."""
        if self._queue is not None:
            self._queue.start()

    async def stop(self) -> None:
        """Write what waits."""
        if self._queue is not None:
            await self._queue.stop()

    def offer(self, envelope: Envelope, destination: str) -> None:
        """Mirror an envelope that went to `destination`."""
        if self._queue is not None:
            self._queue.offer(NewEnvelope.of(envelope, destination, datetime.now(UTC)), len(envelope.body))

    def _lost(self, _row: NewEnvelope, _why: str) -> None:
        self._metrics.mirror_dropped += 1
