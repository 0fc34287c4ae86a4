"""The recorder of agents: what they announce of themselves, into storage (contract §2)."""

import asyncio
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from hub.delivery.connection import Connection
from hub.delivery.nats_client import Incoming
from hub.delivery.replies import fits_request_info
from hub.protocol import BadEnvelope, names, parse, subjects
from hub.router.write_behind import WriteBehind
from hub.storage import Storage
from hub.storage.records import Sighting

log = structlog.get_logger(__name__)

MOST_WAITING: Final = 4096  # every agent announces itself every 30 s: what is lost here is said again soon
MOST_BYTES: Final = 131_072  # storage keeps 64 KiB of metadata; a larger one is a mistake and costs time to decode


class PresenceRecorder:
    """Hears registrations and presences in a queue group of all routers and stores them.

    Whoever announces is who the subject says; what the body says of the identity is ignored.

    Args:
        connection: the hub's connection.
        storage: where agents are kept; without one there is nothing to record and nothing is heard.
    """

    def __init__(self, connection: Connection, storage: Storage | None) -> None:
        self._connection = connection
        self._sids: list[int] = []
        self._queue: WriteBehind[Sighting] | None = None
        self.lost = 0
        if storage is not None:
            self._queue = WriteBehind(
                connection,
                name="presence",
                write=storage.agents.record,
                most=MOST_WAITING,
                on_lost=self._lost,
            )

    async def start(self) -> None:
        """Begin to listen. Starting twice is fine."""
        if self._queue is None or self._sids:
            return
        self._queue.start()
        client, queue = self._connection.client, subjects.QUEUE_PRESENCE
        self._sids = [
            await client.subscribe_direct(subjects.REGISTER_ALL, self._on_register, queue=queue),
            await client.subscribe_direct(subjects.PRESENCE_ALL, self._on_presence, queue=queue),
        ]

    async def stop(self) -> None:
        """Listen no more and write what waits."""
        sids, self._sids = self._sids, []
        await asyncio.gather(*map(self._connection.client.unsubscribe_direct, sids))
        if self._queue is not None:
            await self._queue.stop()

    def _on_register(self, message: Incoming) -> None:
        payload = self._read(message)
        if payload is None:
            return
        identity, announced = payload
        capabilities = announced.get("capabilities")
        metadata = announced.get("metadata")
        self._take(
            Sighting(
                identity=identity,
                seen_at=datetime.now(UTC),
                capabilities=[text for text in capabilities if isinstance(text, str)]
                if isinstance(capabilities, list)
                else [],
                metadata=metadata if isinstance(metadata, dict) else {},
            ),
            len(message.data),
        )

    def _on_presence(self, message: Incoming) -> None:
        payload = self._read(message)
        if payload is not None:
            self._take(Sighting(identity=payload[0], seen_at=datetime.now(UTC)), 0)

    def _take(self, sighting: Sighting, size: int) -> None:
        if self._queue is not None:
            self._queue.offer(sighting, size)

    def _read(self, message: Incoming) -> tuple[str, dict[str, Any]] | None:
        identity = message.subject.rpartition(".")[2]
        if not names.is_token(identity) or len(message.data) > MOST_BYTES:
            log.info("announcement not taken", subject=message.subject[:120], size=len(message.data))
            return None
        if not fits_request_info(message.headers(), identity):
            log.warning("announcement not taken: it came from another identity's account", identity=identity)
            return None
        try:
            payload = parse(message.data).payload
        except BadEnvelope as error:
            log.info("announcement not understood", identity=identity, error=str(error))
            return None
        return identity, payload if isinstance(payload, dict) else {}

    def _lost(self, _sighting: Sighting, _why: str) -> None:
        self.lost += 1
