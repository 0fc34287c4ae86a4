"""Cases about paging."""

import time

from hub.events.conformance.world import Case, World, refused

PAGE_SECS = 0.25  # generous: what is meant is that no timer decides whether there is more


async def pages_are_ascending_and_name_a_next_one_only_where_there_is_more(world: World) -> None:
    run = world.run()
    await run.fill(10)
    first = await run.page(limit=5)
    assert [record.sequence for record in first.records] == [1, 2, 3, 4, 5]
    assert first.next_cursor == first.events[-1].cursor
    second = await run.page(first.next_cursor, limit=5)
    assert [record.sequence for record in second.records] == [6, 7, 8, 9, 10]
    assert second.next_cursor is None
    assert not second.terminal
    after_the_end = await run.page(second.events[-1].cursor)
    assert after_the_end.events == ()
    assert after_the_end.next_cursor is None
    await run.append("e11")
    assert [record.id for record in (await run.page(second.events[-1].cursor)).records] == ["e11"]


async def a_page_may_start_behind_any_event(world: World) -> None:
    run, other = world.run(), world.run()
    for number in range(1, 8):
        await run.append(f"e{number}")
        await other.append(f"o{number}")
    page = await run.page()
    for envelope in page.events:
        assert envelope.record.sequence is not None
        behind = await run.page(envelope.cursor)
        assert [record.sequence for record in behind.records] == list(range(envelope.record.sequence + 1, 8))
        assert behind.first_sequence == 1


async def a_page_of_five_takes_no_timer(world: World) -> None:
    run = world.run()
    await run.fill(5)
    await run.page()
    started = time.monotonic()
    page = await run.page()
    assert time.monotonic() - started < PAGE_SECS
    assert len(page.events) == 5


async def a_limit_out_of_range_is_refused_not_clamped(world: World) -> None:
    run = world.run(world.source(max_page_size=10))
    await run.fill(12)
    for limit in (0, -1, 11, True, 1.0, "5"):
        async with refused("INPUT"):
            await run.page(limit=limit)  # type: ignore[arg-type]
    assert len((await run.page(limit=10)).events) == 10
    assert len((await run.page()).events) == 10, "without a limit it is max_page_size"


async def an_unknown_run_is_an_empty_page(world: World) -> None:
    page = await world.run().page()
    assert page.events == ()
    assert (page.next_cursor, page.terminal, page.first_sequence, page.truncated) == (None, False, None, False)


async def a_page_says_when_the_run_has_ended(world: World) -> None:
    run = world.run()
    await run.fill(2)
    assert not (await run.page()).terminal
    await run.append("limit", "run_limit_exceeded")
    await run.append("error", "error")
    whole = await run.page()
    assert whole.terminal
    assert whole.next_cursor is None
    assert len(whole.events) == 4
    assert not (await run.page(limit=2)).terminal, "the closing event is not on this page"
    first_end = await run.page(limit=3)
    assert first_end.terminal
    assert first_end.next_cursor is not None
    second_end = await run.page(first_end.next_cursor)
    assert [record.id for record in second_end.records] == ["error"]
    assert second_end.terminal
    after_the_end = await run.page(second_end.events[-1].cursor)
    assert after_the_end.events == ()
    assert after_the_end.terminal


async def a_page_passes_a_broken_record_and_counts_it(world: World) -> None:
    run = world.run()
    await run.fill(2)
    await world.poison(run)
    await run.append("behind")
    await run.append("end", "agent_finished")
    before = run.source.stored_broken
    page = await run.page()
    assert [record.id for record in page.records] == ["e1", "e2", "behind", "end"]
    assert page.terminal
    assert run.source.stored_broken > before
    behind = await run.page(page.events[1].cursor)
    assert [record.id for record in behind.records] == ["behind", "end"]
    assert (await run.append("e1")).sequence == 1


CASES: tuple[Case, ...] = (
    pages_are_ascending_and_name_a_next_one_only_where_there_is_more,
    a_page_may_start_behind_any_event,
    a_page_of_five_takes_no_timer,
    a_limit_out_of_range_is_refused_not_clamped,
    an_unknown_run_is_an_empty_page,
    a_page_says_when_the_run_has_ended,
    a_page_passes_a_broken_record_and_counts_it,
)
