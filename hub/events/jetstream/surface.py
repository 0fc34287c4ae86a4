"""The narrow surface: the few things that the adapter asks of a stream, so that a fake can inject faults."""

from dataclasses import dataclass
from typing import Any, Protocol

import msgspec


class StoredMessage(msgspec.Struct, frozen=True):
    """A message of the stream.

    Attributes:
        place: its sequence in the stream.
        subject: what it was stored under.
        data: its payload.
        pending: how many messages on the subject that was asked for stand behind it.
        reply: where it is acknowledged, when a durable reader delivered it.
    """

    place: int
    subject: str
    data: bytes
    pending: int = 0
    reply: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages in order, and how many more of the subject stand behind them, by the server's word."""

    messages: list[StoredMessage]
    pending: int


@dataclass(frozen=True, slots=True)
class PublishAck:
    """Where a message is stored; `duplicate`: it was stored before, there."""

    place: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class ReaderState:
    """How much a durable reader has before it: not delivered yet, and delivered but not acknowledged."""

    pending: int
    unacked: int


class StaleExpectationError(Exception):
    """The subject's last message is another one than expected: somebody was faster. Never leaves the adapter."""


class MessageFeed(Protocol):
    """Messages of one subject as they come, bounded by what was asked for."""

    async def take(self, timeout_secs: float) -> list[StoredMessage]:
        """What came, at least one message unless the time is over.

        Raises:
            BackendUnavailableError: the feed is lost; make a new one behind the last message.
        """

    async def ack(self, message: StoredMessage) -> None:
        """A durable reader's message is settled."""

    async def nak(self, message: StoredMessage) -> None:
        """A durable reader gives a message back."""

    async def close(self) -> None:
        """Stop, and leave no consumer behind but a durable one."""


class StreamSurface(Protocol):
    """One stream. All calls raise `BackendUnavailableError` where it does not answer."""

    stream: str

    @property
    def max_payload(self) -> int:
        """Most bytes that the server takes in one message, headers included."""

    async def info(self) -> dict[str, Any] | None:
        """The stream as the server describes it; None: there is none."""

    async def create(self, config: dict[str, Any]) -> None: ...

    async def publish(self, subject: str, payload: bytes, *, msg_id: str, expected_last: int) -> PublishAck:
        """Store a message if the subject's last message stands at `expected_last` (0: none does).

        Raises:
            StaleExpectationError: it does not.
            EventOverflowError: the stream is full and refuses.
        """

    async def get(self, place: int) -> StoredMessage | None: ...

    async def last(self, subject: str) -> StoredMessage | None: ...

    async def batch(self, subject: str, start: int, limit: int) -> Batch:
        """Messages on a subject (or wildcard) from a place on; may be fewer than asked for with more pending."""

    async def delete(self, place: int) -> bool:
        """Delete a message; False: it is gone already."""

    async def feed(self, subject: str, start: int, *, window: int, heartbeat_secs: float) -> MessageFeed: ...

    async def durable(
        self, name: str, subject: str, start: int, *, ack_wait_secs: float, heartbeat_secs: float
    ) -> tuple[MessageFeed, ReaderState]:
        """Attach to a durable reader, made at `start` where there is none; one message in flight, so in order."""

    async def forget(self, name: str) -> None: ...

    async def close(self) -> None:
        """Release what this surface made; the connection stays."""
