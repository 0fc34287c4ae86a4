"""Cases about cleaning up."""

import asyncio
from datetime import UTC, datetime

from hub.events.conformance.world import Case, World, refused
from hub.events.records import Ownership

OLD, CUT, NEW = "2020-01-01T00:00:00.000Z", "2021-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z"


async def cleanup_deletes_what_is_strictly_older_and_keeps_the_last(world: World) -> None:
    run = world.run()
    await run.fill(3, timestamp=OLD)
    await run.append("edge", timestamp=CUT)
    await run.append("young", timestamp=NEW)
    report = await run.source.cleanup(ownership=run.ownership, before=datetime(2021, 1, 1, tzinfo=UTC))
    assert (report.deleted, report.done) == (3, True)
    assert report.scanned >= 3
    assert await run.ids() == ["edge", "young"]
    report = await run.source.cleanup(ownership=run.ownership, before="2030-01-01T00:00:00.000Z")
    assert (report.deleted, report.done) == (1, True)
    assert await run.ids() == ["young"], "the last record stays"
    assert (await run.append("next")).sequence == 6, "the counter goes on"
    assert (await run.on(world.source()).append("again")).sequence == 7


async def cleanup_works_in_bounded_steps_oldest_first(world: World) -> None:
    run = world.run()
    await run.fill(8, timestamp=OLD)
    first = await run.source.cleanup(ownership=run.ownership, before=CUT, limit=3)
    assert (first.deleted, first.done) == (3, False)
    assert await run.ids() == ["e4", "e5", "e6", "e7", "e8"]
    second = await run.source.cleanup(ownership=run.ownership, before=CUT, limit=4)
    assert (second.deleted, second.done) == (4, True)
    assert await run.ids() == ["e8"]
    for limit in (0, 501, True):
        async with refused("INPUT"):
            await run.source.cleanup(ownership=run.ownership, before=CUT, limit=limit)
    for before in ("2021-01-01", datetime(2021, 1, 1), None):  # noqa: DTZ001 - a naive one is what is refused
        async with refused("INPUT"):
            await run.source.cleanup(ownership=run.ownership, before=before)  # type: ignore[arg-type]


async def cleanup_touches_exactly_one_owner(world: World) -> None:
    source = world.source()
    tenant = world.owner().tenant_id
    owners = [
        Ownership(tenant_id=tenant),
        Ownership(tenant_id=tenant, account_id="a"),
        Ownership(tenant_id=tenant, account_id="a", user_id="u"),
        world.owner(),
    ]
    runs = [world.run(source, owner) for owner in owners]
    for run in runs:
        await run.fill(3, timestamp=OLD)
    await source.cleanup(ownership=owners[1], before=CUT)
    assert [len(await run.ids()) for run in runs] == [3, 1, 3, 3]
    await source.cleanup(ownership=owners[0], before=CUT)
    assert [len(await run.ids()) for run in runs] == [1, 1, 3, 3]


async def cleanup_gets_past_any_number_of_younger_records(world: World) -> None:
    source = world.source()
    owner = world.owner()
    young, old = world.run(source, owner, run_id="young"), world.run(source, owner, run_id="old")
    await young.fill(30, timestamp=NEW)
    await old.fill(3, timestamp=OLD)
    await young.fill(5, start=31, timestamp=NEW)
    report = await source.cleanup(ownership=owner, before=CUT, limit=1)
    assert (report.deleted, report.done) == (1, False)
    report = await source.cleanup(ownership=owner, before=CUT, limit=5)
    assert (report.deleted, report.done) == (1, True)
    assert await old.ids() == ["e3"]
    assert len(await young.ids()) == 35


async def cleanup_gets_past_broken_records(world: World) -> None:
    run = world.run()
    await world.poison(run)
    await run.fill(3, timestamp=OLD)
    await world.poison(run)
    report = await run.source.cleanup(ownership=run.ownership, before=CUT)
    assert report.done
    remaining = await run.ids()
    assert len(remaining) <= 1
    assert ((await run.append("next")).sequence or 0) >= 4, "the counter goes on"


async def cleanup_can_spare_open_runs(world: World) -> None:
    source = world.source()
    owner = world.owner()
    running, ended = world.run(source, owner, run_id="open"), world.run(source, owner, run_id="closed")
    await running.fill(3, timestamp=OLD)
    await ended.fill(3, timestamp=OLD)
    await ended.append("end", "agent_finished", timestamp=OLD)
    report = await source.cleanup(ownership=owner, before=CUT, keep_open=True)
    assert (report.deleted, report.done) == (3, True)
    assert len(await running.ids()) == 3
    assert await ended.ids() == ["end"]


async def a_cleaned_finished_run_ends_at_once(world: World) -> None:
    run = world.run()
    await run.fill(3, timestamp=OLD)
    await run.append("end", "agent_finished", timestamp=OLD)
    cursor = (await run.page()).events[-1].cursor
    await run.source.cleanup(ownership=run.ownership, before=CUT)
    assert await run.follow() == ["end"]
    assert await run.follow(cursor) == []
    assert (await run.page(cursor)).terminal
    async with refused("INPUT"):
        await run.append("late")


async def an_id_is_free_again_once_its_record_is_gone(world: World) -> None:
    run = world.run()
    await run.fill(3, timestamp=OLD)
    await run.source.cleanup(ownership=run.ownership, before=CUT)
    assert (await run.append("e1", timestamp=NEW)).sequence == 4
    assert (await run.on(world.source()).append("e2", timestamp=OLD)).sequence == 5
    assert await run.ids() == ["e3", "e1", "e2"]


async def cleaners_at_once_delete_each_record_once(world: World) -> None:
    run = world.run()
    await run.fill(30, timestamp=OLD)
    sources = [world.source() for _ in range(4)]
    reports = await asyncio.gather(
        *(source.cleanup(ownership=run.ownership, before=CUT, limit=500) for source in sources)
    )
    assert sum(report.deleted for report in reports) == 29
    assert await run.ids() == ["e30"]


async def a_cleaned_run_has_room_again(world: World) -> None:
    run = world.run(world.source(max_run_events=4))
    await run.fill(4, timestamp=OLD)
    async with refused("OVERFLOW"):
        await run.append("e5")
    await run.on(world.source()).source.cleanup(ownership=run.ownership, before=CUT)
    assert (await run.append("e5")).sequence == 5


CASES: tuple[Case, ...] = (
    cleanup_deletes_what_is_strictly_older_and_keeps_the_last,
    cleanup_works_in_bounded_steps_oldest_first,
    cleanup_touches_exactly_one_owner,
    cleanup_gets_past_any_number_of_younger_records,
    cleanup_gets_past_broken_records,
    cleanup_can_spare_open_runs,
    a_cleaned_finished_run_ends_at_once,
    an_id_is_free_again_once_its_record_is_gone,
    cleaners_at_once_delete_each_record_once,
    a_cleaned_run_has_room_again,
)
