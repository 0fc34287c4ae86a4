"""The bridge: a turn's life is a run of the event source, and no turn waits for it (docs/events.md)."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hub.delivery.settings import ConnectSettings
from hub.events import AgentEventRecord, AgentEventSource, EventRead, Ownership
from hub.events.opening import open_event_source
from hub.service.exits import Exit
from tests.support.nats_server import NatsServer
from tests.support.postgres import Postgres
from tests.support.waiting import eventually
from tests.system.events.test_docs import PROGRAMS
from tests.system.workers.conftest import Bench

TENANT = "acme"
SECRET = b"a secret of thirty-two bytes or more"


@pytest.fixture
async def events(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A server of the event source's own, with its stream."""
    server = await NatsServer(tmp_path / "events").start()
    async with open_source(server) as source:
        await source.ensure_stream()  # type: ignore[attr-defined]
    yield server
    await server.kill()


def open_source(server: NatsServer):  # type: ignore[no-untyped-def]
    return open_event_source(
        server.url, cursor_secret=SECRET, settings=ConnectSettings(servers=(server.url,), identity=None)
    )


def spooled(spool: Path, run_id: str) -> int:
    """How many events of a run wait on disk."""
    with contextlib.closing(sqlite3.connect(spool)) as database:
        return sum(run_id.encode() in bytes(body) for (body,) in database.execute("SELECT body FROM event"))


async def run_of(source: AgentEventSource, task_id: str) -> tuple[AgentEventRecord, ...]:
    return (
        await source.page(EventRead(ownership=Ownership(tenant_id=TENANT), session_id=task_id, run_id=task_id))
    ).records


async def ended_run(source: AgentEventSource, task_id: str) -> tuple[AgentEventRecord, ...]:
    found: tuple[AgentEventRecord, ...] = ()

    async def is_ended() -> bool:
        nonlocal found
        found = await run_of(source, task_id)
        return bool(found) and found[-1].terminal

    await eventually(is_ended, within=20, what=f"run {task_id} has its end")
    return found


async def test_a_turns_life_is_a_run_without_its_secrets(bench: Bench, events: NatsServer) -> None:
    worker = bench.worker("nap", None, "--event-source", events.url, "--tenant", TENANT)
    worker.environ["SOME_API_KEY"] = "0.0000000001"
    await worker.start()
    identity = worker.arguments[worker.arguments.index("--identity") + 1]
    done = await bench.send(identity, "0")
    failed = await bench.send(identity, "0.0000000001 password=hunter22")
    async with open_source(events) as source:
        started, delta, finished = await ended_run(source, done)
        assert [each.type for each in (started, delta, finished)] == [
            "agent_started",
            "message_delta",
            "agent_finished",
        ]
        assert started.event["from"] == bench.me
        assert (started.event["worker"], started.event["attempt"], started.event["prompt"]) == (identity, 1, "0")
        assert (delta.event["text"], delta.event["percent"]) == ("napping", 0)
        assert finished.event["result"] == "slept 0"
        told = await ended_run(source, failed)
        assert told[0].event["prompt"] == "[redacted] password=[redacted]"
        assert told[-1].event["code"] == "handler_error"
        assert "hunter22" not in repr(told)
        assert "0.0000000001" not in repr(told)
    events.signal(signal.SIGSTOP)
    await bench.witness.result(await bench.send(identity, "0"))
    began = time.monotonic()
    assert await worker.stop() == 0
    assert time.monotonic() - began < 15, "a source that hangs kept the worker from stopping"
    events.signal(signal.SIGCONT)


async def test_no_turn_waits_for_a_source_that_hangs_and_nothing_is_lost_over_a_kill(
    bench: Bench, events: NatsServer
) -> None:
    identity = bench.name()
    arguments = ("--event-source", events.url, "--tenant", TENANT)
    worker = await bench.start("nap_again", identity, *arguments)
    first = await bench.send(identity, "0")
    await bench.witness.result(first)
    events.signal(signal.SIGSTOP)
    began = time.monotonic()
    ids = [await bench.send(identity, "0") for _ in range(10)]
    for task_id in ids:
        await bench.witness.result(task_id)
    assert time.monotonic() - began < 5, "turns waited for the event source"
    cut_off = await bench.send(identity, "1")
    await eventually(lambda: len(bench.starts(cut_off)) == 1)
    spool = bench.home / "events" / f"{identity}.db"
    await eventually(lambda: spooled(spool, cut_off) == 2, what="its start and its progress are on disk")
    await worker.kill()
    events.signal(signal.SIGCONT)
    await bench.start("nap_again", identity, *arguments)
    await bench.witness.result(cut_off)
    async with open_source(events) as source:
        for task_id in (first, *ids):
            run = await ended_run(source, task_id)
            assert [each.type for each in run] == ["agent_started", "message_delta", "agent_finished"]
            assert [each.sequence for each in run] == [1, 2, 3]
        run = await ended_run(source, cut_off)
        assert [each.event["attempt"] for each in run if each.type == "agent_started"] == [1, 2]
        assert run[-1].event["status"] == "done"


async def test_a_worker_killed_between_a_turn_s_end_and_its_last_event_still_ends_the_run(
    bench: Bench, events: NatsServer
) -> None:
    identity = bench.name()
    module = "tests.support.stepping_worker"
    worker = bench.process(module, "settled", "tests.support.handlers:nap", identity, events.url, TENANT).spawn()
    # Long enough for its start to be on disk, so that the run has begun.
    task_id = await bench.send(identity, "0.5")
    assert await worker.ended() == -signal.SIGKILL
    worker = await bench.start("nap", identity, "--event-source", events.url, "--tenant", TENANT)
    cancelled = await bench.send(identity, "30")
    await bench.witness.said(cancelled, "started")
    async with open_source(events) as source:
        run = await ended_run(source, task_id)
        assert [each.type for each in run] == ["agent_started", "message_delta", "agent_finished"]
        await bench.cancel(identity, cancelled)
        assert (await ended_run(source, cancelled))[-1].event["code"] == "cancelled"


async def test_the_documented_follower_sees_a_run_once_over_kills_of_itself_the_source_and_the_worker(
    bench: Bench, events: NatsServer, tmp_path: Path
) -> None:
    program = tmp_path / "follow.py"
    program.write_text(PROGRAMS["follow.py"])
    environ = {**os.environ, "NATS_HUB_EVENTS_URL": events.url, "NATS_HUB_EVENTS_CURSOR_SECRET": SECRET.decode()}
    identity, notes = bench.name(), tmp_path / "notes"
    envelope = bench.task(identity, "1")
    seen: dict[int, str] = {}

    async def follow(until: str) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, program, envelope.meta.id, notes, env=environ, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        async with asyncio.timeout(40):
            async for line in process.stdout:
                number, kind, *_ = line.decode().split()
                assert seen.setdefault(int(number), kind) == kind
                assert int(number) == max(seen), "in order"
                if kind == until:
                    process.kill()
            await process.wait()

    arguments = ("--event-source", events.url, "--tenant", TENANT)
    following = asyncio.create_task(follow("message_delta"))  # before the worker has the task
    worker = await bench.start("nap_again", identity, *arguments)
    await bench.client.send_envelope(envelope)
    await following
    await worker.kill()
    await events.kill()
    await bench.start("nap_again", identity, *arguments)
    following = asyncio.create_task(follow("never"))
    await bench.witness.result(envelope.meta.id)
    await events.start()
    await following
    attempt = ["agent_started", "message_delta"]
    assert [seen[number] for number in range(1, len(seen) + 1)] == [*attempt, *attempt, "agent_finished"]


async def test_a_run_goes_to_postgresql_too(bench: Bench, postgres_cluster: Postgres) -> None:
    url = postgres_cluster.url(await postgres_cluster.create_database())
    worker = bench.worker("nap", None, "--event-source", url, "--tenant", TENANT, "--event-stream", "runs")
    async with open_event_source(url, cursor_secret=SECRET, stream="runs") as source:
        await source.migrate()  # type: ignore[attr-defined]
        await worker.start()
        identity = worker.arguments[worker.arguments.index("--identity") + 1]
        run = await ended_run(source, await bench.send(identity, "0"))
        assert run[-1].event["result"] == "slept 0"


async def test_an_event_source_without_a_tenant_is_refused_with_what_to_do(bench: Bench) -> None:
    worker = bench.worker("nap", None, "--event-source", "nats://127.0.0.1:1").spawn()
    assert await worker.ended() == Exit.CONFIG
    assert "--event-source needs --tenant" in worker.events("cannot start")[0]["error"]
