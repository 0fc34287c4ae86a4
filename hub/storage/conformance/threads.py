"""Cases of threads and of what is pending."""

from hub.storage.conformance.harness import Harness, envelope, every, ids, refusal
from hub.storage.errors import BadValue


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
    a_thread_is_root_first_then_level_by_level,
    circles_of_replies_end,
    a_thread_is_at_most_64_levels_deep,
    a_wide_thread_ends_at_the_limit,
    a_thread_shows_what_the_caller_may_see,
    pending_is_what_the_recipient_did_not_answer,
    an_answer_that_was_stored_first_counts,
    an_answer_to_a_copy_answers_all_of_that_id,
]
