"""Cases of history: filters, pages, cursors, threads, and what is pending; each with who may see what."""

from datetime import timedelta

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


async def a_thread_is_root_first_then_level_by_level(harness: Harness) -> None:
    await harness.store(
        envelope("a1", after_secs=9, reply_to="root"),
        envelope("b1", after_secs=3, reply_to="a1"),
        envelope("root", after_secs=5),
        envelope("a2", after_secs=6, reply_to="root"),
        envelope("b2", after_secs=2, reply_to="a2"),
        envelope("c1", after_secs=1, reply_to="b2"),
        envelope("elsewhere", reply_to="nothing"),
    )
    thread = harness.storage.envelopes.thread
    whole = await thread("root")
    assert whole is not None
    assert (ids(whole.items), whole.truncated) == (["root", "a2", "a1", "b2", "b1", "c1"], False)
    for depth, wanted in ((0, 1), (1, 3), (2, 5), (3, 6)):
        part = await thread("root", max_depth=depth)
        assert part is not None
        assert (len(part.items), part.truncated) == (wanted, depth < 3), depth
    for limit in range(1, 7):
        part = await thread("root", limit=limit)
        assert part is not None
        assert (ids(part.items), part.truncated) == (ids(whole.items)[:limit], limit < 6), limit
    assert await thread("nothing") is None
    climbed = await thread("c1", resolve=True)
    assert climbed is not None
    assert ids(climbed.items) == ids(whole.items)
    lone = await thread("elsewhere", resolve=True)
    assert lone is not None
    assert ids(lone.items) == ["elsewhere"]


async def circles_of_replies_end(harness: Harness) -> None:
    await harness.store(
        envelope("self", reply_to="self"),
        envelope("x", after_secs=1, reply_to="y"),
        envelope("y", after_secs=2, reply_to="x"),
    )
    for root, wanted in (("self", ["self"]), ("x", ["x", "y"]), ("y", ["y", "x"])):
        for resolve in (False, True):
            found = await harness.storage.envelopes.thread(root, resolve=resolve)
            assert found is not None
            assert sorted(ids(found.items)) == sorted(wanted)
            assert not found.truncated


async def a_thread_is_at_most_64_levels_deep(harness: Harness) -> None:
    await harness.store(*(envelope(f"l{index}", after_secs=index, reply_to=f"l{index - 1}") for index in range(80)))
    found = await harness.storage.envelopes.thread("l0", limit=1000)
    assert found is not None
    assert (ids(found.items), found.truncated) == ([f"l{index}" for index in range(65)], True)
    climbed = await harness.storage.envelopes.thread("l79", resolve=True)
    assert climbed is not None
    assert climbed.items[0].id == "l15"
    await refusal(BadValue, harness.storage.envelopes.thread("l0", max_depth=65))
    await refusal(BadValue, harness.storage.envelopes.thread("l0", max_depth=-1))


async def a_wide_thread_ends_at_the_limit(harness: Harness) -> None:
    await harness.store(envelope("root"))
    await harness.store(*(envelope(f"w{index:04}", after_secs=1 + index, reply_to="root") for index in range(1200)))
    await harness.store(*(envelope(f"v{index:04}", after_secs=index, reply_to=f"w{index:04}") for index in range(700)))
    found = await harness.storage.envelopes.thread("root", limit=1000)
    assert found is not None
    assert (len(found.items), found.truncated) == (1000, True)
    assert found.items[-1].id == "w0998"
    small = await harness.storage.envelopes.thread("root", limit=1000, max_bytes=2000)
    assert small is not None
    assert 1 < len(small.items) < 20
    assert small.truncated


async def a_thread_shows_what_the_caller_may_see(harness: Harness) -> None:
    await harness.store(
        envelope("root", sender="me", to="bob"),
        envelope("seen", after_secs=1, sender="bob", to="me", reply_to="root"),
        envelope("hidden", after_secs=2, sender="bob", to="carol", reply_to="root"),
        envelope("behind", after_secs=3, sender="carol", to=None, reply_to="hidden"),
        envelope("below", after_secs=4, sender="me", to="bob", reply_to="seen"),
    )
    thread = harness.storage.envelopes.thread
    mine = await thread("root", visible_to="me")
    assert mine is not None
    assert ids(mine.items) == ["root", "seen", "below"]
    whole = await thread("root")
    assert whole is not None
    assert len(whole.items) == 5
    assert await thread("hidden", visible_to="me") is None
    up = await thread("behind", visible_to="me", resolve=True)
    assert up is not None
    assert ids(up.items) == ["behind"]
    assert await thread("root", sender="bob") is None


async def pending_is_what_the_recipient_did_not_answer(harness: Harness) -> None:
    await harness.store(
        envelope("asked", after_secs=1),
        envelope("human", after_secs=2, kind="human"),
        envelope("answered", after_secs=3),
        envelope("status", after_secs=4, kind="status"),
        envelope("to-all", after_secs=5, to=None),
        envelope("to-carol", after_secs=6, to="carol"),
        envelope("by-event", after_secs=7),
        envelope("by-other", after_secs=8),
        envelope("reply", after_secs=9, sender="bob", to="alice", reply_to="answered"),
        envelope("no-reply", after_secs=10, sender="bob", to="alice", kind="event", reply_to="by-event"),
        envelope("others", after_secs=11, sender="carol", to="alice", reply_to="by-other"),
    )
    pending = harness.storage.envelopes.pending
    assert ids(await pending("bob")) == ["by-other", "by-event", "human", "asked"]
    assert ids(await every(lambda cursor: pending("bob", limit=1, cursor=cursor))) == [
        "by-other",
        "by-event",
        "human",
        "asked",
    ]
    assert ids(await pending("alice")) == ["others", "reply"]
    assert ids(await pending("nobody")) == []


async def an_answer_that_was_stored_first_counts(harness: Harness) -> None:
    await harness.store(envelope("reply", sender="bob", to="alice", reply_to="late"))
    await harness.store(envelope("late", after_secs=5), envelope("open", after_secs=6))
    assert ids(await harness.storage.envelopes.pending("bob")) == ["open"]


async def an_answer_to_a_copy_answers_all_of_that_id(harness: Harness) -> None:
    await harness.store(envelope("q"), envelope("q", sender="carol"), envelope("q", to="dave"))
    await harness.store(envelope("r", after_secs=1, sender="bob", to=None, reply_to="q"))
    assert ids(await harness.storage.envelopes.pending("bob")) == []
    assert ids(await harness.storage.envelopes.pending("dave")) == ["q"]


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
    get_takes_the_newest_visible_of_an_id,
    a_thread_is_root_first_then_level_by_level,
    circles_of_replies_end,
    a_thread_is_at_most_64_levels_deep,
    a_wide_thread_ends_at_the_limit,
    a_thread_shows_what_the_caller_may_see,
    pending_is_what_the_recipient_did_not_answer,
    an_answer_that_was_stored_first_counts,
    an_answer_to_a_copy_answers_all_of_that_id,
]
