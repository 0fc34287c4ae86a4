"""Cases of agents, dead letters, sessions and retention."""

from datetime import timedelta
from typing import Any

from hub.storage.conformance.harness import START, Harness, envelope, every, ids, refusal, task, wave
from hub.storage.errors import BadValue, Conflict
from hub.storage.records import NewDeadLetter, RetentionRule, Session, Sighting


def _later(secs: float) -> Any:
    return START + timedelta(seconds=secs)


# --- agents -----------------------------------------------------------------------------------------------------------


async def the_first_sighting_registers_and_the_newest_describes(harness: Harness) -> None:
    agents = harness.storage.agents
    await agents.record([Sighting(identity="ann", seen_at=_later(10))])
    await agents.record([Sighting(identity="ann", seen_at=_later(30), capabilities=["b", "a", "b"], metadata={"v": 2})])
    late = Sighting(identity="ann", seen_at=_later(20), capabilities=["old"], metadata={"v": 1})
    await harness.another.agents.record([late])
    ann = await agents.get("ann")
    assert ann is not None
    assert (ann.registered_at, ann.last_seen) == (_later(10), _later(30))
    assert (ann.capabilities, ann.metadata) == (["b", "a"], {"v": 2})
    await agents.record([Sighting(identity="ann", seen_at=_later(40))])
    ann = await agents.get("ann")
    assert ann is not None
    assert (ann.last_seen, ann.capabilities) == (_later(40), ["b", "a"])
    assert (await agents.find(capabilities=["old"])).items == []
    assert await agents.get("bob") is None


async def agents_are_found_by_all_their_capabilities_and_their_last_sighting(harness: Harness) -> None:
    agents = harness.storage.agents
    wide = ["shell", "python", "\0", "🎈", "x" * 10_000]
    await agents.record(
        [
            Sighting(identity="wide", seen_at=_later(1), capabilities=wide),
            Sighting(identity="narrow", seen_at=_later(2), capabilities=["shell"]),
            Sighting(identity="silent", seen_at=_later(3)),
        ]
    )

    async def found(**options: Any) -> list[str]:
        return [agent.identity for agent in await every(lambda cursor: agents.find(limit=1, cursor=cursor, **options))]

    assert await found() == ["silent", "narrow", "wide"]
    assert await found(capabilities=["shell"]) == ["narrow", "wide"]
    assert await found(capabilities=["shell", "\0", "🎈", "x" * 10_000, "shell"]) == ["wide"]
    assert await found(capabilities=["Shell"]) == []
    assert await found(capabilities=[str(index) for index in range(1000)]) == []
    assert await found(seen_since=_later(2)) == ["silent", "narrow"]
    await agents.record([Sighting(identity="wide", seen_at=_later(9), capabilities=["python"])])
    assert await found(capabilities=["shell"]) == ["narrow"]
    assert await found(capabilities=["python"], seen_since=_later(9)) == ["wide"]


async def a_bad_sighting_holds_up_no_other(harness: Harness) -> None:
    bad = [
        Sighting(identity="no such name"),
        Sighting(identity="hub-orchestrator"),
        Sighting(identity="many", capabilities=[str(index) for index in range(257)]),
        Sighting(identity="heavy", metadata={"text": "x" * 70_000}),
        Sighting(identity="lone", metadata={"text": "\ud800"}),
        Sighting(identity="lone", capabilities=["\ud800"]),
    ]
    good = Sighting(identity="good", metadata={"nul": "\0", "n": 2**63, "f": 0.1, "deep": [[{}]]}, capabilities=[])
    report = await harness.storage.agents.record([*bad, good])
    assert report.stored == 1
    assert [row.index for row in report.refused] == list(range(len(bad)))
    agent = await harness.storage.agents.get("good")
    assert agent is not None
    assert agent.metadata == good.metadata
    assert len((await harness.storage.agents.find()).items) == 1


# --- dead letters -----------------------------------------------------------------------------------------------------


async def hostile_dead_letters_come_back(harness: Harness) -> None:
    dead = harness.storage.dead_letters
    letter = NewDeadLetter(
        reason="undecodable",
        detail="not UTF-8: \0",
        subject="hub.pub.a.\\xff\0",
        sender="no name\0",
        envelope_id="🎈" * 100,
        headers=[("Nats-Msg-Id", "x"), ("weird\0", "\0ü"), ("Nats-Msg-Id", "y")],
        data=bytes(range(256)) * 400,
        received_at=START,
    )
    assert (await dead.insert([letter])).stored == 1
    page = await dead.find()
    found = page.items[0]
    assert (found.reason, found.detail, found.subject, found.sender) == (
        letter.reason,
        letter.detail,
        letter.subject,
        letter.sender,
    )
    assert (found.envelope_id, found.headers) == (letter.envelope_id, letter.headers)
    assert (found.data, found.size) == (letter.data[:65536], len(letter.data))
    assert (found.received_at, found.replayed_at) == (START, None)
    assert await harness.another.dead_letters.get(found.dead_id) == found
    surrogate = NewDeadLetter(reason="expired", detail="\ud800", subject="\udcff", headers=[("\ud800", "\ud800")])
    assert (await dead.insert([surrogate])).stored == 1


async def a_dead_letter_is_kept_once_and_replayed_once(harness: Harness) -> None:
    dead = harness.storage.dead_letters
    letter = NewDeadLetter(reason="exhausted", detail="", subject="s", dead_id="ingress-7", size=99)
    report = await dead.insert([letter, NewDeadLetter(reason="bad\0", detail="", subject="s"), letter])
    assert (report.stored, report.duplicates, [row.index for row in report.refused]) == (1, 1, [1])
    assert (await dead.insert([letter])).duplicates == 1
    assert await dead.mark_replayed("ingress-7", _later(5))
    assert not await dead.mark_replayed("ingress-7")
    assert not await dead.mark_replayed("ingress-8")
    found = await dead.get("ingress-7")
    assert found is not None
    assert (found.replayed_at, found.size) == (_later(5), 99)


async def dead_letters_are_listed_by_reason_and_time(harness: Harness) -> None:
    dead = harness.storage.dead_letters
    reasons = ["replayed", "too_large"] * 3
    letters = [
        NewDeadLetter(reason=reason, detail="", subject="s", dead_id=f"d{index}", received_at=_later(index))
        for index, reason in enumerate(reasons)
    ]
    await dead.insert(letters)

    async def found(**options: Any) -> list[str]:
        return [letter.dead_id for letter in await every(lambda cursor: dead.find(limit=2, cursor=cursor, **options))]

    assert await found() == ["d5", "d4", "d3", "d2", "d1", "d0"]
    assert await found(reason="replayed") == ["d4", "d2", "d0"]
    assert await found(reason="too_large", since=_later(3)) == ["d5", "d3"]


# --- sessions ---------------------------------------------------------------------------------------------------------


def _session(session_id: str, **members: Any) -> Session:
    usual = {"orchestrator": "olga", "worker": "wanda", "created_at": START, "updated_at": START}
    return Session(session_id=session_id, **{**usual, **members})


async def a_session_is_inserted_once_for_its_orchestrator(harness: Harness) -> None:
    sessions = harness.storage.sessions
    whole = _session("s", cwd="/srv/\0ü", model="m", provider="p", metadata={"nul": "\0"}, backend_ctx={"k": [1]})
    await sessions.create(whole)
    await refusal(Conflict, harness.another.sessions.create(_session("s", worker="other")))
    await sessions.create(_session("s", orchestrator="oscar", created_at=_later(1)))
    assert await sessions.get("s", orchestrator="olga") == whole
    newest = await sessions.get("s")
    assert newest is not None
    assert newest.orchestrator == "oscar"
    for bad in (_session("a.b"), _session("s2", worker="\0"), _session("s2", metadata={"x": "\ud800"})):
        await refusal(BadValue, sessions.create(bad))


async def a_session_changes_by_compare_and_set(harness: Harness) -> None:
    sessions = harness.storage.sessions
    await sessions.create(_session("s"))
    assert await sessions.update_status("olga", "other", "closed") is None
    assert await sessions.update_status("oscar", "s", "closed") is None
    ctx = await sessions.set_backend_ctx("olga", "s", {"a": "\0"}, at=_later(1))
    assert ctx is not None
    assert (ctx.backend_ctx, ctx.updated_at) == ({"a": "\0"}, _later(1))
    closed = await sessions.update_status("olga", "s", "failed", at=_later(2))
    assert closed is not None
    assert (closed.status, closed.updated_at, closed.closed_at) == ("failed", _later(2), _later(2))
    assert await sessions.update_status("olga", "s", "closed") is None
    assert await sessions.get("s") == closed
    assert await sessions.set_backend_ctx("olga", "none", {}) is None


async def sessions_are_seen_by_their_two_sides(harness: Harness) -> None:
    sessions = harness.storage.sessions
    for index, (orchestrator, worker) in enumerate([("me", "x"), ("x", "me"), ("x", "y"), ("me", "me")]):
        await sessions.create(_session(f"s{index}", orchestrator=orchestrator, worker=worker, created_at=_later(index)))
    await sessions.update_status("me", "s0", "closed")

    async def found(**options: Any) -> list[str]:
        return [
            item.session_id for item in await every(lambda cursor: sessions.find(limit=1, cursor=cursor, **options))
        ]

    assert await found() == ["s3", "s2", "s1", "s0"]
    assert await found(visible_to="me") == ["s3", "s1", "s0"]
    assert await found(visible_to="me", status="active") == ["s3", "s1"]
    assert await found(visible_to="me", orchestrator="x") == ["s1"]
    assert await found(worker="y") == ["s2"]
    assert await sessions.get("s2", visible_to="me") is None
    assert await sessions.get("s1", visible_to="me") is not None


# --- retention --------------------------------------------------------------------------------------------------------


async def _prune(harness: Harness, *rules: RetentionRule, most: int = 500) -> dict[str, int]:
    removed: dict[str, int] = {}
    for _ in range(1000):
        step = await harness.storage.apply_retention(rules, most=most)
        assert sum(step.removed.values()) <= most
        for kind, count in step.removed.items():
            removed[kind] = removed.get(kind, 0) + count
        if step.done:
            return removed
    raise AssertionError("retention without an end")


async def retention_by_age_removes_the_old_of_its_kind(harness: Harness) -> None:
    await harness.store(*(envelope(f"e{index}", after_secs=index, kind="event") for index in range(30)))
    await harness.store(envelope("m", kind="message"))
    await harness.storage.dead_letters.insert(
        [NewDeadLetter(reason="expired", detail="", subject="s", received_at=_later(index)) for index in range(5)]
    )
    await harness.storage.agents.record(
        [Sighting(identity=f"a{index}", seen_at=_later(index), capabilities=["c"]) for index in range(5)]
    )
    harness.clock.advance(100)
    rules = [
        RetentionRule(kind="event", max_age_secs=80),
        RetentionRule(kind="dead", max_age_secs=98),
        RetentionRule(kind="agent", max_age_secs=98),
        RetentionRule(kind="human", max_age_secs=1),
    ]
    assert await _prune(harness, *rules, most=7) == {"event": 20, "dead": 2, "agent": 2}
    left = ids(await harness.storage.envelopes.query(limit=1000))
    assert left == [*(f"e{index}" for index in reversed(range(20, 30))), "m"]
    assert len((await harness.storage.agents.find(capabilities=["c"])).items) == 3
    assert await _prune(harness, *rules) == {}


async def retention_by_size_removes_the_oldest_until_the_rest_fits(harness: Harness) -> None:
    await harness.store(*(envelope(f"e{index}", after_secs=index, payload=b"1" * 1000) for index in range(40)))
    await harness.store(envelope("other", kind="event", payload=b"1" * 50_000))
    removed = await _prune(harness, RetentionRule(kind="message", max_bytes=20_000), most=6)
    left = ids(await harness.storage.envelopes.query(limit=1000))
    assert 14 <= len(left) - 1 <= 19
    assert left == [*(f"e{index}" for index in reversed(range(removed["message"], 40))), "other"]
    assert await _prune(harness, RetentionRule(kind="message", max_bytes=0)) == {"message": len(left) - 1}


async def what_is_not_over_stays(harness: Harness) -> None:
    storage = harness.storage
    await storage.sessions.create(_session("active"))
    await storage.sessions.create(_session("over"))
    await storage.sessions.update_status("olga", "over", "closed", at=START)
    await storage.waves.create(wave("running", status="running"), [task("t", "running")])
    await storage.waves.create(wave("over", status="completed", closed_at=START), [task("t", "over")])
    harness.clock.advance(1000)
    rules = [RetentionRule(kind=kind, max_age_secs=10, max_bytes=0) for kind in ("session", "wave")]
    assert await _prune(harness, *rules) == {"session": 1, "wave": 1}
    assert await storage.sessions.get("active") is not None
    assert await storage.sessions.get("over") is None
    assert await storage.waves.get_task("over", "t") is None
    assert await storage.waves.get_task("running", "t") is not None
    bad = [
        RetentionRule(kind="everything", max_age_secs=1),
        RetentionRule(kind="event", max_age_secs=-1),
        RetentionRule(kind="event", max_age_secs=float("nan")),
        RetentionRule(kind="event", max_bytes=-1),
    ]
    for rule in bad:
        await refusal(BadValue, storage.apply_retention([rule]))
    assert (await storage.apply_retention([RetentionRule(kind="event", max_age_secs=1e12)])).done


CASES = [
    the_first_sighting_registers_and_the_newest_describes,
    agents_are_found_by_all_their_capabilities_and_their_last_sighting,
    a_bad_sighting_holds_up_no_other,
    hostile_dead_letters_come_back,
    a_dead_letter_is_kept_once_and_replayed_once,
    dead_letters_are_listed_by_reason_and_time,
    a_session_is_inserted_once_for_its_orchestrator,
    a_session_changes_by_compare_and_set,
    sessions_are_seen_by_their_two_sides,
    retention_by_age_removes_the_old_of_its_kind,
    retention_by_size_removes_the_oldest_until_the_rest_fits,
    what_is_not_over_stays,
]
