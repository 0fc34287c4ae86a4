"""The ledger of an inbox: what came, what is in its user's hands, what is acked; the one place where a DM is answered.

Nothing here waits: messages come out of the parser, and leave by a plain function.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from hub.delivery.ack_floor import AckFloor
from hub.delivery.connection import Connection
from hub.delivery.dedupe import AckedMemory
from hub.delivery.inbox_message import InboxMessage
from hub.delivery.nats_client import Incoming
from hub.delivery.pull import ACK, IN_PROGRESS, ContinuousPull, answer, nak, read_delivery
from hub.delivery.sieve import UNFIT, Dropped, Sifted, sift

log = structlog.get_logger(__name__)

LIVE_HELD_MOST: Final = 4096  # live messages need no ack; more unacked ones than this are not remembered as in hand


class Ledger:
    """Takes messages of one inbox in, once each, and settles them.

    A message is *held* from its arrival until it is acked or naked. What comes again while it is held, or after it was
    acked, is a repeat and goes no further.

    Args:
        connection: the connection; acks go out on it.
        subject: the inbox's subject, `channel.inbox.<id>`.
        take: gets each message that is new; must not block. When it raises, the message comes again.
        acked: the memory of acked messages.
        judge_payload: drop what has a payload that receivers refuse.
        counters: where its numbers go.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        subject: str,
        take: Callable[[InboxMessage], None],
        acked: AckedMemory,
        judge_payload: bool,
        counters: Counter[str],
    ) -> None:
        self.ack_wait_secs = 30.0  # contract §4, until somebody says
        self._connection = connection
        self._subject = subject
        self._take = take
        self._acked = acked
        self._judge_payload = judge_payload
        self._counters = counters
        self._held: dict[tuple[str, str], InboxMessage] = {}  # oldest first
        self._floor = AckFloor()

    @property
    def held(self) -> int:
        """Messages that are neither acked nor naked."""
        return len(self._held)

    @property
    def ack_floor(self) -> int:
        """The stream sequence up to which everything is acked; 0 when nothing is known."""
        return self._floor.floor(time.monotonic())

    def take_live(self, incoming: Incoming) -> None:
        """A message of the live subscription."""
        if incoming.status:
            return
        sifted = self._sift(incoming)
        if sifted is None:
            return
        if sifted.key in self._acked or sifted.key in self._held:
            self._counters["repeats"] += 1
            return
        self._take_in(InboxMessage(self, sifted.envelope, sifted.payload))
        self._forget_old_live()

    def take_durable(self, pull: ContinuousPull, incoming: Incoming) -> None:
        """A delivery of the consumer."""
        delivery = read_delivery(incoming.raw_reply)
        if delivery is None:
            self._count_dropped(incoming, Dropped(UNFIT, "no delivery of a consumer"))
            pull.done(incoming.size)
            return
        sequence = delivery.stream_sequence
        self._floor.delivered(
            sequence,
            delivery.consumer_sequence,
            is_first=delivery.delivered == 1,
            now=time.monotonic(),
            ack_wait_secs=self.ack_wait_secs,
        )
        sifted = self._sift(incoming)
        if sifted is None or sifted.key in self._acked:
            self._counters["repeats"] += sifted is not None
            self._answer_unneeded(pull, incoming, sequence)
            return
        held = self._held.get(sifted.key)
        if held is not None:
            self._counters["repeats"] += 1
            if held.reply and held.sequence != sequence:
                # Stored twice: this copy is not needed, the other one stays until it is acked.
                self._answer_unneeded(pull, incoming, sequence)
                return
            if held.pull is pull:
                pull.done(held.size)  # its place in the window is taken again
            if held.sequence != sequence:
                self._floor.settled(held.sequence)  # it has another place now
        message = held or InboxMessage(self, sifted.envelope, sifted.payload)
        message.reply = incoming.raw_reply
        message.sequence = sequence
        message.delivered = delivery.delivered
        message.pending = delivery.pending
        message.size = incoming.size
        message.pull = pull
        if held is None:
            self._take_in(message)

    def attached(self) -> None:
        """A consumer was attached that is not the one before, or was made again.

        Acks of what is held must not reach it: a new stream counts from 1 again. What is held is bound to the new
        consumer when that delivers it.
        """
        self.detach()
        self._floor.attached(time.monotonic(), self.ack_wait_secs)

    def forget_floor(self) -> None:
        """The stream is another one: no place in the old one means anything in it."""
        self._floor = AckFloor()

    def detach(self) -> None:
        """The consumer is gone: what is held has nowhere to be acked."""
        for message in self._held.values():
            message.reply = b""

    def extend(self) -> None:
        """Tell the server, for everything that is held, that it is being worked on."""
        for message in self._held.values():
            if message.reply:
                answer(self._connection, message.reply, IN_PROGRESS)
                self._counters["extended"] += 1

    def settle(self, message: InboxMessage, *, is_acked: bool, delay_secs: float = 0.0) -> None:
        """Take back a message (see `InboxMessage.ack` and `nak`)."""
        if message.is_settled:
            return
        message.is_settled = True
        self._held.pop(message.key, None)
        self._counters["acked" if is_acked else "naked"] += 1
        if is_acked:
            self._acked.remember(*message.key)
            self._floor.settled(message.sequence)
        if message.reply:
            answer(self._connection, message.reply, ACK if is_acked else nak(delay_secs))
        if message.pull is not None:
            message.pull.done(message.size)

    def count_overflow(self) -> None:
        """A live message was dropped since its reader is too slow."""
        self._counters["dropped_overflow"] += 1
        if self._counters["dropped_overflow"] % 1000 == 1:
            dropped = self._counters["dropped_overflow"]
            log.error("the inbox's reader is too slow; live messages are dropped", inbox=self._subject, dropped=dropped)

    def _sift(self, incoming: Incoming) -> Sifted | None:
        if incoming.subject == self._subject:
            sifted = sift(incoming.subject, incoming.data, judge_payload=self._judge_payload)
        else:
            sifted = Dropped(UNFIT, "the subject is not this inbox")
        if isinstance(sifted, Sifted):
            return sifted
        self._count_dropped(incoming, sifted)
        return None

    def _count_dropped(self, incoming: Incoming, dropped: Dropped) -> None:
        self._counters[f"dropped_{dropped.reason}"] += 1
        log.warning(
            "message dropped",
            reason=dropped.reason,
            detail=dropped.detail,
            subject=ascii(incoming.subject)[:200],
            size=len(incoming.data),
        )

    def _answer_unneeded(self, pull: ContinuousPull, incoming: Incoming, sequence: int) -> None:
        answer(self._connection, incoming.raw_reply, ACK)
        self._floor.settled(sequence)
        pull.done(incoming.size)

    def _take_in(self, message: InboxMessage) -> None:
        self._counters["received"] += 1
        self._held[message.key] = message
        try:
            self._take(message)
        except Exception:
            # Whatever the taker's fault is: a message that stays held would never be handed out again.
            log.exception("taking a message failed; it comes again", message=repr(message))
            message.nak(1.0)

    def _forget_old_live(self) -> None:
        while len(self._held) > LIVE_HELD_MOST:
            oldest = next(iter(self._held.values()))
            if oldest.reply or not oldest.is_handed:
                return
            oldest.ack()
