"""The world of one case: sources on one store, tenants and runs of its own, and records to append."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Protocol, Self

from hub.events.base import AgentEventSource, EventEnvelope, EventPage, EventRead
from hub.events.errors import AgentEventSourceError
from hub.events.records import AgentEventRecord, Ownership

SECRET = b"conformance secret of 32 bytes.."
DEADLINE_SECS = 20.0  # for one wait; nothing here takes a second on an idle machine

MakeSource = Callable[..., AgentEventSource]
Poison = Callable[[EventRead], Awaitable[None]]


class Case(Protocol):
    """A promise: a coroutine function that fails with an AssertionError."""

    __name__: str

    async def __call__(self, world: "World") -> None: ...


class Run:
    """One run of one owner: builds its records, appends and reads them."""

    def __init__(self, source: AgentEventSource, ownership: Ownership, session_id: str, run_id: str) -> None:
        self.source = source
        self.ownership = ownership
        self.session_id = session_id
        self.run_id = run_id

    def on(self, source: AgentEventSource) -> "Run":
        """The same run through another source."""
        return Run(source, self.ownership, self.session_id, self.run_id)

    def read(self, after: str | None = None, limit: int | None = None) -> EventRead:
        return EventRead(
            ownership=self.ownership, session_id=self.session_id, run_id=self.run_id, after=after, limit=limit
        )

    def record(self, name: str, kind: str = "message_delta", **changes: Any) -> AgentEventRecord:
        """A record whose event says `name`; `changes` replace members."""
        event = {"type": kind, "sessionId": self.session_id, "runId": self.run_id, "text": name}
        members: dict[str, Any] = {
            "id": name,
            "session_id": self.session_id,
            "run_id": self.run_id,
            "type": kind,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "event": event,
            "redacted": True,
            "tenant_id": self.ownership.tenant_id,
            "account_id": self.ownership.account_id,
            "user_id": self.ownership.user_id,
        }
        return AgentEventRecord(**{**members, **changes})

    async def append(self, name: str, kind: str = "message_delta", **changes: Any) -> AgentEventRecord:
        return await self.source.append(self.record(name, kind, **changes))

    async def fill(self, count: int, *, start: int = 1, **changes: Any) -> None:
        """Append e<start> … one after the other."""
        for number in range(start, start + count):
            await self.append(f"e{number}", **changes)

    async def page(self, after: str | None = None, limit: int | None = None) -> EventPage:
        return await self.source.page(self.read(after, limit))

    async def ids(self) -> list[str]:
        """Ids of everything that is retained, page by page."""
        return [record.id for record in await self.records()]

    async def records(self) -> list[AgentEventRecord]:
        page = await self.page()
        found = list(page.records)
        while page.next_cursor is not None:
            page = await self.page(page.next_cursor)
            found += page.records
        return found

    async def take(self, count: int, after: str | None = None) -> list[EventEnvelope]:
        """The first events of a subscription; fewer where it ends before."""
        taken: list[EventEnvelope] = []
        async with asyncio.timeout(DEADLINE_SECS), self.source.subscribe(self.read(after)) as events:
            async for envelope in events:
                taken.append(envelope)
                if len(taken) == count:
                    break
        return taken

    async def follow(self, after: str | None = None) -> list[str]:
        """Ids of a whole subscription, until it ends by itself."""
        return [envelope.record.id for envelope in await self.take(10**9, after)]


class World:
    """What a case gets."""

    def __init__(self, make_source: MakeSource, poison: Poison | None) -> None:
        self._make_source = make_source
        self._poison = poison
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def source(self, **options: Any) -> AgentEventSource:
        """A further source on the store under test."""
        source = self._make_source(**{"cursor_secret": SECRET, **options})
        self._stack.push_async_callback(source.close)
        return source

    def owner(self, account_id: str | None = None, user_id: str | None = None) -> Ownership:
        """A tenant that nobody else uses."""
        return Ownership(tenant_id=f"tenant-{uuid.uuid4().hex[:12]}", account_id=account_id, user_id=user_id)

    def run(
        self,
        source: AgentEventSource | None = None,
        owner: Ownership | None = None,
        *,
        session_id: str = "session",
        run_id: str = "run",
    ) -> Run:
        """A run, of a new owner unless one is given."""
        return Run(source or self.source(), owner or self.owner(), session_id, run_id)

    async def poison(self, run: Run) -> None:
        """Put a broken record at the end of a run."""
        if self._poison is None:
            raise LookupError("the suite was made without `poison`")
        await self._poison(run.read())


class Refusal:
    """The error that a block ended with; set once the block has."""

    error: AgentEventSourceError


@asynccontextmanager
async def refused(code: str) -> AsyncIterator[Refusal]:
    """The block must fail with an error of the family and this code."""
    refusal = Refusal()
    try:
        yield refusal
    except AgentEventSourceError as error:
        if error.code != code:
            raise AssertionError(f"expected {code}, got {error.code}: {error}") from error
        refusal.error = error
    else:
        raise AssertionError(f"expected an error with code {code}; there was none")
