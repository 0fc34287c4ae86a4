"""Workers that are killed: nothing runs twice that must not, nothing is lost, nothing is silent (contract §8)."""

import asyncio
import random
import signal

import pytest

from hub.protocol import Envelope, make, names, subjects
from tests.support.waiting import eventually
from tests.system.workers.conftest import Bench, is_alive


async def deliver(bench: Bench, envelope: Envelope) -> None:
    """Put a copy into the inbox stream behind the router's dedupe."""
    assert envelope.meta.to is not None
    await bench.client.connection.publish(subjects.inbox(envelope.meta.to), envelope.body)
    await bench.client.connection.flush()


async def test_fifty_tasks_and_random_kills_give_each_task_one_result_and_no_second_run(bench: Bench) -> None:
    identity = bench.name()
    ids = [await bench.send(identity, f"{random.random() / 10:.3f}") for _ in range(50)]
    kills = 0
    while (ended := len(bench.witness.counts())) < 50:
        worker = await bench.start("nap", identity, "--concurrency", "2")
        enough = min(50, ended + random.randint(3, 12))
        await eventually(lambda enough=enough: len(bench.witness.counts()) >= enough, within=30)
        await asyncio.sleep(random.random() / 10)
        await worker.kill()
        kills += 1
    assert kills > 3
    assert bench.witness.counts() == dict.fromkeys(ids, 1)
    runs = [task_id for task_id, *_ in bench.starts()]
    assert len(runs) == len(set(runs)), "a handler that is not idempotent ran twice"
    codes = {result["code"] for result in bench.witness.results()}
    assert codes <= {None, "interrupted"}
    interrupted = [result for result in bench.witness.results() if result["code"] == "interrupted"]
    assert len(interrupted) <= 2 * kills, "only what was running is interrupted"


@pytest.mark.parametrize("step", ["committed", "acked", "settled", "published"])
async def test_a_kill_at_any_step_between_two_homes_costs_neither_a_run_nor_a_result(bench: Bench, step: str) -> None:
    identity = bench.name()
    worker = bench.process("tests.support.stepping_worker", step, "tests.support.handlers:nap", identity).spawn()
    task_id = await bench.send(identity, "0")
    assert await worker.ended() == -signal.SIGKILL
    worker = await bench.start("nap", identity)
    result = await bench.witness.result(task_id)
    assert (result["status"], result["result"]) == ("done", "slept 0")
    assert len(bench.starts(task_id)) == 1
    assert await worker.stop() == 0
    assert len(bench.witness.results(task_id)) == 1


async def test_the_same_dm_five_times_runs_once_and_after_its_end_brings_the_recorded_result(bench: Bench) -> None:
    identity = bench.name()
    envelope = bench.task(identity, "0.3")
    for _ in range(5):
        await deliver(bench, envelope)
    worker = await bench.start("nap", identity)
    await bench.witness.result(envelope.meta.id)
    await deliver(bench, envelope)
    await eventually(lambda: len(bench.witness.results(envelope.meta.id)) == 2, what="the recorded result")
    await deliver(bench, envelope)  # within the same minute: silence
    other = await bench.send(identity, "0")
    await bench.witness.result(other)
    assert await worker.stop() == 0
    first, again = bench.witness.results(envelope.meta.id)
    assert first == again
    assert len(bench.witness.results(envelope.meta.id)) == 2
    assert len(bench.starts(envelope.meta.id)) == 1


async def test_a_killed_worker_s_successor_starts_at_once_and_settles_what_ran(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("nap", identity)
    task_id = await bench.send(identity, "30")
    await bench.witness.said(task_id, "started")
    await worker.kill()
    worker = await bench.start("nap", identity)
    result = await bench.witness.result(task_id)
    assert (result["status"], result["code"]) == ("error", "interrupted")
    assert worker.events("rescued")[0]["task_id"] == task_id


async def test_an_idempotent_turn_runs_again_after_a_kill(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("nap_again", identity)
    task_id = await bench.send(identity, "0.8")
    await bench.witness.said(task_id, "started")
    await worker.kill()
    await bench.start("nap_again", identity)
    assert (await bench.witness.result(task_id))["status"] == "done"
    assert [attempt for _, attempt, *_ in bench.starts(task_id)] == ["1", "2"]


async def test_a_handler_that_kills_its_process_each_time_ends_as_interrupted_after_its_attempts(bench: Bench) -> None:
    identity = bench.name()
    await bench.start("die", identity)
    task_id = await bench.send(identity, "x")
    result = await bench.witness.result(task_id)
    assert (result["status"], result["code"]) == ("error", "interrupted")
    assert "signal 9" in result["error"]
    assert [attempt for _, attempt, *_ in bench.starts(task_id)] == ["1", "2", "3"]


async def test_a_handler_process_that_crashes_is_one_interrupted_turn_and_the_worker_goes_on(bench: Bench) -> None:
    identity = bench.name()
    await bench.start("die_once", identity)
    dying, living = await bench.send(identity, "die"), await bench.send(identity, "live")
    assert (await bench.witness.result(dying))["code"] == "interrupted"
    assert (await bench.witness.result(living))["result"] == "alive"


async def test_no_handler_process_outlives_its_killed_worker(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("hold_gil", identity)
    task_id = await bench.send(identity, "60")
    await bench.witness.said(task_id, "started")
    await eventually(lambda: bench.starts(task_id))
    pid = int(bench.starts(task_id)[0][2])
    await worker.kill()
    await eventually(lambda: not is_alive(pid), within=5)


async def test_no_command_of_shell_outlives_its_killed_worker(bench: Bench) -> None:
    identity, pids = bench.name(), bench.home / "pids"
    script = f"setsid sleep 1000 & echo $! >> {pids}; echo $$ >> {pids}; sleep 1000"
    worker = await bench.start(":shell", identity, "--option", f"command={script}", "--option", "use_shell=true")
    await bench.send(identity, "go")
    await eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    await worker.kill()
    await eventually(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()), within=5)


async def start_of_wave(
    bench: Bench, identity: str, prompt: str, *, envelope_id: str, attempt: int, wave: str
) -> Envelope:
    payload = {
        "action": "session_start",
        "session_id": "build",
        "session_channel": f"wave.{wave}.task.build",
        "wave_id": wave,
        "prompt": prompt,
        "attempt": attempt,
        "orchestrator": bench.me,
    }
    envelope = make(
        sender=names.HUB_IDENTITY, channel="direct", to=identity, kind="control", payload=payload, id=envelope_id
    )
    await deliver(bench, envelope)
    return envelope


async def test_three_redispatches_of_a_running_wave_start_give_one_run_and_four_results(bench: Bench) -> None:
    identity, wave = bench.name(), bench.name()
    worker = await bench.start("nap", identity)
    ids = [names.new_message_id() for _ in range(5)]
    for attempt, each in enumerate(ids[:4]):
        await start_of_wave(bench, identity, "0.6", envelope_id=each, attempt=attempt, wave=wave)
        await bench.witness.said(each, "working" if attempt else "ready")
    results = [await bench.witness.result(each) for each in ids[:4]]
    assert {(result["status"], result["result"]) for result in results} == {("done", "slept 0.6")}
    await start_of_wave(bench, identity, "0.6", envelope_id=ids[4], attempt=4, wave=wave)
    assert (await bench.witness.result(ids[4]))["result"] == "slept 0.6"
    assert len(bench.starts()) == 1
    await worker.stop()
    assert bench.witness.counts() == dict.fromkeys(ids, 1)


@pytest.mark.parametrize("named", ["first", "alias", "wave task"])
async def test_a_cancel_by_any_id_that_stands_for_a_wave_s_turn_stops_it(bench: Bench, named: str) -> None:
    identity, wave = bench.name(), bench.name()
    await bench.start("nap", identity)
    ids = [names.new_message_id() for _ in range(2)]
    for attempt, each in enumerate(ids):
        await start_of_wave(bench, identity, "30", envelope_id=each, attempt=attempt, wave=wave)
        await bench.witness.said(each, "working")
    task_id = {"first": ids[0], "alias": ids[1], "wave task": "build"}[named]
    payload = {"action": "cancel", "task_id": task_id, "wave_id": wave, "session_id": "build"}
    await deliver(
        bench, make(sender=names.HUB_IDENTITY, channel="direct", to=identity, kind="control", payload=payload)
    )
    assert [(await bench.witness.result(each))["status"] for each in ids] == ["cancelled"] * 2
