"""Cases of the mirror's writes: batches, duplicates, positions, and rows that nothing can store."""

import asyncio
from datetime import UTC, datetime, timedelta

from hub.storage.base import Envelopes
from hub.storage.conformance.harness import START, Harness, envelope, ids
from hub.storage.records import EnvelopeFilter, NewEnvelope, Position

CREATED = datetime(2029, 12, 31, 23, 59, 59, 123456, tzinfo=UTC)
TASKS = "HUB_TASKS"


def position(sequence: int, created: datetime = CREATED) -> Position:
    """A position in the task stream."""
    return Position(stream=TASKS, created=created, sequence=sequence)


async def a_batch_and_its_position_are_stored_together(harness: Harness) -> None:
    storage = harness.storage
    assert await storage.envelopes.mirror_position(TASKS) is None
    report = await storage.envelopes.insert_mirrored([envelope("a"), envelope("b")], [position(7)])
    assert (report.stored, report.duplicates, report.refused) == (2, 0, ())
    assert await harness.another.envelopes.mirror_position(TASKS) == position(7)
    assert await storage.envelopes.mirror_position("HUB_INBOX") is None


async def a_batch_without_rows_moves_the_position(harness: Harness) -> None:
    await harness.storage.envelopes.insert_mirrored([], [position(3)])
    assert await harness.storage.envelopes.mirror_position(TASKS) == position(3)


async def positions_only_move_forward(harness: Harness) -> None:
    envelopes = harness.storage.envelopes
    await envelopes.insert_mirrored([], [position(9)])
    await envelopes.insert_mirrored([envelope("late")], [position(4)])
    assert await envelopes.mirror_position(TASKS) == position(9)
    remade = position(1, CREATED + timedelta(days=1))
    await envelopes.insert_mirrored([], [remade])
    assert await envelopes.mirror_position(TASKS) == remade
    await envelopes.insert_mirrored([], [position(99)])
    assert await envelopes.mirror_position(TASKS) == remade


async def duplicates_are_counted_and_change_nothing(harness: Harness) -> None:
    envelopes = harness.storage.envelopes
    await harness.store(envelope("a", payload=b'"first"'))
    again = envelope("a", payload=b'"second"', after_secs=5)
    report = await harness.another.envelopes.insert_mirrored([again, envelope("b"), envelope("b"), again])
    assert (report.stored, report.duplicates, report.refused) == (1, 3, ())
    stored = await envelopes.get("a")
    assert stored is not None
    assert bytes(stored.payload) == b'"first"'
    assert stored.stored_at == START


async def the_same_id_of_others_or_elsewhere_is_no_duplicate(harness: Harness) -> None:
    await harness.store(
        envelope("x"), envelope("x", sender="carol"), envelope("x", to="dave"), envelope("x", to=None), envelope("X")
    )
    assert len((await harness.storage.envelopes.query()).items) == 5


async def a_row_that_nothing_can_store_holds_up_nothing(harness: Harness) -> None:
    bad: list[NewEnvelope] = [
        envelope("a b"),
        envelope("nul\0"),
        envelope(""),
        envelope("x" * 129),
        envelope("ok", sender="no such.name"),
        envelope("ok", sender="\ud800"),
        envelope("ok", to="über"),
        envelope("ok", channel="a..b"),
        envelope("ok", channel="x" * 5000),
        envelope("ok", destination="channel.\0"),
        envelope("ok", destination="channel." + "x" * 5000),
        envelope("ok", kind="shout"),
        envelope("ok", timestamp=datetime(2030, 1, 1)),  # noqa: DTZ001 - that is what is refused
    ]
    rows = [envelope("first"), *bad, envelope("last")]
    report = await harness.storage.envelopes.insert_mirrored(rows, [position(5)])
    assert report.stored == 2
    assert [row.index for row in report.refused] == list(range(1, len(bad) + 1))
    assert all(row.reason for row in report.refused)
    assert ids(await harness.storage.envelopes.query()) == ["last", "first"]
    assert await harness.storage.envelopes.mirror_position(TASKS) == position(5)
    again = await harness.storage.envelopes.insert_mirrored(rows)
    assert (again.stored, again.duplicates, again.refused) == (0, 2, report.refused)


async def any_reply_to_is_stored_and_only_ids_are_looked_up(harness: Harness) -> None:
    odd = ["", " ", "a b", "nul\0nul", "🎈" * 10, "x" * 200, "ü", "y" * 3_000_000, "quote\"'\\\n"]
    await harness.store(*(envelope(f"r{index}", reply_to=text) for index, text in enumerate(odd)))
    for index, text in enumerate(odd):
        stored = await harness.storage.envelopes.get(f"r{index}")
        assert stored is not None
        assert stored.reply_to == text
        assert await harness.storage.envelopes.thread(text) is None
    await harness.store(envelope("lone", reply_to="a\ud800b"))
    lone = await harness.storage.envelopes.get("lone")
    assert lone is not None
    assert lone.reply_to == "a\ufffdb"  # what UTF-8 cannot carry, no answer could carry either


async def payloads_come_back_byte_by_byte(harness: Harness) -> None:
    payloads = [
        b"null",
        b'{"a" : "\\u0000", "b":"\\ud800"}',
        '{"e":"🎈 ü \u2028"}'.encode(),
        b"1e400",
        b'"' + b"x" * 1_048_576 + b'"',
        bytes(range(256)),
        b"",
    ]
    await harness.store(*(envelope(f"p{index}", payload=payload) for index, payload in enumerate(payloads)))
    for index, payload in enumerate(payloads):
        stored = await harness.storage.envelopes.get(f"p{index}")
        assert stored is not None
        assert bytes(stored.payload) == payload


async def times_come_back_to_the_microsecond_in_utc(harness: Harness) -> None:
    moments = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2030, 6, 1, 12, 0, 0, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ]
    await harness.store(*(envelope(f"t{index}", timestamp=moment) for index, moment in enumerate(moments)))
    for index, moment in enumerate(moments):
        stored = await harness.storage.envelopes.get(f"t{index}")
        assert stored is not None
        assert stored.timestamp == moment
        assert stored.timestamp.utcoffset() == timedelta(0)


async def a_row_without_a_stream_is_stored_at_the_clocks_time(harness: Harness) -> None:
    now = harness.clock.advance(1000)
    await harness.store(envelope("live", stored_at=None, to=None))
    stored = await harness.storage.envelopes.get("live")
    assert stored is not None
    assert stored.stored_at == now


async def batches_above_the_limit_are_a_mistake_of_the_caller(harness: Harness) -> None:
    rows = [envelope(f"n{index}") for index in range(257)]
    try:
        await harness.storage.envelopes.insert_mirrored(rows)
    except ValueError as error:
        assert "256" in str(error)  # noqa: PT017 - this suite needs no pytest
    else:
        raise AssertionError("expected a ValueError")
    assert (await harness.storage.envelopes.insert_mirrored(rows[:256])).stored == 256


async def two_writers_of_the_same_rows_store_each_once(harness: Harness) -> None:
    rows = [envelope(f"m{index}", after_secs=index) for index in range(1000)]

    async def write(envelopes: Envelopes, step: int) -> int:
        stored = 0
        for start in range(0, len(rows), step):
            report = await envelopes.insert_mirrored(rows[start : start + step])
            stored += report.stored
            assert not report.refused
        return stored

    counts = await asyncio.gather(
        write(harness.storage.envelopes, 100),
        write(harness.another.envelopes, 77),
        write(harness.storage.envelopes, 256),
    )
    assert sum(counts) == len(rows)
    newest = await harness.storage.envelopes.query(EnvelopeFilter(channel="general"), limit=1000)
    assert ids(newest) == [f"m{index}" for index in reversed(range(1000))]


CASES = [
    a_batch_and_its_position_are_stored_together,
    a_batch_without_rows_moves_the_position,
    positions_only_move_forward,
    duplicates_are_counted_and_change_nothing,
    the_same_id_of_others_or_elsewhere_is_no_duplicate,
    a_row_that_nothing_can_store_holds_up_nothing,
    any_reply_to_is_stored_and_only_ids_are_looked_up,
    payloads_come_back_byte_by_byte,
    times_come_back_to_the_microsecond_in_utc,
    a_row_without_a_stream_is_stored_at_the_clocks_time,
    batches_above_the_limit_are_a_mistake_of_the_caller,
    two_writers_of_the_same_rows_store_each_once,
]
