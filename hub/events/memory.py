"""The event source in memory: for tests, and for a single process that needs no durability."""

import secrets
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hub.events.appending import judge_append, known_record
from hub.events.base import CleanupReport
from hub.events.cursor import CursorSecret, Position, event_digest
from hub.events.limits import Limits
from hub.events.log import Feed, Item, PollFeed, Slice, Tail, Wakes
from hub.events.records import AgentEventRecord, Draft, Ownership, RunKey, decode, with_sequence
from hub.events.source import LogEventSource, split_limits


@dataclass(slots=True)
class StoredRecord:
    """A record as a store keeps it: encoded, so that nobody's later change reaches it."""

    sequence: int
    place: int
    id: str
    timestamp: str
    terminal: bool
    data: bytes


@dataclass(slots=True)
class StoredRun:
    """A run's records."""

    records: list[StoredRecord] = field(default_factory=list)  # ascending by sequence
    by_id: dict[str, StoredRecord] = field(default_factory=dict)

    def add(self, entry: StoredRecord) -> None:
        self.records.append(entry)
        self.by_id[entry.id] = entry


class MemoryEventStore:
    """What several memory sources share, as several replicas share a stream."""

    def __init__(self) -> None:
        self.runs: dict[RunKey, StoredRun] = {}
        self.wakes = Wakes()
        self.readers: dict[tuple[RunKey, str], Position] = {}
        self.places = 0

    def run(self, key: RunKey) -> StoredRun:
        """The run, made where it is not there."""
        return self.runs.setdefault(key, StoredRun())

    def next_place(self) -> int:
        self.places += 1
        return self.places


class MemoryRunLog:
    """The run log over a `MemoryEventStore`. Nothing in it waits, so nothing can come in between."""

    adapter = "memory"
    stream = "memory"

    def __init__(self, store: MemoryEventStore, limits: Limits) -> None:
        self._store = store
        self._limits = limits

    async def ready(self) -> None:
        """Memory is always ready."""

    async def verify(self) -> None:
        """Memory fits by construction."""

    async def append(self, draft: Draft) -> AgentEventRecord:
        run = self._store.runs.get(draft.run) or StoredRun()
        known = run.by_id.get(draft.record.id)
        if known is not None:
            return known_record(draft, decode(known.data))
        last = run.records[-1] if run.records else None
        sequence = (last.sequence if last else 0) + 1
        stored = judge_append(
            draft,
            sequence=sequence,
            closed=last is not None and last.terminal,
            retained=len(run.records),
            most=self._limits.max_run_events,
        )
        data = with_sequence(draft.body, sequence)
        record = draft.record
        entry = StoredRecord(sequence, self._store.next_place(), record.id, record.timestamp, record.terminal, data)
        self._store.run(draft.run).add(entry)
        self._store.wakes.wake(draft.run)
        return stored

    async def read(self, run: RunKey, position: Position, limit: int, *, want_first: bool) -> Slice:
        records = self._store.runs[run].records if run in self._store.runs else []
        start = bisect_right(records, position.sequence, key=_sequence)
        chosen = records[start : start + limit]
        anchor = records[start - 1] if start and records[start - 1].sequence == position.sequence else None
        return Slice(
            items=[Item(entry.sequence, entry.place, self._decode(entry)) for entry in chosen],
            more=start + limit < len(records),
            anchor=None if anchor is None else event_digest(anchor.id),
            tail=Tail(records[-1].sequence, records[-1].terminal) if records else None,
            first=records[0].sequence if records and want_first else None,
        )

    async def feed(self, run: RunKey, durable: str | None) -> tuple[Feed, Position | None]:
        settle = partial(self._settle, run, durable) if durable is not None else None
        feed = PollFeed(
            self,
            run,
            wakes=self._store.wakes,
            key=run,
            batch=self._limits.max_page_size,
            poll_secs=self._limits.poll_secs,
            settle=settle,
        )
        return feed, None if durable is None else self._store.readers.get((run, durable))

    async def _settle(self, run: RunKey, durable: str, position: Position) -> None:
        self._store.readers[run, durable] = position

    async def forget(self, run: RunKey, durable: str) -> None:
        self._store.readers.pop((run, durable), None)

    async def cleanup(self, owner: Ownership, before: str, limit: int, *, keep_open: bool) -> CleanupReport:
        scanned = 0
        old: list[tuple[StoredRecord, StoredRun]] = []
        for key, run in self._store.runs.items():
            if key.ownership != owner:
                continue
            scanned += len(run.records)
            if keep_open and not run.records[-1].terminal:
                continue
            old.extend((entry, run) for entry in run.records[:-1] if entry.timestamp < before)
        old.sort(key=lambda pair: pair[0].place)
        for entry, run in old[:limit]:
            run.records.remove(entry)
            del run.by_id[entry.id]
        return CleanupReport(deleted=min(limit, len(old)), scanned=scanned, done=len(old) <= limit)

    async def close(self) -> None:
        """The store belongs to whoever made it."""

    @staticmethod
    def _decode(entry: StoredRecord) -> AgentEventRecord | None:
        record = decode(entry.data)
        return record if record is not None and record.sequence == entry.sequence else None


def _sequence(entry: StoredRecord) -> int:
    return entry.sequence


class MemoryEventSource(LogEventSource):
    """An event source that keeps everything in this process.

    Args:
        store: shared with other sources, to test replicas; None: a store of its own.
        cursor_secret: as for every adapter; None: a random one, so cursors live as long as this source.
        options: see `Limits`.
    """

    def __init__(
        self,
        *,
        store: MemoryEventStore | None = None,
        cursor_secret: CursorSecret | None = None,
        **options: Any,
    ) -> None:
        limits = split_limits(options)
        log = MemoryRunLog(store or MemoryEventStore(), limits)
        super().__init__(
            log, cursor_secret=secrets.token_bytes(32) if cursor_secret is None else cursor_secret, limits=limits
        )
