"""The PostgreSQL event source on a real server that is killed, and on databases that are not ready."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from hub.events import PostgresEventSource, StreamMisconfiguredError
from hub.events.conformance.world import SECRET, World, refused
from hub.events.errors import InvalidInputError
from tests.support.postgres import Postgres
from tests.support.waiting import eventually

QUICK: dict[str, Any] = {"poll_secs": 0.2, "reconnect_min_secs": 0.05, "reconnect_max_secs": 0.3}


async def test_a_server_that_is_killed_in_the_middle_costs_nothing(postgres_server: Postgres) -> None:
    address = postgres_server.url()
    async with asyncpg.create_pool(address, min_size=1, max_size=8) as pool, AsyncExitStack() as stack:
        world = await stack.enter_async_context(
            World(lambda **options: PostgresEventSource(pool, listen=address, **{**QUICK, **options}), None)
        )
        run = world.run(world.source(append_timeout_secs=30.0))
        await run.source.migrate()  # type: ignore[attr-defined]
        await run.fill(20)
        readers = [asyncio.create_task(run.on(world.source()).follow()) for _ in range(2)]
        halfway = asyncio.Event()

        async def produce() -> None:
            for number in range(21, 101):
                await run.append(f"e{number}")
                if number == 50:
                    halfway.set()
            await run.append("end", "agent_finished")

        producer = asyncio.create_task(produce())
        await halfway.wait()
        await postgres_server.restart()
        async with asyncio.timeout(40):
            await producer
            wanted = [*(f"e{number}" for number in range(1, 101)), "end"]
            for reader in readers:
                assert await reader == wanted
        assert [record.sequence for record in await run.records()] == list(range(1, 102))


@pytest.fixture
async def address(postgres_cluster: Postgres) -> str:
    return postgres_cluster.url(await postgres_cluster.create_database())


@pytest.fixture
async def pool(address: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(address, min_size=1, max_size=8) as made:
        yield made


async def test_a_listener_that_is_cut_off_comes_back_and_nothing_is_missed(pool: asyncpg.Pool, address: str) -> None:
    async with World(
        lambda **options: PostgresEventSource(pool, listen=address, **{**QUICK, **options}), None
    ) as world:
        run = world.run()
        source = run.source
        assert isinstance(source, PostgresEventSource)
        await source.migrate()
        listener = source._pg_log.listener
        async with asyncio.timeout(20), source.subscribe(run.read()) as events:
            await eventually(listener.connected.is_set)
            for number in range(1, 4):
                cut = await pool.fetchval(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                    "WHERE query LIKE 'LISTEN%' AND datname = current_database()"
                )
                assert cut == 1
                await run.append(f"e{number}")
                assert (await anext(events)).record.sequence == number
                await eventually(listener.connected.is_set, what="the listener is back")


async def test_readers_poll_from_the_first_moment(pool: asyncpg.Pool) -> None:
    attempts = 0

    async def never() -> asyncpg.Connection:
        nonlocal attempts
        attempts += 1
        raise OSError("no listener for you")

    async with World(lambda **options: PostgresEventSource(pool, listen=never, **{**QUICK, **options}), None) as world:
        run = world.run()
        await run.source.migrate()  # type: ignore[attr-defined]
        reader = asyncio.create_task(run.follow())
        await run.fill(3)
        await eventually(lambda: attempts > 1)
        await run.append("end", "agent_finished")
        assert await reader == ["e1", "e2", "e3", "end"]


async def test_the_listener_may_be_one_of_the_pools_connections(pool: asyncpg.Pool) -> None:
    async with World(lambda **options: PostgresEventSource(pool, **options), None) as world:
        run = world.run(world.source(poll_secs=30.0))
        await run.source.migrate()  # type: ignore[attr-defined]
        async with asyncio.timeout(10), run.source.subscribe(run.read()) as events:
            waiting = asyncio.ensure_future(anext(events))
            await run.append("one")
            assert (await waiting).record.id == "one"
    assert await pool.fetchval("SELECT 1") == 1, "the pool is the host's and stays open"
    assert pool.get_idle_size() == pool.get_size(), "every connection was given back"


async def test_a_database_that_is_not_ready_is_named(pool: asyncpg.Pool) -> None:
    source = PostgresEventSource(pool, cursor_secret=SECRET)
    run = World(lambda **_: source, None).run()
    with pytest.raises(StreamMisconfiguredError, match=r"migrate\(\)"):
        await run.append("one")
    counts = await asyncio.gather(*(source.migrate() for _ in range(6)))
    assert sorted(counts) == [0, 0, 0, 0, 0, 1], "migrations are applied once, whoever comes first"
    assert (await run.append("one")).sequence == 1
    await pool.execute("INSERT INTO prism_agent_events.migrations (version) VALUES (99)")
    with pytest.raises(StreamMisconfiguredError, match="99"):
        await source.verify()
    with pytest.raises(StreamMisconfiguredError, match="99"):
        await source.migrate()


async def test_missing_rights_are_named(pool: asyncpg.Pool, address: str) -> None:
    await PostgresEventSource(pool, cursor_secret=SECRET).migrate()
    role = f"reader_{id(pool)}"
    await pool.execute(f"CREATE ROLE {role} LOGIN")
    await pool.execute(f"GRANT USAGE ON SCHEMA prism_agent_events TO {role}")
    await pool.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA prism_agent_events TO {role}")
    async with asyncpg.create_pool(address, user=role, min_size=1, max_size=1) as limited:
        with pytest.raises(StreamMisconfiguredError, match="DELETE on records is not granted"):
            await PostgresEventSource(limited, cursor_secret=SECRET).verify()


async def test_a_closed_pool_is_an_error_of_the_family(address: str) -> None:
    pool = await asyncpg.create_pool(address, min_size=1, max_size=1)
    source = PostgresEventSource(pool, cursor_secret=SECRET)
    await source.migrate()
    run = World(lambda **_: source, None).run()
    await run.append("one")
    await pool.close()
    async with refused("UNAVAILABLE") as refusal:
        await run.append("two")
    assert not refusal.error.retriable


@pytest.mark.parametrize("schema", ["", "A", "a-b", 'a"b', "1a", "x" * 64, None])
async def test_a_schema_that_needs_quoting_is_refused(pool: asyncpg.Pool, schema: Any) -> None:
    with pytest.raises(InvalidInputError, match="schema"):
        PostgresEventSource(pool, cursor_secret=SECRET, schema=schema)
