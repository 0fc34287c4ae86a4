"""Cases of history: filters, pages, cursors, and who may see what."""

import random
from datetime import timedelta

import msgspec

from hub.storage.conformance.harness import START, Harness, envelope, every, ids, refusal
from hub.storage.errors import BadValue
from hub.storage.records import EnvelopeFilter, NewEnvelope


def _at(secs: float) -> NewEnvelope:
    return envelope(f"at{secs:g}", after_secs=secs)


async def history_is_newest_first_and_equal_times_by_order_of_storing(harness: Harness) -> None:
    await harness.store(envelope("b", after_secs=1), envelope("a"), envelope("c"), envelope("d", after_secs=2))
    assert ids(await harness.storage.envelopes.query()) == ["d", "b", "c", "a"]


async def filters_work_together(harness: Harness) -> None:
    await harness.store(
        envelope("1", after_secs=1),
        envelope("2", after_secs=2, sender="carol"),
        envelope("3", after_secs=3, to=None),
        envelope("4", after_secs=4, channel="task.abc"),
        envelope("5", after_secs=5, kind="event"),
        envelope("6", after_secs=6, to="dave"),
    )
    query = harness.storage.envelopes.query
    expected: list[tuple[EnvelopeFilter, list[str]]] = [
        (EnvelopeFilter(channel="task.abc"), ["4"]),
        (EnvelopeFilter(sender="carol"), ["2"]),
        (EnvelopeFilter(to="dave"), ["6"]),
        (EnvelopeFilter(kind="event"), ["5"]),
        (EnvelopeFilter(since=START + timedelta(seconds=5)), ["6", "5"]),
        (EnvelopeFilter(until=START + timedelta(seconds=2)), ["1"]),
        (EnvelopeFilter(since=START + timedelta(seconds=3), until=START + timedelta(seconds=5)), ["4", "3"]),
        (EnvelopeFilter(sender="alice", to="bob", kind="message", channel="general"), ["1"]),
        (EnvelopeFilter(sender="carol", to="dave"), []),
    ]
    for filters, wanted in expected:
        assert ids(await query(filters)) == wanted, filters


async def names_that_cannot_be_find_nothing(harness: Harness) -> None:
    await harness.store(envelope("a"))
    storage = harness.storage
    for name in ("", "\0", "a\0", "\ud800", "ü", "🎈", "%", "_", "' OR 1=1 --", "x" * 100_000, "A", "ALICE"):
        assert await storage.envelopes.get(name) is None
        assert await storage.envelopes.thread(name) is None
        assert await storage.agents.get(name) is None
        assert await storage.dead_letters.get(name) is None
        assert await storage.waves.get(name) is None
        assert await storage.sessions.get(name) is None
        assert await storage.leases.read(name) is None
        assert ids(await storage.envelopes.query(EnvelopeFilter(sender=name))) == []
        assert ids(await storage.envelopes.query(EnvelopeFilter(channel=name))) == []
        assert ids(await storage.envelopes.query(visible_to=name)) == []
        assert ids(await storage.envelopes.pending(name)) == []


async def limits_outside_the_contract_are_refused(harness: Harness) -> None:
    storage = harness.storage
    for limit in (0, -1, 1001, 10**30):
        for call in (
            storage.envelopes.query(limit=limit),
            storage.envelopes.pending("bob", limit=limit),
            storage.envelopes.thread("x", limit=limit),
            storage.agents.find(limit=limit),
            storage.dead_letters.find(limit=limit),
            storage.sessions.find(limit=limit),
            storage.waves.find(limit=limit),
            storage.waves.find_tasks("w", limit=limit),
            storage.waves.effects(limit=limit),
            storage.stats.channel_hotspots(limit=limit),
        ):
            error = await refusal(BadValue, call)
            assert error.what == "limit"
    assert (await storage.envelopes.query(limit=1000)).items == []


async def cursors_that_are_none_are_refused(harness: Harness) -> None:
    for cursor in ("", "x", "1", "1.", ".1", "1.2.3", "1.-2", "1" * 40 + ".1", "1.1\0", "\uff11.\uff11", "' OR 1=1"):
        error = await refusal(BadValue, harness.storage.envelopes.query(cursor=cursor))
        assert error.what == "cursor"


async def pages_show_each_envelope_once_while_others_are_inserted(harness: Harness) -> None:
    await harness.store(
        *(_at(index // 4) if index % 4 == 0 else envelope(f"e{index}", after_secs=index // 4) for index in range(50))
    )
    before = ids(await harness.storage.envelopes.query(limit=1000))
    seen: list[str] = []
    cursor: str | None = None
    for turn in range(50):
        page = await harness.storage.envelopes.query(limit=7, cursor=cursor)
        seen += ids(page)
        await harness.store(envelope(f"new{turn}", after_secs=1000 + turn))
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == before


async def the_last_page_has_no_cursor(harness: Harness) -> None:
    await harness.store(*(_at(index) for index in range(4)))
    first = await harness.storage.envelopes.query(limit=2)
    assert first.next_cursor is not None
    second = await harness.storage.envelopes.query(limit=2, cursor=first.next_cursor)
    assert (ids(second), second.next_cursor) == (["at1", "at0"], None)
    assert (await harness.storage.envelopes.query(limit=4)).next_cursor is None


async def a_page_ends_before_it_is_too_heavy(harness: Harness) -> None:
    await harness.store(*(envelope(f"h{index}", after_secs=index, payload=b"1" * 1000) for index in range(10)))
    await harness.store(envelope("huge", after_secs=20, payload=b"1" * 50_000))
    query = harness.storage.envelopes.query
    first = await query(max_bytes=5000)
    assert ids(first) == ["huge"]  # above the limit by itself, and still there
    second = await query(max_bytes=5000, cursor=first.next_cursor)
    assert 2 <= len(second.items) <= 4
    assert len(msgspec.json.encode(second.items)) <= 5000
    found = await every(lambda cursor: query(max_bytes=5000, cursor=cursor))
    assert ids(found) == ["huge", *(f"h{index}" for index in reversed(range(10)))]


async def nobody_sees_what_others_sent_to_others(harness: Harness) -> None:
    rows = [
        envelope("from-me", after_secs=1, sender="me", to="x"),
        envelope("to-me", after_secs=2, sender="x", to="me"),
        envelope("to-all", after_secs=3, sender="x", to=None),
        envelope("mine-to-all", after_secs=4, sender="me", to=None),
        envelope("to-myself", after_secs=5, sender="me", to="me"),
        *(envelope(f"secret{index}", after_secs=10 + index, sender="x", to="y") for index in range(20)),
    ]
    await harness.store(*rows)
    envelopes = harness.storage.envelopes
    visible = ["to-myself", "mine-to-all", "to-all", "to-me", "from-me"]
    assert ids(await envelopes.query(visible_to="me")) == visible
    assert ids(await every(lambda cursor: envelopes.query(visible_to="me", limit=1, cursor=cursor))) == visible
    assert ids(await envelopes.query(EnvelopeFilter(sender="x"), visible_to="me")) == ["to-all", "to-me"]
    assert ids(await envelopes.query(EnvelopeFilter(to="y"), visible_to="me")) == []
    assert len((await envelopes.query()).items) == 25
    for row in rows:
        found = await envelopes.get(row.id, visible_to="me")
        assert (found is not None) == (row.id in visible), row.id


async def filters_and_visibility_agree_with_a_plain_reading(harness: Harness) -> None:
    chance = random.Random(5)  # noqa: S311 - the same rows every time
    people, channels = ["a", "b", "c"], ["general", "news", "task.one", "task.two"]
    rows = [
        envelope(
            f"r{index}",
            after_secs=chance.randrange(20),
            sender=chance.choice(people),
            to=chance.choice([None, *people]),
            channel=chance.choice(channels),
            kind=chance.choice(["message", "event"]),
        )
        for index in range(150)
    ]
    await harness.store(*rows)
    in_order = sorted(enumerate(rows), key=lambda pair: (pair[1].stored_at or START, pair[0]), reverse=True)
    for _ in range(60):
        filters = EnvelopeFilter(
            channel=chance.choice([None, *channels]),
            sender=chance.choice([None, None, *people]),
            to=chance.choice([None, None, *people]),
            kind=chance.choice([None, "message"]),
            since=chance.choice([None, START + timedelta(seconds=5)]),
            until=chance.choice([None, START + timedelta(seconds=15)]),
        )
        caller = chance.choice([None, *people, "stranger"])
        expected = [row.id for _, row in in_order if _matches(row, filters) and _may_see(row, caller)]
        found = await harness.storage.envelopes.query(filters, visible_to=caller, limit=1000)
        assert ids(found) == expected, (filters, caller)


def _matches(row: NewEnvelope, filters: EnvelopeFilter) -> bool:
    wanted = (filters.channel, filters.sender, filters.to, filters.kind)
    present = (row.channel, row.sender, row.to, row.kind)
    stored_at = row.stored_at or START
    return (
        all(one in {None, value} for one, value in zip(wanted, present, strict=True))
        and (filters.since is None or stored_at >= filters.since)
        and (filters.until is None or stored_at < filters.until)
    )


def _may_see(row: NewEnvelope, caller: str | None) -> bool:
    return caller is None or caller in {row.sender, row.to} or row.to is None


async def get_takes_the_newest_visible_of_an_id(harness: Harness) -> None:
    await harness.store(
        envelope("x", after_secs=1, sender="a", to="me"),
        envelope("x", after_secs=2, sender="b", to="me"),
        envelope("x", after_secs=3, sender="b", to="other"),
    )
    get = harness.storage.envelopes.get
    cases = [
        ({}, "b", "other"),
        ({"visible_to": "me"}, "b", "me"),
        ({"sender": "a"}, "a", "me"),
        ({"to": "me"}, "b", "me"),
    ]
    for options, sender, to in cases:
        found = await get("x", **options)
        assert found is not None
        assert (found.sender, found.to) == (sender, to), options
    assert await get("x", sender="a", to="other") is None


CASES = [
    history_is_newest_first_and_equal_times_by_order_of_storing,
    filters_work_together,
    names_that_cannot_be_find_nothing,
    limits_outside_the_contract_are_refused,
    cursors_that_are_none_are_refused,
    pages_show_each_envelope_once_while_others_are_inserted,
    the_last_page_has_no_cursor,
    a_page_ends_before_it_is_too_heavy,
    nobody_sees_what_others_sent_to_others,
    filters_and_visibility_agree_with_a_plain_reading,
    get_takes_the_newest_visible_of_an_id,
]
