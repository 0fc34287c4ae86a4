"""A live subscription of a channel: what is said there from now on (contract §2)."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import structlog

from hub.delivery.connection import Connection
from hub.delivery.errors import NotConnected
from hub.delivery.nats_client import Incoming
from hub.delivery.sieve import Dropped, sift
from hub.protocol import Envelope

log = structlog.get_logger(__name__)

QUEUE_MOST: Final = 65_536  # envelopes; a reader that is slower than the channel loses the newest, counted

OnEnvelope = Callable[[Envelope], Awaitable[None]]


class ChannelSubscription:
    """The envelopes of a channel, live: iterate it, or pass a callback.

    Nothing is kept for whoever is not there, and nothing comes twice but what was sent twice.

    Args:
        connection: the connection.
        subject: `channel.<name>`; may hold wildcards.
        callback: gets each envelope, one at a time; what it raises is logged and the next one follows.

    Attributes:
        counters: `received`, and what was dropped by reason.
    """

    def __init__(self, connection: Connection, subject: str, callback: OnEnvelope | None = None) -> None:
        self.subject = subject
        self.counters: Counter[str] = Counter()
        self._connection = connection
        self._callback = callback
        self._queue: asyncio.Queue[Envelope | None] = asyncio.Queue()
        self._sid: int | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._caller: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Has its user closed it?"""
        return self._is_closed

    async def start(self) -> "ChannelSubscription":
        """Begin; when this returns the server has the subscription. Starting twice is fine."""
        if self._sid is None and not self._is_closed:
            self._sid = await self._connection.client.subscribe_direct(self.subject, self._on_message)
            await self._connection.flush()
            self._watcher = self._connection.own(self._connection.wait_closed(), name=f"channel {self.subject}")
            self._watcher.add_done_callback(lambda _: self._queue.put_nowait(None))
            if self._callback is not None:
                self._caller = self._connection.own(self._call(self._callback), name=f"callback {self.subject}")
        return self

    async def close(self) -> None:
        """End it; what came is still handed out, then the iteration ends. Closing twice is fine."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._sid is not None:
            await self._connection.client.unsubscribe_direct(self._sid)
        if self._watcher is not None:
            self._watcher.cancel()
        else:
            self._queue.put_nowait(None)

    async def __aenter__(self) -> "ChannelSubscription":
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Envelope]:
        return self

    async def __anext__(self) -> Envelope:
        """The next envelope; ends when the subscription was closed.

        Raises:
            NotConnected: the connection has ended for good.
        """
        envelope = await self._queue.get()
        if envelope is None:
            self._queue.put_nowait(None)
            if self._is_closed:
                raise StopAsyncIteration
            raise NotConnected("the connection has ended; the channel is not heard any more")
        return envelope

    def _on_message(self, message: Incoming) -> None:
        sifted = sift(message.subject, message.data)
        if isinstance(sifted, Dropped):
            self.counters[f"dropped_{sifted.reason}"] += 1
            log.info("dropped", subject=ascii(message.subject)[:200], reason=sifted.reason, detail=sifted.detail)
        elif self._queue.qsize() >= QUEUE_MOST:
            self.counters["dropped_overflow"] += 1
            if self.counters["dropped_overflow"] % 1000 == 1:
                log.error("the reader of a channel is too slow; messages are dropped", subject=self.subject)
        else:
            self.counters["received"] += 1
            self._queue.put_nowait(sifted.envelope)

    async def _call(self, callback: OnEnvelope) -> None:
        with contextlib.suppress(NotConnected):  # said by the connection itself
            async for envelope in self:
                try:
                    await callback(envelope)
                except Exception:
                    # The user's code may raise anything; the channel goes on.
                    log.exception("the callback of a channel raised", subject=self.subject, id=envelope.meta.id)
                    self.counters["callback_errors"] += 1
