"""A run of 100 000 events: appended, paged, followed and cleaned, on JetStream and PostgreSQL."""

import asyncio

import pytest

from hub.events import AgentEventSource, JetStreamEventSource, PostgresEventSource
from hub.events.conformance.world import SECRET, World
from hub.events.opening import open_event_source
from tests.support.nats_server import NatsServer
from tests.support.postgres import Postgres

EVENTS = 100_000


@pytest.fixture(params=["jetstream", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "postgres":
        cluster: Postgres = request.getfixturevalue("postgres_cluster")
        return cluster.url(asyncio.run(cluster.create_database()))
    server: NatsServer = request.getfixturevalue("nats_server")
    return server.url


@pytest.mark.soak
async def test_a_run_of_a_hundred_thousand_events(url: str) -> None:
    async with open_event_source(url, cursor_secret=SECRET, max_page_size=500) as source:
        if isinstance(source, JetStreamEventSource):
            await source.ensure_stream()
        elif isinstance(source, PostgresEventSource):
            await source.migrate()
        shared: AgentEventSource = source
        run = World(lambda **_: shared, None).run(source)
        followed = 0

        async def follow() -> None:
            nonlocal followed
            async with source.subscribe(run.read()) as events:
                async for envelope in events:
                    followed += 1
                    assert envelope.record.sequence == followed

        following = asyncio.create_task(follow())
        await run.fill(EVENTS - 1)
        await run.append("end", "agent_finished")
        async with asyncio.timeout(300):
            await following
        assert followed == EVENTS

    async with open_event_source(url, cursor_secret=SECRET, max_page_size=500) as cold:
        again = run.on(cold)
        assert [record.sequence for record in await again.records()] == list(range(1, EVENTS + 1))
        assert (await again.append("e50000")).sequence == 50_000, "found by a process that is new to the run"
        report = await cold.cleanup(ownership=run.ownership, before="2030-01-01T00:00:00.000Z", limit=500)
        assert (report.deleted, report.done) == (500, False)
        page = await again.page()
        assert (page.first_sequence, page.truncated) == (501, True)
