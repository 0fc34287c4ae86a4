"""Case `inbox`: a stored backlog into one reader, as an inbox reads it against a bare pull loop."""

from functools import partial
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


async def measure_reading(load: Load, role: Role, *, is_timed: bool) -> Measurement:
    """Have one reader read a stored backlog to its end.

    Args:
        load: how much.
        role: how it reads.
        is_timed: then also let single messages through at the load's rate, and tell how long each took.
    """
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
        latencies_ms: tuple[float, ...] = ()
        if is_timed:
            sender = await stage.start_actor("publisher", size=load.size, window=load.window)
            _, latencies_ms = await through(sender, reader, Job(load.latency_messages, load.rate))
        return Measurement(
            messages=load.messages,
            secs=(done.ended_ns - done.began_ns) / 1e9,
            cpu_secs=cpu_secs,
            latencies_ms=latencies_ms,
        )


def reading(role: Role, title: str, *, is_timed: bool = False) -> Contender:
    """A contender that reads as `role` does."""
    return Contender(role, title, partial(measure_reading, role=role, is_timed=is_timed))


INBOX: Final = Case(
    name="inbox",
    title="A stored backlog into one reader",
    contenders=(
        reading("inbox", "inbox: decode, drop repeats, ack"),
        reading("pull", "bare pull loop: ack"),
    ),
    standards=(Standard(subject="inbox", comparator="pull", quantity="rate"),),
)
