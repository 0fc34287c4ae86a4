"""The dead letters of a router: what can never be delivered is counted, logged and kept (contract §3.3)."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import structlog

from hub.delivery.connection import Connection
from hub.router.metrics import RouterMetrics
from hub.router.rules import Drop
from hub.router.write_behind import WriteBehind
from hub.service.flood import FloodBrake
from hub.storage import Storage
from hub.storage.records import DEAD_DATA_BYTES, NewDeadLetter

log = structlog.get_logger(__name__)

MOST_WAITING: Final = 1024  # routing must not grow without bound while storage is down
MOST_HEADER_TEXT: Final = 65_536  # characters of names and values, as many as bytes of the body are kept


class DeadLetters:
    """Takes dropped messages. Without storage, or when the queue is full, they are logged with a hash of their bytes.

    Args:
        connection: owns the writing task.
        storage: where they are kept; None keeps none.
        metrics: counts those that were lost.
    """

    def __init__(self, connection: Connection, storage: Storage | None, metrics: RouterMetrics) -> None:
        self._metrics = metrics
        self._brake = FloodBrake()
        self._queue: WriteBehind[NewDeadLetter] | None = None
        if storage is not None:
            self._queue = WriteBehind(
                connection,
                name="dead-letters",
                write=storage.dead_letters.insert,
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

    def put(
        self, subject: str, headers: Sequence[tuple[str, str]], body: bytes, drop: Drop, *, dead_id: str | None = None
    ) -> None:
        """Log and keep a dropped message; returns at once.

        Args:
            subject, headers, body: the message as it came.
            drop: why it goes nowhere.
            dead_id: names the message, so that the same one again is kept once; None: there is no second time.
        """
        if self._brake.lets_through():
            log.warning(
                "dropped",
                reason=drop.reason.value,
                detail=drop.detail,
                subject=subject[:200],
                sender=drop.sender,
                id=drop.envelope_id,
                size=len(body),
                lines_held_back=self._brake.take_held_back(),
            )
        letter = NewDeadLetter(
            reason=drop.reason.value,
            detail=drop.detail,
            subject=subject,
            sender=drop.sender,
            envelope_id=drop.envelope_id,
            headers=_kept(headers),
            data=body[:DEAD_DATA_BYTES],
            size=len(body),
            received_at=datetime.now(UTC),
            dead_id=dead_id,
        )
        if self._queue is None:
            self._lost(letter, "there is no storage")
        else:
            self._queue.offer(letter, len(letter.data) + sum(len(name) + len(value) for name, value in letter.headers))

    def _lost(self, letter: NewDeadLetter, why: str) -> None:
        self._metrics.dead_letters_lost += 1
        if self._brake.lets_through():
            digest = hashlib.sha256(letter.data).hexdigest()
            log.warning("dead letter not kept", why=why, reason=letter.reason, size=letter.size, sha256=digest)


def _kept(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers, the first ones as far as there is room."""
    kept: list[tuple[str, str]] = []
    room = MOST_HEADER_TEXT
    for name, value in headers:
        kept.append((name[:room], value[: max(0, room - len(name))]))
        room -= len(name) + len(value)
        if room <= 0:
            break
    return kept
