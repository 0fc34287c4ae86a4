"""Cases about appending."""

import asyncio
from typing import Any

import msgspec

from hub.events.base import AgentEventSource
from hub.events.conformance.world import Case, World, refused
from hub.events.records import AgentEventRecord


async def events_of_a_run_are_numbered_from_one_without_gaps(world: World) -> None:
    run, other = world.run(), world.run()
    for number in range(1, 6):
        assert (await run.append(f"e{number}")).sequence == number
        assert (await other.append(f"e{number}")).sequence == number


async def what_was_appended_comes_back_unchanged(world: World) -> None:
    run = world.run()
    deep: Any = "bottom"
    for _ in range(100):
        deep = [deep]
    event = {
        "type": "odd:type/ä",
        "sessionId": "session",
        "runId": "run",
        "text": 'NUL \0, quote ", new line \n, \u2028, \U0001f600, é',
        "numbers": [0, -1, 2**63, -(2**63), 1.5, 1e300, -0.0, 1.0],
        "nothing": None,
        "deep": deep,
        "": {"empty": {}, "list": []},
    }
    record = run.record("odd", "odd:type/ä", event=event, metadata={"k": [True, False]}, entry_id="entry")
    stored = await run.source.append(record)
    assert stored == msgspec.structs.replace(record, sequence=1)
    assert (await run.page()).records == (stored,)


async def a_repeated_append_returns_the_stored_original(world: World) -> None:
    run = world.run()
    first = await run.append("first")
    await run.fill(5)
    shuffled = dict(reversed(first.event.items()))
    for source in (run.source, world.source()):
        assert await source.append(run.record("first", event=shuffled)) == first
    assert await run.ids() == ["first", "e1", "e2", "e3", "e4", "e5"]


async def the_same_id_with_another_content_is_refused(world: World) -> None:
    run = world.run()
    await run.append("one")
    await run.append("two")
    others: list[dict[str, Any]] = [{"metadata": {}}, {"timestamp": "2026-01-01T00:00:00.001Z"}, {"entry_id": "x"}]
    for changes in others:
        for source in (run.source, world.source()):
            async with refused("INPUT"):
                await run.on(source).append("one", **changes)
    assert await run.ids() == ["one", "two"]


async def one_id_appended_by_many_at_once_is_stored_once(world: World) -> None:
    run = world.run()
    sources = [world.source() for _ in range(4)]
    stored = await asyncio.gather(*(run.on(source).append("same") for source in sources * 4))
    assert {record.sequence for record in stored} == {1}
    assert await run.ids() == ["same"]


async def sixteen_producers_at_once_leave_no_gap(world: World) -> None:
    run = world.run()
    each = 5

    async def produce(name: str, source: AgentEventSource) -> list[AgentEventRecord]:
        return [await run.on(source).append(f"{name}-{number}") for number in range(each)]

    made = await asyncio.gather(*(produce(str(name), world.source()) for name in range(16)))
    numbers = [record.sequence for records in made for record in records]
    assert sorted(number or 0 for number in numbers) == list(range(1, 16 * each + 1))
    for records in made:
        assert [record.sequence for record in records] == sorted(record.sequence or 0 for record in records)
    assert [record.sequence for record in await run.records()] == list(range(1, 16 * each + 1))


async def a_given_sequence_is_an_expectation(world: World) -> None:
    run = world.run()
    assert (await run.append("one", sequence=1)).sequence == 1
    for wrong in (1, 3, 99):
        async with refused("INPUT"):
            await run.append("two", sequence=wrong)
    assert (await run.append("two", sequence=2)).sequence == 2
    assert (await run.append("one", sequence=1)).sequence == 1
    async with refused("INPUT"):
        await run.append("one", sequence=2)
    assert await run.ids() == ["one", "two"]


async def a_record_that_is_not_right_is_refused(world: World) -> None:
    run = world.run(world.source(max_event_bytes=4096))
    event = run.record("x").event
    bad: dict[str, dict[str, Any]] = {
        "empty id": {"id": ""},
        "id too long": {"id": "é" * 129},
        "NUL in an id": {"id": "a\0"},
        "lone surrogate in an id": {"id": "\ud800"},
        "id that is no text": {"id": 7},
        "empty tenant": {"tenant_id": ""},
        "no tenant": {"tenant_id": None},
        "empty account": {"account_id": ""},
        "empty user": {"user_id": ""},
        "empty entry": {"entry_id": ""},
        "empty type": {"type": ""},
        "type differs": {"type": "other"},
        "session differs": {"session_id": "other"},
        "run differs": {"run_id": "other"},
        "event without type": {"event": {**event, "type": None}},
        "event of another run": {"event": {**event, "runId": "other"}},
        "event that is no object": {"event": [event]},
        "not redacted": {"redacted": False},
        "redacted by a truthy value": {"redacted": 1},
        "time without milliseconds": {"timestamp": "2026-01-01T00:00:00Z"},
        "time with an offset": {"timestamp": "2026-01-01T00:00:00.000+00:00"},
        "time in other digits": {"timestamp": "\uff12026-01-01T00:00:00.000Z"},
        "time with a line end": {"timestamp": "2026-01-01T00:00:00.000Z\n"},
        "no such day": {"timestamp": "2026-02-30T00:00:00.000Z"},
        "no such second": {"timestamp": "2026-01-01T00:00:60.000Z"},
        "not a number": {"event": {**event, "n": float("nan")}},
        "infinity": {"event": {**event, "n": float("-inf")}},
        "65 bits": {"event": {**event, "n": 2**64}},
        "surrogate inside": {"event": {**event, "t": ["\udfff"]}},
        "surrogate in a name": {"event": {**event, "\udfff": 1}},
        "bytes inside": {"event": {**event, "b": b"x"}},
        "name that is no text": {"event": {**event, 1: 1}},
        "metadata that is no object": {"metadata": "x"},
        "too large": {"event": {**event, "t": "x" * 4096}},
        "sequence 0": {"sequence": 0},
        "sequence True": {"sequence": True},
    }
    for what, changes in bad.items():
        try:
            async with refused("INPUT"):
                await run.append("x", **changes)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from error
    assert await run.ids() == []


async def a_record_of_exactly_max_event_bytes_is_stored(world: World) -> None:
    most = 2048
    run = world.run(world.source(max_event_bytes=most))
    size = len(msgspec.json.encode(run.record("x")))
    fits = run.record("x", metadata={"m": "x" * (most - size - len(',"metadata":{"m":""}'))})
    assert len(msgspec.json.encode(fits)) == most
    stored = await run.source.append(fits)
    assert (await run.page()).records == (stored,)


async def after_a_terminal_event_only_terminal_ones_are_accepted(world: World) -> None:
    run = world.run()
    await run.append("work")
    await run.append("limit", "run_limit_exceeded")
    for source in (run.source, world.source()):
        async with refused("INPUT"):
            await run.on(source).append("more")
    assert (await run.append("error", "error")).sequence == 3
    assert (await run.append("work")).sequence == 1, "a repeat of what is stored is still answered"
    assert await run.ids() == ["work", "limit", "error"]


async def a_full_run_refuses_and_purges_nothing(world: World) -> None:
    run = world.run(world.source(max_run_events=3))
    await run.fill(3)
    async with refused("OVERFLOW"):
        await run.append("e4")
    assert (await run.append("e2")).sequence == 2
    assert await run.ids() == ["e1", "e2", "e3"]


async def a_closed_source_refuses_everything(world: World) -> None:
    run = world.run()
    await run.append("one")
    await run.source.close()
    await run.source.close()
    async with refused("CLOSED"):
        await run.append("two")
    async with refused("CLOSED"):
        await run.page()
    async with refused("CLOSED"):
        await run.take(1)
    async with refused("CLOSED"):
        await run.source.cleanup(ownership=run.ownership, before="2026-01-01T00:00:00.000Z")
    assert await run.on(world.source()).ids() == ["one"]


async def an_option_out_of_range_is_refused_by_name(world: World) -> None:
    out_of_range: list[dict[str, Any]] = [
        {"max_event_bytes": 1024 * 1024 + 1},
        {"max_page_size": 501},
        {"max_page_size": 0},
        {"max_cursor_bytes": 16 * 1024 + 1},
        {"max_subscribers": 4097},
        {"max_subscribers": True},
        {"poll_secs": 30.5},
        {"reconnect_max_secs": 31},
        {"max_run_events": 1_000_001},
        {"max_page_size": 1.5},
        {"cursor_secret": b"x" * 31},
        {"cursor_secret": []},
    ]
    for options in out_of_range:
        async with refused("INPUT") as refusal:
            world.source(**options)
        assert next(iter(options)) in str(refusal.error)


CASES: tuple[Case, ...] = (
    events_of_a_run_are_numbered_from_one_without_gaps,
    what_was_appended_comes_back_unchanged,
    a_repeated_append_returns_the_stored_original,
    the_same_id_with_another_content_is_refused,
    one_id_appended_by_many_at_once_is_stored_once,
    sixteen_producers_at_once_leave_no_gap,
    a_given_sequence_is_an_expectation,
    a_record_that_is_not_right_is_refused,
    a_record_of_exactly_max_event_bytes_is_stored,
    after_a_terminal_event_only_terminal_ones_are_accepted,
    a_full_run_refuses_and_purges_nothing,
    a_closed_source_refuses_everything,
    an_option_out_of_range_is_refused_by_name,
)
