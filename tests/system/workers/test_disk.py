"""A disk that fails under a worker: what was not written was not acked, what was acked is not lost (contract §8)."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hub.delivery.nats_client import Incoming
from hub.protocol import parse, subjects
from tests.support.hub_process import HubProcess
from tests.support.small_disk import SmallDisk
from tests.support.waiting import eventually
from tests.system.workers.conftest import Bench

LARGE = "0" * 5000  # digits behind a number of seconds: a prompt, and a result, that need a block of their own


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if not SmallDisk.can_be_made():
        pytest.skip("a disk that is really full needs the right to mount a tmpfs")
    disk = SmallDisk(tmp_path / "disk")
    yield disk
    disk.close()


async def hear_presence(bench: Bench, identity: str) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []

    def take(message: Incoming) -> None:
        heard.append(parse(message.data).payload)

    await bench.client.connection.client.subscribe_direct(subjects.presence(identity), take)
    return heard


async def test_a_full_disk_at_intake_and_at_settle_delays_and_is_told_and_loses_nothing(
    bench: Bench, disk: SmallDisk
) -> None:
    identity = bench.name()
    presence = await hear_presence(bench, identity)
    worker = bench.worker("nap", identity, home=disk.folder)  # its log is on the full disk too
    await worker.start()
    running = await bench.send(identity, "0.5" + LARGE)
    await bench.witness.said(running, "started")
    disk.fill()
    late = [await bench.send(identity, "0." + LARGE) for _ in range(5)]
    await eventually(lambda: any(each["degraded"] for each in presence), within=15, what="the heartbeat says degraded")
    assert worker.is_running
    assert bench.witness.results() == []
    assert all(bench.witness.progress(each) == [] for each in late), "nothing is `queued` that is not on disk"
    disk.make_room()
    for each in (running, *late):
        assert (await bench.witness.result(each))["status"] == "done"
    assert bench.starts(late[0]), "it was taken in after all"
    assert await worker.stop() == 0
    assert bench.witness.counts() == dict.fromkeys([running, *late], 1)
    assert len(bench.starts()) == 6, "what could not be settled did not run again"


async def test_a_turn_that_ends_on_a_full_disk_and_is_then_killed_is_interrupted(bench: Bench, disk: SmallDisk) -> None:
    identity = bench.name()
    presence = await hear_presence(bench, identity)
    worker = await bench.worker("nap", identity, home=disk.folder).start()
    task_id = await bench.send(identity, "0.3" + LARGE)
    await bench.witness.said(task_id, "started")
    disk.fill()
    await eventually(lambda: any("full" in (each["degraded"] or "") for each in presence), within=15)
    assert bench.witness.results(task_id) == [], "it ended, and nobody is told before that is on disk"
    await worker.kill()
    disk.make_room()
    again = await bench.worker("nap", identity, home=disk.folder).start()
    assert (await bench.witness.result(task_id))["code"] == "interrupted"
    assert await again.stop() == 0
    assert len(bench.starts(task_id)) == 1


async def test_a_worker_on_a_nearly_full_disk_pulls_nothing_until_there_is_room(bench: Bench, disk: SmallDisk) -> None:
    identity = bench.name()
    presence = await hear_presence(bench, identity)
    disk.leave(200 * 1024 * 1024)
    task_id = await bench.send(identity, "0")
    worker = await bench.worker("nap", identity, home=disk.folder).start()
    assert worker.events("the disk is nearly full; nothing is pulled")
    await eventually(lambda: any("256 MB" in (each["degraded"] or "") for each in presence), within=10)
    assert bench.witness.progress(task_id) == []
    disk.make_room()
    assert (await bench.witness.result(task_id))["status"] == "done"
    assert worker.events("the disk has room again; pulling")


async def test_a_locked_file_at_intake_and_at_settle_is_waited_for_and_loses_nothing(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("nap", identity)
    running = await bench.send(identity, "0.3")
    await bench.witness.said(running, "started")
    with contextlib.closing(sqlite3.connect(mailbox_of(worker, identity), isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        late = [await bench.send(identity, "0") for _ in range(3)]
        await worker.logged("the mailbox cannot be written; tried again")
        await worker.logged("cannot take messages in; nothing is acked, they come again")
        assert bench.witness.results() == []
    for each in (running, *late):
        assert (await bench.witness.result(each))["status"] == "done"
    assert await worker.stop() == 0
    assert bench.witness.counts() == dict.fromkeys([running, *late], 1)
    assert len(bench.starts()) == 4


async def test_a_damaged_mailbox_is_set_aside_and_nothing_starts_until_somebody_says_so(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("nap", identity)
    done = await bench.send(identity, "0")
    await bench.witness.result(done)
    assert await worker.stop() == 0
    path = mailbox_of(worker, identity)
    path.write_bytes(b"x" * path.stat().st_size)
    for _ in range(2):
        refused = bench.worker("nap", identity).spawn()
        assert await refused.ended() == 78
        told = refused.events("cannot start")[0]["error"]
        assert "damaged" in told
        assert "can run again" in told
    (kept,) = path.parent.glob("*.damaged-*.db")
    assert kept.read_bytes().startswith(b"xxxx")
    task_id = await bench.send(identity, "0")
    fresh = await bench.start("nap", identity, "--fresh-mailbox")
    assert (await bench.witness.result(task_id))["status"] == "done"
    assert await fresh.stop() == 0
    assert kept.exists()
    assert await (await bench.start("nap", identity)).stop() == 0


def mailbox_of(worker: HubProcess, identity: str) -> Path:
    return worker.home / "mailboxes" / f"mailbox-{identity}.db"
