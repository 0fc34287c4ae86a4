"""The measures of the event source: each of its own, and of a bare client that does the same."""

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime
from statistics import median
from typing import Any, Final

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig

from hub.bench.figures import percentile
from hub.events import AgentEventSource, EventRead, JetStreamEventSource, Ownership, PostgresEventSource
from hub.events.jetstream.subjects import DEFAULT_PREFIX, Subjects
from hub.events.producing import RunProducer
from hub.events.records import RunKey, encode, with_sequence

STREAM: Final = "bench_events"
OWNER: Final = Ownership(tenant_id="bench")
TEXT: Final = "x" * 160  # with its envelope an event of some 400 bytes, as a message delta is
LATENCY_RATE: Final = 100.0  # events a second while latency is measured: nothing waits behind another
REPLAY_SECS: Final = 120.0
TURN_APPENDS: Final = 100

Measured = dict[str, float]


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured.

    Attributes:
        appends: events appended one after the other.
        pages: pages of 100 read.
        latencies: events whose way to a waiting subscriber is timed.
        replay: events of the run that is paged and replayed.
        rounds: how often everything is measured, in turn.
    """

    appends: int = 1_500
    pages: int = 50
    latencies: int = 200
    replay: int = 100_000
    rounds: int = 5


def _producer(source: AgentEventSource, run_id: str) -> RunProducer:
    return RunProducer(source, ownership=OWNER, session_id="bench", run_id=run_id, redact=lambda members: members)


def _read(run_id: str, **options: Any) -> EventRead:
    return EventRead(ownership=OWNER, session_id="bench", run_id=run_id, **options)


def _subject(run_id: str) -> str:
    return Subjects(DEFAULT_PREFIX).run(RunKey(OWNER, "bench", run_id))


def _bodies(source: AgentEventSource, run_id: str, count: int) -> list[bytes]:
    producer = _producer(source, run_id)
    return [with_sequence(encode(producer.record("message_delta", text=TEXT)), n) for n in range(1, count + 1)]


async def store(connection: Client, run_id: str, count: int) -> None:
    """Store a long run fast: what a source would have stored, without waiting for each."""
    js = connection.jetstream(publish_async_max_pending=1_000)
    moment = datetime.now(UTC)
    producer = RunProducer(
        _NOWHERE,
        ownership=OWNER,
        session_id="bench",
        run_id=run_id,
        redact=lambda members: members,
        clock=lambda: moment,
    )
    for start in range(1, count + 1, 500):
        sequences = range(start, min(start + 500, count + 1))
        acks = [
            await js.publish_async(
                _subject(run_id),
                with_sequence(encode(producer.record("message_delta", text=TEXT)), sequence),
                headers={"Nats-Msg-Id": f"{run_id}-{sequence}"},
            )
            for sequence in sequences
        ]
        async with asyncio.timeout(30):
            await asyncio.gather(*acks)


_NOWHERE: Any = None  # a producer that only builds needs no source


async def measure_jetstream(connection: Client, source: JetStreamEventSource, load: Load) -> Measured:
    """Every figure once on JetStream, beside the bare client; by the names that `events` shows."""
    run_id, bare_id = uuid.uuid4().hex, uuid.uuid4().hex
    latencies = await _latencies(source, f"latency-{run_id}", load.latencies)
    bare_latencies = await _bare_latencies(connection, f"latency-{bare_id}", load.latencies)
    # In small turns, so that what else the machine does meets both.
    turns = max(1, load.appends // TURN_APPENDS)
    each = load.appends // turns
    secs = bare_secs = 0.0
    for turn in range(turns):
        secs += each / await _append_rate(source, run_id, each)
        bare_secs += each / await _bare_append_rate(connection, source, f"{bare_id}-{turn}", each)
    page_ms, bare_page_ms = await _page_ms(connection, source, load)
    return {
        "append, one producer": load.appends / secs,
        "bare publish": load.appends / bare_secs,
        "page of 100": page_ms,
        "bare fetch of 100": bare_page_ms,
        "append to subscriber, p50": percentile(latencies, 0.5),
        "append to subscriber, p99": percentile(latencies, 0.99),
        "bare to consumer, p50": percentile(bare_latencies, 0.5),
        "bare to consumer, p99": percentile(bare_latencies, 0.99),
        "replay": await _replay_rate(source, load.replay),
        "bare replay": await _bare_replay_rate(connection, load.replay),
    }


async def measure_postgres(source: PostgresEventSource, load: Load) -> Measured:
    """The figures of PostgreSQL, which has no bare client."""
    run_id = uuid.uuid4().hex
    appends = max(200, load.appends // 5)
    rate = await _append_rate(source, run_id, appends)
    page_ms = [await _timed_ms(source.page(_read(run_id, limit=100))) for _ in range(load.pages)]
    return {
        "PostgreSQL append, one producer": rate,
        "PostgreSQL page of 100": median(page_ms),
        "PostgreSQL append to subscriber, p50": percentile(
            await _latencies(source, f"l-{run_id}", load.latencies), 0.5
        ),
    }


async def _timed_ms(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1e3


async def _append_rate(source: AgentEventSource, run_id: str, count: int) -> float:
    producer = _producer(source, run_id)
    records = [producer.record("message_delta", text=TEXT) for _ in range(count)]
    began = time.perf_counter()
    for record in records:
        await source.append(record)
    return count / (time.perf_counter() - began)


async def _bare_append_rate(connection: Client, source: AgentEventSource, run_id: str, count: int) -> float:
    """A bare awaited publish of the same bytes, with a message id and the expected stream."""
    js = connection.jetstream()
    subject = _subject(run_id)
    bodies = _bodies(source, run_id, count)
    began = time.perf_counter()
    for number, body in enumerate(bodies):
        await js.publish(subject, body, stream=STREAM, headers={"Nats-Msg-Id": f"{run_id}-{number}"})
    return count / (time.perf_counter() - began)


async def _page_ms(connection: Client, source: AgentEventSource, load: Load) -> tuple[float, float]:
    """Pages along the long run, each behind the one before, and a bare fetch of as many messages after each."""
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    subscription = await connection.jetstream().pull_subscribe(_subject("replay"), stream=STREAM, config=config)
    cursor = None
    pages, fetches = [], []
    for _ in range(min(load.pages, load.replay // 100)):
        began = time.perf_counter()
        page = await source.page(_read("replay", limit=100, after=cursor))
        pages.append((time.perf_counter() - began) * 1e3)
        cursor = page.next_cursor
        fetches.append(await _timed_ms(subscription.fetch(100)))
    await subscription.unsubscribe()
    await _delete_consumers(connection)
    return median(pages), median(fetches)


async def _delete_consumers(connection: Client) -> None:
    for info in await connection.jetstream().consumers_info(STREAM):
        await connection.jetstream().delete_consumer(STREAM, info.name)


async def _latencies(source: AgentEventSource, run_id: str, count: int) -> list[float]:
    """From before the append to the event in a waiting subscriber's hands, in milliseconds, at a steady rate."""
    producer = _producer(source, run_id)
    sent: dict[str, float] = {}
    latencies: list[float] = []

    async def receive() -> None:
        async with source.subscribe(_read(run_id)) as events:
            async for envelope in events:
                if envelope.record.id in sent:
                    latencies.append((time.perf_counter() - sent[envelope.record.id]) * 1e3)
                if len(latencies) == count:
                    return

    async with asyncio.timeout(30 + 2 * count / LATENCY_RATE), asyncio.TaskGroup() as tasks:
        await producer.append("agent_started")
        tasks.create_task(receive())
        await asyncio.sleep(0.5)  # the subscriber has caught up and waits; a listener has connected
        async for _ in _ticks(count):
            record = producer.record("message_delta", text=TEXT)
            sent[record.id] = time.perf_counter()
            await source.append(record)
    return latencies


async def _bare_latencies(connection: Client, run_id: str, count: int) -> list[float]:
    """The same by a bare publish to a push consumer without acks."""
    js = connection.jetstream()
    sent: dict[bytes, float] = {}
    latencies: list[float] = []
    everything = asyncio.Event()

    async def receive(message: Msg) -> None:
        latencies.append((time.perf_counter() - sent[message.data[:8]]) * 1e3)
        if len(latencies) == count:
            everything.set()

    subscription = await js.subscribe(_subject(run_id), stream=STREAM, cb=receive, ordered_consumer=True)
    async with asyncio.timeout(30 + 2 * count / LATENCY_RATE):
        numbers = itertools.count()
        async for _ in _ticks(count):
            name = b"%08d" % next(numbers)
            sent[name] = time.perf_counter()
            await js.publish(_subject(run_id), name + b"x" * 400, stream=STREAM)
        await everything.wait()
    await subscription.unsubscribe()
    await _delete_consumers(connection)
    return latencies


async def _ticks(count: int) -> AsyncIterator[None]:
    due = time.perf_counter()
    for _ in range(count):
        due += 1 / LATENCY_RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        yield


async def _replay_rate(source: AgentEventSource, count: int) -> float:
    began = time.perf_counter()
    taken = 0
    async with asyncio.timeout(REPLAY_SECS), source.subscribe(_read("replay")) as events:
        async for _ in events:
            taken += 1
            if taken == count:
                break
    return count / (time.perf_counter() - began)


async def _bare_replay_rate(connection: Client, count: int) -> float:
    """An ordered push consumer into a callback that only counts."""
    taken = 0
    everything = asyncio.Event()

    async def receive(_: Msg) -> None:
        nonlocal taken
        taken += 1
        if taken == count:
            everything.set()

    began = time.perf_counter()
    js = connection.jetstream()
    subscription = await js.subscribe(_subject("replay"), stream=STREAM, cb=receive, ordered_consumer=True)
    async with asyncio.timeout(REPLAY_SECS):
        await everything.wait()
    rate = count / (time.perf_counter() - began)
    await subscription.unsubscribe()
    await _delete_consumers(connection)
    return rate
