"""The writer: natural batches, and nothing lost when one operation, the disk or the file fails."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from hub.mailbox import (
    IdentityInUse,
    MailboxBroken,
    MailboxBusy,
    MailboxClosed,
    MailboxFull,
    MailboxUnavailable,
    Outcome,
    Task,
    opener,
)
from hub.mailbox.transaction import Tx
from hub.mailbox.writer import BATCH_MOST
from tests.support.mailboxes import Mailboxes, dm, held_writer, run_one
from tests.support.waiting import eventually


async def test_what_arrives_during_a_commit_is_one_commit_of_at_most_256(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    async with held_writer(mailbox):
        calls = [asyncio.ensure_future(mailbox.accept(dm(), Task())) for _ in range(2 * BATCH_MOST + 1)]
        before = mailbox._writer.commits
    await asyncio.gather(*calls)
    assert mailbox._writer.commits - before == 1 + 3


async def test_a_lone_operation_waits_for_nothing(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    for _ in range(3):
        before = mailbox._writer.commits
        await mailbox.accept(dm(), Task())
        assert mailbox._writer.commits == before + 1


async def test_an_operation_that_fails_half_way_is_undone_alone(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()

    def fail_half_way(tx: Tx) -> None:
        tx.run("DELETE FROM envelope")
        tx.run("DELETE FROM turn")
        raise RuntimeError("half way")

    def break_a_rule(tx: Tx) -> None:
        tx.run("INSERT INTO envelope SELECT * FROM envelope")

    async def submit(operation: Callable[[Tx], None]) -> None:
        await mailbox._writer.submit(operation)

    async with held_writer(mailbox):
        calls = asyncio.gather(
            mailbox.accept(dm(id="t1"), Task()),
            submit(fail_half_way),
            mailbox.accept(dm(id="t2"), Task()),
            submit(break_a_rule),
            mailbox.accept(dm(id="t3"), Task()),
            return_exceptions=True,
        )
    results = await calls
    assert str(results[1]) == "half way"
    assert isinstance(results[3], sqlite3.IntegrityError)
    assert [turn.envelope_id for turn in await mailbox.turns.open()] == ["t1", "t2", "t3"]
    assert [turn.seq for turn in await mailbox.turns.open()] == [1, 2, 3]


async def test_a_full_disk_refuses_the_whole_batch_and_loses_nothing_that_was_taken(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(id="before"), Task())

    def limit_pages(tx: Tx, more: int) -> None:
        (pages,) = tx.one("PRAGMA page_count")
        tx.db.execute(f"PRAGMA max_page_count = {pages + more}")

    await mailbox._writer.submit(lambda tx: limit_pages(tx, 20))
    large = {"prompt": "x" * 3000}
    envelopes = [dm(id=f"t{number}", payload=large) for number in range(60)]
    taken, refused = ["before"], []
    for envelope in envelopes:
        try:
            await mailbox.accept(envelope, Task())
            taken.append(envelope.meta.id)
        except MailboxFull:
            refused.append(envelope)
    assert MailboxFull.is_retriable
    assert len(taken) > 5
    assert len(refused) > 5
    assert [turn.envelope_id for turn in await mailbox.turns.open()] == taken
    # What is in the mailbox can be looked at meanwhile; when there is space, the same calls succeed.
    await mailbox._writer.submit(lambda tx: limit_pages(tx, 10_000))
    await asyncio.gather(*(mailbox.accept(envelope, Task()) for envelope in refused))
    assert len(await mailbox.turns.open()) == 61
    mailbox = await mailboxes.restart(mailbox)
    assert len(await mailbox.turns.open()) == 61


async def test_every_call_of_a_batch_that_met_a_full_disk_is_told(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()

    def fill(_tx: Tx) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    async with held_writer(mailbox):
        calls: list[asyncio.Future[Any]] = [asyncio.ensure_future(mailbox.accept(dm(), Task())) for _ in range(5)]
        await asyncio.sleep(0)
        calls.append(mailbox._writer.submit(fill))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [MailboxFull] * 6
    assert await mailbox.turns.open() == []


async def test_a_locked_file_is_reported_and_the_same_call_succeeds_later(
    mailboxes: Mailboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "BUSY_TIMEOUT_MS", 50)
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(id="t0"), Task())
    (turn,) = await mailbox.turns.claim()
    shell = sqlite3.connect(mailbox.path, isolation_level=None)
    shell.execute("BEGIN IMMEDIATE")
    for call in (
        lambda: mailbox.accept(dm(id="t1"), Task()),
        lambda: mailbox.turns.settle(turn, Outcome.done()),
        lambda: mailbox.prune(0),
    ):
        with pytest.raises(MailboxBusy) as caught:
            await call()  # type: ignore[no-untyped-call]
        assert caught.value.is_retriable
    assert [turn.envelope_id for turn in await mailbox.turns.open()] == ["t0"]
    shell.execute("ROLLBACK")
    shell.close()
    await mailbox.accept(dm(id="t1"), Task())
    assert (await mailbox.turns.settle(turn, Outcome.done())).status == "done"


async def test_a_failing_disk_is_retriable(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()

    def fail(_tx: Tx) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    with pytest.raises(MailboxUnavailable, match="disk I/O error"):
        await mailbox._writer.submit(fail)
    await mailbox.accept(dm(), Task())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_writer_that_dies_is_noticed_by_its_owner_and_by_every_caller(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()

    def die(_tx: Tx) -> None:
        raise SystemExit("the interpreter gave up")

    async with held_writer(mailbox):
        calls = [mailbox._writer.submit(die), mailbox._writer.submit(lambda tx: None)]
    results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10)
    assert isinstance(results[0], MailboxBroken)
    assert isinstance(results[-1], MailboxBroken)
    with pytest.raises(MailboxBroken, match="the interpreter gave up"):
        await asyncio.wait_for(asyncio.shield(mailbox.failed), 10)
    with pytest.raises(MailboxBroken):
        await mailbox.accept(dm(), Task())
    await asyncio.wait_for(mailbox.close(), 10)


async def test_a_close_carries_out_what_was_asked_for_and_refuses_what_comes_after(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    calls = [asyncio.ensure_future(mailbox.accept(dm(), Task())) for _ in range(500)]
    await asyncio.sleep(0)
    await mailbox.close()
    await asyncio.gather(*calls)
    with pytest.raises(MailboxClosed):
        await mailbox.accept(dm(), Task())
    with pytest.raises(MailboxClosed):
        await mailbox.turns.open()
    mailbox = await mailboxes.open()
    assert len(await mailbox.turns.open()) == 500


async def test_looks_do_not_wait_for_the_writer(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(), Task())
    gate = threading.Event()

    def write_and_wait(tx: Tx) -> None:
        tx.run("UPDATE turn SET attempts = 7")
        gate.wait(10)

    held = mailbox._writer.submit(write_and_wait)
    start = time.monotonic()
    (turn,) = await mailbox.turns.open()
    assert turn.attempts == 0
    assert time.monotonic() - start < 5
    assert not held.done()
    gate.set()
    await held
    (turn,) = await mailbox.turns.open()
    assert turn.attempts == 7


async def test_the_log_stays_small_under_many_commits_and_looks(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    looking = asyncio.ensure_future(_look_on_and_on(mailboxes))
    for _ in range(20):
        await asyncio.gather(*(mailbox.accept(dm(payload={"prompt": "x" * 2000}), Task()) for _ in range(128)))
        await mailbox.turns.count()
    looking.cancel()
    log = mailbox.path.with_name(mailbox.path.name + "-wal")
    assert log.stat().st_size < 2 * opener.WAL_MOST_BYTES


async def _look_on_and_on(mailboxes: Mailboxes) -> None:
    while True:
        await mailboxes._opened[0].turns.open(50)


async def test_turns_of_a_claim_that_was_cancelled_go_back_with_their_attempts(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    for _ in range(3):
        await mailbox.accept(dm(), Task())
    async with held_writer(mailbox):
        claiming = asyncio.ensure_future(mailbox.turns.claim(2))
        await asyncio.sleep(0)
        claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await mailbox._writer.submit(lambda tx: None)  # what was given back is behind nothing
    assert [(turn.attempts, turn.epoch) for turn in await mailbox.turns.claim(3)] == [(1, 2), (1, 2), (1, 1)]


async def test_an_opening_that_was_cancelled_does_not_keep_the_identity(mailboxes: Mailboxes) -> None:
    opening = asyncio.ensure_future(mailboxes.open())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    async def opens() -> bool:
        try:
            await mailboxes.open()
        except IdentityInUse:
            return False
        return True

    await eventually(opens)


async def test_a_row_whose_sent_was_cancelled_can_be_taken_again_or_is_gone(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(), Task())
    await run_one(mailbox)
    (row,) = await mailbox.outbox.take()
    async with held_writer(mailbox):
        marking = asyncio.ensure_future(mailbox.outbox.sent(row))
        await asyncio.sleep(0)
        marking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await marking
        assert await mailbox.outbox.take() == [row]
    await mailbox._writer.submit(lambda tx: None)
    assert await mailbox.outbox.count() == 0
