"""The subscription: one reader's way along a run, over every loss, until the run or the source ends."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, TypeVarTuple

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from hub.events.base import EventEnvelope, EventRead, EventSubscription
from hub.events.cursor import START, Position
from hub.events.errors import (
    AgentEventSourceError,
    BackendUnavailableError,
    EventOverflowError,
    InvalidInputError,
    SourceClosedError,
)
from hub.events.limits import reconnect_wait
from hub.events.log import Feed, Item, Slice
from hub.events.records import TERMINAL_TYPES, RunKey

if TYPE_CHECKING:
    from hub.events.source import LogEventSource

log = structlog.get_logger()

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Subscribers:
    """The slots of one source; a subscription holds one from entry to exit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[LogSubscription] = set()
        self.closed = False

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, subscription: "LogSubscription") -> None:
        if self.closed:
            raise SourceClosedError
        if len(self._open) >= self._most:
            raise EventOverflowError(f"{self._most} subscriptions are open, which is max_subscribers; close one first")
        self._open.add(subscription)

    def leave(self, subscription: "LogSubscription") -> None:
        self._open.discard(subscription)

    def close(self) -> None:
        self.closed = True
        for subscription in self._open:
            subscription.interrupt()


class LogSubscription(EventSubscription):
    """A subscription over a run log; made by `LogEventSource.subscribe`."""

    def __init__(self, source: "LogEventSource", read: EventRead, durable: str | None) -> None:
        self._source = source
        self._read = read
        self._durable = durable
        self._run: RunKey | None = None
        self._feed: Feed | None = None
        self._buffer: deque[Item] = deque()
        self._fetched = START  # behind what is in the buffer
        self._handed: Item | None = None  # the event that its reader has
        self._settled: Item | None = None
        self._fresh = True
        self._look = True  # read what is stored before waiting for what comes
        self._ended = False
        self._left = False
        self._tasks: set[asyncio.Future[None]] = set()
        self._filling: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        if self._run is not None:
            raise InvalidInputError("a subscription is entered once; subscribe again")
        run, position = self._source.aim(self._read)
        self._source.subscribers.enter(self)
        self._run = run
        self._stand(position)
        try:
            await self._interruptible(self._open(run))
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventEnvelope:
        if self._run is None:
            raise InvalidInputError("enter the subscription first: `async with source.subscribe(read) as events`")
        if self._source.subscribers.closed:
            raise SourceClosedError
        if self._feed is None:
            raise StopAsyncIteration
        if self._durable is not None:
            await self.ack()
        while True:
            # Events pass here one by one, tens of thousands a second in a replay: nothing that can wait is done now.
            while self._buffer:
                item = self._handed = self._buffer.popleft()
                if item.record is None:
                    self._source.count_broken(1)
                    continue
                if item.record.type in TERMINAL_TYPES:
                    self._ended = True
                    self._buffer.clear()
                return EventEnvelope(item.record, partial(self._source.cursor, self._run, item))
            if self._ended:
                raise StopAsyncIteration
            await self._filled(self._run, self._feed)

    async def ack(self) -> None:
        if self._durable is None or self._feed is None or self._handed is None or self._handed is self._settled:
            return
        await self._interruptible(self._settle(self._feed, self._handed.position))
        self._settled = self._handed

    def interrupt(self) -> None:
        """The source closes: whatever this subscription waits for ends now."""
        for task in self._tasks:
            task.cancel()

    def _stand(self, position: Position) -> None:
        self._fetched = position
        self._fresh = position.sequence == 0

    async def _open(self, run: RunKey) -> None:
        await self._retrying(self._connect, run)

    async def _connect(self, run: RunKey) -> None:
        await self._source.log.ready()
        self._feed, known = await self._source.log.feed(run, self._durable)
        if known is not None:
            self._stand(known)

    async def _settle(self, feed: Feed, position: Position) -> None:
        await self._retrying(feed.ack, position)

    async def _fill(self, run: RunKey, feed: Feed) -> None:
        """Get at least one item, or learn that the run has ended."""
        while not self._buffer and not self._ended and not self._left:
            found = await self._retrying(self._step, feed)
            if found is None:
                continue
            taken = self._source.take(run, self._fetched, found, fresh=self._fresh)
            self._look = taken.cut  # the gap is told of once what stands before it has been handed out
            items = taken.items
            self._buffer.extend(items)
            if items:
                self._fetched = items[-1].position
            elif found.end is not None:
                self._fetched = found.end
            if not found.more and not taken.cut:
                self._fresh = False
                self._ended = not items and found.tail is not None and found.tail.closed

    async def _step(self, feed: Feed) -> Slice | None:
        try:
            return await (feed.look(self._fetched) if self._look else feed.wait(self._fetched))
        except AgentEventSourceError:
            self._look = True
            raise

    async def _retrying(self, call: Callable[[*Ts], Awaitable[T]], *arguments: *Ts) -> T:
        """A call over losses of the backend: tried again for as long as somebody reads."""
        try:
            return await call(*arguments)
        except BackendUnavailableError as error:
            if not error.retriable:
                raise
        retrying = AsyncRetrying(
            retry=retry_if_exception(lambda e: isinstance(e, BackendUnavailableError) and e.retriable),
            wait=reconnect_wait(self._source.limits),
            before_sleep=self._say,
            reraise=True,
        )
        return await retrying(call, *arguments)

    def _say(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        log.warning("agent events: reader waits for its backend", attempt=state.attempt_number, error=str(error))

    async def _interruptible(self, work: Coroutine[None, None, None]) -> None:
        """Run a piece of work that `close()` of the source ends at once."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        try:
            await task
        except asyncio.CancelledError:
            self._raise_if_closed()
            raise
        finally:
            self._tasks.discard(task)

    async def _filled(self, run: RunKey, feed: Feed) -> None:
        """Wait until there is something to hand out.

        A reader that gives up waiting (a timeout around `anext`) does not end the work: the next one finds it further
        on, however short its patience, and nothing that was on its way is lost.
        """
        if self._filling is None:
            self._filling = asyncio.ensure_future(self._fill(run, feed))
            self._tasks.add(self._filling)
        filling = self._filling
        try:
            await asyncio.shield(filling)
        except asyncio.CancelledError:
            self._raise_if_closed()
            raise
        finally:
            if filling.done():
                self._filling = None
                self._tasks.discard(filling)

    def _raise_if_closed(self) -> None:
        """Was it the source that ended the work, and not whoever waits for it?"""
        current = asyncio.current_task()
        if self._source.subscribers.closed and not (current and current.cancelling()):
            raise SourceClosedError from None

    async def _leave(self) -> None:
        self._source.subscribers.leave(self)
        # Before Python 3.12 `asyncio.wait_for`, which nats-py waits with, may swallow a cancel: the flag ends it then.
        self._left = True
        filling, self._filling = self._filling, None
        if filling is not None:
            filling.cancel()
            await asyncio.gather(filling, return_exceptions=True)
        feed, self._feed = self._feed, None
        self._buffer.clear()
        if feed is not None:
            await feed.close()
