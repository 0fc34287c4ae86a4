"""The narrow surface over a nats-py connection that the host owns."""

import asyncio
import base64
import contextlib
import secrets
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext

from hub.events.errors import (
    BackendUnavailableError,
    EventOverflowError,
    InvalidInputError,
    SourceClosedError,
    StreamMisconfiguredError,
)
from hub.events.jetstream.pull import (
    INACTIVE_SECS,
    LEAVE_SECS,
    PullFeed,
    create_consumer,
    delete_consumer,
    reader_state,
)
from hub.events.jetstream.requests import REQUEST_SECS, RefusedError, answer, backend, request
from hub.events.jetstream.surface import (
    Batch,
    MessageFeed,
    PublishAck,
    ReaderState,
    StaleExpectationError,
    StoredMessage,
)

NO_SUCH_STREAM = 10059
NO_SUCH_MESSAGE = 10037
WRONG_LAST = frozenset({10071, 10164})
OTHER_STREAM = 10060
TOO_LARGE = 10054
FULL = frozenset({10077, 10047, 10023, 10122})  # at a limit of the stream, the account or the server
BATCH_BYTES = 8 * 1024 * 1024  # bounds what one read holds in memory; the server ends the batch there and says so
HEADER_ROOM = 256  # our three headers without the stream's name


@dataclass(slots=True)
class _Reading:
    """A batch that is coming in."""

    done: asyncio.Future[int]
    messages: list[StoredMessage] = field(default_factory=list)


class NatsStream:
    """A stream of a JetStream context.

    Args:
        js: the host's context, or its connection.
        stream: the stream's name.
    """

    def __init__(self, js: JetStreamContext | Client, stream: str) -> None:
        context = js.jetstream() if isinstance(js, Client) else js
        # The context has no public way to its connection and prefix; both are needed for what nats-py does not offer
        # (batched reads, continuous pulls). Only here.
        self._nc: Client = context._nc  # noqa: SLF001
        self._prefix: str = context._prefix  # noqa: SLF001
        self.stream = stream
        self._direct = False
        self._inbox = self._nc.new_inbox()
        self._replies: Subscription | None = None
        self._readings: dict[str, _Reading] = {}
        self._numbers = count(1)

    @property
    def max_payload(self) -> int:
        return int(self._nc.max_payload)

    async def info(self) -> dict[str, Any] | None:
        try:
            info = await self._api(f"STREAM.INFO.{self.stream}", None, "reading the stream's settings")
        except RefusedError as error:
            if error.code == NO_SUCH_STREAM:
                return None
            raise error.unavailable() from error
        self._direct = bool(info["config"].get("allow_direct"))
        return info

    async def create(self, config: dict[str, Any]) -> None:
        try:
            await self._api(f"STREAM.CREATE.{self.stream}", config, "creating the stream")
        except RefusedError as error:
            raise StreamMisconfiguredError(self.stream, [str(error)]) from error

    async def publish(self, subject: str, payload: bytes, *, msg_id: str, expected_last: int) -> PublishAck:
        room = self.max_payload - HEADER_ROOM - len(self.stream)
        if len(payload) > room:
            # Sent anyway, the server would close the host's connection for good.
            raise InvalidInputError(f"the event is {len(payload)} bytes; this server takes {room}")
        headers = {
            "Nats-Msg-Id": msg_id,
            "Nats-Expected-Stream": self.stream,
            "Nats-Expected-Last-Subject-Sequence": str(expected_last),
        }
        with backend(self._nc, "appending"):
            reply = await self._nc.request(subject, payload, timeout=REQUEST_SECS, headers=headers)
        try:
            ack = answer(reply.data, "appending")
        except RefusedError as error:
            raise self._refused_publish(error) from error
        return PublishAck(int(ack["seq"]), bool(ack.get("duplicate")))

    def _refused_publish(self, error: RefusedError) -> Exception:
        if error.code in WRONG_LAST:
            return StaleExpectationError()
        if error.code in FULL:
            return EventOverflowError(f"the stream takes no more: {error}", is_whole_place=True)
        if error.code == TOO_LARGE:
            return InvalidInputError(f"the stream takes no event of this size: {error}")
        if error.code == OTHER_STREAM:
            return StreamMisconfiguredError(self.stream, ["another stream captures the subjects"])
        return error.unavailable()

    async def get(self, place: int) -> StoredMessage | None:
        return await self._stored({"seq": place})

    async def last(self, subject: str) -> StoredMessage | None:
        return await self._stored({"last_by_subj": subject})

    async def _stored(self, which: dict[str, Any]) -> StoredMessage | None:
        """One message, by the stream's leader: never behind what was acknowledged."""
        try:
            reply = await self._api(f"STREAM.MSG.GET.{self.stream}", which, "reading an event")
        except RefusedError as error:
            if error.code == NO_SUCH_MESSAGE:
                return None
            raise error.unavailable() from error
        message = reply["message"]
        return StoredMessage(message["seq"], message["subject"], base64.b64decode(message.get("data") or b""))

    async def batch(self, subject: str, start: int, limit: int) -> Batch:
        return await (self._batch if self._direct else self._one_by_one)(subject, start, limit)

    async def _one_by_one(self, subject: str, start: int, limit: int) -> Batch:
        """For streams without direct access: a request a message."""
        messages: list[StoredMessage] = []
        while len(messages) <= limit:
            message = await self._stored({"seq": start, "next_by_subj": subject})
            if message is None:
                return Batch(messages, 0)
            messages.append(message)
            start = message.place + 1
        return Batch(messages[:limit], 1)

    async def _batch(self, subject: str, start: int, limit: int) -> Batch:
        if self._replies is None:
            await self._listen()
        token = str(next(self._numbers))
        reading = _Reading(asyncio.get_running_loop().create_future())
        self._readings[token] = reading
        ask = {"seq": start, "next_by_subj": subject, "batch": limit, "max_bytes": BATCH_BYTES}
        try:
            with backend(self._nc, "reading events"):
                await self._nc.publish(
                    f"{self._prefix}.DIRECT.GET.{self.stream}", msgspec.json.encode(ask), reply=f"{self._inbox}.{token}"
                )
                async with asyncio.timeout(REQUEST_SECS):
                    pending = await reading.done
        finally:
            del self._readings[token]
        return Batch(reading.messages, pending)

    async def _listen(self) -> None:
        with backend(self._nc, "reading events"):
            subscription = await self._nc.subscribe(
                f"{self._inbox}.*", cb=self._on_reply, pending_msgs_limit=-1, pending_bytes_limit=-1
            )
        if self._replies is None:
            self._replies = subscription
        else:  # two first reads at once
            await subscription.unsubscribe()

    async def _on_reply(self, message: Msg) -> None:
        reading = self._readings.get(message.subject[len(self._inbox) + 1 :])
        if reading is None or reading.done.done():
            return
        headers: dict[str, str] = message.headers or {}
        place = headers.get("Nats-Sequence")
        if place is not None:
            # Only stored messages carry their sequence, so a stored header named Status deceives nobody.
            pending = int(headers.get("Nats-Num-Pending", "0"))
            reading.messages.append(StoredMessage(int(place), headers["Nats-Subject"], message.data, pending))
        elif (status := headers.get("Status")) == "204":
            reading.done.set_result(int(headers.get("Nats-Num-Pending", "0")))
        elif status == "404":
            reading.done.set_result(0)
        else:
            reading.done.set_exception(BackendUnavailableError(f"reading events: the server answered {status}"))

    async def delete(self, place: int) -> bool:
        try:
            await self._api(f"STREAM.MSG.DELETE.{self.stream}", {"seq": place, "no_erase": True}, "deleting an event")
        except RefusedError as error:
            if error.code in (NO_SUCH_MESSAGE, 10043, 10057):
                return False
            raise error.unavailable() from error
        return True

    async def feed(self, subject: str, start: int, *, window: int, heartbeat_secs: float) -> MessageFeed:
        config = {
            "filter_subject": subject,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(1, start),
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
        }
        name = f"agent-events-{secrets.token_hex(8)}"
        try:
            await self._consumer(name, {**config, "inactive_threshold": int(INACTIVE_SECS * 1e9)})
            return await self._open(name, window=window, heartbeat_secs=heartbeat_secs, keep=False)
        except asyncio.CancelledError:
            # The reader left while it was made; nobody else would take it away before it counts as inactive.
            with contextlib.suppress(TimeoutError, BackendUnavailableError):
                async with asyncio.timeout(LEAVE_SECS):
                    await self.forget(name)
            raise

    async def durable(
        self, name: str, subject: str, start: int, *, ack_wait_secs: float, heartbeat_secs: float
    ) -> tuple[MessageFeed, ReaderState]:
        config = {
            "durable_name": name,
            "filter_subject": subject,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(1, start),
            "ack_policy": "explicit",
            "ack_wait": int(ack_wait_secs * 1e9),
            "max_deliver": -1,
            # More in flight would come back behind younger ones when a reader dies.
            "max_ack_pending": 1,
        }
        state = await reader_state(self._nc, self._prefix, self.stream, name)
        if state is None:
            await self._consumer(name, config)
            state = await reader_state(self._nc, self._prefix, self.stream, name)
        if state is None:
            raise BackendUnavailableError("the durable reader vanished while it was made")
        return await self._open(name, window=1, heartbeat_secs=heartbeat_secs, keep=True), state

    async def _consumer(self, name: str, config: dict[str, Any]) -> None:
        await create_consumer(self._nc, self._prefix, self.stream, name, config)

    async def _open(self, name: str, *, window: int, heartbeat_secs: float, keep: bool) -> PullFeed:
        feed = PullFeed(
            self._nc, self._prefix, self.stream, name, window=window, heartbeat_secs=heartbeat_secs, keep=keep
        )
        await feed.start()
        return feed

    async def forget(self, name: str) -> None:
        await delete_consumer(self._nc, self._prefix, self.stream, name)

    async def close(self) -> None:
        for reading in self._readings.values():
            if not reading.done.done():
                reading.done.set_exception(SourceClosedError())
        replies, self._replies = self._replies, None
        if replies is not None and self._nc.is_connected:
            await replies.unsubscribe()

    async def _api(self, operation: str, body: dict[str, Any] | None, what: str) -> dict[str, Any]:
        return await request(self._nc, f"{self._prefix}.{operation}", body, what)
