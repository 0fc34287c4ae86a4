"""Several real processes on one SQLite file."""

import asyncio
import json
import random
import signal
from pathlib import Path

import pytest

from hub.storage import open_storage
from hub.storage.records import EnvelopeFilter
from hub.storage.sql.sqlite import WAL_BYTES
from tests.support.nursery import NURSERY, NurseryProcess
from tests.support.waiting import eventually

PROCESSES = 8
WORKER = "tests.support.storage_process"


def _spawn(output: Path, url: str, secs: float) -> NurseryProcess:
    """A process that is called as its output is."""
    with output.open("wb") as out:
        return NURSERY.spawn(WORKER, [url, output.name, str(secs)], cwd=output.parent, stdout=out)


async def _share(path: Path, processes: int, secs: float) -> None:
    """All work on a file that none of them finds there; nobody fails, nothing is lost, the log stays bounded."""
    url = f"sqlite:///{path}"
    wal = Path(f"{path}-wal")
    largest = 0
    outputs = [path.parent / f"p{index}" for index in range(processes)]
    running = [_spawn(output, url, secs) for output in outputs]
    async with asyncio.timeout(secs + 60):
        while any(process.poll() is None for process in running):
            await asyncio.sleep(0.2)
            largest = max(largest, wal.stat().st_size if wal.exists() else 0)
    outcomes = [[json.loads(line) for line in output.read_text().splitlines()] for output in outputs]
    assert [outcome[-1]["errors"] for outcome in outcomes] == [[]] * processes
    assert len({outcome[0]["ready"] for outcome in outcomes}) == 1
    assert all(outcome[-1]["done"] > 0 and outcome[-1]["reads"] > 0 for outcome in outcomes)
    assert largest <= WAL_BYTES + 32 * 1024 * 1024  # what eight writers add between two looks
    storage = open_storage(url)
    assert storage is not None
    async with storage:
        for index, outcome in enumerate(outcomes):
            position = await storage.envelopes.mirror_position(f"STREAM-p{index}")
            assert position is not None
            assert position.sequence == outcome[-1]["done"]
            newest = await storage.envelopes.query(EnvelopeFilter(sender=f"p{index}"), limit=1)
            assert newest.items[0].id == f"p{index}-{position.sequence - 1}"


async def test_eight_processes_share_one_file_and_none_finds_it_locked(tmp_path: Path) -> None:
    await _share(tmp_path / "hub.db", PROCESSES, 1.0)


@pytest.mark.soak
async def test_eight_processes_share_one_file_for_a_minute(tmp_path: Path) -> None:
    await _share(tmp_path / "hub.db", PROCESSES, 60.0)


async def test_a_writer_that_is_killed_again_and_again_leaves_whole_batches_and_its_position(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hub.db"
    chance = random.Random(3)
    for turn in range(3):
        output = tmp_path / f"k{turn}"
        process = _spawn(output, url, 60.0)
        wanted = chance.randrange(3, 12)
        await eventually(lambda output=output, wanted=wanted: output.read_bytes().count(b"\n") >= wanted, within=30)
        process.kill()
        assert process.wait(30) == -signal.SIGKILL
        *lines, _cut = output.read_text().split("\n")
        acknowledged = max(json.loads(line).get("stored", 0) for line in lines)
        storage = open_storage(url)
        assert storage is not None
        async with storage:
            position = await storage.envelopes.mirror_position(f"STREAM-k{turn}")
            assert position is not None
            assert position.sequence >= acknowledged > 0
            found = await storage.envelopes.query(EnvelopeFilter(sender=f"k{turn}"), limit=1000)
            numbers = sorted(int(item.id.partition("-")[2]) for item in found.items)
            assert numbers == list(range(position.sequence))[-len(numbers) :]
            assert len(numbers) == min(1000, position.sequence)
