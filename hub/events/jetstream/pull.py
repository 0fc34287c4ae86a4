"""The pull feed: a consumer read by continuous pulls into a callback, with liveness by heartbeat."""

import asyncio
import contextlib
import time
from collections import deque
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from hub.events.errors import BackendUnavailableError
from hub.events.jetstream.requests import RefusedError, backend, request
from hub.events.jetstream.surface import ReaderState, StoredMessage

NO_SUCH_CONSUMER = 10014
CONSUMER_EXISTS = frozenset({10013, 10105, 10148})
PULL_SECS = 30.0  # a pull that the server forgot is renewed after this at the latest (contract §5)
MISSED_HEARTBEATS = 2.5  # two may be late on a busy machine
INACTIVE_SECS = 60.0  # the server drops the consumer of a reader that died without leaving
LOOK_SECS = 1.0  # how often a waiting reader looks whether the connection was made anew
LEAVE_SECS = 0.2  # leaving is a courtesy: the server cleans up by itself


class PullFeed:
    """Messages of one consumer.

    Args:
        connection: the host's.
        prefix: of the JetStream API.
        stream: the stream's name.
        name: the consumer's name.
        window: most messages that are asked for and not taken.
        heartbeat_secs: how often the server says that an idle pull is alive.
        keep: the consumer stays when the feed is closed.
    """

    def __init__(
        self, connection: Client, prefix: str, stream: str, name: str, *, window: int, heartbeat_secs: float, keep: bool
    ) -> None:
        self._nc, self._prefix, self._stream, self._name = connection, prefix, stream, name
        self._window, self._keep = window, keep
        self._heartbeat_secs = min(max(heartbeat_secs, 0.5), PULL_SECS / 2)
        self._inbox = connection.new_inbox()
        self._subscription: Subscription | None = None
        self._buffer: deque[StoredMessage] = deque()
        self._came = asyncio.Event()
        self._credit = 0
        self._next_delivery = 1
        self._lost = ""
        self._heard = time.monotonic()
        self._reconnects = connection.stats["reconnects"]

    async def start(self) -> None:
        with backend(self._nc, "following a run"):
            self._subscription = await self._nc.subscribe(self._inbox, cb=self._on_message)

    async def take(self, timeout_secs: float) -> list[StoredMessage]:
        deadline = time.monotonic() + timeout_secs
        while not self._buffer:
            self._check_alive()
            if self._credit <= self._window // 2:
                await self._pull(self._window - self._credit)
            wait = min(deadline - time.monotonic(), self._heartbeat_secs, LOOK_SECS)
            if wait <= 0:
                return []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._came.wait()
            self._came.clear()
        if self._window > 1 and self._credit <= self._window // 2:
            await self._pull(self._window // 2)  # so that the server works while the reader does
        # Nothing is awaited from here on: a reader that is cancelled must find these messages here the next time.
        taken = list(self._buffer)
        self._buffer.clear()
        return taken

    async def ack(self, message: StoredMessage) -> None:
        with backend(self._nc, "settling an event"):
            await self._nc.request(message.reply, b"+ACK", timeout=self._heartbeat_secs * MISSED_HEARTBEATS)

    async def nak(self, message: StoredMessage) -> None:
        with backend(self._nc, "giving an event back"):
            await self._nc.publish(message.reply, b"-NAK")

    async def close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is None or not self._nc.is_connected:
            return
        # A server that just went away, or a host that just closed: nothing is left to withdraw.
        with contextlib.suppress(TimeoutError, BackendUnavailableError), backend(self._nc, "leaving"):
            async with asyncio.timeout(LEAVE_SECS):
                await subscription.unsubscribe()
                if not self._keep:
                    await delete_consumer(self._nc, self._prefix, self._stream, self._name)

    async def _pull(self, batch: int) -> None:
        ask = {"batch": batch, "expires": int(PULL_SECS * 1e9), "idle_heartbeat": int(self._heartbeat_secs * 1e9)}
        with backend(self._nc, "following a run"):
            subject = f"{self._prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
            await self._nc.publish(subject, msgspec.json.encode(ask), reply=self._inbox)
        self._credit += batch
        self._heard = time.monotonic()

    def _check_alive(self) -> None:
        silent = time.monotonic() - self._heard
        if self._nc.stats["reconnects"] != self._reconnects:
            self._lost = "the connection was made anew"  # pulls do not survive that
        elif self._credit and silent > self._heartbeat_secs * MISSED_HEARTBEATS:
            self._lost = f"no heartbeat for {silent:.1f} s"
        if self._lost:
            raise BackendUnavailableError(f"following a run: {self._lost}")

    async def _on_message(self, message: Msg) -> None:
        self._heard = time.monotonic()
        if message.reply.startswith("$JS.ACK."):
            self._on_stored(message)
        else:
            self._on_status(message.headers or {})
        self._came.set()

    def _on_stored(self, message: Msg) -> None:
        # $JS.ACK.[domain.account.]stream.consumer.deliveries.place.delivery.time.pending[.token]
        reply = message.reply
        if reply.count(".") == 8:
            _, place, delivery, _, pending = reply.rsplit(".", 4)
        else:
            place, delivery, _, pending = reply.split(".")[7:11]
        self._credit -= 1
        if not self._keep and int(delivery) != self._next_delivery:
            self._lost = "a message was dropped on its way"
            return
        self._next_delivery += 1
        if not self._lost:
            self._buffer.append(StoredMessage(int(place), message.subject, message.data, int(pending), reply))

    def _on_status(self, headers: dict[str, str]) -> None:
        status = headers.get("Status", "")
        if status == "100":
            return
        left = headers.get("Nats-Pending-Messages")
        if status == "408" and left is not None:
            self._credit = max(0, self._credit - int(left))  # an expired pull
        else:
            self._lost = f"the server ended the pull with {status}: {headers.get('Description', '')}"


async def create_consumer(connection: Client, prefix: str, stream: str, name: str, config: dict[str, Any]) -> None:
    """Make a consumer; one that somebody else just made is fine."""
    subject = f"{prefix}.CONSUMER.CREATE.{stream}.{name}.{config['filter_subject']}"
    full = {"name": name, "replay_policy": "instant", **config}
    body = {"stream_name": stream, "config": full, "action": "create"}
    try:
        await request(connection, subject, body, "following a run")
    except RefusedError as error:
        if error.code not in CONSUMER_EXISTS:
            raise error.unavailable() from error


async def delete_consumer(connection: Client, prefix: str, stream: str, name: str) -> None:
    """Delete a consumer; one that is not there is fine."""
    try:
        await request(connection, f"{prefix}.CONSUMER.DELETE.{stream}.{name}", None, "leaving a run")
    except RefusedError as error:
        if error.code != NO_SUCH_CONSUMER:
            raise error.unavailable() from error


async def reader_state(connection: Client, prefix: str, stream: str, name: str) -> ReaderState | None:
    """How a durable reader stands; None: there is none."""
    try:
        info = await request(connection, f"{prefix}.CONSUMER.INFO.{stream}.{name}", None, "attaching a durable reader")
    except RefusedError as error:
        if error.code == NO_SUCH_CONSUMER:
            return None
        raise error.unavailable() from error
    return ReaderState(int(info.get("num_pending", 0)), int(info.get("num_ack_pending", 0)))
