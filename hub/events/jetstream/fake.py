"""A fake of the narrow surface: a stream in memory that behaves like the server's and injects faults on demand.

stream = FakeStream("events")
source = JetStreamEventSource(stream, stream="events", cursor_secret=...)
stream.faults.lose_acks = 1            # the next publish is stored, its ack is lost
"""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hub.events.errors import BackendUnavailableError
from hub.events.jetstream.provisioning import covers
from hub.events.jetstream.surface import (
    Batch,
    MessageFeed,
    PublishAck,
    ReaderState,
    StaleExpectationError,
    StoredMessage,
)
from hub.events.log import Wakes

UNTIL_RESTORED = 10**9


@dataclass(slots=True)
class _Reader:
    """A durable reader: everything up to `settled` is acknowledged."""

    settled: int


@dataclass(slots=True)
class Faults:
    """What goes wrong next; each count goes down as it does.

    Attributes:
        lose_acks: publishes that are stored and not answered.
        lose_server: the next publish is stored, and from then on nothing is answered.
        down: operations that are not answered and do nothing.
        lose_feeds: takes that find their feed lost.
        short_reads: most messages a batch returns; 0: as many as asked for.
        before_publish: runs once before the next publish, e.g. to let somebody else be faster.
    """

    lose_acks: int = 0
    lose_server: bool = False
    down: int = 0
    lose_feeds: int = 0
    short_reads: int = 0
    before_publish: Callable[[], Awaitable[object]] | None = None


@dataclass(slots=True)
class FakeStream:
    """A stream in memory; several sources may share it, as several processes share a stream."""

    stream: str
    max_payload: int = 8 * 1024 * 1024
    faults: Faults = field(default_factory=Faults)
    config: dict[str, Any] | None = None
    _messages: list[StoredMessage] = field(default_factory=list)
    _last_place: int = 0
    _message_ids: dict[str, int] = field(default_factory=dict)
    _readers: dict[str, _Reader] = field(default_factory=dict)
    _wakes: Wakes = field(default_factory=Wakes)

    def forget_message_ids(self) -> None:
        """The duplicate window is over."""
        self._message_ids.clear()

    async def info(self) -> dict[str, Any] | None:
        self._answer()
        return None if self.config is None else {"config": self.config}

    async def create(self, config: dict[str, Any]) -> None:
        self._answer()
        self.config = config

    async def publish(self, subject: str, payload: bytes, *, msg_id: str, expected_last: int) -> PublishAck:
        self._answer()
        hook, self.faults.before_publish = self.faults.before_publish, None
        if hook is not None:
            await hook()
        last = self._last(subject)
        # As the server does: a stale expectation masks a duplicate.
        if (last.place if last else 0) != expected_last:
            raise StaleExpectationError
        if msg_id in self._message_ids:
            return PublishAck(self._message_ids[msg_id], duplicate=True)
        place = self.store(subject, payload)
        self._message_ids[msg_id] = place
        if self.faults.lose_server:
            self.faults.lose_server, self.faults.down = False, UNTIL_RESTORED
            raise BackendUnavailableError("appending: the server is gone")
        if self.faults.lose_acks:
            self.faults.lose_acks -= 1
            raise BackendUnavailableError("appending: the ack was lost")
        return PublishAck(place, duplicate=False)

    def store(self, subject: str, payload: bytes) -> int:
        """Store a message behind everybody's back."""
        self._last_place += 1
        self._messages.append(StoredMessage(self._last_place, subject, payload))
        self._wakes.wake_all()
        return self._last_place

    async def get(self, place: int) -> StoredMessage | None:
        self._answer()
        index = self._index(place)
        found = self._messages[index : index + 1]
        return found[0] if found and found[0].place == place else None

    async def last(self, subject: str) -> StoredMessage | None:
        self._answer()
        return self._last(subject)

    async def batch(self, subject: str, start: int, limit: int) -> Batch:
        self._answer()
        found = self._from(subject, start)
        limit = min(limit, self.faults.short_reads or limit)
        return Batch(found[:limit], max(0, len(found) - limit))

    async def delete(self, place: int) -> bool:
        self._answer()
        message = await self.get(place)
        if message is not None:
            self._messages.remove(message)
        return message is not None

    async def feed(self, subject: str, start: int, *, window: int, heartbeat_secs: float) -> MessageFeed:
        self._answer()
        return _Feed(self, subject, start, window)

    async def durable(
        self, name: str, subject: str, start: int, *, ack_wait_secs: float, heartbeat_secs: float
    ) -> tuple[MessageFeed, ReaderState]:
        self._answer()
        reader = self._readers.setdefault(name, _Reader(settled=start - 1))
        pending = len(self._from(subject, reader.settled + 1))
        return _DurableFeed(self, subject, reader), ReaderState(pending, 0)

    async def forget(self, name: str) -> None:
        self._readers.pop(name, None)

    async def close(self) -> None:
        """The stream is its maker's."""

    def _answer(self) -> None:
        if self.faults.down:
            self.faults.down -= 1
            raise BackendUnavailableError("the fake is down")

    def _index(self, place: int) -> int:
        return bisect_left(self._messages, place, key=lambda message: message.place)

    def _from(self, subject: str, start: int) -> list[StoredMessage]:
        found = [m for m in self._messages[self._index(start) :] if covers(subject, m.subject)]
        return [
            msgspec.structs.replace(message, pending=len(found) - number) for number, message in enumerate(found, 1)
        ]

    def _last(self, subject: str) -> StoredMessage | None:
        return next((m for m in reversed(self._messages) if m.subject == subject), None)

    async def _take(self, subject: str, start: int, most: int, timeout_secs: float) -> list[StoredMessage]:
        woken = self._wakes.register(subject)
        try:
            async with asyncio.timeout(timeout_secs):
                while not (found := self._from(subject, start)):
                    woken.clear()
                    await woken.wait()
        except TimeoutError:
            return []
        finally:
            self._wakes.unregister(subject, woken)
        if self.faults.lose_feeds:
            self.faults.lose_feeds -= 1
            raise BackendUnavailableError("the feed was lost")
        return found[:most]


class _Feed:
    def __init__(self, stream: FakeStream, subject: str, start: int, window: int) -> None:
        self._stream, self._subject, self._start, self._window = stream, subject, start, window

    async def take(self, timeout_secs: float) -> list[StoredMessage]:
        taken = await self._stream._take(self._subject, self._start, self._window, timeout_secs)  # noqa: SLF001
        if taken:
            self._start = taken[-1].place + 1
        return taken

    async def ack(self, message: StoredMessage) -> None:
        """Nothing to settle."""

    async def nak(self, message: StoredMessage) -> None:
        """Nothing to give back."""

    async def close(self) -> None:
        """Nothing to leave."""


class _DurableFeed:
    def __init__(self, stream: FakeStream, subject: str, reader: _Reader) -> None:
        self._stream, self._subject, self._reader = stream, subject, reader

    async def take(self, timeout_secs: float) -> list[StoredMessage]:
        return await self._stream._take(self._subject, self._reader.settled + 1, 1, timeout_secs)  # noqa: SLF001

    async def ack(self, message: StoredMessage) -> None:
        self._reader.settled = max(self._reader.settled, message.place)

    async def nak(self, message: StoredMessage) -> None:
        """It is redelivered at once: nothing else was recorded."""

    async def close(self) -> None:
        """The position stays."""


__all__ = ["FakeStream", "Faults"]
