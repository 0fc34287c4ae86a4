"""The keeper of an inbox's mode: attaches, binds, falls back to core, comes back, and says so (contract §5)."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog
from tenacity import AsyncRetrying, retry_if_result, wait_exponential, wait_random

from hub.delivery.connection import Connection
from hub.delivery.errors import DeliveryError
from hub.delivery.inbox_finder import Finding, Source, find_inbox
from hub.delivery.inbox_ledger import Ledger
from hub.delivery.inbox_mode import InboxState, Mode, Way, Wish, decide
from hub.delivery.pull import ContinuousPull
from hub.protocol import subjects

log = structlog.get_logger(__name__)

EXTENSIONS_AN_ACK_WAIT: Final = 3  # contract §5
LONGEST_EXTENSION_SECS: Final = 600.0
SHORT_TENURE_SECS: Final = 10.0  # a consumer that is gone sooner than this is asked for with a growing pause
FIRST_PAUSE_SECS: Final = 0.2
LONGEST_PAUSE_SECS: Final = 30.0
REPEAT_LOG_SECS: Final = 60.0  # what goes on being wrong is said once a minute (contract §5)
MOST_SAID: Final = 32  # different reasons remembered; a hub's own words may vary
ASKING: Final = "asking for the durable inbox"


class Keeper:
    """Keeps an inbox read in the best mode that there is.

    Args:
        connection: the connection.
        identity: whose inbox.
        wish: what its user asked for.
        ledger: takes what comes.
        counters: where its numbers go.
        window: at most so many durable messages unacked in this process.
        attach_timeout_secs: for one attach.
        retry_secs: how often it is asked again while nobody answers.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        identity: str,
        wish: Wish,
        ledger: Ledger,
        counters: Counter[str],
        window: int,
        attach_timeout_secs: float,
        retry_secs: float,
    ) -> None:
        self.state = InboxState(Mode.WAITING, "not started")
        self.source: Source | None = None
        self.is_ready = asyncio.Event()  # set while it is read in some mode
        self._connection = connection
        self._identity = identity
        self._wish = wish
        self._ledger = ledger
        self._counters = counters
        self._window = window
        self._attach_timeout_secs = attach_timeout_secs
        self._retry_secs = retry_secs
        self._stream_created = ""  # of the stream that was read last, as far as a hub said
        self._pull: ContinuousPull | None = None
        self._live_sid: int | None = None
        self._is_paused = False
        self._is_gone = False
        self._wake = asyncio.Event()
        self._said_at: dict[InboxState, float] = {}
        self._remove_reconnect: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._extender: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin."""
        self._remove_reconnect = self._connection.on_reconnect(self._on_reconnect)
        if self._wish is Wish.OFF:
            await self._go_core("the durable inbox is off")
        else:
            self.set_state(Mode.WAITING, ASKING)
            self._task = self._connection.own(self._keep(), name=f"inbox {self._identity}")

    async def stop(self) -> None:
        """Read no more; returns when nothing more can come."""
        if self._remove_reconnect is not None:
            self._remove_reconnect()
        await cancel(self._task)
        if self._pull is not None:
            await self._pull.stop()
        await self._leave_core()
        await cancel(self._extender)

    def pause(self) -> None:
        """Pull nothing new until `resume`."""
        self._is_paused = True
        if self._pull is not None:
            self._pull.pause()

    def resume(self) -> None:
        """Go on pulling."""
        self._is_paused = False
        if self._pull is not None:
            self._pull.resume()

    def set_state(self, mode: Mode, reason: str) -> None:
        """Note how the inbox is read, and say it: each change of mode, and what goes on being wrong once a minute."""
        state, before = InboxState(mode, reason), self.state
        now = time.monotonic()
        self.state = state
        if mode is Mode.WAITING:
            self.is_ready.clear()
        else:
            self.is_ready.set()
        is_as_wished = mode in {Mode.DURABLE, Mode.STOPPED} or self._wish is Wish.OFF
        if state == before and is_as_wished:
            return
        if mode is before.mode and now - self._said_at.get(state, -REPEAT_LOG_SECS) < REPEAT_LOG_SECS:
            return
        if len(self._said_at) >= MOST_SAID:
            self._said_at.clear()
        self._said_at[state] = now
        is_trouble = mode is Mode.WAITING and reason != ASKING
        say = log.warning if is_trouble else log.info
        say("inbox", identity=self._identity, mode=mode.value, reason=reason)

    async def _keep(self) -> None:
        """Go from one tenure to the next; after short ones with a growing pause."""
        while True:
            await AsyncRetrying(
                retry=retry_if_result(lambda lasted: not lasted),
                wait=wait_exponential(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS) + wait_random(0, FIRST_PAUSE_SECS),
                sleep=self._nap,
            )(self._tenure)

    async def _tenure(self) -> bool:
        """Ask once, do what the answer says, and stay with it until it must be asked again.

        Returns:
            False when it is to be asked again with backoff: nothing usable came, or what came did not last.
        """
        finding = await self._find()
        way = Way.RETRY if finding is None else decide(self._wish, finding.answer)
        if finding is None or way is Way.RETRY:
            reason = finding.reason if finding is not None else "asking for the durable inbox failed"
            self.set_state(Mode.WAITING if self._is_gone else self.state.mode, reason)
            return False
        began = time.monotonic()
        if way is Way.CORE:
            await self._go_core(finding.reason)
        else:
            assert finding.source is not None
            await self._go_durable(finding.source)
            self.set_state(Mode.DURABLE if way is Way.DURABLE else Mode.BOUND, finding.reason)
        await self._nap(None if way is Way.DURABLE else self._retry_secs)
        return time.monotonic() - began >= min(SHORT_TENURE_SECS, self._retry_secs)

    async def _find(self) -> Finding | None:
        self._counters["attach_requests"] += 1
        try:
            return await find_inbox(
                self._connection,
                self._identity,
                after_seq=self._ledger.ack_floor or None,
                stream_created=self._stream_created,
                timeout_secs=self._attach_timeout_secs,
            )
        except DeliveryError as error:
            log.warning("asking for the durable inbox failed", identity=self._identity, error=str(error))
            return None

    async def _nap(self, secs: float | None) -> None:
        """Sleep until woken (by a reconnect, by a consumer that is gone), at most `secs`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(secs):
                await self._wake.wait()
        self._wake.clear()

    async def _on_reconnect(self) -> None:
        if self.state.mode is not Mode.DURABLE:  # a durable one pulls again by itself, and hears if there is nothing
            self._wake.set()

    def _on_gone(self, reason: str) -> None:
        """The pull says that its consumer is not there."""
        if self._is_gone:
            return  # said every second; to be woken by each would end every pause
        self._is_gone = True
        self._counters["consumer_gone"] += 1
        self.set_state(Mode.WAITING, f"the consumer is gone: {reason}")
        self._wake.set()

    async def _go_core(self, reason: str) -> None:
        if self._live_sid is None:
            # Live first, then the end of the pull: in between a message may come twice, and none is missed.
            subject = subjects.inbox(self._identity)
            self._live_sid = await self._connection.client.subscribe_direct(subject, self._ledger.take_live)
            await self._connection.flush()  # "core" means that the server has the subscription
        if self._pull is not None:
            pull, self._pull = self._pull, None
            await pull.stop()
            self._ledger.detach()
        self._is_gone = False
        self.set_state(Mode.CORE, reason)

    async def _leave_core(self) -> None:
        if self._live_sid is not None:
            sid, self._live_sid = self._live_sid, None
            await self._connection.client.unsubscribe_direct(sid)

    async def _go_durable(self, source: Source) -> None:
        """End the live subscription, then read the consumer from where it stands; what came both ways is a repeat."""
        await self._leave_core()
        self._set_ack_wait(source.ack_wait_secs or self._ledger.ack_wait_secs)
        is_same = self.source is not None and self.source.place == source.place
        self.source = source
        if source.stream_created:
            if self._stream_created not in {"", source.stream_created}:
                log.error("the inbox stream is another one: what it held is lost", identity=self._identity)
                self._ledger.forget_floor()
            self._stream_created = source.stream_created
        self._wake.clear()
        if self._pull is not None and is_same and not self._is_gone:
            return
        self._is_gone = False
        self._counters["attached"] += 1
        self._ledger.attached()
        if self._pull is not None and is_same:
            self._pull.ask_anew()
            return
        if self._pull is not None:
            await self._pull.stop()
        # One pull object a consumer; the ledger must know by which one a message came.
        self._pull = pull = ContinuousPull(
            self._connection,
            stream=source.stream,
            consumer=source.consumer,
            callback=lambda incoming: self._ledger.take_durable(pull, incoming),
            window=self._window,
            on_gone=self._on_gone,
            js_prefix=source.js_prefix,
        )
        if self._is_paused:
            pull.pause()
        await pull.start()

    def _set_ack_wait(self, ack_wait_secs: float) -> None:
        if self._extender is not None and self._ledger.ack_wait_secs == ack_wait_secs:
            return
        self._ledger.ack_wait_secs = ack_wait_secs
        if self._extender is not None:
            self._extender.cancel()
        self._extender = self._connection.own(self._extend(), name=f"inbox extensions {self._identity}")

    async def _extend(self) -> None:
        while True:
            await asyncio.sleep(min(LONGEST_EXTENSION_SECS, self._ledger.ack_wait_secs / EXTENSIONS_AN_ACK_WAIT))
            if self._connection.is_connected:  # frames of a long outage would only pile up
                self._ledger.extend()


async def cancel(task: "asyncio.Task[None] | None") -> None:
    """Cancel a task and wait until it has ended; None is fine."""
    if task is not None:
        task.cancel()
        await asyncio.wait({task})
