"""Turns: the queue as its executor sees it. Claim, verify, delay, run again, settle, rescue.

Each change names the turn as it was claimed: one that was claimed anew since (`epoch`), or has ended, refuses it with
`StateChanged` and stays as it is.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from hub.mailbox import endings, turn_rows
from hub.mailbox.reader import Reader
from hub.mailbox.records import Outcome, Turn
from hub.mailbox.states import IN_HAND, State
from hub.mailbox.transaction import TURNS, Tx
from hub.mailbox.writer import Writer

LONGEST_DELAY_SECS: Final = 30 * 86_400.0  # a longer one is a mistake (milliseconds for seconds); the handler is told


class Turns:
    """The turns of a mailbox.

    Attributes:
        ready: set when there may be something to claim; `claim` clears it when it found less than it was asked for.
    """

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self.ready = asyncio.Event()
        self.ready.set()  # what an earlier process left

    async def claim(self, limit: int = 1, *, up_to: int | None = None) -> list[Turn]:
        """Take the next turns, in the order of the queue; each start is counted on disk before this returns.

        Args:
            limit: at most so many.
            up_to: only turns up to this number: those whose `queued` was announced (contract §8).

        Returns:
            Turns in state `running`, each with its session as it is now. When the call is cancelled they go back to
            the queue, their attempts not counted.
        """
        self.ready.clear()
        claiming = self._writer.submit(lambda tx: _claim(tx, limit, up_to))
        try:
            claimed = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            claiming.add_done_callback(self._give_back)
            raise
        if len(claimed) == limit:
            self.ready.set()
        return claimed

    def _give_back(self, claiming: "asyncio.Future[list[Turn]]") -> None:
        """Nobody waits for these any more. On a closed mailbox they are found as interrupted at the next start."""
        if claiming.cancelled() or claiming.exception() is not None:
            return
        turns = claiming.result()

        def give_back(tx: Tx) -> None:
            for turn in turns:
                _run_again(tx, turn, True)

        self._writer.submit(give_back).add_done_callback(lambda done: done.exception())

    async def verify(self, turn: Turn) -> None:
        """Its handler succeeded; its verification begins.

        Raises:
            StateChanged: it is not running in this claim.
        """
        await self._writer.submit(lambda tx: _verify(tx, turn))

    async def delay(self, turn: Turn, delay_secs: float) -> State:
        """Its handler asks for another attempt after `delay_secs`.

        Returns:
            `delayed`, or `ended` when a cancel was committed meanwhile.

        Raises:
            StateChanged: it is not running in this claim.
            ValueError: no delay from 0 to 30 days.
        """
        if not 0 <= delay_secs <= LONGEST_DELAY_SECS:
            raise ValueError(f"expected a delay of 0 to {LONGEST_DELAY_SECS:.0f} s, got {delay_secs!r}")
        return await self._writer.submit(lambda tx: _delay(tx, turn, delay_secs))

    async def run_again(self, turn: Turn, *, give_attempt_back: bool = False) -> State:
        """Put it back to its place in the queue.

        Args:
            turn: as it was claimed.
            give_attempt_back: a shutdown stopped it, through no fault of its own: the attempt does not count.

        Returns:
            `queued`, or `ended` when a cancel was committed meanwhile.

        Raises:
            StateChanged: it is not in hand in this claim.
        """
        return await self._writer.submit(lambda tx: _run_again(tx, turn, give_attempt_back))

    async def settle(self, turn: Turn, outcome: Outcome, *, context_json: bytes | None = None) -> Outcome:
        """End it: state, outcome, the session's context (when done) and an outbox row for everyone, in one transaction.

        Args:
            turn: as it was claimed.
            outcome: how it ended.
            context_json: what its handler keeps for the session's next turn; None leaves it.

        Returns:
            The outcome that is recorded and told: `cancelled` when a cancel was committed before this, `too_large` when
            the result has no room in a message.

        Raises:
            StateChanged: it is not in hand in this claim.
        """
        return await self._writer.submit(
            lambda tx: endings.end(
                tx, turn_rows.require(tx, turn.seq, IN_HAND, turn.epoch), outcome, context_json=context_json
            )
        )

    async def rescue(self, decide: Callable[[Turn], Outcome | None]) -> list[Turn]:
        """Decide over every turn that an earlier process left in hand, in one transaction.

        Args:
            decide: pure, as `after_interruption`: its outcome, or None to run it again. Runs in the writer's thread.

        Returns:
            The turns as they are now: `queued`, or `ended` with an outcome.
        """
        return await self._writer.submit(lambda tx: _rescue(tx, decide))

    async def next_due_in_secs(self) -> float | None:
        """How long until the first delayed turn may be claimed; None when none is delayed."""
        return await self._writer.submit(_next_due_in_secs)

    async def last_seq(self) -> int:
        """The number of the newest turn, 0 when there was none: at a start, what needs no announcement any more."""
        return await self._reader.look(
            lambda db: int(db.execute("SELECT coalesce(max(seq), 0) FROM turn").fetchone()[0])
        )

    async def count(self) -> dict[State, int]:
        """How many turns are in each state but `ended`."""
        rows = await self._reader.look(
            lambda db: db.execute("SELECT state, count(*) FROM turn WHERE state <> 'ended' GROUP BY state").fetchall()
        )
        return {State(row[0]): row[1] for row in rows}

    async def find(self, sender: str, envelope_id: str) -> Turn | None:
        """The turn that an envelope stands for, or None."""
        row = await self._reader.look(
            lambda db: db.execute(
                f"SELECT {turn_rows.COLUMNS} {turn_rows.FROM} WHERE turn.seq = "  # noqa: S608 - constants
                "(SELECT turn FROM envelope WHERE sender = ? AND id = ?)",
                (sender, envelope_id),
            ).fetchone()
        )
        return None if row is None else turn_rows.from_row(row)

    async def open(self, limit: int = 1000) -> list[Turn]:
        """The turns that have not ended, in the order of the queue; without their bodies, which may be large."""
        rows = await self._reader.look(
            lambda db: db.execute(
                f"SELECT {turn_rows.COLUMNS_WITHOUT_BODY} {turn_rows.FROM} "
                "WHERE turn.state <> 'ended' ORDER BY turn.seq LIMIT ?",
                (limit,),
            ).fetchall()
        )
        return [turn_rows.from_row(row) for row in rows]


def interrupt_all(tx: Tx) -> int:
    """Mark what an earlier process left in hand; how many. Its lock is ours, so it is dead."""
    # "Not ended" says nothing new to people, but lets SQLite use the index of open turns.
    return tx.run("UPDATE turn SET state = 'interrupted' WHERE state IN ('running', 'verifying') AND state <> 'ended'")


def _claim(tx: Tx, limit: int, up_to: int | None) -> list[Turn]:
    due = tx.db.execute("SELECT seq FROM turn WHERE state = 'delayed' AND due_at <= ?", (tx.now_ms,)).fetchall()
    for (seq,) in due:
        turn_rows.move(tx, turn_rows.require(tx, seq, (State.DELAYED,)), State.QUEUED, due_at=None)
    # The literal state lets SQLite use the partial index.
    bound = "" if up_to is None else "AND turn.seq <= ? "
    rows = tx.db.execute(
        f"SELECT {turn_rows.COLUMNS} {turn_rows.FROM} WHERE turn.state = 'queued' {bound}ORDER BY turn.seq LIMIT ?",
        (limit,) if up_to is None else (up_to, limit),
    )
    claimed = []
    for turn in map(turn_rows.from_row, rows.fetchall()):
        attempts, epoch = turn.attempts + 1, turn.epoch + 1
        turn_rows.move(tx, turn, State.RUNNING, attempts=attempts, epoch=epoch, claimed_at=tx.now_ms)
        claimed.append(msgspec.structs.replace(turn, state=State.RUNNING, attempts=attempts, epoch=epoch))
    return claimed


def _verify(tx: Tx, turn: Turn) -> None:
    turn_rows.move(tx, turn_rows.require(tx, turn.seq, (State.RUNNING,), turn.epoch), State.VERIFYING)


def _delay(tx: Tx, turn: Turn, delay_secs: float) -> State:
    found = turn_rows.require(tx, turn.seq, (State.RUNNING,), turn.epoch)
    if found.cancel_requested:
        endings.end(tx, found, Outcome.cancelled())
        return State.ENDED
    turn_rows.move(tx, found, State.DELAYED, due_at=tx.now_ms + round(delay_secs * 1000))
    tx.notes.add(TURNS)  # the executor's timer is to be set anew
    return State.DELAYED


def _run_again(tx: Tx, turn: Turn, give_attempt_back: bool) -> State:
    found = turn_rows.require(tx, turn.seq, IN_HAND, turn.epoch)
    if found.cancel_requested:
        endings.end(tx, found, Outcome.cancelled())
        return State.ENDED
    turn_rows.move(tx, found, State.QUEUED, attempts=found.attempts - int(give_attempt_back))
    return State.QUEUED


def _rescue(tx: Tx, decide: Callable[[Turn], Outcome | None]) -> list[Turn]:
    rows = tx.db.execute("SELECT seq FROM turn WHERE state = 'interrupted' ORDER BY seq").fetchall()
    for (seq,) in rows:
        turn = turn_rows.require(tx, seq, (State.INTERRUPTED,))
        outcome = Outcome.cancelled() if turn.cancel_requested else decide(turn)
        if outcome is None:
            turn_rows.move(tx, turn, State.QUEUED)
        else:
            endings.end(tx, turn, outcome)
    return [found for (seq,) in rows if (found := turn_rows.get(tx, seq)) is not None]


def _next_due_in_secs(tx: Tx) -> float | None:
    (due_at,) = tx.one("SELECT min(due_at) FROM turn WHERE state = 'delayed'")
    return None if due_at is None else max(0.0, (due_at - tx.now_ms) / 1000)
