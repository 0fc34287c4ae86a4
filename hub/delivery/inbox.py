"""The inbox: an identity's direct messages, durable where there is a durable hub, live where there is none.

One way to read whatever the mode (contract §5): iterate it, or give it a callback. It survives a server restart, a
deleted consumer, a lost pull and a reconnect; what it does about them is in its state, its counters and one log line a
change. `inbox_keeper` keeps the mode, `inbox_ledger` knows the messages.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import structlog

from hub.delivery.connection import Connection
from hub.delivery.dedupe import ACKED_MOST, AckedMemory
from hub.delivery.errors import BadSettings, NotConnected
from hub.delivery.inbox_finder import Source
from hub.delivery.inbox_keeper import Keeper, cancel
from hub.delivery.inbox_ledger import Ledger
from hub.delivery.inbox_message import InboxMessage
from hub.delivery.inbox_mode import InboxState, Mode, read_wish
from hub.protocol import subjects

log = structlog.get_logger(__name__)

WINDOW: Final = 128  # messages asked for or in hand; below the 256 that the consumer lets be unacked (contract §4)
RETRY_SECS: Final = 30.0  # contract §5: without a durable hub the attach is tried again every 30 s
ATTACH_TIMEOUT_SECS: Final = 5.0  # a responder makes a consumer within a second; a busy cluster takes a few
QUEUE_MOST: Final = 65_536  # live messages cannot be left at the server, and memory ends somewhere
QUEUE_MOST_BYTES: Final = 128 * 1024 * 1024
NAK_DELAYS_SECS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # for a callback that raised, by its deliveries until then
DRAIN_SECS: Final = 5.0

Callback = Callable[[InboxMessage], Awaitable[None]]
Sink = Callable[[InboxMessage], None]


class Inbox:
    """The direct messages of the connection's identity.

    Read it in one of three ways: iterate it (which starts it; the user acks each message), pass `callback` (one at a
    time; acked when it returned, naked when it raised), or pass `sink` (a plain function that gets each message out of
    the parser and must not block; its user acks later).

    One reader an identity: two processes with one identity share its durable inbox, each message goes to one of them.

    Args:
        connection: a connection with an identity; it is never closed here.
        mode: `auto`, `on` or `off`; the connection's setting when None.
        callback, sink: see above; at most one.
        observer: sees each new message before its reader; must neither block nor settle it.
        window: at most this many durable messages unacked in this process.
        remembered: so many acked messages are remembered to drop their repeats; 0 when the user remembers on disk.
        judge_payload: drop messages whose payload receivers refuse; False leaves that to the user.
        attach_timeout_secs: for one attach.
        retry_secs: how often the attach is tried again while nobody answers it.

    Raises:
        BadSettings: no identity, or a mode that is none.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        mode: str | None = None,
        callback: Callback | None = None,
        sink: Sink | None = None,
        observer: Sink | None = None,
        window: int = WINDOW,
        remembered: int = ACKED_MOST,
        judge_payload: bool = True,
        attach_timeout_secs: float = ATTACH_TIMEOUT_SECS,
        retry_secs: float = RETRY_SECS,
    ) -> None:
        if connection.identity is None:
            raise BadSettings("an inbox needs an identity: set NATS_HUB_IDENTITY or pass one")
        if callback is not None and sink is not None:
            raise BadSettings("an inbox has a callback or a sink, not both")
        self.identity = connection.identity
        self.counters: Counter[str] = Counter()
        self._wish = read_wish(connection.settings.durable_inbox if mode is None else mode)
        self._connection = connection
        self._callback = callback
        self._sink = sink
        self._observer = observer
        self._queue: asyncio.Queue[InboxMessage | None] = asyncio.Queue()  # None: the end
        self._queued_bytes = 0
        self._ended: NotConnected | None = None
        self._caller: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._is_started = False
        self._is_stopping = False
        self._ledger = Ledger(
            connection,
            subject=subjects.inbox(self.identity),
            take=self._take,
            acked=AckedMemory(remembered),
            judge_payload=judge_payload,
            counters=self.counters,
        )
        self._keeper = Keeper(
            connection,
            identity=self.identity,
            wish=self._wish,
            ledger=self._ledger,
            counters=self.counters,
            window=window,
            attach_timeout_secs=attach_timeout_secs,
            retry_secs=retry_secs,
        )

    # Life

    async def start(self) -> "Inbox":
        """Begin to read; returns without waiting for a hub, see `wait_ready`. Starting twice is fine."""
        if self._is_started or self._is_stopping:
            return self
        self._is_started = True
        watcher = self._connection.own(self._connection.wait_closed(), name=f"inbox watcher {self.identity}")
        watcher.add_done_callback(self._on_connection_ended)
        self._watcher = watcher
        await self._keeper.start()
        if self._callback is not None:
            self._caller = self._connection.own(self._call(self._callback), name=f"inbox callback {self.identity}")
        return self

    async def stop(self, *, drain_secs: float = DRAIN_SECS) -> None:
        """End it: read no more, give back what was not handed out, let a running callback end, write out the acks.

        Messages in their user's hands may still be acked afterwards, while the connection is open; they are not
        extended any more. Stopping twice is fine.

        Args:
            drain_secs: how long a running callback may take; then it is cancelled and its message comes again.
        """
        if self._is_stopping:
            return
        self._is_stopping = True
        await self._keeper.stop()
        await cancel(self._watcher)
        while not self._queue.empty():
            message = self._queue.get_nowait()
            if message is not None:
                message.nak()  # the identity's next reader has it at once
        self._queue.put_nowait(None)
        if self._caller is not None:
            await asyncio.wait({self._caller}, timeout=drain_secs)
            await cancel(self._caller)
        await self._connection.flush()
        self._keeper.set_state(Mode.STOPPED, "stopped by its user")

    async def __aenter__(self) -> "Inbox":
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # Reading

    def __aiter__(self) -> AsyncIterator[InboxMessage]:
        return self

    async def __anext__(self) -> InboxMessage:
        """The next message; ends when the inbox was stopped.

        Raises:
            NotConnected: the connection has ended for good.
        """
        if not self._is_started:
            await self.start()
        message = await self._queue.get()
        if message is None:
            self._queue.put_nowait(None)  # for whoever else reads
            if self._ended is not None:
                raise self._ended
            raise StopAsyncIteration
        self._queued_bytes -= len(message.envelope.body)
        message.is_handed = True
        return message

    async def next(self, timeout_secs: float) -> InboxMessage | None:
        """The next message, or None when there was none within `timeout_secs` or the inbox was stopped.

        Raises:
            NotConnected: as iterating.
        """
        await self.start()
        try:
            async with asyncio.timeout(timeout_secs):
                return await self.__anext__()
        except (TimeoutError, StopAsyncIteration):
            return None

    def pause(self) -> None:
        """Pull nothing new until `resume`; what was asked for still comes, and live messages cannot be paused."""
        self._keeper.pause()

    def resume(self) -> None:
        """Go on pulling."""
        self._keeper.resume()

    # What it knows

    @property
    def state(self) -> InboxState:
        """How it is read now, and why."""
        return self._keeper.state

    @property
    def source(self) -> Source | None:
        """The consumer and the names that the hub said, once it did."""
        return self._keeper.source

    async def wait_ready(self, timeout_secs: float) -> InboxState:
        """Wait until it is read in some mode; returns the state, which is still `waiting` when that took longer."""
        await self.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_secs):
                await self._keeper.is_ready.wait()
        return self.state

    def describe(self) -> dict[str, Any]:
        """Its numbers, for status and logs."""
        return {
            "identity": self.identity,
            "wish": self._wish.value,
            "mode": self.state.mode.value,
            "reason": self.state.reason,
            "queued": self._queue.qsize(),
            "held": self._ledger.held,
            "ack_floor": self._ledger.ack_floor,
            **self.counters,
        }

    # Inside

    def _take(self, message: InboxMessage) -> None:
        if self._observer is not None:
            self._observer(message)
        if self._sink is not None:
            message.is_handed = True
            self._sink(message)
            return
        is_full = self._queue.qsize() >= QUEUE_MOST or self._queued_bytes >= QUEUE_MOST_BYTES
        if is_full and not message.is_durable:
            self._ledger.count_overflow()
            message.nak()
            return
        self._queued_bytes += len(message.envelope.body)
        self._queue.put_nowait(message)

    async def _call(self, callback: Callback) -> None:
        """Hand messages to the callback, one at a time."""
        with contextlib.suppress(NotConnected):  # said by the connection itself
            async for message in self:
                try:
                    await callback(message)
                except asyncio.CancelledError:
                    message.nak()
                    raise
                except Exception:
                    # The user's code may raise anything; the contract says what it means: not taken.
                    delay_secs = NAK_DELAYS_SECS[min(message.delivered, len(NAK_DELAYS_SECS)) - 1]
                    log.exception("the inbox's callback raised", message=repr(message), again_in_secs=delay_secs)
                    self.counters["callback_errors"] += 1
                    message.nak(delay_secs)
                else:
                    message.ack()

    def _on_connection_ended(self, _: "asyncio.Task[None]") -> None:
        """Also when a task of ours died, which ends the connection: whoever waits for a message must hear of it."""
        if not self._is_stopping:
            self._ended = NotConnected("the connection has ended; the inbox is not read any more")
            self._keeper.set_state(Mode.WAITING, str(self._ended))
            self._queue.put_nowait(None)
