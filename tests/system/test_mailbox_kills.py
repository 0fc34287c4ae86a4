"""Real processes with a mailbox, killed with -9 in the middle of their commits; and two that want the same one."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub.mailbox import IdentityInUse, Mailbox, State, Task, Verdict
from tests.support.mailboxes import WORKER, dm, drain
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]


class Processes:
    """Starts Python processes; kills what the test left."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def python(self, *arguments: str, output: Path) -> "subprocess.Popen[bytes]":
        with output.open("wb") as out:
            process = subprocess.Popen([sys.executable, *arguments], stdout=out, stderr=subprocess.PIPE, cwd=ROOT)
        self.started.append(process)
        return process

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        assert process.stderr is not None
        errors = process.stderr.read().decode()
        process.stderr.close()
        assert process.returncode == -signal.SIGKILL, errors


@pytest.fixture
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    for process in started.started:
        if process.poll() is None:
            process.kill()
            process.wait(30)
        if process.stderr is not None:
            process.stderr.close()


async def work_until_killed(processes: Processes, state: Path, durability: str, number: int, output: Path) -> None:
    """Let a process work for a moment that differs each time."""
    first = str(number * 1_000_000)
    process = processes.python(
        "-m", "tests.support.mailbox_process", str(state), WORKER, durability, first, output=output
    )
    await eventually(lambda: output.read_bytes().count(b"settled") > 20 or process.poll() is not None, within=60)
    await asyncio.sleep(random.Random(number).uniform(0, 0.15))
    processes.kill(process)


@pytest.mark.parametrize(
    ("durability", "rounds"), [("FULL", 4), ("NORMAL", 4), pytest.param("FULL", 60, marks=pytest.mark.soak)]
)
async def test_everything_that_was_promised_is_there_after_kills_in_the_middle_of_commits(
    tmp_path: Path, processes: Processes, durability: str, rounds: int
) -> None:
    accepted: dict[str, int] = {}
    settled: set[int] = set()
    offered: set[str] = set()  # lanes of which a row was on its way out
    sent_rows: set[int] = set()
    starts: dict[int, int] = defaultdict(int)
    for round_number in range(rounds):
        output = tmp_path / f"round-{round_number}"
        await work_until_killed(processes, tmp_path / "state", durability, round_number, output)
        *lines, _cut = output.read_text().split("\n")
        for line in lines:
            match line.split():
                case ["accepted", task, seq]:
                    assert accepted.setdefault(task, int(seq)) == int(seq)
                case ["claimed" | "rescued", seq, attempts]:
                    assert int(attempts) >= starts[int(seq)]
                    starts[int(seq)] = int(attempts)
                case ["settled", seq]:
                    assert int(seq) not in settled, "a turn ended twice"
                    settled.add(int(seq))
                case ["sending", row, lane]:
                    assert int(row) not in sent_rows, "a row was offered after it was acked"
                    offered.add(lane)
                case ["sent", row, _]:
                    sent_rows.add(int(row))
    assert len(accepted) > 100
    assert len(settled) > 50

    mailbox = await Mailbox.open(tmp_path / "state", WORKER)
    rows = await mailbox._reader.look(
        lambda db: db.execute(
            "SELECT turn.seq, turn.state, turn.envelope_id, turn.attempts, turn.result, count(outbox.seq) FROM turn "
            "LEFT JOIN outbox ON outbox.lane = 'turn ' || turn.seq GROUP BY turn.seq"
        ).fetchall()
    )
    found = {row[0]: (State(row[1]), *row[2:]) for row in rows}
    for task, seq in accepted.items():
        assert found[seq][1] == task
    assert {seq for seq, turn in found.items() if turn[0] is State.ENDED} >= settled
    for seq, (state, _, attempts, result, letters) in found.items():
        assert attempts >= starts[seq], "a start was not counted before it began"
        if state is not State.ENDED:
            assert letters == 0
        else:
            assert result == b"%d" % seq
            # Its one result waits, or it was on its way out.
            assert letters == 1 or str(seq) in offered
    # Each is known when it comes again, and nothing is a turn twice.
    assert len({turn[1] for turn in found.values()}) == len(found)
    for task, seq in list(accepted.items())[:50]:
        repeat = await mailbox.accept(dm(id=task), Task())
        assert (repeat.verdict, repeat.seq) == (Verdict.REPEAT, seq)
    await drain(mailbox)
    await mailbox.close()


async def test_a_second_process_is_refused_by_name_and_the_successor_of_a_killed_one_starts_at_once(
    tmp_path: Path, processes: Processes
) -> None:
    output = tmp_path / "output"
    process = processes.python(
        "-m", "tests.support.mailbox_process", str(tmp_path / "state"), WORKER, "NORMAL", "0", output=output
    )
    await eventually(lambda: b"claimed" in output.read_bytes(), within=60)
    with pytest.raises(IdentityInUse, match=f"in use by process {process.pid} on this machine"):
        await Mailbox.open(tmp_path / "state", WORKER)
    other = await Mailbox.open(tmp_path / "state", "another")
    await other.close()
    processes.kill(process)
    mailbox = await Mailbox.open(tmp_path / "state", WORKER)
    await mailbox.close()


async def test_a_forked_child_that_outlives_its_worker_does_not_keep_the_identity(
    tmp_path: Path, processes: Processes
) -> None:
    script = textwrap.dedent(
        """
        import asyncio, os, sys, time
        from pathlib import Path
        from hub.mailbox import Mailbox

        async def main():
            await Mailbox.open(Path(sys.argv[1]), sys.argv[2])
            child = os.fork()
            if child == 0:
                os.write(1, b"child\\n")
                time.sleep(60)
                os._exit(0)
            os.write(1, b"parent %d\\n" % child)
            time.sleep(60)

        asyncio.run(main())
        """
    )
    output = tmp_path / "output"
    process = processes.python("-c", script, str(tmp_path / "state"), WORKER, output=output)
    await eventually(lambda: {b"child", b"parent"} <= set(output.read_bytes().split()), within=60)
    child = int(output.read_bytes().split(b"parent ")[1].split()[0])
    try:
        process.kill()  # its pipe is kept open by the child: nothing to read to the end
        process.wait(30)
        mailbox = await Mailbox.open(tmp_path / "state", WORKER)
        await mailbox.close()
        assert Path(f"/proc/{child}").exists() or sys.platform != "linux"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
