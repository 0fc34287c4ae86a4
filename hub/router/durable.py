"""The durable router: from the ingress stream to each message's home, pipelined (contract §3.2).

Take → make durable → ack: a message leaves the ingress only when its home has it. Publishes go out in ingress order
and many are in flight at once; each ends by its own outcome, as an ack, a nak or a drop. Everything may come twice; the
home drops repeats by the message id that the rules give.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import structlog

from hub.delivery.config import DeliveryConfig
from hub.delivery.connection import Connection
from hub.delivery.headers import header_lines
from hub.delivery.nats_client import Incoming
from hub.delivery.publisher import NotStored, Outcome, Stored, StorePublisher
from hub.delivery.pull import ACK, TERM, ContinuousPull, Delivery, answer, nak, read_delivery
from hub.delivery.server_clock import REFRESH_SECS, ServerClock
from hub.protocol import TooLarge, names, subjects
from hub.router import guard
from hub.router.dead_letters import DeadLetters
from hub.router.live_mirror import LiveMirror
from hub.router.metrics import RouterMetrics
from hub.router.rules import TOLD_TO_SENDER, Drop, Home, Reason, Route, route
from hub.router.undelivered import notice

log = structlog.get_logger(__name__)

NAK_DELAY_SECS: Final = 1.0  # contract §3.2, 4
BROADCAST_MAX_AGE_SECS: Final = 60.0  # contract §3.2, 3: what is older was meant for listeners that are gone
MOST_IN_FLIGHT: Final = 1000  # more gained nothing when measured; the config's max_ack_pending lowers it
MOST_BYTES: Final = 64 * 1024 * 1024  # of them; each may be of 8 MB, and waits in memory for its home's ack
DRAIN_SECS: Final = 10.0  # acks take milliseconds; below every service manager's stop timeout
TOO_LARGE_FOR_STREAM: Final = 10054  # JetStream: message size exceeds maximum allowed


class DurableRouter:
    """Routes what the ingress stream holds; several processes share the work through one durable consumer.

    Args:
        connection: the hub's connection.
        config: stream and consumer names, limits.
        metrics: where it counts.
        dead_letters: where what goes nowhere is kept.
        live_mirror: where broadcasts are mirrored, best effort.
        on_gone: told when the consumer or a home's stream is not there; its owner makes them again.
        on_step: called with each step's name; tests stop the process there. None in production.
    """

    def __init__(
        self,
        connection: Connection,
        config: DeliveryConfig,
        *,
        metrics: RouterMetrics,
        dead_letters: DeadLetters,
        live_mirror: LiveMirror,
        on_gone: Callable[[str], None] | None = None,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        self._connection = connection
        self._config = config
        self._metrics = metrics
        self._dead_letters = dead_letters
        self._live_mirror = live_mirror
        self._on_step = on_step
        self._on_gone = on_gone
        self._streams = {Home.INBOX: config.inbox.name, Home.TASKS: config.tasks.name}
        self._is_draining = False
        self._clock = ServerClock(connection, config.ingress.name)
        # Below ack_wait, so that an unknown outcome is asked again by this router before another gets the message.
        deadline_secs = min(5.0, max(0.5, 0.8 * config.ack_wait_secs))
        self._publisher = StorePublisher(connection, deadline_secs=deadline_secs)
        metrics.in_flight = lambda: self._publisher.in_flight
        most_pending = config.router_max_ack_pending
        self._pull = ContinuousPull(
            connection,
            stream=config.ingress.name,
            consumer=config.router_consumer,
            callback=self._on_message,
            window=MOST_IN_FLIGHT if most_pending < 1 else min(MOST_IN_FLIGHT, most_pending),
            window_bytes=MOST_BYTES,
            on_gone=on_gone,
        )
        self._clock_keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to route. The streams and the consumer must be there (`hub.delivery.streams.ensure`)."""
        await self._clock.refresh()
        await self._publisher.start()
        await self._pull.start()
        if self._clock_keeper is None:
            self._clock_keeper = self._connection.own(self._keep_clock(), name="server-clock")

    async def stop(self) -> None:
        """Drain: finish what is in flight and ack it, nak the rest at once, flush. Stopping twice is fine."""
        self._is_draining = True
        await self._pull.stop()
        await self._publisher.stop(drain_secs=DRAIN_SECS)
        if self._clock_keeper is not None:
            self._clock_keeper.cancel()
            await asyncio.wait({self._clock_keeper})
            self._clock_keeper = None
        if not await self._connection.flush():
            log.warning("stopped while disconnected: unacked messages come again after ack_wait")

    def describe(self) -> dict[str, Any]:
        """Its numbers, for status."""
        return {"in_flight": self._publisher.in_flight, **self._pull.describe()}

    def _on_message(self, message: Incoming) -> None:
        delivery = read_delivery(message.raw_reply)
        if delivery is None:
            self._pull.done(message.size)
            log.error("not a delivery of a consumer; ignored", subject=message.subject, reply=message.reply)
            return
        if self._is_draining:
            self._answer(message, nak())
            return
        if self._on_step is not None:
            self._on_step("taken")
        self._metrics.ingress_pending = delivery.pending
        if delivery.delivered > 1:
            self._metrics.redelivered += 1
        block = message.header_block
        headers = () if not block or guard.is_ordinary(block) else header_lines(block)
        decided = route(message.subject, headers, message.data, is_guarded=True)
        taken = _Taken(message, delivery)
        if isinstance(decided, Drop):
            self._drop(taken, decided)
        elif decided.home is Home.LIVE:
            self._broadcast(taken, decided)
        else:
            self._store(taken, decided)

    def _store(self, taken: "_Taken", decided: Route) -> None:
        taken.sent_at = time.monotonic()
        try:
            self._publisher.publish(
                decided.destination,
                decided.envelope.body,
                message_id=decided.message_id,
                stream=self._streams[decided.home],
                on_outcome=partial(self._on_outcome, taken, decided),
                more_headers=decided.trace,
            )
        except TooLarge as error:
            self._drop(taken, _dropped(decided, Reason.TOO_LARGE, str(error)))
            return
        if self._on_step is not None:
            self._on_step("published")

    def _on_outcome(self, taken: "_Taken", decided: Route, outcome: Outcome) -> None:
        metrics = self._metrics
        if isinstance(outcome, Stored):
            if self._on_step is not None:
                self._on_step("stored")
            metrics.routed[decided.home] += 1
            metrics.publish_latency.observe(time.monotonic() - taken.sent_at)
            if outcome.duplicate:
                metrics.duplicates += 1
            self._answer(taken.message, ACK)
            if self._on_step is not None:
                self._on_step("acked")
            return
        most, delivered = self._config.router_max_deliver, taken.delivery.delivered
        if outcome.err_code == TOO_LARGE_FOR_STREAM:
            self._drop(taken, _dropped(decided, Reason.TOO_LARGE, outcome.description))
        elif 0 < most <= delivered and not self._is_draining:  # what a stop cuts off has not failed
            detail = f"failed {delivered} times, last: {outcome.description}"
            self._drop(taken, _dropped(decided, Reason.EXHAUSTED, detail))
        else:
            self._retry(taken, decided, outcome)

    def _retry(self, taken: "_Taken", decided: Route, outcome: NotStored) -> None:
        self._metrics.naks += 1
        if not self._is_draining:
            log.warning(
                "publish failed; tried again",
                destination=decided.destination,
                id=decided.envelope.meta.id,
                reason=outcome.reason,
                error=outcome.description,
                retry_secs=NAK_DELAY_SECS,
            )
            if outcome.reason == "no_stream" and self._on_gone is not None:
                # Without history nothing else of ours reads that stream and would notice.
                self._on_gone(f"{decided.destination}: {outcome.description}")
        self._answer(taken.message, nak(0.0 if self._is_draining else NAK_DELAY_SECS))

    def _broadcast(self, taken: "_Taken", decided: Route) -> None:
        age_secs = (self._clock.now_ns() - taken.delivery.stored_ns) / 1e9
        if age_secs > BROADCAST_MAX_AGE_SECS:
            detail = f"a broadcast of {age_secs:.0f} s ago; listeners of {BROADCAST_MAX_AGE_SECS:g} s ago are gone"
            self._drop(taken, _dropped(decided, Reason.EXPIRED, detail))
            return
        try:
            publish_live(self._connection, decided)
        except TooLarge as error:
            self._drop(taken, _dropped(decided, Reason.TOO_LARGE, str(error)))
            return
        if self._on_step is not None:
            self._on_step("broadcast")
        self._metrics.routed[Home.LIVE] += 1
        self._live_mirror.offer(decided.envelope, decided.destination)
        self._answer(taken.message, ACK)

    def _drop(self, taken: "_Taken", drop: Drop) -> None:
        """End a message that can never be delivered: counted, logged, kept as a dead letter, never retried."""
        message = taken.message
        self._metrics.dropped[drop.reason] += 1
        delivery = taken.delivery
        dead_id = f"{delivery.stored_ns:x}-{delivery.stream_sequence:x}"  # a lost +TERM brings it again
        headers = header_lines(message.header_block)
        self._dead_letters.put(message.subject, headers, message.data, drop, dead_id=dead_id)
        if drop.reason in TOLD_TO_SENDER:
            self._tell_sender(drop)
        self._answer(message, TERM)

    def _tell_sender(self, drop: Drop) -> None:
        told = notice(drop)
        if told is None:
            return
        self._publisher.publish(
            subjects.publish(names.HUB_IDENTITY, told.meta.channel),
            told.body,
            message_id=names.new_publish_id(),
            stream=self._config.ingress.name,
            on_outcome=_note_notice,
        )

    def _answer(self, message: Incoming, body: bytes) -> None:
        """The one place where an ingress message is acked, naked or terminated."""
        answer(self._connection, message.raw_reply, body)
        self._pull.done(message.size)

    async def _keep_clock(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECS)
            await self._clock.refresh()


class _Taken:
    """An ingress message while this router has it."""

    __slots__ = ("delivery", "message", "sent_at")

    def __init__(self, message: Incoming, delivery: Delivery) -> None:
        self.message = message
        self.delivery = delivery
        self.sent_at = 0.0


def _dropped(decided: Route, reason: Reason, detail: str) -> Drop:
    meta = decided.envelope.meta
    return Drop(reason, detail, meta.sender, meta.channel, meta.id)


def publish_live(connection: Connection, decided: Route) -> None:
    """Publish a broadcast by core NATS.

    Raises:
        TooLarge: it is above the server's limit; nothing was sent.
    """
    body = decided.envelope.body
    header = b"NATS/1.0\r\n%b\r\n" % decided.trace if decided.trace else b""
    size = len(header) + len(body)
    limit = int(connection.client.max_payload)
    if size > limit:
        raise TooLarge(f"message for {decided.destination}", size, limit)
    subject = decided.destination.encode()
    if header:
        frame = b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, len(header), size, header, body)
    else:
        frame = b"PUB %b %d\r\n%b\r\n" % (subject, size, body)
    connection.client.send(frame)


def _note_notice(outcome: Outcome) -> None:
    if isinstance(outcome, NotStored):
        log.info("a sender was not told of its undelivered message", error=outcome.description)
