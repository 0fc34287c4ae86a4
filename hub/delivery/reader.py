"""The reader of stored channels: reads task, session and wave channels back from their stream (contract §7).

It works with an agent's grants alone: `$JS.API.DIRECT.GET.<tasks stream>` and its own reply subjects.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog
from nats import errors as nats_errors
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type
from tenacity.wait import wait_exponential

from hub.delivery.connection import Connection
from hub.delivery.dedupe import AckedMemory
from hub.delivery.errors import NoResponders, NotConnected, PermissionDenied, RequestTimedOut
from hub.delivery.nats_client import Incoming
from hub.delivery.refusals import JetStreamError
from hub.protocol import BadEnvelope, BadName, Envelope, names, parse, subjects

log = structlog.get_logger(__name__)

_BATCH_MESSAGES: Final = 256
_BATCH_BYTES: Final = 4 * 1024 * 1024  # what one batch may hold in memory, plus one message
_REMEMBERED: Final = (
    16_384  # more than a stream keeps of one subject by default (10 000), so that a re-read repeats none
)
_QUIET_SECS: Final = 2.0  # an answer that says nothing for so long was lost, mostly with its connection: ask again
_LOOK_SECS: Final = 0.1  # how often a wait looks for a refusal by the server, which comes beside the answer
_RETRY_SECS: Final = 0.1
_RETRY_MOST_SECS: Final = 1.0
_NO_RESPONDERS_TRIES: Final = 4  # a reload of the server makes a hole of milliseconds; a core hub never answers

_END_OF_BATCH: Final = 204
_NOT_FOUND: Final = 404
_NO_RESPONDERS: Final = 503


class Position(msgspec.Struct, frozen=True):
    """Where a reader stands: the last message that it read.

    Attributes:
        sequence: its sequence in the stream.
        stamp: when it was stored, as the server writes it. An agent cannot see when a stream was created (contract §4);
            a message of this sequence and another time tells as well that it is another stream.
    """

    sequence: int
    stamp: str


class StoredMessage(msgspec.Struct, frozen=True):
    """One envelope of a stored channel.

    Attributes:
        envelope: what was stored.
        sequence: its sequence in the stream.
        stored_at: when, by the server's clock; aware.
    """

    envelope: Envelope
    sequence: int
    stored_at: datetime


class _Stored(msgspec.Struct, frozen=True):
    """A message as the server hands it out."""

    sequence: int
    stamp: str
    data: bytes


class _Batch(msgspec.Struct, frozen=True):
    """One answer: some messages in order, and whether there are more behind them."""

    messages: list[_Stored]
    last_sequence: int
    has_more: bool


class StoredChannelReader:
    """Reads one stored channel from its start, and from then on what is new.

    Nothing that is stored there stops it: what is no envelope, or one of another channel, is skipped and counted;
    repeats by `(from, id)` are dropped. When the stream was lost and made again, or what was read last has left it, it
    reads from the start again.

    Args:
        connection: the client's.
        channel: `task.<id>`, `session.<id>`, `wave.<id>` or `wave.<id>.task.<id>`.
        tasks_stream, js_prefix: as the attach said; by default as the connection is configured.
        after: where an earlier reader stood.

    Attributes:
        position: the last message that was read, None before the first.
        skipped: how many stored messages were no envelopes of this channel.

    Raises:
        BadName: the channel is none that is stored.
    """

    def __init__(
        self,
        connection: Connection,
        channel: str,
        *,
        tasks_stream: str | None = None,
        js_prefix: str | None = None,
        after: Position | None = None,
    ) -> None:
        if not names.is_stored_channel(names.channel(channel)):
            raise BadName("channel", channel, f"one that is stored: {names.RESERVED_RULE}")
        stream = names.token(tasks_stream or connection.settings.tasks_stream, "stream")
        self._connection = connection
        self._channel = channel
        self._subject = subjects.channel(channel)
        self._api_subject = f"{js_prefix or connection.settings.js_prefix}.DIRECT.GET.{stream}"
        self._done = AckedMemory(_REMEMBERED)
        self.position = after
        self.skipped = 0

    async def read(self, *, deadline_secs: float = 10.0) -> AsyncIterator[StoredMessage]:
        """What is stored behind the position, in order; ends at the newest. One read at a time.

        A read that is left early, or fails, has read what it handed out; the next one goes on behind it.

        Args:
            deadline_secs: for all waiting on the server together; the time between two messages, which is the caller's,
                counts too.

        Raises:
            RequestTimedOut: the server did not answer by the deadline.
            NoResponders: no such stream, or a hub in core mode: nothing is stored.
            PermissionDenied: this identity may not read stored channels.
            JetStreamError: the server refused the request.
            NotConnected: the connection is closed.
        """
        deadline = asyncio.get_running_loop().time() + deadline_secs
        anchor = self.position
        # The last message that was read is asked for again: that it comes first proves that the stream is the same one.
        start = anchor.sequence if anchor else 1
        while True:
            batch = await self._fetch(start, deadline, deadline_secs)
            messages = batch.messages
            if anchor is not None:
                if not messages or Position(messages[0].sequence, messages[0].stamp) != anchor:
                    anchor = self.position = None
                    start = 1
                    continue
                anchor = None
                messages = messages[1:]
            for stored in messages:
                self.position = Position(stored.sequence, stored.stamp)
                message = self._take(stored)
                if message is not None:
                    yield message
            if not batch.has_more:
                return
            start = batch.last_sequence + 1

    def _take(self, stored: _Stored) -> StoredMessage | None:
        """The message as an envelope of this channel that was not there before; else None."""
        try:
            envelope = parse(stored.data)
            stored_at = datetime.fromisoformat(stored.stamp)
        except (BadEnvelope, ValueError) as error:
            self._skip(stored, str(error))
            return None
        meta = envelope.meta
        if meta.channel != self._channel:
            self._skip(stored, f"it is of channel {meta.channel[:80]!a}")
            return None
        if (meta.sender, meta.id) in self._done:
            return None
        self._done.remember(meta.sender, meta.id)
        return StoredMessage(envelope, stored.sequence, stored_at)

    def _skip(self, stored: _Stored, reason: str) -> None:
        self.skipped += 1
        log.debug("stored message skipped", channel=self._channel, sequence=stored.sequence, reason=reason)

    async def _fetch(self, start: int, deadline: float, deadline_secs: float) -> _Batch:
        """One batch from a sequence on, asked again while answers get lost."""
        loop = asyncio.get_running_loop()

        def is_over(state: RetryCallState) -> bool:
            error = state.outcome.exception() if state.outcome else None
            tries_are_over = isinstance(error, NoResponders) and state.attempt_number >= _NO_RESPONDERS_TRIES
            return tries_are_over or loop.time() >= deadline

        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((RequestTimedOut, NoResponders)),
            stop=is_over,
            wait=wait_exponential(multiplier=_RETRY_SECS, max=_RETRY_MOST_SECS),
            reraise=True,
        ):
            with attempt:
                if loop.time() >= deadline:
                    raise RequestTimedOut(self._api_subject, deadline_secs)
                return await self._ask(start, deadline)
        raise AssertionError("unreachable: the last try returns or raises")

    async def _ask(self, start: int, deadline: float) -> _Batch:
        request = {
            "seq": start,
            "next_by_subj": self._subject,
            "batch": _BATCH_MESSAGES,
            "max_bytes": _BATCH_BYTES,
        }
        answer = _Answer(start, asyncio.get_running_loop().time)
        reply = self._connection.new_reply_subject()
        denials = self._denials()
        try:
            sid = await self._connection.client.subscribe_direct(reply, answer.take)
        except nats_errors.ConnectionClosedError:
            raise NotConnected from None
        try:
            await self._connection.publish(self._api_subject, msgspec.json.encode(request), reply=reply)
            while not await answer.wait(min(deadline, answer.heard_at + _QUIET_SECS)):
                if self._denials() > denials:
                    raise PermissionDenied("publish", self._api_subject, self._connection.identity)
        finally:
            await self._connection.client.unsubscribe_direct(sid)
        return answer.batch(self._api_subject)

    def _denials(self) -> int:
        return self._connection.denied.get(("publish", self._api_subject.lower()), 0)


class _Answer:
    """Collects the messages of one answer until its end, an error, or silence."""

    def __init__(self, start: int, clock: Callable[[], float]) -> None:
        self._start = start
        self._messages: list[_Stored] = []
        self._last_sequence = start - 1
        self._has_more = True
        self._status = 0
        self._description = ""
        self._ended = asyncio.Event()
        self._clock = clock
        self._began_at = self._clock()
        self.heard_at = self._began_at

    def take(self, message: Incoming) -> None:
        """Take one message out of the parser; whatever it holds, this does not raise."""
        if self._ended.is_set():
            return
        self.heard_at = self._clock()
        headers = message.headers()
        if message.status:
            self._end(message.status, headers)
            return
        sequence = _number(headers.get("Nats-Sequence"))
        if sequence > self._last_sequence:  # the server hands out in order; anything else is none of its
            self._messages.append(_Stored(sequence, headers.get("Nats-Time-Stamp", ""), message.data))
            self._last_sequence = sequence
        if "Nats-Num-Pending" not in headers:  # a server that knows no batches answers with one message
            self._has_more = bool(self._messages)
            self._ended.set()

    def _end(self, status: int, headers: dict[str, Any]) -> None:
        self._ended.set()
        if status == _END_OF_BATCH:
            self._last_sequence = max(self._last_sequence, _number(headers.get("Nats-Last-Sequence")))
            is_ahead = self._last_sequence >= self._start
            self._has_more = is_ahead and _number(headers.get("Nats-Num-Pending")) > 0
        elif status == _NOT_FOUND:
            self._has_more = False
        else:
            self._status, self._description = status, headers.get("Description", "refused without a word")

    async def wait(self, until: float) -> bool:
        """Wait a little, at most until this time of the loop's clock; True when there is nothing more to wait for."""
        remaining = until - self._clock()
        if remaining <= 0:
            return True
        try:
            async with asyncio.timeout(min(remaining, _LOOK_SECS)):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def batch(self, subject: str) -> _Batch:
        """What came.

        Raises:
            NoResponders, JetStreamError, RequestTimedOut: nothing did, and why.
        """
        if self._status == _NO_RESPONDERS:
            raise NoResponders(subject)
        if self._status:
            raise JetStreamError(f"read from {subject}", self._status, 0, self._description)
        if not self._ended.is_set() and not self._messages:
            raise RequestTimedOut(subject, self._clock() - self._began_at)
        return _Batch(self._messages, self._last_sequence, self._has_more)


def _number(text: str | None) -> int:
    """A header's number; 0 for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else 0
