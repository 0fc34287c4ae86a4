"""The states of a turn: every way that is in the table can be gone, and no other."""

import itertools
from collections.abc import Awaitable, Callable

import pytest

from hub.mailbox import Cancel, Close, Mailbox, Outcome, Send, State, StateChanged, Turn, after_interruption, turn_rows
from hub.mailbox.states import TRANSITIONS
from hub.mailbox.transaction import Tx
from tests.support.mailboxes import Mailboxes, dm, start_of


async def settle_start(mailbox: Mailbox) -> None:
    """End the session's start, if it is in hand."""
    for turn in await mailbox.turns.open():
        if turn.envelope_id == "start-1" and turn.state is State.RUNNING:
            await mailbox.turns.settle(turn, Outcome.done())


async def bring_to(mailboxes: Mailboxes, state: State) -> tuple[Mailbox, Turn]:
    """A mailbox with one turn of interest in this state."""
    mailbox = await mailboxes.open()
    await mailbox._writer.submit(
        lambda tx: tx.db.executescript(
            "CREATE TABLE IF NOT EXISTS walked (old, new);"
            "CREATE TRIGGER IF NOT EXISTS walk AFTER UPDATE OF state ON turn "
            "BEGIN INSERT INTO walked VALUES (old.state, new.state); END; BEGIN IMMEDIATE"
        )
    )
    await mailbox.accept(dm(id="start-1"), start_of("s"))
    if state is State.HELD:
        await mailbox.turns.claim()
        await mailbox.accept(dm(id="send-1"), Send(session_id="s"))
        turn = await mailbox.turns.find("ann", "send-1")
    else:
        if state is not State.QUEUED:
            (claimed,) = await mailbox.turns.claim()
            if state is State.VERIFYING:
                await mailbox.turns.verify(claimed)
            elif state is State.DELAYED:
                await mailbox.turns.delay(claimed, 60)
            elif state is State.INTERRUPTED:
                mailbox = await mailboxes.restart(mailbox)
            elif state is State.ENDED:
                await mailbox.turns.settle(claimed, Outcome.done())
        turn = await mailbox.turns.find("ann", "start-1")
    assert turn is not None
    assert turn.state is state
    await mailbox._writer.submit(lambda tx: tx.run("DELETE FROM walked"))
    return mailbox, turn


Action = Callable[[Mailboxes, Mailbox, Turn], Awaitable[object]]

ACTIONS: dict[str, Action] = {
    "claim": lambda _, mailbox, turn: mailbox.turns.claim(10),
    "verify": lambda _, mailbox, turn: mailbox.turns.verify(turn),
    "delay": lambda _, mailbox, turn: mailbox.turns.delay(turn, 5),
    "run again": lambda _, mailbox, turn: mailbox.turns.run_again(turn),
    "settle": lambda _, mailbox, turn: mailbox.turns.settle(turn, Outcome.done()),
    "cancel": lambda _, mailbox, turn: mailbox.cancel(
        Cancel(requested_by="ann", sender="ann", task_id=turn.envelope_id)
    ),
    "close": lambda _, mailbox, turn: mailbox.accept(dm(), Close(session_id="s")),
    "settle the start": lambda _, mailbox, turn: settle_start(mailbox),
    "rescue: again": lambda _, mailbox, turn: mailbox.turns.rescue(lambda _turn: None),
    "rescue: end": lambda _, mailbox, turn: mailbox.turns.rescue(lambda _turn: Outcome.failed("interrupted", "died")),
    "restart": lambda mailboxes, mailbox, turn: mailboxes.restart(mailbox),
}


async def walk(mailboxes: Mailboxes, state: State, action: Action, *, hour_passes: bool) -> set[tuple[str, str]]:
    """Do one thing to a turn in a state; the ways that were gone on disk. A refusal changes nothing."""
    mailbox, turn = await bring_to(mailboxes, state)
    if hour_passes:
        mailboxes.clock.advance(3600)
    refusal: StateChanged | None = None
    try:
        done = await action(mailboxes, mailbox, turn)
    except StateChanged as error:
        done, refusal = None, error
    mailbox = done if isinstance(done, Mailbox) else mailbox
    walked = set(await mailbox._reader.look(lambda db: db.execute("SELECT old, new FROM walked").fetchall()))
    await mailbox.close()
    if refusal is not None:
        assert refusal.found == state
        assert walked == set()
    return walked


async def test_the_actions_go_every_way_of_the_table_and_no_other(mailboxes: Mailboxes) -> None:
    table = {(old.value, new.value) for old, news in TRANSITIONS.items() for new in news}
    walked: set[tuple[str, str]] = set()
    for state, (name, action) in itertools.product(State, ACTIONS.items()):
        place = Mailboxes(mailboxes.folder / f"{state} {name}")
        # Of the actions only the claim looks at the time: it takes what is due.
        walked |= await walk(place, state, action, hour_passes=name == "claim")
    assert walked == table


@pytest.mark.parametrize("old", list(State))
@pytest.mark.parametrize("new", list(State))
async def test_a_state_is_written_only_along_the_table(mailboxes: Mailboxes, old: State, new: State) -> None:
    mailbox, turn = await bring_to(mailboxes, old)

    def move(tx: Tx) -> None:
        turn_rows.move(tx, turn_rows.require(tx, turn.seq, (old,)), new)

    if new in TRANSITIONS[old]:
        await mailbox._writer.submit(move)
        expected = new
    else:
        with pytest.raises(StateChanged, match=f"turn {turn.seq} is {old}"):
            await mailbox._writer.submit(move)
        expected = old
    found = await mailbox.turns.find("ann", turn.envelope_id)
    assert found is not None
    assert found.state is expected


async def test_a_change_by_an_older_claim_is_refused(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(), start_of("s"))
    (first,) = await mailbox.turns.claim()
    await mailbox.turns.run_again(first, give_attempt_back=True)
    (second,) = await mailbox.turns.claim()
    assert second.attempts == first.attempts == 1
    with pytest.raises(StateChanged, match="by a later claim"):
        await mailbox.turns.settle(first, Outcome.done("late"))
    assert (await mailbox.turns.settle(second, Outcome.done("mine"))).result_json == b'"mine"'


@pytest.mark.parametrize(
    ("attempts", "is_idempotent", "is_cancelled", "expected"),
    [
        (1, False, False, "interrupted"),
        (1, True, False, None),
        (2, True, False, None),
        (3, True, False, "interrupted"),
        (4, True, False, "interrupted"),
        (1, True, True, "cancelled"),
        (1, False, True, "cancelled"),
    ],
)
async def test_an_interrupted_turn_runs_again_only_when_idempotent_and_attempts_are_left(
    mailboxes: Mailboxes, attempts: int, is_idempotent: bool, is_cancelled: bool, expected: str | None
) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(), start_of("s"))
    for _ in range(attempts - 1):
        (turn,) = await mailbox.turns.claim()
        await mailbox.turns.run_again(turn)
    (turn,) = await mailbox.turns.claim()
    if is_cancelled:
        await mailbox.cancel(Cancel(requested_by="ann", sender="ann", task_id=turn.envelope_id))
    mailbox = await mailboxes.restart(mailbox)
    assert mailbox.interrupted_count == 1
    (rescued,) = await mailbox.turns.rescue(
        lambda turn: after_interruption(turn, idempotent=is_idempotent, max_attempts=3)
    )
    if expected is None:
        assert rescued.state is State.QUEUED
        assert rescued.attempts == attempts
    else:
        assert rescued.outcome is not None
        assert expected in {rescued.outcome.code, rescued.outcome.status}


@pytest.mark.parametrize("delay_secs", [-1, float("nan"), float("inf"), 31 * 86_400])
async def test_a_delay_that_is_no_delay_is_refused(mailboxes: Mailboxes, delay_secs: float) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(), start_of("s"))
    (turn,) = await mailbox.turns.claim()
    with pytest.raises(ValueError, match="expected a delay of 0 to"):
        await mailbox.turns.delay(turn, delay_secs)
