"""Producers and readers as processes, on JetStream and PostgreSQL: many at once, and killed."""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from hub.events import JetStreamEventSource, PostgresEventSource
from hub.events.conformance.world import SECRET, Run
from tests.support import event_process
from tests.support.event_process import OWNER, open_source
from tests.support.nats_server import NatsServer
from tests.support.postgres import Postgres

Start = Callable[..., Awaitable[Process]]


@pytest.fixture(params=["jetstream", "postgres"])
def server(request: pytest.FixtureRequest) -> NatsServer | Postgres:
    """Where the events are; a plain fixture, since the cluster's own may only be set up outside of a loop."""
    found: NatsServer | Postgres = request.getfixturevalue(
        "nats_server" if request.param == "jetstream" else "postgres_cluster"
    )
    return found


@pytest.fixture
async def url(server: NatsServer | Postgres) -> str:
    """Where a source is ready."""
    if isinstance(server, Postgres):
        address = server.url(await server.create_database())
        async with asyncpg.create_pool(address, min_size=1) as pool:
            await PostgresEventSource(pool, cursor_secret=SECRET).migrate()
        return address
    async with open_source(server.url) as source:
        assert isinstance(source, JetStreamEventSource)
        await source.ensure_stream()
    return server.url


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start processes; whatever is left of them and their children at the end is killed."""
    started: list[Process] = []

    async def run(*arguments: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", event_process.__name__, *arguments, stdout=PIPE, start_new_session=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()


async def lines(process: Process) -> AsyncIterator[tuple[str, str]]:
    assert process.stdout is not None
    async for line in process.stdout:
        name, value = line.decode().split()
        yield name, value


async def produce_with(start: Start, url: str, processes: int, each: int) -> None:
    producers = await start("produce", url, "run", str(each), str(processes))
    seen = {name: int(sequence) async for name, sequence in lines(producers)}
    assert await producers.wait() == 0
    assert sorted(seen.values()) == list(range(1, processes * each + 1))
    async with open_source(url) as source:
        stored = await Run(source, OWNER, "session", "run").records()
    assert {record.id: record.sequence for record in stored} == seen
    assert [record.sequence for record in stored] == list(range(1, processes * each + 1))


async def test_sixteen_processes_append_to_one_run_without_a_gap(start: Start, url: str) -> None:
    await produce_with(start, url, 16, 4)


@pytest.mark.soak
async def test_sixteen_processes_append_much_to_one_run_without_a_gap(start: Start, url: str) -> None:
    await produce_with(start, url, 16, 250)


async def test_a_killed_reader_resumes_by_cursor_and_a_killed_producer_by_repeating(start: Start, url: str) -> None:
    async with open_source(url) as source:
        run = Run(source, OWNER, "session", "run")
        await run.fill(30)
        reader = await start("follow", url, "run")
        seen: list[str] = []
        cursor = ""
        async for name, latest in lines(reader):
            seen.append(name)
            cursor = latest
            if len(seen) == 12:
                reader.kill()
                break
        await reader.wait()
        producer = await start("produce", url, "run", "100000", "1")
        async for _ in lines(producer):
            break
        os.killpg(producer.pid, signal.SIGKILL)
        # What it had stored is answered again, what it had not is stored now.
        for number in range(3):
            stored = await run.append(f"p0-{number}")
            assert stored.sequence is not None
        successor = await start("follow", url, "run", cursor)
        async for name, _ in lines(successor):
            seen.append(name)
            if name == "p0-2":
                break
    wanted = [f"e{number}" for number in range(1, 31)]
    assert [name for name in seen if name.startswith("e")] == wanted
    assert [name for name in seen if name in ("p0-0", "p0-1", "p0-2")] == ["p0-0", "p0-1", "p0-2"]
    assert len(seen) == len(set(seen))


async def test_a_killed_durable_readers_successor_misses_nothing(start: Start, url: str) -> None:
    async with open_source(url) as source:
        run = Run(source, OWNER, "session", "run")
        await run.fill(10)
        await run.append("end", "agent_finished")
    reader = await start("durable", url, "run")
    seen: list[str] = []
    async for name, _ in lines(reader):
        seen.append(name)
        if len(seen) == 4:
            reader.kill()
            break
    await reader.wait()
    successor = await start("durable", url, "run")
    rest = [name async for name, _ in lines(successor)]
    wanted = [*(f"e{number}" for number in range(1, 11)), "end"]
    # It may have printed more before the kill came; what it had in hand then comes again, in order, nothing skipped.
    seen += [name async for name, _ in lines(reader)]
    assert seen == wanted[: len(seen)]
    assert rest == wanted[-len(rest) :]
    assert wanted.index(rest[0]) <= len(seen)
