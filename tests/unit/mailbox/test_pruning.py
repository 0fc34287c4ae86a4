"""Pruning and time: what can still be asked for stays, whatever the clock says."""

import asyncio

import pytest

from hub.mailbox import Mailbox, Outcome, Send, State, Task, Verdict
from hub.mailbox.clock import not_before, steady_clock
from hub.mailbox.space import free_bytes, has_room
from hub.protocol import make
from tests.support.mailboxes import MAX_AGE_SECS, FakeClock, Mailboxes, dm, drain, name, run_one, start_of

DAY_SECS = 86_400.0


async def prune_all(mailbox: Mailbox) -> int:
    total = 0
    while step := (await mailbox.prune(MAX_AGE_SECS)).total:
        total += step
    return total


async def test_a_record_is_kept_for_the_stream_s_age_and_a_day_after_its_turn_was_last_asked_for(
    mailboxes: Mailboxes,
) -> None:
    mailbox = await mailboxes.open()
    envelope = dm(id="t1")
    await mailbox.accept(envelope, Task())
    mailboxes.clock.advance(20 * DAY_SECS)
    assert await prune_all(mailbox) == 0  # queued
    (turn,) = await mailbox.turns.claim()
    mailboxes.clock.advance(20 * DAY_SECS)
    assert await prune_all(mailbox) == 0  # running
    await mailbox.turns.settle(turn, Outcome.done())
    mailboxes.clock.advance(20 * DAY_SECS)
    assert await prune_all(mailbox) == 0  # unsent
    await mailbox.accept(envelope, Task())
    await drain(mailbox)
    repeat = await mailbox.accept(envelope, Task())
    assert repeat.is_answered
    await drain(mailbox)
    mailboxes.clock.advance(8 * DAY_SECS)
    assert await prune_all(mailbox) == 0  # asked for 8 days ago, to the millisecond
    assert (await mailbox.accept(envelope, Task())).verdict is Verdict.REPEAT
    await drain(mailbox)
    mailboxes.clock.advance(8 * DAY_SECS + 1)
    assert await prune_all(mailbox) == 1
    assert (await mailbox.accept(envelope, Task())).verdict is Verdict.NEW


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.VERIFYING, State.DELAYED, State.INTERRUPTED])
async def test_what_has_not_ended_is_never_pruned(mailboxes: Mailboxes, state: State) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(id="t1"), start_of("s"))
    await mailbox.accept(dm(id="t2"), Send(session_id="s"))
    if state is not State.QUEUED:
        (turn,) = await mailbox.turns.claim()
        if state is State.VERIFYING:
            await mailbox.turns.verify(turn)
        elif state is State.DELAYED:
            await mailbox.turns.delay(turn, 60)
        elif state is State.INTERRUPTED:
            mailbox = await mailboxes.restart(mailbox)
    mailboxes.clock.advance(1000 * DAY_SECS)
    assert await prune_all(mailbox) == 0
    assert [turn.state for turn in await mailbox.turns.open()] == [state, State.HELD]


async def test_pruning_goes_in_small_steps_and_gives_space_back(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    large = {"prompt": "x" * 4000}
    await asyncio.gather(*(mailbox.accept(dm(payload=large), Task()) for _ in range(1000)))
    for turn in await mailbox.turns.claim(1000):
        await mailbox.turns.settle(turn, Outcome.done("y" * 4000))
    await drain(mailbox)
    mailboxes.clock.advance(9 * DAY_SECS)

    async def pages() -> int:
        return await mailbox._reader.look(lambda db: int(db.execute("PRAGMA page_count").fetchone()[0]))

    before = await pages()
    steps = []
    while (step := await mailbox.prune(MAX_AGE_SECS)).total:
        steps.append(step.turns)
    assert steps == [200] * 5
    for _ in range(20):
        await mailbox.prune(MAX_AGE_SECS)
    assert await pages() < before / 4


async def test_a_session_is_kept_while_it_may_be_used_and_its_start_with_it(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm("ann"), start_of("open"))
    await mailbox.accept(dm("hub-orchestrator"), start_of("wave", wave_id="w1"))
    for _ in range(2):
        await run_one(mailbox)
    await drain(mailbox)
    mailboxes.clock.advance(10 * DAY_SECS)
    assert await prune_all(mailbox) == 2  # the wave's session and its turn
    assert await mailbox.sessions.get(name("hub-orchestrator", "wave", "w1")) is None
    assert (await mailbox.accept(dm("ann", id="x"), start_of("open"))).verdict is Verdict.ALIAS
    await drain(mailbox)
    mailboxes.clock.advance(10 * DAY_SECS)
    await mailbox.accept(dm("ann"), Send(session_id="open"))
    await run_one(mailbox)
    await drain(mailbox)
    mailboxes.clock.advance(29 * DAY_SECS)
    await prune_all(mailbox)
    assert await mailbox.sessions.get(name("ann", "open")) is not None
    assert (await mailbox.accept(dm("ann", id="y"), start_of("open"))).verdict is Verdict.ALIAS
    await drain(mailbox)
    mailboxes.clock.advance(40 * DAY_SECS)
    await prune_all(mailbox)
    assert await mailbox.sessions.get(name("ann", "open")) is None
    rows = await mailbox._reader.look(
        lambda db: [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("turn", "envelope")]
    )
    assert rows == [0, 0]


async def test_old_early_cancels_and_received_messages_go(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.received.add(make(sender="ann", channel="x"))
    mailboxes.clock.advance(8 * DAY_SECS)
    assert await prune_all(mailbox) == 0
    mailboxes.clock.advance(1)
    assert await prune_all(mailbox) == 1
    assert await mailbox.received.since() == []


async def test_a_clock_that_was_set_back_between_two_runs_neither_keeps_turns_waiting_nor_ages_records(
    mailboxes: Mailboxes,
) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(id="old"), Task())
    await run_one(mailbox)
    await drain(mailbox)
    await mailbox.accept(dm(id="t1"), Task())
    (turn,) = await mailbox.turns.claim()
    await mailbox.turns.delay(turn, 60)
    mailboxes.clock.advance(-10 * 365 * DAY_SECS)
    mailbox = await mailboxes.restart(mailbox)
    mailboxes.clock.advance(59)
    assert await mailbox.turns.claim() == []
    mailboxes.clock.advance(1)
    assert len(await mailbox.turns.claim()) == 1
    # And when it is right again at the next start, nothing was lost either.
    mailboxes.clock.advance(10 * 365 * DAY_SECS)
    mailbox = await mailboxes.restart(mailbox)
    assert await prune_all(mailbox) == 0
    assert (await mailbox.accept(dm(id="old"), Task())).verdict is Verdict.REPEAT


def test_time_never_goes_below_what_is_written() -> None:
    clock = FakeClock(1000)
    assert not_before(clock, 900)() == 1000
    later = not_before(clock, 5000)
    assert later() == 5000
    clock.advance(1)
    assert later() == 6000


def test_the_real_clock_goes_on() -> None:
    clock = steady_clock()
    readings = [clock() for _ in range(1000)]
    assert readings == sorted(readings)
    assert readings[0] > 1_700_000_000_000


def test_free_space_is_known(mailboxes: Mailboxes) -> None:
    folder = mailboxes.folder.parent
    free = free_bytes(folder)
    assert free > 0
    assert has_room(folder, 1)
    assert not has_room(folder, free * 1000)
