"""A pipelined publisher into JetStream streams: many acks in flight, each with a deadline, outcomes by callback.

nats-py's `publish_async` never resolves a future whose ack was lost or refused and keeps its window slot; here each
publish is a row in a table of our own, and ends as stored, refused or unknown, once.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from hub.delivery.connection import Connection
from hub.delivery.nats_client import Incoming
from hub.protocol import TooLarge

log = structlog.get_logger(__name__)

ACK_DEADLINE_SECS: Final = 5.0  # nats-server acks within milliseconds; one that takes longer is asked again, same id
SWEEP_SECS: Final = 0.5


class Stored(msgspec.Struct, frozen=True, gc=False):
    """The store's ack: the message is in the stream.

    Attributes:
        stream: the stream that took it.
        sequence: its place there.
        duplicate: True when a message with this id was there already.
    """

    stream: str
    sequence: int
    duplicate: bool


class NotStored(msgspec.Struct, frozen=True):
    """The publish did not end as stored.

    Attributes:
        reason: `refused` (the store said no), `no_stream` (nobody took it), `timeout` (no ack in time, or the publisher
            was stopped: unknown).
        err_code: JetStream's error code, 0 when there is none.
        description: for people.
    """

    reason: str
    err_code: int = 0
    description: str = ""


Outcome = Stored | NotStored
OnOutcome = Callable[[Outcome], None]


class _AckError(msgspec.Struct):
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: _AckError | None = None


_HEADER_BYTES: Final = len("NATS/1.0\r\nNats-Msg-Id: \r\nNats-Expected-Stream: \r\n\r\n")

_decode_ack = msgspec.json.Decoder(_Ack).decode


class StorePublisher:
    """Publishes with acks, pipelined.

    Args:
        connection: the connection; it is never closed here.
        deadline_secs: after this long without an ack a publish ends as `timeout`.
    """

    def __init__(self, connection: Connection, *, deadline_secs: float = ACK_DEADLINE_SECS) -> None:
        self._connection = connection
        self._deadline_secs = deadline_secs
        self._inbox = ""
        self._prefix_length = 0
        self._sid: int | None = None
        self._number = 0
        self._flying: dict[bytes, tuple[float, OnOutcome]] = {}  # token → (deadline, callback); oldest first
        self._sweeper: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def in_flight(self) -> int:
        """Publishes whose outcome is open."""
        return len(self._flying)

    async def start(self) -> None:
        """Begin. Starting twice is fine."""
        if self._sid is not None:
            return
        self._inbox = self._connection.new_reply_subject()
        self._prefix_length = len(self._inbox) + 1
        self._sid = await self._connection.client.subscribe_direct(f"{self._inbox}.*", self._on_ack)
        self._sweeper = self._connection.own(self._sweep(), name="publish-deadlines")

    async def stop(self, *, drain_secs: float = 0.0) -> None:
        """End it; wait up to `drain_secs` for open outcomes first, the rest end as `timeout`."""
        if self._sid is None:
            return
        if drain_secs > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(drain_secs):
                    await self._idle.wait()
        sid, self._sid = self._sid, None
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait({self._sweeper})
        await self._connection.client.unsubscribe_direct(sid)
        for token in list(self._flying):
            self._end(token, NotStored("timeout", description="the publisher was stopped"))

    def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        message_id: str,
        stream: str,
        on_outcome: OnOutcome,
        more_headers: bytes = b"",
    ) -> None:
        """Publish; exactly one outcome follows, from the loop. A publisher that does not run sends nothing.

        Args:
            subject: where to; validated.
            payload: the body.
            message_id: `Nats-Msg-Id`, the key by which the stream drops repeats; printable ASCII.
            stream: the stream that must take it (`Nats-Expected-Stream`); ASCII as every name.
            on_outcome: called once; must not raise.
            more_headers: further header lines, each ended by CR LF.

        Raises:
            TooLarge: it is above the server's limit; nothing was sent.
        """
        header_size = _HEADER_BYTES + len(message_id) + len(stream) + len(more_headers)
        size = header_size + len(payload)
        client = self._connection.client
        if size > client.max_payload:
            raise TooLarge(f"message for {subject}", size, client.max_payload)
        if self._sid is None:
            not_running = NotStored("timeout", description="the publisher does not run")
            asyncio.get_running_loop().call_soon(on_outcome, not_running)
            return
        self._number += 1
        if not self._flying:
            self._idle.clear()
        self._flying[b"%d" % self._number] = (time.monotonic() + self._deadline_secs, on_outcome)
        # One text, one encoding: a router pays for each step with every message.
        head = (
            f"HPUB {subject} {self._inbox}.{self._number} {header_size} {size}\r\n"
            f"NATS/1.0\r\nNats-Msg-Id: {message_id}\r\nNats-Expected-Stream: {stream}\r\n"
        ).encode()
        client.send(head + more_headers + b"\r\n", payload)

    async def publish_and_wait(
        self, subject: str, payload: bytes, *, message_id: str, stream: str, more_headers: bytes = b""
    ) -> Outcome:
        """As `publish`, returning the outcome."""
        waiting: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def settle(outcome: Outcome) -> None:
            if not waiting.done():
                waiting.set_result(outcome)

        self.publish(
            subject, payload, message_id=message_id, stream=stream, on_outcome=settle, more_headers=more_headers
        )
        return await waiting

    def _on_ack(self, message: Incoming) -> None:
        token = message.raw_subject[self._prefix_length :]
        if message.header_block and message.status == 503:
            self._end(token, NotStored("no_stream", description="no stream takes this subject"))
            return
        try:
            ack = _decode_ack(message.data)
        except msgspec.DecodeError:
            log.warning("an ack that is none", subject=message.subject, size=len(message.data))
            return  # the deadline settles it
        if ack.error is not None:
            self._end(token, NotStored("refused", ack.error.err_code, ack.error.description))
        elif ack.stream:
            self._end(token, Stored(ack.stream, ack.seq, ack.duplicate))

    def _end(self, token: bytes, outcome: Outcome) -> None:
        flying = self._flying.pop(token, None)
        if not self._flying:
            self._idle.set()
        if flying is not None:
            flying[1](outcome)

    async def _sweep(self) -> None:
        """End what waits too long."""
        while True:
            await asyncio.sleep(SWEEP_SECS)
            now = time.monotonic()
            overdue = []
            for token, (deadline, _) in self._flying.items():
                if deadline > now:
                    break  # in order of their publishes
                overdue.append(token)
            for token in overdue:
                self._end(token, NotStored("timeout", description=f"no ack within {self._deadline_secs:g} s"))
