"""The intake: from the inbox onto the disk, then the ack (contract §8).

inbox → classify → mailbox commit → ack → `queued`. A message is acked when its transaction is on disk, never before;
when the disk is full or the file locked nothing is acked, and the message comes again.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from hub.delivery.inbox_message import InboxMessage
from hub.mailbox import (
    Accepted,
    Cancel,
    Cancelled,
    CancelVerdict,
    Mailbox,
    MailboxClosed,
    MailboxUnavailable,
    Verdict,
)
from hub.protocol import BadName
from workers.classify import Ignored, Policy, Work, classify
from workers.progress import Addressed, Announcements

log = structlog.get_logger(__name__)

RETRY_SECS: Final = 1.0  # after a full disk or a locked file
LIVE_RETRIED_MOST: Final = 1000  # live messages cannot be given back: so many are kept and tried again


class Intake:
    """Takes direct messages in.

    Args:
        mailbox: where they are made durable.
        announcements: says `queued`.
        policy: what others may do.
        on_stop: a cancel is committed for a turn in hand: stop it.
        on_step: for tests: called with `committed` before an ack, `acked` after it.

    Attributes:
        announced: the newest turn whose `queued` was published; the executor claims up to here.
        degraded: why nothing can be taken in now; None when all is well.
        pending: how many the server had behind the newest message.
        received: messages that came, of any kind.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        announcements: Announcements,
        policy: Policy,
        *,
        on_stop: Callable[[int], None],
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        self.announced = 0
        self.received = 0
        self.pending = 0
        self.taken = 0
        self.repeats = 0
        self.degraded: str | None = None
        self._mailbox = mailbox
        self._announcements = announcements
        self._policy = policy
        self._on_stop = on_stop
        self._on_step = on_step or (lambda _: None)
        self._open: set[asyncio.Future[Accepted] | asyncio.Future[Cancelled]] = set()
        self._live_retries: set[asyncio.TimerHandle] = set()

    @property
    def in_flight(self) -> int:
        """Messages whose commit is under way."""
        return len(self._open)

    def take(self, message: InboxMessage) -> None:
        """Take one message; called out of the inbox, returns at once."""
        self.received += 1
        self.pending = message.pending
        self._take(message)

    async def drain(self, timeout_secs: float) -> None:
        """Wait until what is under way is committed and acked."""
        if self._open:
            await asyncio.wait(set(self._open), timeout=timeout_secs)
        for retry in self._live_retries:
            retry.cancel()

    def _take(self, message: InboxMessage) -> None:
        meta = message.envelope.meta
        judged = classify(message.envelope, self._policy)
        if isinstance(judged, Ignored):
            say = log.warning if judged.is_suspicious else log.debug
            say("ignored", id=meta.id, sender=meta.sender, reason=judged.reason)
            message.ack()
            return
        if isinstance(judged, Cancel):
            cancelling = self._mailbox.cancel(judged)
            self._open.add(cancelling)
            cancelling.add_done_callback(lambda done: self._on_cancelled(message, judged, done))
            return
        try:
            accepting = self._mailbox.accept(message.envelope, judged.request, reply_channel=judged.reply_channel)
        except BadName as error:
            log.warning("nobody could be answered", id=meta.id, sender=meta.sender, error=str(error))
            message.ack()
            return
        self._open.add(accepting)
        accepting.add_done_callback(lambda done: self._on_accepted(message, judged, done))

    def _on_accepted(self, message: InboxMessage, work: Work, accepting: "asyncio.Future[Accepted]") -> None:
        self._open.discard(accepting)
        error = accepting.exception()
        if error is not None:
            self._give_back(message, error)
            return
        self.degraded = None
        self._on_step("committed")
        message.ack()
        self._on_step("acked")
        accepted = accepting.result()
        meta = message.envelope.meta
        if accepted.verdict is Verdict.REPEAT:
            self.repeats += 1
        else:
            self.taken += 1
            log.debug("taken", id=meta.id, sender=meta.sender, verdict=accepted.verdict.value, turn=accepted.seq)
        if accepted.status is not None:
            self._announcements.status(Addressed(meta.sender, meta.id, work.reply_channel), accepted.status)
        self.announced = max(self.announced, accepted.seq)
        if accepted.must_stop:
            self._on_stop(accepted.seq)
        self._mailbox.turns.ready.set()

    def _on_cancelled(self, message: InboxMessage, cancel: Cancel, cancelling: "asyncio.Future[Cancelled]") -> None:
        self._open.discard(cancelling)
        error = cancelling.exception()
        if error is not None:
            self._give_back(message, error)
            return
        self.degraded = None
        message.ack()
        cancelled = cancelling.result()
        log.info("cancel", task_id=cancel.task_id, by=cancel.requested_by, verdict=cancelled.verdict.value)
        if cancelled.verdict is CancelVerdict.STOP and cancelled.seq is not None:
            self._on_stop(cancelled.seq)

    def _give_back(self, message: InboxMessage, error: BaseException) -> None:
        """Not on disk, so not acked: it comes again."""
        if isinstance(error, MailboxClosed):
            return  # this process ends; the server has it
        if self.degraded is None:
            log.error("cannot take messages in; nothing is acked, they come again", error=str(error))
        self.degraded = str(error)
        if message.is_durable or not isinstance(error, MailboxUnavailable):
            message.nak(RETRY_SECS)  # a mailbox that is broken for good ends the process: see its `failed`
        elif len(self._live_retries) < LIVE_RETRIED_MOST:
            retry: asyncio.TimerHandle = asyncio.get_running_loop().call_later(
                RETRY_SECS, lambda: self._again(retry, message)
            )
            self._live_retries.add(retry)
        else:
            log.error("a live message is lost: too many wait for the disk", id=message.envelope.meta.id)
            message.nak()

    def _again(self, retry: asyncio.TimerHandle, message: InboxMessage) -> None:
        self._live_retries.discard(retry)
        self._take(message)
