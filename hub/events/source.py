"""The engine: what every event source does alike, over an adapter's run log."""

from datetime import datetime
from functools import partial
from typing import Any

from hub.events.base import (
    AgentEventSource,
    CleanupReport,
    EventEnvelope,
    EventPage,
    EventRead,
    EventSubscription,
)
from hub.events.continuity import Continuation, Gap, continue_from
from hub.events.cursor import START, CursorCodec, CursorSecret, Position
from hub.events.errors import InvalidInputError, RetentionExceededError, SourceClosedError
from hub.events.limits import CLEANUP_DEFAULT, CLEANUP_MOST, Limits, check_number
from hub.events.log import Item, RunLog, Slice
from hub.events.records import AgentEventRecord, Ownership, RunKey, check_id, check_ownership, draft, instant, run_key
from hub.events.subscription import LogSubscription, Subscribers


class LogEventSource(AgentEventSource):
    """An event source over a run log.

    Args:
        log: the adapter's storage.
        cursor_secret: see `CursorCodec`.
        limits: what is allowed.
    """

    def __init__(self, log: RunLog, *, cursor_secret: CursorSecret, limits: Limits) -> None:
        self._log = log
        self._limits = limits
        self._cursors = CursorCodec(
            cursor_secret, adapter=log.adapter, stream=log.stream, max_bytes=limits.max_cursor_bytes
        )
        self._subscribers = Subscribers(limits.max_subscribers)
        self._stored_broken = 0
        self._closed = False

    @property
    def stored_broken(self) -> int:
        return self._stored_broken

    async def append(self, record: AgentEventRecord) -> AgentEventRecord:
        checked = draft(record, max_event_bytes=self._limits.max_event_bytes)
        await self._ready()
        return await self._log.append(checked)

    async def page(self, read: EventRead) -> EventPage:
        run, position = self.aim(read)
        limit = self._limits.max_page_size if read.limit is None else read.limit
        check_number("limit", limit, 1, self._limits.max_page_size)
        await self._ready()
        found = await self._log.read(run, position, limit, want_first=True)
        taken = self.take(run, position, found, fresh=position.sequence == 0)
        items = taken.items
        more = found.more or taken.cut
        end = items[-1].position if items else found.end or position
        events = [
            EventEnvelope(item.record, partial(self.cursor, run, item)) for item in items if item.record is not None
        ]
        self.count_broken(len(items) - len(events))
        closed = not items and not more and found.tail is not None and found.tail.closed
        return EventPage(
            events=tuple(events),
            next_cursor=self._cursors.encode(run, end) if more else None,
            terminal=closed or any(envelope.record.terminal for envelope in events),
            first_sequence=found.first,
            truncated=taken.holes or (found.first or 1) > 1,
        )

    def subscribe(self, read: EventRead, *, durable: str | None = None) -> EventSubscription:
        if durable is not None:
            check_id("durable", durable)
        return LogSubscription(self, read, durable)

    async def forget(self, read: EventRead, durable: str) -> None:
        check_id("durable", durable)
        run = run_key(read.ownership, read.session_id, read.run_id)
        await self._ready()
        await self._log.forget(run, durable)

    async def cleanup(
        self,
        *,
        ownership: Ownership,
        before: str | datetime,
        limit: int = CLEANUP_DEFAULT,
        keep_open: bool = False,
    ) -> CleanupReport:
        check_ownership(ownership)
        check_number("limit", limit, 1, CLEANUP_MOST)
        earliest_kept = instant(before)
        await self._ready()
        return await self._log.cleanup(ownership, earliest_kept, limit, keep_open=keep_open)

    async def verify(self) -> None:
        self._check_open()
        await self._log.verify()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._subscribers.close()
        await self._log.close()

    # What a subscription uses of its source.

    @property
    def log(self) -> RunLog:
        return self._log

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def subscribers(self) -> Subscribers:
        return self._subscribers

    def count_broken(self, count: int) -> None:
        """Broken stored records were passed."""
        self._stored_broken += count

    def cursor(self, run: RunKey, item: Item) -> str:
        """The cursor behind an event."""
        return self._cursors.encode(run, item.position)

    def take(self, run: RunKey, position: Position, found: Slice, *, fresh: bool) -> Continuation:
        """What of a slice may be handed out.

        Raises:
            RetentionExceededError: events directly behind the position are gone.
        """
        self.count_broken(found.skipped)
        verdict = continue_from(position, found, fresh=fresh)
        if isinstance(verdict, Gap):
            raise RetentionExceededError(
                f"what followed event {position.sequence} is no longer stored; go on from earliest_cursor",
                earliest_cursor=self._cursors.encode(run, verdict.earliest),
            )
        return verdict

    def aim(self, read: EventRead) -> tuple[RunKey, Position]:
        """A checked read: the run, and the position of its cursor."""
        self._check_open()
        if not isinstance(read, EventRead):
            raise InvalidInputError(f"expected an EventRead, not {type(read).__name__}")
        run = run_key(read.ownership, read.session_id, read.run_id)
        return run, START if read.after is None else self._cursors.decode(run, read.after)

    def _check_open(self) -> None:
        if self._closed:
            raise SourceClosedError

    async def _ready(self) -> None:
        self._check_open()
        await self._log.ready()


def split_limits(options: dict[str, Any]) -> Limits:
    """The limits among an adapter's keyword options.

    Raises:
        InvalidInputError: an unknown option, or one out of range.
    """
    known = set(Limits.__dataclass_fields__)
    unknown = sorted(set(options) - known)
    if unknown:
        raise InvalidInputError(f"unknown option {unknown[0]!r}; known are {', '.join(sorted(known))}")
    return Limits(**options)
