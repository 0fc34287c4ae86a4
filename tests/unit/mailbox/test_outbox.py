"""The outbox: what is settled goes out, in order per turn, under one message id, until it is acked."""

import asyncio

from hub.mailbox import Outcome, Outgoing, Task
from hub.protocol import make, parse
from tests.support.mailboxes import Mailboxes, dm, run_one, start_of


async def test_results_of_a_turn_go_out_one_after_the_other_those_of_others_beside(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    for number in range(3):
        await mailbox.accept(dm("ann", id=f"d{number}"), start_of("s"))
    await mailbox.accept(dm("bob", id="b"), Task())
    await run_one(mailbox)
    await run_one(mailbox)
    first = await mailbox.outbox.take()
    assert [parse(row.body).meta.reply_to for row in first] == ["d0", "b"]
    assert await mailbox.outbox.take() == []
    await mailbox.outbox.sent(first[1])
    assert await mailbox.outbox.take() == []
    await mailbox.outbox.sent(first[0])
    (second,) = await mailbox.outbox.take()
    assert parse(second.body).meta.reply_to == "d1"
    await mailbox.outbox.sent(second)
    (third,) = await mailbox.outbox.take()
    await mailbox.outbox.sent(third)
    assert await mailbox.outbox.count() == 0


async def test_a_row_that_was_not_acked_is_taken_again_under_the_same_id_also_after_a_restart(
    mailboxes: Mailboxes,
) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(), Task())
    await run_one(mailbox)
    (row,) = await mailbox.outbox.take()
    mailbox.outbox.give_back(row)
    assert mailbox.outbox.ready.is_set()
    assert await mailbox.outbox.take() == [row]
    mailbox = await mailboxes.restart(mailbox)
    assert mailbox.outbox.ready.is_set()
    assert await mailbox.outbox.take() == [row]
    await mailbox.outbox.sent(row)
    mailbox = await mailboxes.restart(mailbox)
    assert await mailbox.outbox.take() == []


async def test_a_row_that_no_server_takes_is_replaced_in_its_place(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(), Task())
    await run_one(mailbox)
    (row,) = await mailbox.outbox.take()
    await mailbox.outbox.add(row.lane, Outgoing(channel="news", body=make(sender="w", channel="news").body))
    small = make(sender="w", channel="news", payload="too large")
    await mailbox.outbox.replace(row, Outgoing(channel="news", body=small.body))
    (other,) = await mailbox.outbox.take()
    assert (other.seq, other.body, other.channel) == (row.seq, small.body, "news")
    assert other.publish_id != row.publish_id


async def test_taking_in_small_steps_gives_each_row_once(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await asyncio.gather(*(mailbox.accept(dm(), Task()) for _ in range(50)))
    for turn in await mailbox.turns.claim(50):
        await mailbox.turns.settle(turn, Outcome.done())
    taken = []
    while rows := await mailbox.outbox.take(7):
        taken += rows
    assert [row.seq for row in taken] == sorted({row.seq for row in taken})
    assert len(taken) == 50
    assert len({row.publish_id for row in taken}) == 50


async def test_large_results_are_taken_a_few_at_a_time(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    large = "x" * 7_000_000
    for number in range(4):
        await mailbox.outbox.add(f"lane {number}", Outgoing(channel="news", body=large.encode()))
    assert [len(await mailbox.outbox.take()) for _ in range(3)] == [2, 2, 0]
