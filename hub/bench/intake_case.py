"""Case `intake`: a stored backlog into a worker's mailbox on disk, against the same pull without a disk."""

from typing import Final

from hub.bench.actors import READER, Job, Role
from hub.bench.children import CpuMeter
from hub.bench.end_to_end_case import through
from hub.bench.figures import Load, Measurement, Standard
from hub.bench.load import Message, Template
from hub.bench.rounds import Case, Contender
from hub.bench.stage import Stage, deadline_secs, keeping_all
from hub.delivery.consumers import ensure_inbox_consumer
from hub.protocol import subjects


async def measure_intake(load: Load) -> Measurement:
    """The subject: decode, classify, commit to the mailbox, ack."""
    return await _measure(load, "intake")


async def measure_inbox(load: Load) -> Measurement:
    """What an inbox costs of that: decode, drop repeats, ack."""
    return await _measure(load, "inbox")


async def measure_pull(load: Load) -> Measurement:
    """The floor: the same pull, acks alone."""
    return await _measure(load, "pull")


async def _measure(load: Load, role: Role) -> Measurement:
    async with Stage.set_up(keeping_all()) as stage:
        await ensure_inbox_consumer(stage.js, stage.config, READER)
        template, subject = Template(load.size, to=READER), subjects.inbox(READER)
        stored = (Message(subject, template.render()) for _ in range(load.messages))
        await stage.fill(stage.config.inbox.name, stored, window=load.window)
        reader = await stage.start_actor(
            role, consumer=subjects.inbox_consumer(READER), window=stage.config.inbox_max_ack_pending
        )
        cpu = CpuMeter({"reader": reader.pid, "server": stage.server.pid})
        done = await reader.work(Job(load.messages), deadline_secs=deadline_secs(load.messages))
        cpu_secs = cpu.used()
        sender = await stage.start_actor("publisher", size=load.size, window=load.window)
        _, latencies_ms = await through(sender, reader, Job(load.latency_messages, load.rate))
        return Measurement(
            messages=load.messages,
            secs=(done.ended_ns - done.began_ns) / 1e9,
            cpu_secs=cpu_secs,
            latencies_ms=latencies_ms,
        )


INTAKE: Final = Case(
    name="intake",
    title="A stored backlog into a worker's mailbox",
    contenders=(
        Contender("intake", "intake: decode, classify, commit (FULL), ack", measure_intake),
        Contender("inbox", "inbox: decode, drop repeats, ack", measure_inbox),
        Contender("pull", "bare pull loop: ack", measure_pull),
    ),
    standards=(
        Standard(subject="intake", comparator="inbox", quantity="rate", at_least=0.4),
        Standard(subject="intake", comparator="pull", quantity="rate", at_least=0.4),
        Standard(subject="intake", comparator="pull", quantity="cpu_secs"),
        Standard(subject="intake", comparator="pull", quantity="p50_ms"),
        Standard(subject="intake", comparator="pull", quantity="p99_ms"),
    ),
)
