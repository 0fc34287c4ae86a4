"""Cases about subscribing."""

import asyncio
import time

from hub.events.conformance.world import DEADLINE_SECS, Case, Run, World, refused

CLOSE_SECS = 0.25
REPLAY_SECS = 1.0
FOREIGN_EVENTS = 300  # the long form, with thousands, is a test of its own where a backend is live


async def stored_events_come_first_then_live_ones_until_the_end(world: World) -> None:
    run = world.run()
    await run.fill(3)
    reader = asyncio.create_task(run.on(world.source()).follow())
    await run.fill(3, start=4)
    await run.append("end", "agent_finished")
    assert await reader == ["e1", "e2", "e3", "e4", "e5", "e6", "end"]


async def a_reader_that_waits_is_woken_not_left_to_its_poll(world: World) -> None:
    run = world.run()
    reader = world.source(poll_secs=30)
    async with asyncio.timeout(DEADLINE_SECS), reader.subscribe(run.read()) as events:
        for number in range(1, 6):
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.01)  # so that it really waits; it gets the event either way
            await run.append(f"e{number}")
            envelope = await waiting
            assert envelope.record.sequence == number


async def nothing_is_missed_between_replay_and_live(world: World) -> None:
    run = world.run(world.source(max_page_size=7))
    readers = [asyncio.create_task(run.on(world.source(max_page_size=7)).follow()) for _ in range(3)]
    await run.fill(60)
    await run.append("end", "agent_finished")
    wanted = [*(f"e{number}" for number in range(1, 61)), "end"]
    for reader in readers:
        assert await reader == wanted


async def three_and_a_half_pages_replay_while_the_producer_is_idle(world: World) -> None:
    run = world.run(world.source(max_page_size=10, poll_secs=30))
    await run.fill(35)
    started = time.monotonic()
    assert [envelope.record.sequence for envelope in await run.take(35)] == list(range(1, 36))
    assert time.monotonic() - started < REPLAY_SECS


async def a_subscription_ends_after_the_first_terminal_event_behind_its_cursor(world: World) -> None:
    run = world.run()
    await run.append("work")
    await run.append("limit", "run_limit_exceeded")
    await run.append("error", "error")
    first = await run.take(10)
    assert [envelope.record.id for envelope in first] == ["work", "limit"]
    second = await run.take(10, first[-1].cursor)
    assert [envelope.record.id for envelope in second] == ["error"]
    assert await run.follow(second[-1].cursor) == []


async def ten_subscribers_each_get_everything(world: World) -> None:
    run = world.run()
    source = world.source()
    await run.fill(3)
    for count in (2, 10):
        readers = [asyncio.create_task(run.on(source).take(3 + count)) for _ in range(count)]
        await run.fill(count, start=4 if count == 2 else 6)
        for reader in readers:
            assert [envelope.record.sequence for envelope in await reader] == list(range(1, 4 + count))


async def a_reader_that_dies_in_the_middle_resumes_by_cursor_and_loses_nothing(world: World) -> None:
    run = world.run()
    await run.fill(20)
    seen: list[str] = []
    cursor = None
    while len(seen) < 20:
        try:
            async with run.source.subscribe(run.read(cursor)) as events:
                async for envelope in events:
                    seen.append(envelope.record.id)
                    cursor = envelope.cursor
                    if len(seen) % 6 == 0 or len(seen) == 20:
                        raise RuntimeError("the reader dies")
        except RuntimeError:
            continue
    assert seen == [f"e{number}" for number in range(1, 21)]


async def every_way_out_of_a_subscription_frees_its_slot(world: World) -> None:
    most = 3
    run = world.run(world.source(max_subscribers=most))
    await run.fill(2)
    for _ in range(most + 1):
        await run.take(1)
    for _ in range(most + 1):
        async with refused("CURSOR"):
            await run.take(1, "not.cursor")
    for _ in range(most + 1):
        parked = asyncio.create_task(run.take(3))
        await asyncio.sleep(0)
        parked.cancel()
        await asyncio.gather(parked, return_exceptions=True)
    for _ in range(most + 1):
        try:
            async with run.source.subscribe(run.read()) as events:
                await anext(events)
                raise RuntimeError("a reader's own error")
        except RuntimeError:
            continue
    subscriptions = [run.source.subscribe(run.read()) for _ in range(most + 1)]
    for subscription in subscriptions[:most]:
        await subscription.__aenter__()
    async with refused("OVERFLOW"):
        await subscriptions[most].__aenter__()
    await subscriptions[0].__aexit__(None, None, None)
    assert len(await run.take(2)) == 2
    for subscription in subscriptions[1:most]:
        await subscription.__aexit__(None, None, None)


async def closing_the_source_ends_parked_readers_at_once(world: World) -> None:
    run = world.run()
    await run.append("one")
    ended: list[float] = []
    parked = asyncio.Barrier(6)

    async def park() -> None:
        async with run.source.subscribe(run.read()) as events:
            await anext(events)
            waiting = asyncio.ensure_future(anext(events))
            await parked.wait()
            async with refused("CLOSED"):
                await waiting
            ended.append(time.monotonic())

    async with asyncio.timeout(DEADLINE_SECS), asyncio.TaskGroup() as readers:
        for _ in range(5):
            readers.create_task(park())
        await parked.wait()
        await asyncio.sleep(0.05)
        closed = time.monotonic()
        await run.source.close()
    assert max(ended) - closed < CLOSE_SECS


async def a_paused_reader_is_left_alone_by_the_traffic_of_others(world: World) -> None:
    run, other = world.run(), world.run()
    await run.fill(3)
    async with asyncio.timeout(4 * DEADLINE_SECS), run.source.subscribe(run.read()) as events:
        first = await anext(events)
        await other.fill(FOREIGN_EVENTS)
        await run.fill(3, start=4)
        rest = [(await anext(events)).record.sequence for _ in range(5)]
    assert [first.record.sequence, *rest] == [1, 2, 3, 4, 5, 6]


async def a_reader_that_gives_up_waiting_and_asks_again_loses_nothing(world: World) -> None:
    run = world.run()
    producer = asyncio.create_task(run.on(world.source()).fill(60))
    seen: list[int | None] = []
    async with asyncio.timeout(DEADLINE_SECS), run.source.subscribe(run.read()) as events:
        while len(seen) < 60:
            try:
                async with asyncio.timeout(0.0002 * (1 + len(seen) % 7)):
                    seen.append((await anext(events)).record.sequence)
            except TimeoutError:
                continue
    await producer
    assert seen == list(range(1, 61))


async def a_subscription_passes_broken_records(world: World) -> None:
    run = world.run()
    await run.fill(2)
    await world.poison(run)
    await run.fill(2, start=3)
    seen: list[str] = []
    async with asyncio.timeout(DEADLINE_SECS), run.source.subscribe(run.read()) as events:
        for _ in range(4):
            seen.append((await anext(events)).record.id)
        for name, kind in (("e5", "message_delta"), ("end", "agent_finished")):
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.05)  # so that the broken record comes alone, while the reader waits
            await world.poison(run)
            await asyncio.sleep(0.05)
            await run.append(name, kind)
            seen.append((await waiting).record.id)
        seen += [envelope.record.id async for envelope in events]
    assert seen == ["e1", "e2", "e3", "e4", "e5", "end"]


async def a_durable_readers_successor_gets_what_was_not_settled(world: World) -> None:
    run = world.run()
    await run.fill(6)

    async def read(count: int) -> list[str]:
        """Take some, without asking for a next one: the last is not settled."""
        taken = []
        async with asyncio.timeout(DEADLINE_SECS), run.source.subscribe(run.read(), durable="reader") as events:
            for _ in range(count):
                taken.append((await anext(events)).record.id)
        return taken

    assert await read(3) == ["e1", "e2", "e3"]
    assert await read(2) == ["e3", "e4"]
    assert await run.take(2) != [], "other readers are not affected"
    async with asyncio.timeout(DEADLINE_SECS), run.source.subscribe(run.read(), durable="reader") as events:
        assert (await anext(events)).record.id == "e4"
        await events.ack()
    assert await read(1) == ["e5"]
    await run.append("end", "agent_finished")
    assert await durable_to_the_end(run) == ["e5", "e6", "end"]
    assert await durable_to_the_end(run) == []
    await run.source.forget(run.read(), "reader")
    assert await durable_to_the_end(run) == ["e1", "e2", "e3", "e4", "e5", "e6", "end"]
    await run.source.forget(run.read(), "reader")


async def durable_to_the_end(run: Run) -> list[str]:
    async with asyncio.timeout(DEADLINE_SECS), run.source.subscribe(run.read(), durable="reader") as events:
        return [envelope.record.id async for envelope in events]


CASES: tuple[Case, ...] = (
    stored_events_come_first_then_live_ones_until_the_end,
    a_reader_that_waits_is_woken_not_left_to_its_poll,
    nothing_is_missed_between_replay_and_live,
    three_and_a_half_pages_replay_while_the_producer_is_idle,
    a_subscription_ends_after_the_first_terminal_event_behind_its_cursor,
    ten_subscribers_each_get_everything,
    a_reader_that_dies_in_the_middle_resumes_by_cursor_and_loses_nothing,
    every_way_out_of_a_subscription_frees_its_slot,
    closing_the_source_ends_parked_readers_at_once,
    a_paused_reader_is_left_alone_by_the_traffic_of_others,
    a_reader_that_gives_up_waiting_and_asks_again_loses_nothing,
    a_subscription_passes_broken_records,
    a_durable_readers_successor_gets_what_was_not_settled,
)
