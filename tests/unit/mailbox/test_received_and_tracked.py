"""What a reader that comes and goes finds: messages by number, and the tasks that it delegated."""

import asyncio

from hub.mailbox import Outgoing
from hub.protocol import make, parse
from tests.support.mailboxes import MAX_AGE_SECS, Mailboxes, drain


async def test_a_thousand_messages_are_read_once_each_in_order_by_the_last_number(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await asyncio.gather(
        *(mailbox.received.add(make(sender="ann", channel="x", payload=number)) for number in range(1000))
    )
    mailbox = await mailboxes.restart(mailbox)
    read, last = [], 0
    while messages := await mailbox.received.since(last, limit=300):
        read += [parse(message.body).payload for message in messages]
        last = messages[-1].seq
    assert read == list(range(1000))
    assert last == await mailbox.received.last_seq()
    assert [parse(message.body).payload for message in await mailbox.received.newest(3)] == [997, 998, 999]


async def test_a_repeat_has_the_number_that_it_had_and_numbers_are_never_used_twice(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    envelope = make(sender="ann", channel="x", id="m1")
    assert await mailbox.received.add(envelope) == (1, True)
    assert await mailbox.received.add(envelope) == (1, False)
    assert await mailbox.received.add(make(sender="bob", channel="x", id="m1")) == (2, True)
    mailboxes.clock.advance(30 * 86_400)
    assert (await mailbox.prune(MAX_AGE_SECS)).received == 2
    mailbox = await mailboxes.restart(mailbox)
    assert await mailbox.received.last_seq() == 2
    assert await mailbox.received.add(envelope) == (3, True)


async def test_messages_of_one_sender_can_be_read_and_a_waiting_reader_is_woken(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    assert not mailbox.received.ready.is_set()
    for sender in ("ann", "bob", "ann"):
        await mailbox.received.add(make(sender=sender, channel="x"))
    assert mailbox.received.ready.is_set()
    assert [message.seq for message in await mailbox.received.since(1, sender="ann")] == [3]


async def test_a_task_is_tracked_and_sent_in_one_step_and_only_once(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    envelope = make(sender="me", channel="tasks", to="echo", id="abcdefgh")
    outgoing = Outgoing(channel="tasks", body=envelope.body)
    options = {"task_id": "abcdefgh", "worker": "echo", "channel": "task.abcdefgh", "request_json": b"{}"}
    task, is_new = await mailbox.tracked.start(**options, outgoing=outgoing)  # type: ignore[arg-type]
    assert (task.state, task.status, is_new) == ("running", None, True)
    mailbox = await mailboxes.restart(mailbox)
    again, is_new = await mailbox.tracked.start(**options, outgoing=outgoing)  # type: ignore[arg-type]
    assert (again, is_new) == (task, False)
    assert [row.body for row in await drain(mailbox)] == [envelope.body]


async def test_a_tracked_task_keeps_its_last_status_the_tail_of_its_events_and_the_first_result(
    mailboxes: Mailboxes,
) -> None:
    mailbox = await mailboxes.open()
    for task_id in ("t1", "t2"):
        await mailbox.tracked.start(task_id=task_id, worker="echo", channel="task.t", request_json=b"{}")
    for number in range(1, 81):
        assert await mailbox.tracked.note("t1", event_json=b"%d" % number, position=number)
    assert not await mailbox.tracked.note("t1", event_json=b"again", position=80)
    assert await mailbox.tracked.note("t1", status="working", position=81)
    await mailbox.tracked.note("t2", event_json=b'"other"')
    mailbox = await mailboxes.restart(mailbox)
    task = await mailbox.tracked.get("t1")
    assert task is not None
    assert task.events == tuple(b"%d" % number for number in range(31, 81))
    assert (task.status, task.position) == ("working", 81)
    assert [await mailbox.tracked.finish("t1", state, b'"%s"' % state.encode()) for state in ("done", "error")] == [
        True,
        False,
    ]
    assert not await mailbox.tracked.note("t1", status="working", position=99)
    task = await mailbox.tracked.get("t1", events_tail=2)
    assert task is not None
    assert (task.state, task.result_json, task.events) == ("done", b'"done"', (b"79", b"80"))
    assert [task.task_id for task in await mailbox.tracked.list("running")] == ["t2"]
    assert {task.task_id for task in await mailbox.tracked.list()} == {"t1", "t2"}
    assert await mailbox.tracked.get("unknown") is None


async def test_a_new_task_stream_is_read_from_its_start(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.tracked.start(task_id="t1", worker="echo", channel="task.t", request_json=b"{}")
    await mailbox.tracked.note("t1", event_json=b"1", position=500)
    await mailbox.tracked.forget_positions()
    assert await mailbox.tracked.note("t1", event_json=b"2", position=1)


async def test_tracked_tasks_that_run_are_never_pruned_ended_ones_go(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    for task_id in ("t1", "t2"):
        await mailbox.tracked.start(task_id=task_id, worker="echo", channel="task.t", request_json=b"{}")
        await mailbox.tracked.note(task_id, event_json=b"1")
    await mailbox.tracked.finish("t1", "done", b"null")
    mailboxes.clock.advance(30 * 86_400)
    assert (await mailbox.prune(MAX_AGE_SECS)).tracked == 1
    assert [task.task_id for task in await mailbox.tracked.list()] == ["t2"]
