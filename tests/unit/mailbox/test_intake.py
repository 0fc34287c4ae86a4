"""Taking envelopes in: once, in order, and each answered."""

import asyncio

import msgspec
import pytest

from hub.mailbox import Outcome, Refuse, State, Task, Verdict
from hub.protocol import BadName, Envelope, parse
from tests.support.mailboxes import WORKER, Mailboxes, answers, dm, drain, run_one


async def test_the_same_dm_five_times_is_one_turn(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    envelope = dm(id="task-1")
    taken = await asyncio.gather(*(mailbox.accept(envelope, Task()) for _ in range(5)))
    assert [one.verdict for one in taken] == [Verdict.NEW, *[Verdict.REPEAT] * 4]
    assert {one.status for one in taken} == {"queued"}
    assert len(await mailbox.turns.claim(10)) == 1
    assert (await mailbox.accept(envelope, Task())).status == "working"


async def test_two_senders_with_one_id_are_two_tasks(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    for sender in ("ann", "bob"):
        assert (await mailbox.accept(dm(sender, id="same"), Task())).verdict is Verdict.NEW
    await run_one(mailbox)
    await run_one(mailbox)
    assert await answers(mailbox) == [("ann", "same", "done"), ("bob", "same", "done")]


async def test_a_repeat_after_a_restart_is_known(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    envelope = dm(id="task-1")
    await mailbox.accept(envelope, Task())
    mailbox = await mailboxes.restart(mailbox)
    assert (await mailbox.accept(envelope, Task())).verdict is Verdict.REPEAT


async def test_a_repeat_after_the_end_gets_the_recorded_result_once_a_minute(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    envelope = dm(id="task-1")
    await mailbox.accept(envelope, Task())
    await run_one(mailbox, Outcome.done({"sum": 7}))
    # Its result has not left yet: it will be there soon enough.
    assert not (await mailbox.accept(envelope, Task())).is_answered
    (first,) = await drain(mailbox)
    given = []
    for _ in range(8):
        repeat = await mailbox.accept(envelope, Task())
        assert (repeat.verdict, repeat.state, repeat.status) == (Verdict.REPEAT, State.ENDED, None)
        assert repeat.outcome == Outcome.done({"sum": 7})
        given.append(repeat.is_answered)
        await drain(mailbox)
        mailboxes.clock.advance(20)
    assert given == [True, False, False, True, False, False, True, False]
    mailboxes.clock.advance(20)
    await mailbox.accept(envelope, Task())
    (again,) = await drain(mailbox)
    assert parse(again.body).payload == parse(first.body).payload
    assert parse(again.body).meta.id != parse(first.body).meta.id
    assert again.publish_id != first.publish_id


async def test_a_result_goes_where_its_task_asked_and_names_it(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm("ann", id="abcdefgh-1"), Task(), reply_channel="task.abcdefgh")
    await mailbox.accept(dm("bob", id="other-2"), Task())
    await run_one(mailbox, Outcome.done([1, "zwei", None]))
    await run_one(mailbox, Outcome.failed("handler_error", "boom", verify=None))
    on_channel, direct = [(row.channel, parse(row.body)) for row in await drain(mailbox)]
    channel, envelope = on_channel
    assert channel == envelope.meta.channel == "task.abcdefgh"
    assert (envelope.meta.sender, envelope.meta.to, envelope.meta.kind) == (WORKER, None, "message")
    assert envelope.meta.reply_to == "abcdefgh-1"
    assert envelope.payload == {
        "status": "done",
        "task_id": "abcdefgh-1",
        "for": "ann",
        "result": [1, "zwei", None],
        "error": None,
        "code": None,
    }
    channel, envelope = direct
    assert (channel, envelope.meta.to, envelope.meta.reply_to) == ("tasks", "bob", "other-2")
    assert envelope.payload["status"] == "error"
    assert envelope.payload["code"] == "handler_error"
    assert envelope.payload["error"] == "boom"


async def test_a_refused_envelope_is_answered_at_once_and_never_runs(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    refused = await mailbox.accept(dm(id="bad"), Refuse(Outcome.failed("bad_request", "no text")))
    assert (refused.verdict, refused.state, refused.is_answered) == (Verdict.REFUSED, State.ENDED, True)
    assert await mailbox.turns.claim(10) == []
    assert await answers(mailbox) == [("ann", "bad", "error")]
    assert (await mailbox.accept(dm(id="bad"), Task())).verdict is Verdict.REPEAT


async def test_turns_are_claimed_in_the_order_of_their_acceptance(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await asyncio.gather(*(mailbox.accept(dm(id=f"t{number}"), Task()) for number in range(600)))
    claimed = []
    while turns := await mailbox.turns.claim(7):
        claimed += turns
    assert [turn.envelope_id for turn in claimed] == [f"t{number}" for number in range(600)]
    assert all(turn.attempts == 1 and turn.state is State.RUNNING for turn in claimed)
    assert parse(claimed[0].body).payload == {"prompt": "hi"}


async def test_a_turn_whose_queued_was_not_announced_is_not_claimed(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    first = await mailbox.accept(dm(), Task())
    await mailbox.accept(dm(), Task())
    assert [turn.seq for turn in await mailbox.turns.claim(10, up_to=first.seq)] == [first.seq]
    assert await mailbox.turns.claim(10, up_to=first.seq) == []
    assert len(await mailbox.turns.claim(10, up_to=await mailbox.turns.last_seq())) == 1


async def test_a_turn_that_runs_again_keeps_its_place(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    for number in range(3):
        await mailbox.accept(dm(id=f"t{number}"), Task())
    (first,) = await mailbox.turns.claim()
    await mailbox.turns.run_again(first)
    assert [turn.envelope_id for turn in await mailbox.turns.claim(3)] == ["t0", "t1", "t2"]


async def test_attempts_are_counted_before_each_start_and_given_back_at_a_shutdown(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(), Task())
    seen = []
    for give_back in (False, True, True, False):
        (turn,) = await mailbox.turns.claim()
        seen.append(turn.attempts)
        await mailbox.turns.run_again(turn, give_attempt_back=give_back)
    assert seen == [1, 2, 2, 2]
    await mailbox.turns.claim()
    mailbox = await mailboxes.restart(mailbox)
    (rescued,) = await mailbox.turns.rescue(lambda _turn: None)
    assert rescued.attempts == 3


async def test_what_had_not_started_at_a_death_has_no_attempt(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    for _ in range(50):
        await mailbox.accept(dm(), Task())
    await mailbox.turns.claim(2)
    mailbox = await mailboxes.restart(mailbox)
    assert mailbox.interrupted_count == 2
    assert len(await mailbox.turns.rescue(lambda _turn: Outcome.failed("interrupted", "died"))) == 2
    assert {turn.attempts for turn in await mailbox.turns.open()} == {0}
    assert await mailbox.turns.count() == {State.QUEUED: 48}


async def test_a_delayed_turn_is_claimed_when_it_is_due_also_after_a_restart(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(), Task())
    (turn,) = await mailbox.turns.claim()
    assert await mailbox.turns.next_due_in_secs() is None
    assert await mailbox.turns.delay(turn, 60) is State.DELAYED
    assert await mailbox.turns.next_due_in_secs() == 60
    mailbox = await mailboxes.restart(mailbox)
    mailboxes.clock.advance(59.9)
    assert await mailbox.turns.claim() == []
    mailboxes.clock.advance(0.1)
    assert await mailbox.turns.next_due_in_secs() == 0
    (again,) = await mailbox.turns.claim()
    assert (again.seq, again.attempts) == (turn.seq, 2)


@pytest.mark.parametrize("excess", [-1, 0, 1])
async def test_a_result_that_has_no_room_is_told_as_too_large_with_both_sizes(
    mailboxes: Mailboxes, excess: int
) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(), Task())
    await run_one(mailbox, Outcome.done(""))
    (row,) = await drain(mailbox)
    room = 5000
    mailbox.most_result_bytes = len(row.body) + room
    await mailbox.accept(dm(), Task())
    told = await run_one(mailbox, Outcome.done("x" * (room + excess)))
    (row,) = await drain(mailbox)
    assert len(row.body) <= mailbox.most_result_bytes
    if excess <= 0:
        assert told.status == "done"
    else:
        assert told.code == parse(row.body).payload["code"] == "too_large"
        assert str(mailbox.most_result_bytes) in (told.error or "")
        assert str(mailbox.most_result_bytes + excess) in (told.error or "")


async def test_an_error_without_room_is_told_with_its_text_cut(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open(most_result_bytes=4096)
    await mailbox.accept(dm(), Task())
    told = await run_one(mailbox, Outcome.failed("handler_error", "\udcff" + "e" * 10_000))
    (row,) = await drain(mailbox)
    assert told.error == parse(row.body).payload["error"]
    assert (told.error or "").startswith("\\udcffeee")
    assert len(told.error or "") == 2000


async def test_ten_thousand_queued_turns_are_open_and_claimed_well_under_two_seconds(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await asyncio.gather(*(mailbox.accept(dm(id=f"t{number}"), Task()) for number in range(10_000)))
    await mailbox.turns.claim(5)
    loop = asyncio.get_running_loop()
    start = loop.time()
    mailbox = await mailboxes.restart(mailbox)
    await mailbox.turns.rescue(lambda _turn: None)
    (turn,) = await mailbox.turns.claim()
    took_secs = loop.time() - start
    assert turn.envelope_id == "t0"
    assert mailbox.interrupted_count == 5
    assert took_secs < 2


async def test_waiting_parts_are_woken_by_what_concerns_them(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    assert await mailbox.turns.claim() == []
    assert await mailbox.outbox.take() == []
    assert not mailbox.turns.ready.is_set()
    assert not mailbox.outbox.ready.is_set()
    await mailbox.accept(dm(), Task())
    assert mailbox.turns.ready.is_set()
    assert not mailbox.outbox.ready.is_set()
    await run_one(mailbox)
    assert mailbox.outbox.ready.is_set()


async def test_a_cancelled_caller_leaves_no_half_done_work(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    envelope = dm(id="t1")
    calling = asyncio.ensure_future(mailbox.accept(envelope, Task()))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    # Whatever became of the call, the envelope comes again (it was not acked) and is one turn.
    await mailbox.accept(envelope, Task())
    assert len(await mailbox.turns.claim(10)) == 1


@pytest.mark.parametrize("member", ["sender", "channel"])
async def test_an_envelope_that_nobody_could_be_answered_for_is_refused_before_it_is_written(
    mailboxes: Mailboxes, member: str
) -> None:
    mailbox = await mailboxes.open()
    envelope = dm(id="t1")
    broken = Envelope(
        msgspec.structs.replace(envelope.meta, **{member: "in box"}), envelope.payload_json, envelope.body
    )
    with pytest.raises(BadName):
        mailbox.accept(broken, Task())
    with pytest.raises(BadName):
        mailbox.accept(envelope, Task(), reply_channel="inbox.ann")
    assert await mailbox.turns.open() == []
