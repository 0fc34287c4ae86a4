"""The store side of one inbox for tests: its stream, what the router would put there, and an attach responder that may
be told to misbehave."""

import json
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy, StreamConfig
from nats.js.errors import NotFoundError

from hub.protocol import Envelope, make, subjects

STREAM = "HUB_INBOX"


class InboxStore:
    """A direct line to the server, as the hub has it, for one identity's inbox."""

    def __init__(self, client: Client, identity: str, *, ack_wait_secs: float) -> None:
        self.client = client
        self.js = client.jetstream()
        self.identity = identity
        self.ack_wait_secs = ack_wait_secs
        self.consumer = subjects.inbox_consumer(identity)
        self.attaches: list[dict[str, Any]] = []
        self.answer: str = "ok"  # ok, refuse or silent
        self._responder: Subscription | None = None

    @classmethod
    async def open(cls, url: str, identity: str = "bob", *, ack_wait_secs: float = 30.0) -> "InboxStore":
        client = Client()
        await client.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.05)
        return cls(client, identity, ack_wait_secs=ack_wait_secs)

    async def make_stream(self) -> None:
        await self.js.add_stream(StreamConfig(name=STREAM, subjects=["channel.inbox.>"]))

    async def make_consumer(self, after_seq: int | None = None) -> None:
        start = after_seq is not None
        config = ConsumerConfig(
            durable_name=self.consumer,
            filter_subject=subjects.inbox(self.identity),
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self.ack_wait_secs,
            max_ack_pending=256,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE if start else DeliverPolicy.ALL,
            opt_start_seq=after_seq + 1 if after_seq is not None else None,
        )
        await self.js.add_consumer(STREAM, config)

    async def delete_consumer(self) -> None:
        await self.js.delete_consumer(STREAM, self.consumer)

    async def consumer_info(self) -> ConsumerInfo:
        return await self.js.consumer_info(STREAM, self.consumer)

    async def unacked(self) -> int:
        """Messages that the consumer has not had acked: in flight or not yet delivered."""
        info = await self.consumer_info()
        return (info.num_ack_pending or 0) + (info.num_pending or 0)

    async def start_responder(self) -> None:
        """Answer attaches from now on, as `answer` says."""
        self._responder = await self.client.subscribe(subjects.attach(self.identity), cb=self._on_attach)
        await self.client.flush()

    async def stop_responder(self) -> None:
        if self._responder is not None:
            await self._responder.unsubscribe()
            await self.client.flush()
            self._responder = None

    async def _on_attach(self, message: Msg) -> None:
        asked = json.loads(message.data)
        self.attaches.append(asked)
        if self.answer == "silent":
            return
        if self.answer == "refuse":
            reply: dict[str, Any] = {"ok": False, "error": "storage is away", "code": "unavailable"}
        else:
            try:
                await self.consumer_info()
            except NotFoundError:
                await self.make_consumer(asked.get("after_seq"))
            data = {
                "stream": STREAM,
                "consumer": self.consumer,
                "tasks_stream": "HUB_TASKS",
                "js_prefix": "$JS.API",
                "max_age_secs": 604800,
                "first_seq": 1,
                "ack_wait_secs": self.ack_wait_secs,
            }
            reply = {"ok": True, "data": data}
        await message.respond(json.dumps(reply).encode())

    async def put(self, payload: Any, *, id: str | None = None, sender: str = "alice") -> Envelope:
        """Store a DM as a durable router does."""
        envelope = make(sender=sender, channel="direct", to=self.identity, payload=payload, id=id)
        await self.js.publish(subjects.inbox(self.identity), envelope.body)
        return envelope

    async def put_live(self, payload: Any, *, id: str | None = None) -> Envelope:
        """Publish a DM as a core router does: whoever listens has it."""
        envelope = make(sender="alice", channel="direct", to=self.identity, payload=payload, id=id)
        await self.put_raw(envelope.body)
        return envelope

    async def put_raw(self, body: bytes) -> None:
        await self.client.publish(subjects.inbox(self.identity), body)
        await self.client.flush()

    async def close(self) -> None:
        await self.client.close()
