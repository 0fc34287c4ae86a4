"""The interface: an append-only, durable, replayable log of what an agent did in a run.

Every adapter keeps this contract, and one suite (`hub.events.conformance`) proves it:

- `append` numbers events 1, 2, 3 … per run, without gaps, whoever appends and however many at once. It is idempotent by
  the event's id within (owner, session, run) as long as the record is retained, also concurrently and also after an
  unknown outcome: the stored original comes back. Another content under a known id is `INPUT`, and nothing is stored.
- After a terminal event only terminal ones are accepted.
- `page` and `subscribe` read in order, behind a cursor or from the oldest retained event. An event that is gone before
  it was delivered is never passed over silently: `RETENTION` names the earliest cursor that can go on.
- Owners share neither events nor counters nor cursors. A foreign read finds nothing.
- Importing connects to nothing; a connection that was given is never closed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

from hub.events.limits import CLEANUP_DEFAULT
from hub.events.records import AgentEventRecord, Ownership


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRead:
    """What to read: one run of one owner, from where, how much.

    Attributes:
        ownership: the run's owner, exactly.
        session_id: the run's session.
        run_id: the run.
        after: a cursor; reading starts behind it. None: with the oldest retained event.
        limit: most events a page, 1 to `max_page_size`; None: `max_page_size`. A subscription ignores it.
    """

    ownership: Ownership
    session_id: str
    run_id: str
    after: str | None = None
    limit: int | None = None


class EventEnvelope:
    """An event with the cursor to go on behind it."""

    __slots__ = ("_cursor", "record")

    def __init__(self, record: AgentEventRecord, cursor: Callable[[], str]) -> None:
        self.record = record
        self._cursor: str | Callable[[], str] = cursor

    @property
    def cursor(self) -> str:
        # Signing costs as much as decoding the record, and most readers keep one cursor in hundreds.
        if not isinstance(self._cursor, str):
            self._cursor = self._cursor()
        return self._cursor

    def __repr__(self) -> str:
        return f"EventEnvelope({self.record!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """A page of a run.

    Attributes:
        events: in order; each with its cursor.
        next_cursor: where the next page starts; None: nothing more is stored now.
        terminal: the run's closing event has been returned, on this page or before its cursor with nothing behind it.
        first_sequence: the oldest retained event's number; None: nothing is retained.
        truncated: history of this run was trimmed.
    """

    events: tuple[EventEnvelope, ...]
    next_cursor: str | None
    terminal: bool
    first_sequence: int | None
    truncated: bool

    @property
    def records(self) -> tuple[AgentEventRecord, ...]:
        return tuple(envelope.record for envelope in self.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """What one cleanup did.

    Attributes:
        deleted: records deleted.
        scanned: records looked at.
        done: nothing that may be deleted is left; False: call again.
    """

    deleted: int
    scanned: int
    done: bool


class EventSubscription(ABC):
    """Events of one run, first what is stored, then live: `async with source.subscribe(read) as events: async for …`.

    Ends after the first terminal event behind its cursor, or at once where one stands at or before the cursor and
    nothing follows.
    """

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def __aiter__(self) -> Self: ...

    @abstractmethod
    async def __anext__(self) -> EventEnvelope: ...

    @abstractmethod
    async def ack(self) -> None:
        """Settle the event that was handed out last, of a durable subscription; asking for the next one does so too."""


class AgentEventSource(ABC):
    """An append-only log of agent events; see the module's docstring for what every adapter keeps."""

    @abstractmethod
    async def append(self, record: AgentEventRecord) -> AgentEventRecord:
        """Store an event; returns it with its sequence, or the stored original where its id is known.

        Raises:
            InvalidInputError: the record is not one, its id is taken by another content, its run is closed, or its
                `sequence` is not the one that it would get.
            EventOverflowError: the run retains `max_run_events`, or the backend is full; nothing was purged for it.
            AppendConflictError: other producers were faster for the whole of `append_timeout_secs`.
            BackendUnavailableError: no answer; append the same record again.
            SourceClosedError: `close()` was called.
        """

    @abstractmethod
    async def page(self, read: EventRead) -> EventPage:
        """Stored events, ascending. An unknown run, or another owner's, is an empty page.

        Raises:
            InvalidInputError: a limit or an id out of range.
            InvalidCursorError: `read.after` is not a cursor of this run.
            RetentionExceededError: the event behind the cursor is gone.
            BackendUnavailableError: no answer.
            SourceClosedError: `close()` was called.
        """

    @abstractmethod
    def subscribe(self, read: EventRead, *, durable: str | None = None) -> EventSubscription:
        """Stored events, then live ones: at least once over restarts, each once and in order within a subscription.

        Args:
            read: the run, and the cursor to start behind.
            durable: name of a reader whose position the backend keeps: its successor goes on behind the last event
                that was settled (by `ack`, or by asking for the next). One reader a name at a time. The cursor counts
                only when the reader is new.

        Raises:
            as `page`, when the subscription is entered or read; EventOverflowError: `max_subscribers` are open.
        """

    @abstractmethod
    async def forget(self, read: EventRead, durable: str) -> None:
        """Drop a durable reader's position; unknown ones are fine. Hosts call it once a run is done with."""

    @abstractmethod
    async def cleanup(
        self,
        *,
        ownership: Ownership,
        before: str | datetime,
        limit: int = CLEANUP_DEFAULT,
        keep_open: bool = False,
    ) -> CleanupReport:
        """Delete old records of exactly this owner, in stored order; never scheduled by the source.

        Each run keeps its last record, so that its counter goes on and its readers learn that it ended.

        Args:
            ownership: whose records, exactly.
            before: only records whose `timestamp` is earlier.
            limit: most records to delete, 1 to 500.
            keep_open: spare runs without a terminal event.
        """

    @abstractmethod
    async def verify(self) -> None:
        """Refuse a backend that cannot keep this contract, naming everything that does not fit.

        Raises:
            StreamMisconfiguredError: what is wrong, one line each.
            BackendUnavailableError: it is not there or does not answer.
        """

    @abstractmethod
    async def close(self) -> None:
        """End every subscription with `SourceClosedError` and release what the source made itself; twice is fine."""

    @property
    @abstractmethod
    def stored_broken(self) -> int:
        """How many broken stored records this source has skipped so far (a record read twice counts twice)."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
