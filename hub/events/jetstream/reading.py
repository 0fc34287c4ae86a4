"""Reading a run from its stream: pages without a consumer, decided by what the server says is pending."""

import asyncio
from collections.abc import AsyncIterator

from hub.events.cursor import Position, event_digest
from hub.events.jetstream.subjects import Subjects
from hub.events.jetstream.surface import StoredMessage, StreamSurface
from hub.events.log import Item, Slice, Tail
from hub.events.records import AgentEventRecord, RunKey, decode

SCAN_BATCH = 500


def run_record(run: RunKey, message: StoredMessage) -> AgentEventRecord | None:
    """The record in a message; None where it is none, or another run's (somebody else may publish on the subject)."""
    record = decode(message.data)
    if record is None or record.run_id != run.run_id or record.session_id != run.session_id:
        return None
    owner = run.ownership  # compared member by member: building an Ownership for each event of a replay would show
    if record.tenant_id != owner.tenant_id or record.account_id != owner.account_id or record.user_id != owner.user_id:
        return None
    return record


async def scan(surface: StreamSurface, subject: str, start: int = 1) -> AsyncIterator[StoredMessage]:
    """Every message on a subject (or wildcard) from a place on."""
    while True:
        batch = await surface.batch(subject, start, SCAN_BATCH)
        for message in batch.messages:
            yield message
        if not batch.messages or not batch.pending:
            return
        start = batch.messages[-1].place + 1


class RunReader:
    """Reads runs."""

    def __init__(self, surface: StreamSurface, subjects: Subjects) -> None:
        self._surface = surface
        self._subjects = subjects

    async def read(self, run: RunKey, position: Position, limit: int, *, want_first: bool) -> Slice:
        """See `RunLog.read`."""
        subject = self._subjects.run(run)
        if not want_first or position.sequence == 0:
            found = await self._behind(run, subject, position, limit)
            first = found.items[0].sequence if found.items else None
        else:
            found, first = await asyncio.gather(self._behind(run, subject, position, limit), self._first(run, subject))
        return Slice(
            items=found.items,
            more=found.more,
            skipped=found.skipped,
            anchor=found.anchor,
            tail=found.tail,
            first=first if want_first else None,
            end=found.end,
        )

    async def _first(self, run: RunKey, subject: str) -> int | None:
        async for message in scan_gently(self._surface, subject):
            record = run_record(run, message)
            if record is not None:
                return record.sequence
        return None

    async def _behind(self, run: RunKey, subject: str, position: Position, limit: int) -> Slice:
        found = await self._collect(run, subject, position, limit, max(1, position.place))
        follows = bool(found.items) and found.items[0].sequence == position.sequence + 1
        if position.sequence == 0 or found.anchor is not None or follows:
            return found
        # Nothing proves that the reader stands here: events are gone, or the place in the cursor is another stream's
        # (one that was restored or copied), or a replica answered that is behind its leader.
        tail = await self.tail(run)
        if position.place > 1 and (tail is None or found.items or tail.sequence != position.sequence):
            found = await self._collect(run, subject, position, limit, 1)
        if found.items or found.more:
            return found
        if tail is not None and tail.sequence > position.sequence:
            return Slice(items=[], more=True, skipped=found.skipped, end=position)  # the replica will come to it
        return Slice(items=[], more=False, skipped=found.skipped, end=found.end, tail=tail)

    async def _collect(self, run: RunKey, subject: str, position: Position, limit: int, start: int) -> Slice:
        items: list[Item] = []
        skipped = 0
        anchor: bytes | None = None
        tail: Tail | None = None
        place = position.place
        more = True
        while more and len(items) < limit:
            # One more than the limit: the event at the position comes along, as proof that this is still its log.
            batch = await self._surface.batch(subject, start, limit - len(items) + (1 if anchor is None else 0))
            taken = 0
            for message in batch.messages:
                record = run_record(run, message)
                if record is not None and len(items) == limit:
                    break
                taken += 1
                place = message.place
                if record is None or record.sequence is None:
                    skipped += message.place > position.place
                    continue
                tail = Tail(record.sequence, record.terminal)
                if record.sequence == position.sequence:
                    anchor = event_digest(record.id)
                elif record.sequence > position.sequence:
                    items.append(Item(record.sequence, message.place, record))
            more = batch.pending > 0 or taken < len(batch.messages)
            start = place + 1
            if not batch.messages:
                break
        end = items[-1].position if items else Position(position.sequence, place, position.event)
        return Slice(items=items, more=more, skipped=skipped, anchor=anchor, tail=tail, end=end)

    async def tail(self, run: RunKey) -> Tail | None:
        """The run's end by the stream's leader; None: no record of it is stored."""
        message = await self.last(run)
        record = None if message is None else run_record(run, message)
        return None if record is None or record.sequence is None else Tail(record.sequence, record.terminal)

    async def last(self, run: RunKey) -> StoredMessage | None:
        """The run's last record that can be read."""
        subject = self._subjects.run(run)
        message = await self._surface.last(subject)
        if message is None or run_record(run, message) is not None:
            return message
        readable = None
        async for candidate in scan(self._surface, subject):
            if run_record(run, candidate) is not None:
                readable = candidate
        return readable


async def scan_gently(surface: StreamSurface, subject: str) -> AsyncIterator[StoredMessage]:
    """As `scan`, for those who expect to stop at once: one message first."""
    batch = await surface.batch(subject, 1, 1)
    for message in batch.messages:
        yield message
    if batch.messages and batch.pending:
        async for message in scan(surface, subject, batch.messages[-1].place + 1):
            yield message
