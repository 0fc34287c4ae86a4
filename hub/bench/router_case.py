"""Case `router`: a backlog through one router process, against the server alone and a sequential loop.

Every rate is the server's: from the first to the last message that the inbox stream stored, by its own stamps.
"""

from collections.abc import Iterator
from typing import Final

from hub.bench.actors import Job
from hub.bench.children import CpuMeter
from hub.bench.figures import Load, Measurement, Standard
from hub.bench.load import CHANNEL, SENDER, Message, Template
from hub.bench.rounds import Case, Contender
from hub.bench.stage import Stage, deadline_secs
from hub.protocol import subjects

RECIPIENTS: Final = 16
SEQUENTIAL_SHARE: Final = 10  # the sequential loop gets a tenth of the messages: it is at least ten times slower
SOURCED: Final = "BENCH_SOURCED"
SOURCE: Final = "BENCH_SOURCE"
SOURCE_SUBJECT: Final = "bench.pub"


def backlog(load: Load, count: int) -> Iterator[Message]:
    """Direct messages to a few recipients, in turn."""
    templates = [Template(load.size, to=f"reader-{number}") for number in range(RECIPIENTS)]
    subject = subjects.publish(SENDER, CHANNEL)
    for number in range(count):
        yield Message(subject, templates[number % RECIPIENTS].render())


async def measure_router(load: Load) -> Measurement:
    """The subject: `python -m hub router --durable` with history in SQLite."""
    async with Stage.set_up() as stage:
        router = await stage.start_router()
        await stage.hold_routing()
        await stage.fill(stage.config.ingress.name, backlog(load, load.messages), window=load.window)
        cpu = CpuMeter({"router": router.pid, "server": stage.server.pid})
        await stage.let_routing()
        await stage.wait_stored(stage.config.inbox.name, load.messages, alive=router)
        secs = await stage.stored_secs(stage.config.inbox.name)
        behind_secs = await stage.wait_history(load.messages)
        return Measurement(messages=load.messages, secs=secs, cpu_secs=cpu.used(), history_secs=secs + behind_secs)


async def measure_sourcing(load: Load) -> Measurement:
    """The limit: the server sources one stream into another by itself, with a transform of the subject."""
    async with Stage.set_up() as stage:
        await stage.js.create_stream({"name": SOURCE, "subjects": [f"{SOURCE_SUBJECT}.*"], "storage": "file"})
        renamed = (
            Message(f"{SOURCE_SUBJECT}.{number % RECIPIENTS}", one.body)
            for number, one in enumerate(backlog(load, load.messages))
        )
        await stage.fill(SOURCE, renamed, window=load.window)
        cpu = CpuMeter({"server": stage.server.pid})
        transform = {"src": f"{SOURCE_SUBJECT}.*", "dest": "bench.inbox.{{wildcard(1)}}"}
        await stage.js.create_stream(
            {"name": SOURCED, "storage": "file", "sources": [{"name": SOURCE, "subject_transforms": [transform]}]}
        )
        await stage.wait_stored(SOURCED, load.messages)
        secs = await stage.stored_secs(SOURCED)
        return Measurement(messages=load.messages, secs=secs, cpu_secs=cpu.used())


async def measure_sequential(load: Load) -> Measurement:
    """The loop that one writes first: fetch one, json, publish, await, ack."""
    count = max(2, load.messages // SEQUENTIAL_SHARE)
    async with Stage.set_up() as stage:
        await stage.fill(stage.config.ingress.name, backlog(load, count), window=load.window)
        loop = await stage.start_actor("sequential", consumer=stage.config.router_consumer, window=1)
        cpu = CpuMeter({"router": loop.pid, "server": stage.server.pid})
        await loop.work(Job(count), deadline_secs=deadline_secs(count))
        secs = await stage.stored_secs(stage.config.inbox.name)
        return Measurement(messages=count, secs=secs, cpu_secs=cpu.used())


ROUTER: Final = Case(
    name="router",
    title="A backlog of direct messages through one router process, history on",
    contenders=(
        Contender("router", "router process", measure_router),
        Contender("sourcing", "server-side sourcing with a transform", measure_sourcing),
        Contender("sequential", "sequential fetch(1) loop", measure_sequential),
    ),
    standards=(
        Standard(subject="router", comparator="sourcing", quantity="rate", at_least=0.30),
        Standard(subject="router", comparator="sequential", quantity="rate", at_least=10.0),
    ),
)
