"""Case `e2e`: from a client's process through the router's into an inbox, against one hop through JetStream.

The floor's messages take one stream, without a router, decoding or dedupe, on the same fast paths of ours: what is
left out is all that a hub adds.
"""

import asyncio
from typing import Final

from hub.bench.actors import READER, Job, Role
from hub.bench.children import ActorChild, CpuMeter
from hub.bench.figures import Load, Measurement, Standard
from hub.bench.rounds import Case, Contender
from hub.bench.stage import Stage, deadline_secs, keeping_all
from hub.delivery.consumers import ensure_inbox_consumer
from hub.protocol import subjects


async def measure_end_to_end(load: Load) -> Measurement:
    """The subject: client, router with history in SQLite, inbox; a process each."""
    return await _measure(load, sender="client", reader="inbox", is_routed=True)


async def measure_one_hop(load: Load) -> Measurement:
    """The floor: publish, stream, pull, ack; a process at each end."""
    return await _measure(load, sender="publisher", reader="pull", is_routed=False)


async def _measure(load: Load, *, sender: Role, reader: Role, is_routed: bool) -> Measurement:
    async with Stage.set_up(keeping_all()) as stage:
        await ensure_inbox_consumer(stage.js, stage.config, READER)
        pids = {"server": stage.server.pid}
        if is_routed:
            router = await stage.start_router()
            pids["router"] = router.pid
        reading = await stage.start_actor(
            reader, consumer=subjects.inbox_consumer(READER), window=stage.config.inbox_max_ack_pending
        )
        sending = await stage.start_actor(sender, size=load.size, window=load.window)
        pids |= {"sender": sending.pid, "reader": reading.pid}
        _, latencies_ms = await through(sending, reading, Job(load.latency_messages, load.rate))
        if is_routed:
            await stage.wait_history(load.latency_messages)
        cpu = CpuMeter(pids)
        secs, _ = await through(sending, reading, Job(load.messages))
        behind_secs = await stage.wait_history(load.messages) if is_routed else None
        return Measurement(
            messages=load.messages,
            secs=secs,
            cpu_secs=cpu.used(),
            latencies_ms=latencies_ms,
            history_secs=None if behind_secs is None else secs + behind_secs,
        )


async def through(sending: ActorChild, reading: ActorChild, job: Job) -> tuple[float, tuple[float, ...]]:
    """Do one job at both ends: seconds from the first send to the last ack, and the latencies."""
    most_secs = deadline_secs(job.count) + (job.count / job.rate if job.rate else 0.0)
    async with asyncio.TaskGroup() as both:
        read = both.create_task(reading.work(job, deadline_secs=most_secs))
        sent = both.create_task(sending.work(job, deadline_secs=most_secs))
    return (read.result().ended_ns - sent.result().began_ns) / 1e9, read.result().latencies_ms


END_TO_END: Final = Case(
    name="e2e",
    title="Client → router → inbox → dedupe → ack",
    contenders=(
        Contender("e2e", "end to end", measure_end_to_end),
        Contender("one-hop", "one JetStream hop", measure_one_hop),
    ),
    standards=(
        Standard(subject="e2e", comparator="one-hop", quantity="rate", at_least=0.25),
        Standard(subject="e2e", comparator="one-hop", quantity="p50_ms", at_most=3.0),
        Standard(subject="e2e", comparator="one-hop", quantity="p99_ms"),
    ),
)
