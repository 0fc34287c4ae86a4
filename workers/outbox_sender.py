"""The sender of results: from the outbox on disk to the hub, until it has them (contract §8)."""

import asyncio
import contextlib
import time
from typing import Any, Final

import msgspec
import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, wait_exponential

from hub.client.publish_answer import TOO_LARGE_ERRORS, StoreError, decode_publish_answer
from hub.delivery.connection import Connection, header_size
from hub.delivery.errors import DeliveryError
from hub.mailbox import Mailbox, MailboxUnavailable, OutboxRow, Outgoing
from hub.protocol import make, names, parse, subjects

log = structlog.get_logger(__name__)

IN_FLIGHT_MOST: Final = 128
ANSWER_SECS: Final = 2.0  # a store acks within milliseconds; what takes longer was lost, mostly with its connection
FIRST_PAUSE_SECS: Final = 0.1
LONGEST_PAUSE_SECS: Final = 2.0  # how late a result is after a hub came back
COMPLAIN_EVERY_SECS: Final = 30.0
STOPPED_POLL_SECS: Final = 0.02


class _NotYet(Exception):
    """Nobody has it yet; it is published again under the same id."""


class _TooLarge(Exception):
    """It cannot be published as it is."""

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(f"{size} bytes, at most {limit} fit")


class OutboxSender:
    """Publishes what the outbox holds: a row leaves it when the ingress stream or a core router has acked it.

    Many rows are in flight at once, but those of one task, session or wave channel one by one, in the order in which
    their turns ended: each is tried again at its own pace, and after an outage a later one would overtake.

    Args:
        connection: the worker's connection.
        mailbox: whose outbox.
        on_step: for tests: called with `published` when a row was acked and is not yet forgotten.
    """

    def __init__(self, connection: Connection, mailbox: Mailbox, *, on_step: Any = None) -> None:
        self.sent = 0
        self._connection = connection
        self._mailbox = mailbox
        self._on_step = on_step
        self._task: asyncio.Task[None] | None = None
        self._complained_at = -COMPLAIN_EVERY_SECS
        self._newest: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin. Starting twice is fine."""
        if self._task is None:
            self._task = self._connection.own(self._run(), name="outbox")

    async def stop(self, *, drain_secs: float) -> int:
        """Send what is there, for at most `drain_secs`; returns how many rows stay on disk."""
        left = await self._mailbox.outbox.count()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_secs):
                while left and self._task is not None and not self._task.done():
                    await asyncio.sleep(STOPPED_POLL_SECS)  # rows leave one by one, each after its ack
                    left = await self._mailbox.outbox.count()
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait({task})
        return await self._mailbox.outbox.count()

    async def _run(self) -> None:
        ready = self._mailbox.outbox.ready
        free = asyncio.Semaphore(IN_FLIGHT_MOST)
        async with asyncio.TaskGroup() as group:
            while True:
                await ready.wait()
                await free.acquire()
                free.release()
                rows = await self._mailbox.outbox.take(IN_FLIGHT_MOST // 2)
                for row in rows:
                    await free.acquire()
                    self._begin(group, row).add_done_callback(lambda _: free.release())

    def _begin(self, group: asyncio.TaskGroup, row: OutboxRow) -> "asyncio.Task[None]":
        sending = group.create_task(self._send(row, after=self._newest.get(row.channel)), name=f"result {row.seq}")
        if names.is_stored_channel(row.channel):
            self._newest[row.channel] = sending
            sending.add_done_callback(lambda done: self._forget(row.channel, done))
        return sending

    def _forget(self, channel: str, sending: "asyncio.Task[None]") -> None:
        if self._newest.get(channel) is sending:
            del self._newest[channel]

    async def _send(self, row: OutboxRow, *, after: "asyncio.Task[None] | None" = None) -> None:
        """Publish one row until it is acked, then forget it; `after` goes first."""
        tries = AsyncRetrying(
            retry=retry_if_exception_type((_NotYet, DeliveryError, MailboxUnavailable)),
            wait=wait_exponential(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS),
            before_sleep=lambda state: self._complain(row, state.outcome.exception() if state.outcome else None),
        )
        try:
            if after is not None:
                await asyncio.wait({after})
            try:
                await tries(self._publish, row)
            except _TooLarge as error:
                await tries(self._mailbox.outbox.replace, row, _told_too_large(row, error))
                log.error("a result does not fit: its sender is told", channel=row.channel, error=str(error))  # noqa: TRY400
                return
            if self._on_step is not None:
                self._on_step("published")
            await tries(self._mailbox.outbox.sent, row)
            self.sent += 1
        except asyncio.CancelledError:
            self._mailbox.outbox.give_back(row)
            raise

    async def _publish(self, row: OutboxRow) -> None:
        headers = {"Nats-Msg-Id": row.publish_id}
        size, limit = len(row.body) + header_size(headers), self._connection.usable_size
        if not self._connection.is_connected:
            raise _NotYet("disconnected")
        if size > limit:
            raise _TooLarge(size, limit)
        subject = subjects.publish(self._mailbox.identity, row.channel)
        answer = await self._connection.request(subject, row.body, timeout_secs=ANSWER_SECS, headers=headers)
        try:
            said = decode_publish_answer(answer.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _NotYet("the answer could not be read") from None
        if isinstance(said.error, StoreError):
            if said.error.err_code in TOO_LARGE_ERRORS:
                raise _TooLarge(size, size - 1)
            raise _NotYet(f"the store refused it: {said.error.description}")
        # `duplicate` too: only a publish of ours, before this one, can have carried these 128 random bits.
        if not said.stream and said.ok is not True:
            raise _NotYet(str(said.error or "the answer is no ack"))

    def _complain(self, row: OutboxRow, error: BaseException | None) -> None:
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_EVERY_SECS:
            self._complained_at = now
            log.warning("results wait in the outbox", channel=row.channel, reason=str(error))


def _told_too_large(row: OutboxRow, error: _TooLarge) -> Outgoing:
    """The row's envelope with an error in place of its result; the server's limit shrank since it was written."""
    envelope = parse(row.body)
    payload = dict(msgspec.json.decode(envelope.payload_json))
    payload |= {
        "status": "error",
        "result": None,
        "code": "too_large",
        "error": f"the result is too large: its message has {error.size} bytes, at most {error.limit} fit",
    }
    meta = envelope.meta
    made = make(
        sender=meta.sender, channel=meta.channel, to=meta.to, reply_to=meta.reply_to, payload=payload, id=meta.id
    )
    return Outgoing(channel=row.channel, body=made.body)
