"""Harness of the conformance suite: one database, a clock that the cases set, and rows to fill it with."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from hub.storage.base import Storage
from hub.storage.errors import StorageError
from hub.storage.records import EnvelopeRecord, NewEnvelope, Page, Wave, WaveTask

START: Final = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

E = TypeVar("E", bound=StorageError)
T = TypeVar("T")


class Clock:
    """The time that storage takes for now; it stands until a case moves it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, secs: float) -> datetime:
        """Move on; the time then."""
        self.now += timedelta(seconds=secs)
        return self.now


class Harness:
    """What a case works with.

    Attributes:
        storage: open, and empty.
        another: open, a second one on the same database, as another process has it.
        clock: the time of both.
    """

    def __init__(self, storage: Storage, another: Storage, clock: Clock) -> None:
        self.storage = storage
        self.another = another
        self.clock = clock

    async def store(self, *rows: NewEnvelope) -> None:
        """Store rows, all of which must be new."""
        for start in range(0, len(rows), 256):
            part = rows[start : start + 256]
            report = await self.storage.envelopes.insert_mirrored(part)
            assert report.stored == len(part), report


Case = Callable[[Harness], Awaitable[None]]


def envelope(envelope_id: str, *, after_secs: float = 0.0, **members: Any) -> NewEnvelope:
    """A message from alice to bob, stored `after_secs` after the start; `to=None` makes it a broadcast."""
    stored_at = START + timedelta(seconds=after_secs)
    to = members.get("to", "bob")
    usual: dict[str, Any] = {
        "sender": "alice",
        "channel": "general",
        "to": to,
        "destination": "channel.general" if to is None else f"channel.inbox.{to}",
        "timestamp": stored_at,
        "kind": "message",
        "reply_to": None,
        "payload": b'{"text":"hello"}',
        "stored_at": stored_at,
    }
    return NewEnvelope(id=envelope_id, **{**usual, **members})


def wave(wave_id: str = "w1", **members: Any) -> Wave:
    """A wave of the orchestrator olga."""
    return Wave(**{"wave_id": wave_id, "goal": "all of it", "orchestrator": "olga", "created_at": START, **members})


def task(task_id: str, wave_id: str = "w1", **members: Any) -> WaveTask:
    """A task of the worker wanda."""
    usual = {"wave_id": wave_id, "task_id": task_id, "worker": "wanda", "goal": "a part", "created_at": START}
    return WaveTask(**{**usual, **members})


def ids(found: Page[EnvelopeRecord] | list[EnvelopeRecord]) -> list[str]:
    """The ids, in order."""
    return [item.id for item in (found.items if isinstance(found, Page) else found)]


async def every(read: Callable[[str | None], Awaitable[Page[T]]]) -> list[T]:
    """All records of a list, page by page."""
    items: list[T] = []
    cursor: str | None = None
    for _ in range(1000):
        page = await read(cursor)
        items += page.items
        cursor = page.next_cursor
        if cursor is None:
            return items
    raise AssertionError("a list without an end")


async def refusal(expected: type[E], call: Awaitable[object]) -> E:
    """The error of that kind that the call must end with."""
    try:
        outcome = await call
    except expected as error:
        return error
    raise AssertionError(f"expected {expected.__name__}, got {outcome!r}")
