"""The run log: the few operations that an adapter must provide; everything else is the engine's, once for all."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

import msgspec

from hub.events.base import CleanupReport
from hub.events.cursor import Position, event_digest
from hub.events.records import AgentEventRecord, Draft, Ownership, RunKey


class Item(msgspec.Struct, frozen=True):
    """A stored event, or the place of a broken one (`record` is None)."""

    sequence: int
    place: int
    record: AgentEventRecord | None

    @property
    def position(self) -> Position:
        event = b"" if self.record is None else event_digest(self.record.id)
        return Position(self.sequence, self.place, event)


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a run: its last sequence and whether it is closed."""

    sequence: int
    closed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What a log holds behind a position.

    Attributes:
        items: ascending, behind the position, without repeats.
        more: the log holds more behind the last item, by its own word.
        skipped: broken records passed that carry no sequence.
        anchor: digest of the id of the event at the position, where that is still stored.
        tail: the run's end; needed only where `items` is empty and `more` is False. None: nothing is stored.
        first: the oldest retained sequence, where it was asked for.
        end: where to read on when no item says so (everything read was broken).
    """

    items: list[Item]
    more: bool
    skipped: int = 0
    anchor: bytes | None = None
    tail: Tail | None = None
    first: int | None = None
    end: Position | None = None


class Feed(Protocol):
    """A reader's connection to one run: interest first, then what is stored, then what comes."""

    async def look(self, position: Position) -> Slice:
        """What is stored behind the position now; called first, and again after every loss."""

    async def wait(self, position: Position) -> Slice | None:
        """What follows the last slice; None: nothing came within a while (a level-triggered wait: nothing is missed).

        Raises:
            BackendUnavailableError: look again, after a while where it is retriable.
        """

    async def ack(self, position: Position) -> None:
        """Everything up to the position is settled (durable feeds only)."""

    async def close(self) -> None:
        """Withdraw the interest; leaves nothing behind but a durable reader's position."""


class RunLog(Protocol):
    """An adapter's storage of runs. Raises `AgentEventSourceError`s only (besides cancellation)."""

    adapter: str
    stream: str

    async def ready(self) -> None:
        """Checked before the first use; cheap afterwards."""

    async def verify(self) -> None: ...

    async def append(self, draft: Draft) -> AgentEventRecord: ...

    async def read(self, run: RunKey, position: Position, limit: int, *, want_first: bool) -> Slice: ...

    async def feed(self, run: RunKey, durable: str | None) -> tuple[Feed, Position | None]:
        """Register interest in a run; with it, where a durable reader that is known stands."""

    async def forget(self, run: RunKey, durable: str) -> None: ...

    async def cleanup(self, owner: Ownership, before: str, limit: int, *, keep_open: bool) -> CleanupReport: ...

    async def close(self) -> None: ...


class Reader(Protocol):
    """Reads a run; what a `PollFeed` needs of its log."""

    async def read(self, run: RunKey, position: Position, limit: int, *, want_first: bool) -> Slice: ...


class Wakes:
    """Level-triggered wakes: whoever waits for a key hears of it, and a wake before the wait is not lost."""

    def __init__(self) -> None:
        self._waiting: dict[object, set[asyncio.Event]] = {}

    def register(self, key: object) -> asyncio.Event:
        event = asyncio.Event()
        self._waiting.setdefault(key, set()).add(event)
        return event

    def unregister(self, key: object, event: asyncio.Event) -> None:
        waiting = self._waiting.get(key, set())
        waiting.discard(event)
        if not waiting:
            self._waiting.pop(key, None)

    def wake(self, key: object) -> None:
        for event in self._waiting.get(key, ()):
            event.set()

    def wake_all(self) -> None:
        for waiting in self._waiting.values():
            for event in waiting:
                event.set()


class PollFeed:
    """A feed over a log that can be read and that wakes: reads when woken, and now and then without.

    Args:
        log: where to read.
        run: what to read.
        wakes: where the log's wakes arrive; interest is registered at once, before anything is read.
        key: the run's name there.
        batch: events a read.
        poll_secs: longest wait without a read, in seconds.
        settle: writes a durable reader's position.
    """

    def __init__(
        self,
        log: Reader,
        run: RunKey,
        *,
        wakes: Wakes,
        key: object,
        batch: int,
        poll_secs: float,
        settle: "Settle | None" = None,
    ) -> None:
        self._log, self._run, self._wakes, self._key = log, run, wakes, key
        self._batch, self._poll_secs, self._settle = batch, poll_secs, settle
        self._event = wakes.register(key)
        self._more = False

    async def look(self, position: Position) -> Slice:
        # Cleared before the read: a wake that comes while reading makes the next wait return at once.
        self._event.clear()
        found = await self._log.read(self._run, position, self._batch, want_first=False)
        self._more = found.more
        return found

    async def wait(self, position: Position) -> Slice | None:
        if not self._more:
            try:
                async with asyncio.timeout(self._poll_secs):
                    await self._event.wait()
            except TimeoutError:
                pass  # look anyway: wakes may be lost, stored events are not
        return await self.look(position)

    async def ack(self, position: Position) -> None:
        if self._settle is not None:
            await self._settle(position)

    async def close(self) -> None:
        self._wakes.unregister(self._key, self._event)


class Settle(Protocol):
    """Writes a durable reader's position."""

    async def __call__(self, position: Position) -> None: ...


__all__ = [
    "Feed",
    "Item",
    "PollFeed",
    "Reader",
    "RunLog",
    "Settle",
    "Slice",
    "Tail",
    "Wakes",
]
