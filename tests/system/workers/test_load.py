"""A worker under what is too much: long queues, floods of cancels, aliases that race the end of their turn."""

import asyncio
import contextlib
import itertools
import re
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hub.client import HubClient
from hub.delivery.nats_client import Incoming
from hub.protocol import make, names, subjects
from tests.support.bus import send_all
from tests.support.hub_process import HubProcess
from tests.support.waiting import eventually
from tests.system.workers.conftest import Bench
from tests.system.workers.test_deaths import deliver, start_of_wave


def memory_mb(process: HubProcess) -> float:
    assert process.process is not None
    text = Path(f"/proc/{process.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) / 1024


async def seconds_to_start(worker: HubProcess) -> float:
    began = time.monotonic()
    await worker.start()
    return time.monotonic() - began


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_a_long_queue_on_disk_costs_a_start_neither_time_nor_memory(bench: Bench, count: int) -> None:
    empty = bench.worker("nap", bench.name())
    usual = await seconds_to_start(empty)
    usual_mb = memory_mb(empty)
    await empty.kill()
    identity = bench.name()
    worker = await bench.start("nap", identity, "--concurrency", "1")
    await bench.send(identity, "600")
    tasks = [bench.task(identity, "600") for _ in range(count)]
    await send_all(bench.client.connection, tasks)
    await bench.witness.said(tasks[-1].meta.id, "queued", within=60)
    await worker.kill()
    again = bench.worker("nap", identity, "--concurrency", "1")
    assert await seconds_to_start(again) < usual + 2.0
    assert again.events("ready")[0]["backlog"] == count
    assert memory_mb(again) < usual_mb + 20
    await again.kill()


@pytest.mark.parametrize("count", [1500, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_a_flood_of_early_cancels_is_bounded_and_costs_nobody_else_anything(
    bench: Bench, another: Callable[[str], Awaitable[HubClient]], count: int
) -> None:
    identity, mallory = bench.name(), bench.name()
    client = await another(mallory)
    worker = await bench.start("nap", identity)
    early = bench.task(identity, "30")
    await bench.cancel(identity, early.meta.id)
    await worker.logged("cancel")
    flood = [
        make(
            sender=mallory,
            channel="direct",
            to=identity,
            kind="control",
            payload={"action": "cancel", "task_id": f"t{number}"},
        )
        for number in range(count)
    ]
    await send_all(client.connection, flood)
    during = await bench.send(identity, "0")
    assert (await bench.witness.result(during, within=60))["status"] == "done"
    await worker.logged("cancel", times=count + 1, within=60)
    await bench.client.send_envelope(early)
    assert (await bench.witness.result(early.meta.id))["status"] == "cancelled", "another's flood does not wash it out"
    assert await worker.stop() == 0
    path = bench.home / "mailboxes" / f"mailbox-{identity}.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM early_cancel").fetchone() == (1000,)


async def test_aliases_that_race_the_end_of_their_turn_each_get_the_one_outcome(bench: Bench) -> None:
    identity, wave = bench.name(), bench.name()
    worker = await bench.start("nap", identity)
    ids = [names.new_message_id() for _ in range(60)]
    for attempt, each in enumerate(ids):  # 0.6 s in all: some before, some after, some at the very end
        await start_of_wave(bench, identity, "0.3", envelope_id=each, attempt=attempt, wave=wave)
        await asyncio.sleep(0.01)
    for each in ids:
        result = await bench.witness.result(each)
        assert (result["status"], result["result"]) == ("done", "slept 0.3")
    assert await worker.stop() == 0
    assert bench.witness.counts() == dict.fromkeys(ids, 1)
    assert len(bench.starts()) == 1


async def test_another_identity_s_start_with_the_same_ids_is_a_session_of_its_own(
    bench: Bench, another: Callable[[str], Awaitable[HubClient]]
) -> None:
    identity, other = bench.name(), await another(bench.name())
    await bench.start("remember", identity)
    start = {"action": "session_start", "session_id": "s", "prompt": "same"}
    mine = await bench.control(identity, start)
    theirs = await bench.control(identity, start, client=other)
    assert [(await bench.witness.result(each))["result"] for each in (mine, theirs)] == [["same"], ["same"]]
    assert len(bench.starts()) == 2
    more = {"action": "session_send", "session_id": "s", "message": "more"}
    assert (await bench.witness.result(await bench.control(identity, more)))["result"] == ["same", "more"]
    contrary = await bench.control(identity, start | {"prompt": "other"})
    assert (await bench.witness.result(contrary))["code"] == "bad_request"


async def test_heartbeats_keep_their_time_while_an_isolated_handler_holds_its_interpreter(bench: Bench) -> None:
    identity = bench.name()
    heard: list[float] = []

    def take(_: Incoming) -> None:
        heard.append(time.monotonic())

    await bench.client.connection.client.subscribe_direct(subjects.presence(identity), take)
    await bench.client.connection.flush()
    await bench.start("hold_gil", identity)
    task_id = await bench.send(identity, "5")
    await bench.witness.said(task_id, "started")
    await eventually(lambda: len(heard) >= 4, within=10)
    assert bench.witness.results(task_id) == [], "it holds it still"
    gaps = [after - before for before, after in itertools.pairwise(heard)]
    assert all(abs(gap - due) < 0.8 for gap, due in zip(gaps, (1, 1, 2), strict=False)), gaps
    assert (await bench.witness.result(task_id))["result"] == "held"


async def test_a_dm_again_long_after_its_end_gets_the_recorded_result_also_after_a_restart(bench: Bench) -> None:
    identity = bench.name()
    envelope = bench.task(identity, "0")
    worker = await bench.start("nap", identity)
    await deliver(bench, envelope)
    first = await bench.witness.result(envelope.meta.id)
    assert await worker.stop() == 0
    worker = await bench.start("nap", identity)
    await deliver(bench, envelope)
    await eventually(lambda: len(bench.witness.results(envelope.meta.id)) == 2)
    assert bench.witness.results(envelope.meta.id) == [first, first]
    assert len(bench.starts()) == 1
