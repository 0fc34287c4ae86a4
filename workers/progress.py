"""The reporter of progress: what people see of a turn while it runs (contract §7); best effort."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec

import structlog

from hub.delivery.connection import Connection
from hub.protocol import ProtocolError, make, subjects

log = structlog.get_logger(__name__)

P = ParamSpec("P")

EVERY_SECS: Final = 0.25  # at most 4 a second a turn; what comes faster is merged
LINES_MOST: Final = 200  # stdout lines in one message; a handler that prints 50 MB is not read line by line
LINE_MOST_CHARACTERS: Final = 4000  # and nobody reads longer ones
WAITING_MOST: Final = 64  # different events that wait; more milestones than this in a quarter of a second are left out


class Addressed:  # plain and slotted: the intake makes one for every message
    """One envelope that wants to hear of a turn.

    Attributes:
        sender: whose it is (`for`).
        envelope_id: its id (`reply_to`).
        channel: where it listens; None hears nothing.
    """

    __slots__ = ("channel", "envelope_id", "sender")

    def __init__(self, sender: str, envelope_id: str, channel: str | None) -> None:
        self.sender = sender
        self.envelope_id = envelope_id
        self.channel = channel


class Announcements:
    """Publishes progress of one identity.

    Args:
        connection: the worker's connection.
        identity: whose.
    """

    def __init__(self, connection: Connection, identity: str) -> None:
        self._connection = connection
        self._identity = identity

    def status(self, whom: Addressed, status: str) -> None:
        """Publish a status (`queued`, `ready`, `working`, `idle`, `closed`)."""
        self._publish(whom, "status", {"status": status, "for": whom.sender})

    def event(self, whom: Addressed, event_type: str, data: Mapping[str, Any]) -> None:
        """Publish an event."""
        self._publish(whom, "event", {"event_type": event_type, "data": dict(data), "for": whom.sender})

    def _publish(self, whom: Addressed, kind: Any, payload: dict[str, Any]) -> None:
        if whom.channel is None or not self._connection.is_connected:
            return
        try:
            envelope = make(
                sender=self._identity, channel=whom.channel, kind=kind, payload=payload, reply_to=whom.envelope_id
            )
            if len(envelope.body) > self._connection.usable_size:
                return
        except ProtocolError as error:
            log.info("progress not published", id=whom.envelope_id, error=str(error))
            return
        subject = subjects.publish(self._identity, whom.channel).encode()
        self._connection.client.send(b"PUB %b %d\r\n%b\r\n" % (subject, len(envelope.body), envelope.body))


def both(first: Callable[P, None], second: Callable[P, None]) -> Callable[P, None]:
    """One function that tells two."""

    def tell(*args: P.args, **kwargs: P.kwargs) -> None:
        first(*args, **kwargs)
        second(*args, **kwargs)

    return tell


class TurnReporter:
    """Progress of one running turn, coalesced to at most 4 messages a second.

    Args:
        announcements: publishes.
        whom: the turn's own envelope.
    """

    def __init__(self, announcements: Announcements, whom: Addressed) -> None:
        self._announcements = announcements
        self._whom = whom
        self._waiting: dict[str, dict[str, Any]] = {}  # event type → its newest data; the order of their first coming
        self._lines: list[str] = []
        self._dropped_lines = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def report(self, event_type: str, data: dict[str, Any]) -> None:
        """Report an event; of those that wait, the newest of its type is kept, but each milestone."""
        if self._is_closed or len(self._waiting) >= WAITING_MOST:
            return
        key = f"milestone {data.get('name')}" if event_type == "milestone" else event_type
        self._waiting[key] = {"event_type": event_type, "data": data}
        self._flush_soon()

    def line(self, text: str) -> None:
        """Report a line of output; lines that wait go out together."""
        if self._is_closed:
            return
        if len(self._lines) >= LINES_MOST:
            self._dropped_lines += 1
        else:
            self._lines.append(text[:LINE_MOST_CHARACTERS])
        self._flush_soon()

    def close(self) -> None:
        """Publish what waits, and nothing after it: a progress message never follows the terminal one."""
        if not self._is_closed:
            self._flush()
            self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush_soon(self) -> None:
        if self._timer is None:
            self._flush()
            self._timer = asyncio.get_running_loop().call_later(EVERY_SECS, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._waiting or self._lines:
            self._flush_soon()

    def _flush(self) -> None:
        for waiting in self._waiting.values():
            self._announcements.event(self._whom, waiting["event_type"], waiting["data"])
        self._waiting.clear()
        if self._lines:
            text = "\n".join(self._lines)
            if self._dropped_lines:
                text += f"\n… {self._dropped_lines} lines left out"
            self._announcements.event(self._whom, "stdout", {"line": text})
            self._lines.clear()
            self._dropped_lines = 0
