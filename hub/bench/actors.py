"""The actors: processes that send and read while something is measured (`python -m hub.bench.actors`).

Started with their settings as one JSON argument. Each says `{}` once it is ready, then does one job a line of stdin and
answers it with one line; it ends with stdin.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec
import nats
import uvloop
from nats.js import JetStreamContext

from hub.bench.load import CHANNEL, SENDER, LoadError, Message, Template, send_all, send_at, sent_ns
from hub.client import HubClient
from hub.delivery.connection import Connection
from hub.delivery.inbox import Inbox
from hub.delivery.inbox_message import InboxMessage
from hub.delivery.nats_client import Incoming
from hub.delivery.publisher import Stored, StorePublisher
from hub.delivery.pull import ACK, ContinuousPull, answer
from hub.delivery.settings import ConnectSettings
from hub.protocol import names, parse, subjects
from hub.service import logs

READER: Final = "reader"  # whose inbox is read
READERS: Final = "nats_hub.bench_readers"  # entry points of readers that others bring

Role = Literal["client", "publisher", "pull", "inbox", "intake", "sequential"]


class ActorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an actor is told.

    Attributes:
        role: `client` sends envelopes to the hub; `publisher` stores them in the inbox stream itself; `pull` reads and
            acks; `inbox` reads, decodes, drops repeats and acks; `intake` reads as a worker; `sequential` routes one
            at a time.
        url: the server.
        ingress, inbox: the streams' names.
        consumer: the durable consumer that it reads, if it reads.
        size: bytes of an envelope, if it sends.
        window: messages in flight.
        folder: where a reader keeps what it keeps.
    """

    role: Role
    url: str
    ingress: str
    inbox: str
    consumer: str = ""
    size: int = 400
    window: int = 512
    folder: str = ""


class Job(msgspec.Struct, frozen=True):
    """Send or read so many messages.

    Attributes:
        count: how many.
        rate: messages a second; None is as fast as it goes. A reader tells latencies when there is a rate.
    """

    count: int
    rate: float | None = None


class Done(msgspec.Struct, frozen=True):
    """A job is done.

    Attributes:
        began_ns, ended_ns: by the machine's monotonic clock: of a sender the first send and the last ack, of a reader
            the first and the last message.
        latencies_ms: from a message's making to its ack.
    """

    began_ns: int
    ended_ns: int
    latencies_ms: tuple[float, ...] = ()


class Actor(Protocol):
    """One role."""

    async def start(self) -> None: ...

    async def work(self, job: Job) -> Done: ...


class Reading(Protocol):
    """What reads an inbox or a consumer."""

    async def start(self) -> Any: ...


def _found(name: str) -> Callable[..., Reading]:
    """A reader that another package brings: the hub imports none of those that stand on it.

    Raises:
        LoadError: it is not installed.
    """
    for point in entry_points(group=READERS, name=name):
        reader: Callable[..., Reading] = point.load()
        return reader
    raise LoadError(f"no {name!r} under the entry points {READERS}: install the project again (make setup)")


class Client:
    """Sends as an agent does, through `HubClient`: every send is awaited, as many at once as the window lets."""

    def __init__(self, connection: Connection, settings: ActorSettings) -> None:
        self._client = HubClient(connection)
        self._window = settings.window
        self._template = Template(settings.size, to=READER)

    async def start(self) -> None:
        """A client needs none."""

    async def work(self, job: Job) -> Done:
        began_ns = time.monotonic_ns()
        if job.rate is not None:
            await send_at(self._send, job.count, job.rate)
        else:
            numbers = iter(range(job.count))
            async with asyncio.TaskGroup() as senders:
                for _ in range(self._window):
                    senders.create_task(self._send_on(numbers))
        return Done(began_ns, time.monotonic_ns())

    async def _send_on(self, numbers: Iterator[int]) -> None:
        for _ in numbers:
            await self._send()

    async def _send(self) -> None:
        receipt = await self._client.send_to(READER, self._template.payload(), channel=CHANNEL)
        if not receipt.is_stored:
            raise LoadError("a message was sent, but not stored")


class Publisher:
    """Stores rendered envelopes straight in the inbox stream: no client, no router."""

    def __init__(self, connection: Connection, settings: ActorSettings) -> None:
        self._settings = settings
        self._publisher = StorePublisher(connection)
        self._subject = subjects.inbox(READER)
        self._template = Template(settings.size, to=READER)

    async def start(self) -> None:
        await self._publisher.start()

    async def work(self, job: Job) -> Done:
        stream = self._settings.inbox
        began_ns = time.monotonic_ns()
        if job.rate is not None:
            await send_at(self._send, job.count, job.rate)
        else:
            messages = (Message(self._subject, self._template.render()) for _ in range(job.count))
            await send_all(self._publisher, stream, messages, window=self._settings.window)
        return Done(began_ns, time.monotonic_ns())

    async def _send(self) -> None:
        outcome = await self._publisher.publish_and_wait(
            self._subject,
            self._template.make().body,
            message_id=names.new_publish_id(),
            stream=self._settings.inbox,
        )
        if not isinstance(outcome, Stored):
            raise LoadError(f"a message was not stored: {outcome.reason} {outcome.description}")


class Reader:
    """Reads one consumer: through an `Inbox` (decode, drop repeats, ack), or bare."""

    def __init__(self, connection: Connection, settings: ActorSettings) -> None:
        self._connection = connection
        self._pull: ContinuousPull | None = None
        self._reading: Reading
        if settings.role == "intake":
            self._reading = _found("intake")(
                connection, Path(settings.folder), on_read=lambda _: self._begin(), on_done=self._on_done
            )
        elif settings.role == "inbox":
            self._reading = Inbox(connection, mode="on", sink=self._on_inbox)
        else:
            self._reading = self._pull = ContinuousPull(
                connection,
                stream=settings.inbox,
                consumer=settings.consumer,
                callback=self._on_pull,
                window=settings.window,
            )
        self._read = 0
        self._wanted = 0
        self._is_timed = False
        self._began_ns = 0
        self._latencies_ms: list[float] = []
        self._reached = asyncio.Event()

    async def start(self) -> None:
        """What comes before the first job waits at the server."""

    async def work(self, job: Job) -> Done:
        self._wanted += job.count
        self._is_timed, self._latencies_ms, self._began_ns = job.rate is not None, [], 0
        self._reached.clear()
        await self._reading.start()
        if self._read < self._wanted:
            await self._reached.wait()
        return Done(self._began_ns, time.monotonic_ns(), tuple(self._latencies_ms))

    def _on_inbox(self, message: InboxMessage) -> None:
        self._begin()
        message.ack()
        self._on_done(message)

    def _on_done(self, message: InboxMessage) -> None:
        self._count(message.envelope.payload if self._is_timed else None)

    def _on_pull(self, message: Incoming) -> None:
        assert self._pull is not None
        self._begin()
        answer(self._connection, message.raw_reply, ACK)
        self._pull.done(message.size)
        self._count(parse(message.data).payload if self._is_timed else None)

    def _begin(self) -> None:
        if self._began_ns == 0:
            self._began_ns = time.monotonic_ns()

    def _count(self, payload: Any) -> None:
        if self._is_timed:
            self._latencies_ms.append((time.monotonic_ns() - sent_ns(payload)) / 1e6)
        self._read += 1
        if self._read == self._wanted:
            self._reached.set()


class SequentialRouter:
    """A router as one writes it first, on nats-py alone: fetch one, decode, publish, await, ack."""

    def __init__(self, settings: ActorSettings) -> None:
        self._settings = settings
        self._js: JetStreamContext | None = None

    async def start(self) -> None:
        client = await nats.connect(self._settings.url)
        self._js = client.jetstream()

    async def work(self, job: Job) -> Done:
        assert self._js is not None
        reading = await self._js.pull_subscribe_bind(self._settings.consumer, stream=self._settings.ingress)
        began_ns = time.monotonic_ns()
        for _ in range(job.count):
            [message] = await reading.fetch(1, timeout=10)
            _, _, sender, channel = message.subject.split(".", 3)
            envelope = json.loads(message.data)
            envelope["meta"] |= {"from": sender, "channel": channel}
            destination = subjects.inbox(envelope["meta"]["to"])
            message_id = f"hub-router:{sender}:{envelope['meta']['id']}:{destination}"
            headers = {"Nats-Msg-Id": message_id, "Nats-Expected-Stream": self._settings.inbox}
            await self._js.publish(destination, json.dumps(envelope).encode(), headers=headers)
            await message.ack()
        return Done(began_ns, time.monotonic_ns())


async def act(settings: ActorSettings) -> None:
    """Be the actor until stdin ends."""
    logs.configure()  # to stderr: stdout is for answers
    actor = await _make(settings)
    await actor.start()
    _say({})
    while line := await asyncio.to_thread(sys.stdin.readline):
        _say(await actor.work(msgspec.json.decode(line, type=Job)))


async def _make(settings: ActorSettings) -> Actor:
    if settings.role == "sequential":
        return SequentialRouter(settings)
    identities = {"client": SENDER, "inbox": READER, "intake": READER}
    connect = ConnectSettings(servers=(settings.url,), identity=identities.get(settings.role))
    connection = await Connection.open(connect, name=f"bench {settings.role}")
    if settings.role == "client":
        return Client(connection, settings)
    if settings.role == "publisher":
        return Publisher(connection, settings)
    return Reader(connection, settings)


def _say(value: Any) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(act(msgspec.json.decode(sys.argv[1], type=ActorSettings)))
