"""Mailboxes for tests: made in a moment, with a clock that the test sets."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from hub.mailbox import Mailbox, OutboxRow, Outcome, SessionName, Start, content_digest
from hub.mailbox.transaction import Tx
from hub.protocol import Envelope, make, parse

MAX_AGE_SECS = 604_800.0  # the inbox stream's default
WORKER = "worker-1"


class FakeClock:
    """Milliseconds that pass when the test says so."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, secs: float) -> None:
        self.now_ms += round(secs * 1000)


class Mailboxes:
    """Opens mailboxes in one folder and closes what the test left open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self._opened: list[Mailbox] = []

    async def open(self, identity: str = WORKER, **options: Any) -> Mailbox:
        options = {"durability": "NORMAL", "clock": self.clock, **options}
        mailbox = await Mailbox.open(self.folder, identity, **options)
        self._opened.append(mailbox)
        return mailbox

    async def restart(self, mailbox: Mailbox, **options: Any) -> Mailbox:
        """As after a kill: nothing that was in hand is settled."""
        await mailbox.close()
        return await self.open(mailbox.identity, **options)

    async def close(self) -> None:
        for mailbox in self._opened:
            await mailbox.close()


def dm(sender: str = "ann", id: str | None = None, payload: Any = None, **options: Any) -> Envelope:
    """A direct message to the worker."""
    payload = {"prompt": "hi"} if payload is None else payload
    return make(sender=sender, id=id, channel="tasks", to=WORKER, payload=payload, **options)


def start_of(session_id: str, payload: dict[str, Any] | None = None, wave_id: str = "") -> Start:
    """The request of a `session_start`."""
    payload = {"action": "session_start", "session_id": session_id, "prompt": "go"} if payload is None else payload
    return Start(
        session_id=session_id,
        wave_id=wave_id,
        payload_json=msgspec.json.encode(payload),
        digest=content_digest(payload),
    )


def name(starter: str, session_id: str, wave_id: str = "") -> SessionName:
    return SessionName(starter, wave_id, session_id)


async def drain(mailbox: Mailbox) -> list[OutboxRow]:
    """Everything in the outbox, in the order in which it goes out; all of it is then sent."""
    rows: list[OutboxRow] = []
    while taken := await mailbox.outbox.take():
        for row in taken:
            await mailbox.outbox.sent(row)
        rows += taken
    return rows


async def answers(mailbox: Mailbox) -> list[tuple[str, str, str]]:
    """(sender, envelope id, status) of every result in the outbox; all of it is then sent."""
    found = []
    for row in await drain(mailbox):
        payload = parse(row.body).payload
        found.append((payload["for"], payload["task_id"], payload["status"]))
    return found


@contextlib.asynccontextmanager
async def held_writer(mailbox: Mailbox) -> AsyncIterator[None]:
    """Keep the writer in a commit of its own; what is asked for inside goes into the next one, in that order."""
    is_held, gate = threading.Event(), threading.Event()

    def hold(_tx: Tx) -> None:
        is_held.set()
        gate.wait(30)

    held = mailbox._writer.submit(hold)
    await asyncio.to_thread(is_held.wait, 30)
    try:
        yield
        await asyncio.sleep(0)  # tasks that were made begin
    finally:
        gate.set()
        await held


async def run_one(mailbox: Mailbox, outcome: Outcome | None = None) -> Outcome:
    """Claim the next turn and settle it."""
    (turn,) = await mailbox.turns.claim()
    return await mailbox.turns.settle(turn, outcome or Outcome.done("ok"))
