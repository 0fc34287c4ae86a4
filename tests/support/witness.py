"""A witness of what workers say: every result and progress on task, session and wave channels, and in one inbox."""

from collections import Counter
from typing import Any

from hub.delivery.connection import Connection
from hub.delivery.nats_client import Incoming
from hub.protocol import Envelope, parse
from tests.support.waiting import eventually

SUBJECTS = ("channel.task.>", "channel.session.>", "channel.wave.>")


class Witness:
    """Hears live; its server must not be restarted while it counts.

    Args:
        connection: its connection.
        inbox: also the direct messages of this identity.
    """

    def __init__(self, connection: Connection, inbox: str | None = None) -> None:
        self.heard: list[tuple[Envelope, Any]] = []
        self._connection = connection
        self._subjects = (*SUBJECTS, *([f"channel.inbox.{inbox}"] if inbox else []))

    async def start(self) -> "Witness":
        for subject in self._subjects:
            await self._connection.client.subscribe_direct(subject, self._take)
        await self._connection.flush()
        return self

    def _take(self, message: Incoming) -> None:
        envelope = parse(message.data)
        self.heard.append((envelope, envelope.payload))

    def results(self, envelope_id: str | None = None) -> list[dict[str, Any]]:
        """The terminal messages, of one envelope or of all; repeats of one `meta.id` count once."""
        found: dict[str, dict[str, Any]] = {}
        for envelope, payload in self.heard:
            is_result = envelope.meta.kind == "message" and isinstance(payload, dict) and "status" in payload
            if is_result and envelope_id in {None, envelope.meta.reply_to}:
                found[envelope.meta.id] = payload
        return list(found.values())

    def counts(self) -> Counter[str]:
        """Terminal messages by envelope id."""
        return Counter(payload["task_id"] for payload in self.results())

    def progress(self, envelope_id: str) -> list[tuple[str, Any]]:
        """What was said before its end: status words, and events with their data."""
        said: list[tuple[str, Any]] = []
        for envelope, payload in self.heard:
            if envelope.meta.reply_to != envelope_id or envelope.meta.kind == "message":
                continue
            is_status = envelope.meta.kind == "status"
            said.append(("status", payload["status"]) if is_status else (payload["event_type"], payload["data"]))
        return said

    async def result(self, envelope_id: str, within: float = 20.0) -> dict[str, Any]:
        """Wait for an envelope's one result."""
        await eventually(lambda: self.results(envelope_id), within=within, what=f"a result for {envelope_id}")
        return self.results(envelope_id)[0]

    async def said(self, envelope_id: str, word: str, within: float = 20.0) -> None:
        """Wait for a status or an event."""
        await eventually(
            lambda: any(
                word in {kind, what if isinstance(what, str) else None} for kind, what in self.progress(envelope_id)
            ),
            within=within,
            what=f"{word} of {envelope_id}; heard {self.progress(envelope_id)}",
        )
