"""Sessions and aliases: one run, each start answered, turns one at a time, driven only by those who may."""

import asyncio

import pytest

from hub.mailbox import (
    Accepted,
    Cancel,
    CancelVerdict,
    Close,
    Mailbox,
    Outcome,
    Send,
    State,
    TurnKind,
    Verdict,
    content_digest,
)
from hub.protocol import parse
from tests.support.mailboxes import Mailboxes, answers, dm, drain, held_writer, name, run_one, start_of

HUB = "hub-orchestrator"


async def start(
    mailbox: Mailbox,
    envelope_id: str,
    *,
    sender: str = HUB,
    wave: str = "w1",
    session: str = "t1",
    attempt: int = 1,
    **more: str,
) -> Accepted:
    payload = {"action": "session_start", "session_id": session, "prompt": "go", "attempt": attempt, **more}
    return await mailbox.accept(dm(sender, id=envelope_id, payload=payload), start_of(session, payload, wave))


async def test_three_redispatches_of_a_running_start_are_one_run_with_four_results(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    taken = [await start(mailbox, "d1")]
    taken.append(await start(mailbox, "d2", attempt=2))
    (turn,) = await mailbox.turns.claim(10)
    taken.append(await start(mailbox, "d3", attempt=3))
    await mailbox.turns.verify(turn)
    taken.append(await start(mailbox, "d4", attempt=4))
    assert [one.verdict for one in taken] == [Verdict.NEW, *[Verdict.ALIAS] * 3]
    assert [one.status for one in taken] == ["queued", "queued", "working", "working"]
    assert {one.seq for one in taken} == {turn.seq}
    assert await mailbox.turns.claim(10) == []
    await mailbox.turns.settle(turn, Outcome.done("result", verify="passed"))
    rows = await drain(mailbox)
    payloads = [parse(row.body).payload for row in rows]
    assert [payload["task_id"] for payload in payloads] == ["d1", "d2", "d3", "d4"]
    assert {(payload["status"], payload["result"], payload["verify"]) for payload in payloads} == {
        ("done", "result", "passed")
    }
    assert len({row.publish_id for row in rows}) == len({parse(row.body).meta.id for row in rows}) == 4


async def test_an_alias_at_the_very_end_is_answered_in_either_order(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await start(mailbox, "d1")
    (turn,) = await mailbox.turns.claim()
    async with held_writer(mailbox):  # all three are in one batch of the writer, in this order
        calls = asyncio.gather(start(mailbox, "d2"), mailbox.turns.settle(turn, Outcome.done()), start(mailbox, "d3"))
        commits = mailbox._writer.commits
    _, _, late = await calls
    assert mailbox._writer.commits == commits + 2
    assert (late.verdict, late.is_answered) == (Verdict.ALIAS, True)
    assert await answers(mailbox) == [(HUB, "d1", "done"), (HUB, "d2", "done"), (HUB, "d3", "done")]


@pytest.mark.parametrize("outcome", [Outcome.done(1), Outcome.cancelled(), Outcome.failed("interrupted", "died")])
async def test_a_redispatch_after_the_end_gets_the_recorded_result(mailboxes: Mailboxes, outcome: Outcome) -> None:
    mailbox = await mailboxes.open()
    await start(mailbox, "d1")
    await run_one(mailbox, outcome)
    await drain(mailbox)
    mailboxes.clock.advance(3600)
    mailbox = await mailboxes.restart(mailbox)
    again = await start(mailbox, "d2", attempt=2)
    assert (again.verdict, again.state, again.outcome, again.is_answered) == (Verdict.ALIAS, State.ENDED, outcome, True)
    assert await answers(mailbox) == [(HUB, "d2", outcome.status)]
    assert await mailbox.turns.claim(10) == []


async def test_a_redispatch_with_other_content_is_refused_naming_both(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await start(mailbox, "d1")
    other = await start(mailbox, "d2", prompt="something else")
    assert other.verdict is Verdict.REFUSED
    assert other.outcome is not None
    assert other.outcome.code == "bad_request"
    assert "d1" in (other.outcome.error or "")
    assert "d2" in (other.outcome.error or "")
    assert await answers(mailbox) == [(HUB, "d2", "error")]
    assert len(await mailbox.turns.claim(10)) == 1


def test_content_is_the_payload_without_attempt_in_any_order() -> None:
    one = content_digest({"a": 1, "b": {"c": [1, 2], "d": None}, "attempt": 1})
    assert one == content_digest({"attempt": 2, "b": {"d": None, "c": [1, 2]}, "a": 1})
    assert one != content_digest({"a": 1, "b": {"c": [2, 1], "d": None}})
    assert one != content_digest({"a": 1, "b": {"c": [1, 2], "d": None, "attempt": 1}})


async def test_a_start_by_another_identity_or_in_another_wave_is_another_session(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    for number, (sender, wave) in enumerate([(HUB, "w1"), (HUB, "w2"), (HUB, ""), ("ann", "w1"), ("ann", "")]):
        taken = await start(mailbox, f"d{number}", sender=sender, wave=wave)
        assert taken.verdict is Verdict.NEW
    assert len(await mailbox.turns.claim(10)) == 5


async def test_a_redispatch_of_an_interrupted_start_is_an_alias_of_it(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await start(mailbox, "d1")
    await mailbox.turns.claim()
    mailbox = await mailboxes.restart(mailbox)
    assert (await start(mailbox, "d2")).status == "queued"
    await mailbox.turns.rescue(lambda _turn: Outcome.failed("interrupted", "died"))
    assert await answers(mailbox) == [(HUB, "d1", "error"), (HUB, "d2", "error")]


@pytest.mark.parametrize("task_id", ["d1", "d2", "d3", "d4", "t1"])
async def test_a_cancel_by_any_id_of_the_turn_stops_it(mailboxes: Mailboxes, task_id: str) -> None:
    mailbox = await mailboxes.open()
    await start(mailbox, "d1")
    (turn,) = await mailbox.turns.claim()
    for envelope_id in ("d2", "d3", "d4"):
        await start(mailbox, envelope_id)
    cancelled = await mailbox.cancel(Cancel(requested_by=HUB, sender=HUB, task_id=task_id, wave_id="w1"))
    assert (cancelled.verdict, cancelled.seq) == (CancelVerdict.STOP, turn.seq)
    assert (await mailbox.turns.settle(turn, Outcome.done("too late"))).status == "cancelled"
    assert await answers(mailbox) == [(HUB, known, "cancelled") for known in ("d1", "d2", "d3", "d4")]


async def test_turns_of_a_session_run_one_at_a_time_in_order_and_leave_room_for_others(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await start(mailbox, "a1", sender="ann", wave="", session="sa")
    await mailbox.accept(dm("ann", id="a2"), Send(session_id="sa"))
    await mailbox.accept(dm("ann", id="a3"), Send(session_id="sa"))
    await start(mailbox, "b1", sender="bob", wave="", session="sb")
    first = await mailbox.turns.claim(10)
    assert [turn.envelope_id for turn in first] == ["a1", "b1"]
    await mailbox.turns.delay(first[0], 60)  # a retry keeps its session back
    assert await mailbox.turns.claim(10) == []
    mailboxes.clock.advance(60)
    order = []
    while turns := await mailbox.turns.claim(10):
        assert len(turns) == 1
        order.append(turns[0].envelope_id)
        await mailbox.turns.settle(turns[0], Outcome.done())
    assert order == ["a1", "a2", "a3"]


async def test_context_is_saved_with_success_and_given_to_the_next_turn_also_after_a_restart(
    mailboxes: Mailboxes,
) -> None:
    mailbox = await mailboxes.open()
    await start(mailbox, "a1", sender="ann", wave="", cwd="/srv")
    for number in (2, 3, 4):
        await mailbox.accept(dm("ann", id=f"a{number}"), Send(session_id="t1"))
    seen = []
    for outcome, context in [
        (Outcome.done(), b'{"n":1}'),
        (Outcome.failed("handler_error", "boom"), b'{"n":2}'),
        (Outcome.done(), None),
    ]:
        (turn,) = await mailbox.turns.claim()
        assert turn.session is not None
        assert b'"cwd":"/srv"' in turn.session.start_payload_json
        seen.append(turn.session.context_json)
        await mailbox.turns.settle(turn, outcome, context_json=context)
        mailbox = await mailboxes.restart(mailbox)
    (turn,) = await mailbox.turns.claim()
    assert turn.session is not None
    assert [*seen, turn.session.context_json] == [None, b'{"n":1}', b'{"n":1}', b'{"n":1}']


async def test_a_session_is_driven_by_its_starter_and_the_hub_only(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await start(mailbox, "a1", sender="ann", wave="")
    for request in (Send(session_id="t1"), Close(session_id="t1"), Send(session_id="t1", wave_id="w9")):
        foreign = await mailbox.accept(dm("eve"), request)
        assert foreign.verdict is Verdict.REFUSED
        assert foreign.outcome is not None
        assert foreign.outcome.code == "bad_request"
        assert "unknown session t1" in (foreign.outcome.error or "")
    assert (await mailbox.accept(dm(HUB), Send(session_id="t1"))).verdict is Verdict.NEW
    assert (await mailbox.accept(dm("ann"), Send(session_id="t1", wave_id=""))).verdict is Verdict.NEW


async def test_an_id_that_may_mean_several_sessions_drives_none(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await start(mailbox, "x1", sender=HUB, wave="w1")
    await start(mailbox, "x2", sender=HUB, wave="w2")
    await start(mailbox, "x3", sender="ann", wave="")
    unclear = await mailbox.accept(dm(HUB), Send(session_id="t1"))
    assert unclear.outcome is not None
    assert "may mean several" in (unclear.outcome.error or "")
    clear = await mailbox.accept(dm(HUB, id="clear"), Send(session_id="t1", wave_id="w2"))
    assert clear.verdict is Verdict.NEW
    turn = await mailbox.turns.find(HUB, "clear")
    assert turn is not None
    assert turn.session is not None
    assert turn.session.name == name(HUB, "t1", "w2")


async def test_a_close_cancels_what_waits_waits_for_what_runs_and_ends_the_session(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await start(mailbox, "a1", sender="ann", wave="")
    (running,) = await mailbox.turns.claim()
    for number in (2, 3):
        await mailbox.accept(dm("ann", id=f"a{number}"), Send(session_id="t1"))
    closing = await mailbox.accept(dm("ann", id="close"), Close(session_id="t1"))
    assert closing.status == "queued"
    assert await answers(mailbox) == [("ann", "a3", "cancelled"), ("ann", "a2", "cancelled")]
    refused = await mailbox.accept(dm("ann", id="a4"), Send(session_id="t1"))
    assert refused.outcome is not None
    assert "is closing" in (refused.outcome.error or "")
    assert await mailbox.turns.claim(10) == []
    cancel = Cancel(requested_by="ann", sender="ann", task_id="close")
    assert (await mailbox.cancel(cancel)).verdict is CancelVerdict.TOO_LATE
    await mailbox.turns.settle(running, Outcome.done())
    (close,) = await mailbox.turns.claim(10)
    assert close.kind is TurnKind.CLOSE
    await mailbox.turns.settle(close, Outcome.done())
    assert await answers(mailbox) == [("ann", "a4", "error"), ("ann", "a1", "done"), ("ann", "close", "done")]
    session = await mailbox.sessions.get(name("ann", "t1"))
    assert session is not None
    assert session.state == "closed"
    assert await mailbox.sessions.open() == []
    again = await mailbox.accept(dm("ann", id="close-2"), Close(session_id="t1"))
    assert again.status == "queued"
    await run_one(mailbox)
    assert await answers(mailbox) == [("ann", "close-2", "done")]


async def test_a_close_of_an_idle_session_can_be_claimed_at_once(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await start(mailbox, "a1", sender="ann", wave="")
    await mailbox.accept(dm("ann", id="close"), Close(session_id="t1"))
    (turn,) = await mailbox.turns.claim(10)
    assert turn.envelope_id == "close"
    assert await answers(mailbox) == [("ann", "a1", "cancelled")]
