"""Cancels, at every state of their task, early ones included."""

import pytest

from hub.mailbox import Cancel, CancelVerdict, Outcome, State, Task
from hub.mailbox.cancels import cancel as _cancel
from tests.support.mailboxes import Mailboxes, answers, dm, run_one, start_of

HUB = "hub-orchestrator"


def cancel(task_id: str = "t1", *, sender: str = "ann", by: str | None = None, wave: str | None = None) -> Cancel:
    return Cancel(requested_by=by or sender, sender=sender, task_id=task_id, wave_id=wave)


async def test_a_queued_turn_that_is_cancelled_never_runs(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(id="t1"), Task())
    assert (await mailbox.cancel(cancel())).verdict is CancelVerdict.ENDED
    assert await mailbox.turns.claim() == []
    assert await answers(mailbox) == [("ann", "t1", "cancelled")]


async def test_a_delayed_turn_that_is_cancelled_never_runs_again(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(id="t1"), Task())
    (turn,) = await mailbox.turns.claim()
    await mailbox.turns.delay(turn, 60)
    assert (await mailbox.cancel(cancel())).verdict is CancelVerdict.ENDED
    mailboxes.clock.advance(3600)
    assert await mailbox.turns.claim() == []
    assert await answers(mailbox) == [("ann", "t1", "cancelled")]


@pytest.mark.parametrize("is_verifying", [False, True])
@pytest.mark.parametrize("outcome", [Outcome.done("x"), Outcome.failed("timeout", "900 s"), Outcome.cancelled()])
async def test_a_turn_in_hand_ends_as_cancelled_whatever_it_says_after_the_cancel(
    mailboxes: Mailboxes, outcome: Outcome, is_verifying: bool
) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(id="t1"), Task())
    (turn,) = await mailbox.turns.claim()
    if is_verifying:
        await mailbox.turns.verify(turn)
    assert (await mailbox.cancel(cancel())).verdict is CancelVerdict.STOP
    assert await answers(mailbox) == []
    assert await mailbox.turns.settle(turn, outcome) == Outcome.cancelled()
    assert await answers(mailbox) == [("ann", "t1", "cancelled")]


async def test_a_settle_before_the_cancel_wins(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(id="t1"), Task())
    await run_one(mailbox, Outcome.done("x"))
    assert (await mailbox.cancel(cancel())).verdict is CancelVerdict.TOO_LATE
    assert await answers(mailbox) == [("ann", "t1", "done")]


@pytest.mark.parametrize("how", ["delay", "run again"])
async def test_a_retry_after_the_cancel_ends_it_instead(mailboxes: Mailboxes, how: str) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(id="t1"), Task())
    (turn,) = await mailbox.turns.claim()
    await mailbox.cancel(cancel())
    state = await (mailbox.turns.delay(turn, 1) if how == "delay" else mailbox.turns.run_again(turn))
    assert state is State.ENDED
    assert await answers(mailbox) == [("ann", "t1", "cancelled")]


async def test_a_cancel_outlives_the_death_of_the_process_that_was_to_carry_it_out(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(id="t1"), Task())
    await mailbox.turns.claim()
    await mailbox.cancel(cancel())
    mailbox = await mailboxes.restart(mailbox)
    await mailbox.turns.rescue(lambda _turn: None)  # idempotent: would run again
    assert await mailbox.turns.claim() == []
    assert await answers(mailbox) == [("ann", "t1", "cancelled")]


async def test_an_interrupted_turn_is_cancelled_on_the_spot(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(id="t1"), Task())
    await mailbox.turns.claim()
    mailbox = await mailboxes.restart(mailbox)
    assert (await mailbox.cancel(cancel())).verdict is CancelVerdict.ENDED
    assert await mailbox.turns.rescue(lambda _turn: None) == []


async def test_an_early_cancel_waits_ten_minutes_for_its_task_also_over_a_restart(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    for task_id in ("t1", "t2"):
        assert (await mailbox.cancel(cancel(task_id))).verdict is CancelVerdict.EARLY
    mailbox = await mailboxes.restart(mailbox)
    mailboxes.clock.advance(599)
    taken = await mailbox.accept(dm(id="t1"), Task())
    assert (taken.state, taken.is_answered) == (State.ENDED, True)
    mailboxes.clock.advance(1)
    assert (await mailbox.accept(dm(id="t2"), Task())).state is State.QUEUED
    assert await answers(mailbox) == [("ann", "t1", "cancelled")]


async def test_an_early_cancel_meets_only_a_task_of_its_sender(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.cancel(cancel("t1", sender="eve"))
    assert (await mailbox.accept(dm("ann", id="t1"), Task())).state is State.QUEUED
    assert (await mailbox.cancel(cancel("t1", sender="eve"))).verdict is CancelVerdict.EARLY
    assert len(await mailbox.turns.claim()) == 1


@pytest.mark.parametrize("task_id", ["t1", "d1"])
async def test_an_early_cancel_of_a_wave_meets_its_start_by_either_id(mailboxes: Mailboxes, task_id: str) -> None:
    mailbox = await mailboxes.open()
    await mailbox.cancel(cancel(task_id, sender=HUB, wave="w1"))
    other = await mailbox.accept(dm(HUB, id="d0"), start_of("t1", wave_id="w2"))
    assert other.state is State.QUEUED
    taken = await mailbox.accept(dm(HUB, id="d1"), start_of("t1", wave_id="w1"))
    assert taken.state is State.ENDED
    again = await mailbox.accept(dm(HUB, id="d2"), start_of("t1", wave_id="w1"))
    assert again.outcome == Outcome.cancelled()
    assert await answers(mailbox) == [(HUB, "d1", "cancelled"), (HUB, "d2", "cancelled")]


async def test_ten_thousand_early_cancels_of_one_sender_push_out_only_its_own(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.cancel(cancel("t1", sender="ann"))
    pending = []
    for number in range(10_000):
        mailboxes.clock.now_ms += 1
        pending.append(mailbox._writer.submit(lambda tx, n=number: _cancel(tx, cancel(f"x{n}", sender="eve"))))
    for future in pending:
        await future
    kept = await mailbox._reader.look(
        lambda db: db.execute("SELECT requested_by, count(*) FROM early_cancel GROUP BY 1 ORDER BY 1").fetchall()
    )
    assert kept == [("ann", 1), ("eve", 1000)]
    assert (await mailbox.accept(dm("ann", id="t1"), Task())).state is State.ENDED
    assert (await mailbox.accept(dm("eve", id="x9999"), Task())).state is State.ENDED
    assert (await mailbox.accept(dm("eve", id="x1"), Task())).state is State.QUEUED


async def test_cancels_repeated_converge_on_one_result(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.cancel(cancel())
    await mailbox.cancel(cancel())
    await mailbox.accept(dm(id="t1"), Task())
    await mailbox.cancel(cancel())
    assert await answers(mailbox) == [("ann", "t1", "cancelled")]


@pytest.mark.parametrize("is_in_hand", [False, True])
async def test_a_cancel_that_overtakes_an_alias_stops_the_turn_that_it_stands_for(
    mailboxes: Mailboxes, is_in_hand: bool
) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(HUB, id="d1"), start_of("t1", wave_id="w1"))
    turns = await mailbox.turns.claim() if is_in_hand else []
    assert (await mailbox.cancel(cancel("d2", sender=HUB))).verdict is CancelVerdict.EARLY
    alias = await mailbox.accept(dm(HUB, id="d2"), start_of("t1", wave_id="w1"))
    assert alias.must_stop == is_in_hand
    assert alias.is_answered != is_in_hand
    for turn in turns:
        assert (await mailbox.turns.settle(turn, Outcome.done())).status == "cancelled"
    assert await answers(mailbox) == [(HUB, "d1", "cancelled"), (HUB, "d2", "cancelled")]
