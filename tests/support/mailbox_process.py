"""A process that works on a mailbox until it is killed, and writes a line for each thing that it was promised.

`python -m tests.support.mailbox_process FOLDER IDENTITY DURABILITY FIRST_NUMBER`
"""

import asyncio
import itertools
import os
import sys
from pathlib import Path
from typing import NoReturn

from hub.mailbox import Mailbox, Outcome, Task
from tests.support.mailboxes import dm

ENVELOPES_IN_FLIGHT = 32


def say(*words: object) -> None:
    """One line in one write, before anything else happens: said is promised, also when the kill comes next."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def accept_on_and_on(mailbox: Mailbox, numbers: "itertools.count[int]") -> NoReturn:
    while True:
        number = next(numbers)
        accepted = await mailbox.accept(dm(id=f"t{number}"), Task())
        say("accepted", f"t{number}", accepted.seq)


async def run_on_and_on(mailbox: Mailbox) -> NoReturn:
    while True:
        for turn in await mailbox.turns.claim(8):
            say("claimed", turn.seq, turn.attempts)
            if turn.seq % 7 == 0 and turn.attempts == 1:
                await mailbox.turns.run_again(turn)
                say("again", turn.seq)
            else:
                await mailbox.turns.settle(turn, Outcome.done(turn.seq))
                say("settled", turn.seq)
        await asyncio.sleep(0)


async def send_on_and_on(mailbox: Mailbox) -> NoReturn:
    while True:
        for row in await mailbox.outbox.take(8):
            say("sending", row.seq, row.lane.removeprefix("turn "))
            await mailbox.outbox.sent(row)
            say("sent", row.seq, row.lane.removeprefix("turn "))
        await asyncio.sleep(0)


async def main() -> None:
    folder, identity, durability, first = sys.argv[1:]
    mailbox = await Mailbox.open(Path(folder), identity, durability=durability)  # type: ignore[arg-type]
    say("interrupted", mailbox.interrupted_count)
    for turn in await mailbox.turns.rescue(lambda _turn: None):
        say("rescued", turn.seq, turn.attempts)
    numbers = itertools.count(int(first))
    async with asyncio.TaskGroup() as group:
        for _ in range(ENVELOPES_IN_FLIGHT):
            group.create_task(accept_on_and_on(mailbox, numbers))
        group.create_task(run_on_and_on(mailbox))
        group.create_task(send_on_and_on(mailbox))


if __name__ == "__main__":
    asyncio.run(main())
