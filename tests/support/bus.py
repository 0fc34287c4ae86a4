"""The wire as tests see it: raw connections, envelopes into the ingress, what the streams hold."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hub.delivery.connection import Connection
from hub.delivery.publisher import NotStored, Stored, StorePublisher
from hub.delivery.settings import ConnectSettings
from hub.protocol import Envelope, make, names, parse, subjects
from hub.storage import Storage
from hub.storage.records import EnvelopeFilter, EnvelopeRecord


async def connect(url: str, identity: str | None = None) -> Connection:
    """A connection of ours, as an agent when `identity` is given."""
    return await Connection.open(ConnectSettings(servers=(url,), identity=identity), name=f"test {identity}")


async def send_all(connection: Connection, envelopes: Iterable[Envelope], *, stream: str = "HUB_INGRESS") -> None:
    """Publish envelopes into the ingress as their senders would; returns when each is stored there."""
    publisher = StorePublisher(connection, deadline_secs=10)
    await publisher.start()
    outcomes: list[Stored | NotStored] = []
    for envelope in envelopes:
        subject = subjects.publish(envelope.meta.sender, envelope.meta.channel)
        publisher.publish(
            subject, envelope.body, message_id=names.new_publish_id(), stream=stream, on_outcome=outcomes.append
        )
    await publisher.stop(drain_secs=20)
    assert all(isinstance(outcome, Stored) for outcome in outcomes), outcomes


def direct_messages(count: int, *, to: str = "bob", sender: str = "alice", first: int = 0) -> list[Envelope]:
    """Direct messages whose payload is their number."""
    return [make(sender=sender, channel="room", to=to, payload=number) for number in range(first, first + count)]


async def stored_in(connection: Connection, stream: str, subject: str | None = None) -> list[Envelope]:
    """What a stream holds, in its order, read with the hub's rights."""
    js = connection.jetstream()
    info = await js.stream_info(stream)
    held = []
    for sequence in range(info.state.first_seq, info.state.last_seq + 1):
        message = await js.get_msg(stream, sequence)
        if message.data is not None and (subject is None or message.subject == subject):
            held.append(parse(message.data))
    return held


async def count_in(connection: Connection, stream: str) -> int:
    """How many messages a stream holds."""
    return (await connection.jetstream().stream_info(stream)).state.messages


async def history(storage: Storage, **filters: Any) -> list[EnvelopeRecord]:
    """What an open storage holds, oldest first."""
    found: list[EnvelopeRecord] = []
    cursor: str | None = None
    while True:
        page = await storage.envelopes.query(EnvelopeFilter(**filters), limit=1000, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found[::-1]


def numbers(envelopes: Iterable[Envelope]) -> list[Any]:
    """Their payloads."""
    return [envelope.payload for envelope in envelopes]


def delivery_config(folder: Path, **settings: Any) -> Path:
    """A delivery config file; acks are waited for 2 s, so that tests of redelivery are quick."""
    path = folder / "delivery.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"ack_wait_secs": 2} | settings))
    return path
