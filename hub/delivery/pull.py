"""A continuous pull: messages of a durable pull consumer into a plain callback, for ever.

One subscription, a window of credit, and pull requests that are issued ahead of need. The window bounds what is asked
for plus what is in hand, in messages and in bytes, so a slow owner slows the pull and nothing is dropped in between.
A message that is larger than the bytes which are left passes all the same, alone. It never sits silent: a
request expires within 30 s, the server's idle heartbeats prove the way, a watchdog asks anew when they stop, and every
reconnect asks anew at once (the requests under way died with the connection).
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from hub.delivery.connection import Connection
from hub.delivery.nats_client import Incoming

log = structlog.get_logger(__name__)

EXPIRES_SECS: Final = 30.0  # contract §5: a pull expires within 30 s (each one through an import pins memory that long)
HEARTBEAT_SECS: Final = 5.0  # keeps an import's mapping alive, and is how silence is told from an empty stream
SILENCE_SECS: Final = 3 * HEARTBEAT_SECS
RETRY_SECS: Final = 1.0  # after a refusal; the consumer may be made again meanwhile
WINDOW_BYTES: Final = 32 * 1024 * 1024  # in one process's memory: four of the largest messages, and many of the usual
REFILL_SHARE: Final = 4  # ask again when a quarter of the window is free: few requests, and never an idle server

Gone = Callable[[str], None]


class ContinuousPull:
    """Pull from one consumer into a callback.

    The callback gets each message once per delivery and must not block or raise; call `done` for each when its work is
    over (acked, naked or dropped), which frees its place in the window and its bytes.

    Args:
        connection: the connection; it is never closed here.
        stream, consumer: the durable pull consumer.
        callback: takes a message; plain function.
        window: at most this many messages asked for or in hand.
        window_bytes: at most so many bytes of them, as the server counts them, plus one message.
        on_gone: told the reason when the server says that the consumer is not there; the pull goes on trying.
        js_prefix: the JetStream API prefix, the connection's own when None.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        stream: str,
        consumer: str,
        callback: Callable[[Incoming], None],
        window: int,
        window_bytes: int = WINDOW_BYTES,
        on_gone: Gone | None = None,
        js_prefix: str | None = None,
    ) -> None:
        self.stream = stream
        self.consumer = consumer
        self.in_hand = 0
        self.in_hand_bytes = 0
        self.asked = 0  # credit that the server has and has not used
        self.asked_bytes = 0
        self.received = 0
        self._connection = connection
        self._callback = callback
        self._window = window
        self._window_bytes = window_bytes
        self._place_bytes = max(1, window_bytes // window)
        self._is_larger = False  # the next message than the bytes of any request
        self._refill_at = max(1, window // REFILL_SHARE)
        self._on_gone = on_gone
        prefix = connection.settings.js_prefix if js_prefix is None else js_prefix
        self._subject = f"{prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = ""
        self._sid: int | None = None
        self._generation = 0
        self._request_number = 0
        self._last_heard = 0.0
        self._watchdog: asyncio.Task[None] | None = None
        self._remove_reconnect: Callable[[], None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._is_paused = False

    @property
    def is_running(self) -> bool:
        """Does it ask for messages?"""
        return self._sid is not None

    async def start(self) -> None:
        """Begin. Starting twice is fine."""
        if self._sid is not None:
            return
        self._inbox = self._connection.new_reply_subject()
        self._sid = await self._connection.client.subscribe_direct(f"{self._inbox}.*.*", self._on_message)
        self._remove_reconnect = self._connection.on_reconnect(self._on_reconnect)
        self._last_heard = time.monotonic()
        self._watchdog = self._connection.own(self._watch(), name=f"pull-watchdog {self.consumer}")
        self._ask()

    async def stop(self) -> None:
        """Ask no more; returns when nothing more can come. What came until then went to the callback."""
        if self._sid is None:
            return
        sid, self._sid = self._sid, None
        if self._remove_reconnect is not None:
            self._remove_reconnect()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._watchdog is not None:
            self._watchdog.cancel()
            await asyncio.wait({self._watchdog})
        await self._connection.client.unsubscribe_direct(sid)

    def pause(self) -> None:
        """Ask for nothing new until `resume`; what was asked for still comes."""
        self._is_paused = True

    def resume(self) -> None:
        """Go on asking."""
        self._is_paused = False
        self._ask()

    def done(self, size: int, count: int = 1) -> None:
        """So many messages are out of hand: their places in the window are free, and their bytes (`Incoming.size`)."""
        self.in_hand -= count
        self.in_hand_bytes -= size
        if self._window - self.asked - self.in_hand >= self._refill_at or self.asked <= 0:
            self._ask()

    def ask_anew(self) -> None:
        """Forget the requests under way and ask again, as after a reconnect or when the consumer was made again."""
        self._generation += 1
        self.asked = self.asked_bytes = 0
        self._ask()

    def _ask(self) -> None:
        if self._sid is None or self._is_paused or not self._connection.is_connected:
            return  # a reconnect asks by itself
        batch = self._window - self.asked - self.in_hand
        # Each place brings its share of the bytes: a request that took all of them would leave none for the next.
        most_bytes = min(batch * self._place_bytes, self._window_bytes - self.asked_bytes - self.in_hand_bytes)
        if batch < 1 or most_bytes < 1:
            return
        self._request_number += 1
        request = {"expires": int(EXPIRES_SECS * 1e9), "idle_heartbeat": int(HEARTBEAT_SECS * 1e9)}
        if self._is_larger:
            self._is_larger, batch, most_bytes = False, 1, 0
        else:
            request["max_bytes"] = most_bytes
        request["batch"] = batch
        body = msgspec.json.encode(request)
        reply = f"{self._inbox}.{self._generation}.{self._request_number}"
        self._connection.client.send(
            b"PUB %b %b %d\r\n%b\r\n" % (self._subject.encode(), reply.encode(), len(body), body)
        )
        self.asked += batch
        self.asked_bytes += most_bytes

    def _on_message(self, message: Incoming) -> None:
        self._last_heard = time.monotonic()
        if message.header_block and (status := message.status):
            self._on_status(status, message)
            return
        self.received += 1
        size = message.size
        self.in_hand += 1
        self.in_hand_bytes += size
        self._take_credit(1, size)
        try:
            self._callback(message)
        except Exception:
            # It comes again and again after ack_wait: each time it would take a place of the window for good.
            self.done(size)
            raise
        if self.asked <= 0:
            self._ask()

    def _on_status(self, status: int, message: Incoming) -> None:
        if status == 100:
            return  # idle heartbeat
        if message.subject.split(".")[-2] != str(self._generation):
            return  # of a request that was given up
        headers = message.headers()
        description = headers.get("Description", "")
        lowered = description.lower()
        if status == 408 or (status == 409 and "batch completed" in lowered):
            self._give_back(headers)
            self._ask()
        elif status == 409 and "exceeds maxbytes" in lowered:
            self._give_back(headers)
            if self.asked <= 0:  # else another request may have the bytes, or ends in the same way
                self._is_larger = True
                self._ask()
        elif status in {404, 503} or (status == 409 and "consumer" in lowered and "delet" in lowered):
            self.asked = self.asked_bytes = 0
            reason = description or ("nobody answers the pull" if status == 503 else f"status {status}")
            if self._on_gone is not None:
                self._on_gone(reason)
            self._ask_later()
        else:
            # Leadership change, server shutdown, a limit exceeded: the request is over; what it is makes no difference.
            log.info("pull ended by the server", consumer=self.consumer, status=status, reason=description)
            self._give_back(headers)
            self._ask_later()

    def _give_back(self, headers: dict[str, str]) -> None:
        """A request ended with so many messages and bytes unused; a status that does not say ends them all."""
        left, left_bytes = headers.get("Nats-Pending-Messages", ""), headers.get("Nats-Pending-Bytes", "")
        self._take_credit(int(left) if left.isdigit() else self.asked, int(left_bytes) if left_bytes.isdigit() else 0)

    def _take_credit(self, count: int, size: int) -> None:
        self.asked -= count
        self.asked_bytes -= size
        if self.asked <= 0:
            self.asked = self.asked_bytes = 0
        elif self.asked_bytes < 0:
            self.asked_bytes = 0

    def _ask_later(self) -> None:
        if self._retry is None and self._sid is not None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_SECS, self._ask_now)

    def _ask_now(self) -> None:
        self._retry = None
        self._ask()

    async def _on_reconnect(self) -> None:
        self._last_heard = time.monotonic()
        self.ask_anew()

    async def _watch(self) -> None:
        """Ask anew when the heartbeats stop while the connection seems to stand."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECS)
            silent_secs = time.monotonic() - self._last_heard
            if silent_secs > SILENCE_SECS and self._connection.is_connected and self.asked > 0:
                log.warning("pull is silent; asking anew", consumer=self.consumer, silent_secs=round(silent_secs, 1))
                self._last_heard = time.monotonic()
                self.ask_anew()

    def describe(self) -> dict[str, Any]:
        """Its numbers, for status and logs."""
        return {
            "consumer": self.consumer,
            "in_hand": self.in_hand,
            "in_hand_bytes": self.in_hand_bytes,
            "asked": self.asked,
            "received": self.received,
        }


_MOST: Final = 2**63 - 1  # no server counts that far, and a database takes no more


class Delivery:
    """What a pull delivery's reply subject says of a message; each number is read when it is asked for.

    Attributes:
        delivered: how often it was delivered, this time included.
    """

    __slots__ = ("_tokens", "delivered")

    def __init__(self, tokens: list[bytes]) -> None:
        self._tokens = tokens
        self.delivered = _bounded(tokens[0])

    @property
    def stream_sequence(self) -> int:
        """Its place in the stream."""
        return _bounded(self._tokens[1])

    @property
    def consumer_sequence(self) -> int:
        """The number of this delivery among all of the consumer; a gap is a delivery that was lost."""
        return _bounded(self._tokens[2])

    @property
    def stored_ns(self) -> int:
        """When the stream stored it, nanoseconds since the epoch, the server's clock."""
        return _bounded(self._tokens[3])

    @property
    def pending(self) -> int:
        """Messages behind it in the stream for this consumer."""
        return _bounded(self._tokens[4])


def _bounded(digits: bytes) -> int:
    return min(int(digits), _MOST)


def read_delivery(reply: bytes) -> Delivery | None:
    """Read a reply subject `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>`.

    The longer form (`$JS.ACK.<domain>.<account hash>.<stream>.…`) is read too; None when it is neither.
    """
    tokens = reply.split(b".")
    count = len(tokens)
    if count < 9 or tokens[1] != b"ACK" or tokens[0] != b"$JS":
        return None
    numbers = tokens[4:9] if count == 9 else tokens[6:11]
    digits = b"".join(numbers)
    if not digits.isdigit() or len(numbers) != 5 or not all(numbers):
        return None
    return Delivery(numbers)


ACK: Final = b"+ACK"
TERM: Final = b"+TERM"
IN_PROGRESS: Final = b"+WPI"


def nak(delay_secs: float = 0.0) -> bytes:
    """The body of a nak: deliver it again, after `delay_secs`."""
    return b"-NAK" if delay_secs <= 0 else b'-NAK {"delay": %d}' % int(delay_secs * 1e9)


def answer(connection: Connection, reply: bytes, body: bytes) -> None:
    """Ack, nak, term or extend a delivery. Best effort: a lost one makes the message come again."""
    connection.client.send(b"PUB %b %d\r\n%b\r\n" % (reply, len(body), body))
