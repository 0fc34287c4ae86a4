"""Turns as their senders see them: results, progress, cancels, retries, sessions, handlers that misbehave."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hub.client import HubClient
from tests.support.waiting import eventually
from tests.support.witness import Witness
from tests.system.workers.conftest import Bench, is_alive


async def test_a_task_reports_in_order_and_nothing_after_its_result(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("nap", identity)
    task_id = await bench.send(identity, "0.5")
    result = await bench.witness.result(task_id)
    assert result == {
        "status": "done",
        "task_id": task_id,
        "for": bench.me,
        "result": "slept 0.5",
        "error": None,
        "code": None,
    }
    await worker.stop()
    said = bench.witness.progress(task_id)
    assert said[:2] == [("status", "queued"), ("status", "working")]
    assert ("started", {"attempt": 1}) in said
    assert ("progress", {"message": "napping", "phase": None, "percent": 0}) in said
    last = [envelope for envelope, _ in bench.witness.heard if envelope.meta.reply_to == task_id][-1]
    assert last.meta.kind == "message"


async def test_a_task_without_a_channel_is_answered_by_a_direct_message(bench: Bench) -> None:
    identity = bench.name()
    await bench.start(":echo", identity)
    receipt = await bench.client.send_to(identity, {"text": "hello"}, channel="room")
    await bench.witness.result(receipt.envelope.meta.id)
    answers = [envelope for envelope, _ in bench.witness.heard if envelope.meta.reply_to == receipt.envelope.meta.id]
    assert [(answer.meta.to, answer.meta.channel, answer.payload["result"]) for answer in answers] == [
        (bench.me, "room", "hello")
    ]


CODES = {
    "set": "handler_error",
    "nan": "handler_error",
    "bytes": "handler_error",
    "30 MB": "too_large",
    "nothing": None,
    "base": "handler_error",
    "exit": "handler_error",
    "interrupt": "handler_error",
    "cancel itself": "handler_error",
    "reject": "rejected",
    "surrogate": "handler_error",
    "bad str": "handler_error",
    "long error": "handler_error",
    "print": None,
    "shout": None,
    "leak": None,
    "well behaved": None,
}


@pytest.mark.parametrize("handler", ["misbehave", "misbehave_plain"])
async def test_whatever_a_handler_does_its_task_ends_with_the_right_code_and_the_worker_goes_on(
    bench: Bench, handler: str
) -> None:
    identity = bench.name()
    worker = await bench.start(handler, identity)
    ids = {prompt: await bench.send(identity, prompt) for prompt in CODES}
    results = {prompt: await bench.witness.result(each, within=40) for prompt, each in ids.items()}
    assert {prompt: result["code"] for prompt, result in results.items()} == CODES
    assert all(len(result["error"] or "") < 3100 for result in results.values())
    assert len(bench.starts()) == len(CODES)
    assert await worker.stop() == 0
    assert bench.witness.counts() == dict.fromkeys(ids.values(), 1)


async def test_a_leaked_background_process_ends_with_the_handler_process(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("misbehave_plain", identity)
    pid = (await bench.witness.result(await bench.send(identity, "leak")))["result"]
    assert await worker.stop() == 0
    await eventually(lambda: not is_alive(pid), within=5)


@pytest.mark.parametrize("handler", ["nap", "nap_plain", "nap_isolated", "stubborn", ":shell"])
async def test_a_cancel_of_a_running_turn_ends_it_as_cancelled(bench: Bench, handler: str) -> None:
    identity = bench.name()
    options = ["--option", "command=sleep {prompt}"] if handler == ":shell" else []
    await bench.start(handler, identity, *options)
    task_id = await bench.send(identity, "60")
    await bench.witness.said(task_id, "started")
    await bench.cancel(identity, task_id)
    result = await bench.witness.result(task_id)
    assert (result["status"], result["error"]) == ("cancelled", "cancelled")
    if handler == "stubborn":
        assert bench.starts(task_id)[-1][3:] == ["swallowed", "True"]


async def test_cancels_that_wait_with_their_tasks_win_whatever_the_order(bench: Bench) -> None:
    identity = bench.name()
    early = bench.task(identity, "30")
    await bench.cancel(identity, early.meta.id)
    await bench.client.send_envelope(early)
    queued = await bench.send(identity, "30")
    await bench.cancel(identity, queued)
    worker = await bench.start("nap", identity)
    assert (await bench.witness.result(early.meta.id))["status"] == "cancelled"
    assert (await bench.witness.result(queued))["status"] == "cancelled"
    assert bench.starts() == []
    await worker.stop()
    assert bench.witness.counts() == {early.meta.id: 1, queued: 1}


async def test_a_cancel_ends_a_turn_that_waits_for_its_next_attempt_and_is_too_late_afterwards(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("flaky", identity)
    task_id = await bench.send(identity, "late")
    await worker.logged("again later")
    await bench.cancel(identity, task_id)
    assert (await bench.witness.result(task_id))["status"] == "cancelled"
    done = await bench.send(identity, "soon")
    assert (await bench.witness.result(done))["result"] == "attempt 3"
    await bench.cancel(identity, done)
    await worker.logged("cancel", times=2)
    assert await worker.stop() == 0
    assert bench.witness.counts() == {task_id: 1, done: 1}


async def test_retries_end_when_the_attempts_do_also_over_a_restart(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("flaky", identity)
    task_id = await bench.send(identity, "for ever")
    await worker.logged("again later")
    await worker.kill()
    await bench.start("flaky", identity)
    result = await bench.witness.result(task_id)
    assert result["code"] in {"handler_error", "interrupted"}
    assert len(bench.starts(task_id)) <= 3


async def test_a_session_keeps_its_context_over_turns_and_a_kill_and_closes_in_order(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("remember", identity)
    start = await bench.control(identity, {"action": "session_start", "session_id": "talk", "prompt": "one"})
    assert (await bench.witness.result(start))["result"] == ["one"]
    failing = await bench.control(identity, {"action": "session_send", "session_id": "talk", "message": "fail"})
    assert (await bench.witness.result(failing))["code"] == "handler_error"
    await worker.kill()
    await bench.start("remember", identity)
    two = await bench.control(identity, {"action": "session_send", "session_id": "talk", "message": "two"})
    assert (await bench.witness.result(two))["result"] == ["one", "two"]
    close = await bench.control(identity, {"action": "session_close", "session_id": "talk"})
    assert (await bench.witness.result(close))["status"] == "done"
    late = await bench.control(identity, {"action": "session_send", "session_id": "talk", "message": "three"})
    assert (await bench.witness.result(late))["code"] == "bad_request"
    words = [what for kind, what in bench.witness.progress(start) if kind == "status"]
    assert words == ["queued", "ready", "working", "idle"]


async def test_a_verification_decides_over_a_session_s_turn_and_can_be_cancelled(bench: Bench) -> None:
    identity, root = bench.name(), bench.home / "root"
    (root / "inside").mkdir(parents=True)
    options = ["--option", "command=cat", "--workdir-root", str(root)]
    worker = await bench.start(":shell", identity, *options)

    async def start(session: str, verify_cmd: str, cwd: str = "inside") -> str:
        payload = {"session_id": session, "prompt": "x", "cwd": cwd, "verify_cmd": verify_cmd}
        return await bench.control(identity, {"action": "session_start", **payload})

    passed = await bench.witness.result(await start("a", "test $(basename $PWD) = inside"))
    assert (passed["status"], passed["verify"]) == ("done", "passed")
    failed = await bench.witness.result(await start("b", "echo wrong; exit 7"))
    assert (failed["code"], failed["verify"]) == ("verify_failed", "failed")
    assert "7" in failed["error"]
    assert "wrong" in failed["error"]
    outside = await bench.witness.result(await start("c", "true", cwd="../.."))
    assert outside["code"] == "bad_request"
    slow = await start("d", f"touch {root}/verifying; sleep 60")
    await eventually((root / "verifying").exists)
    await bench.cancel(identity, slow)
    assert (await bench.witness.result(slow))["status"] == "cancelled"
    assert await worker.stop() == 0


async def test_a_hostile_sender_is_refused_and_disturbs_nobody(
    bench: Bench, another: Callable[[str], Awaitable[HubClient]]
) -> None:
    identity = bench.name()
    mallory = await another(bench.name())
    theirs = await Witness(mallory.connection, mallory.identity).start()
    worker = await bench.start("nap", identity)
    start = await bench.control(identity, {"action": "session_start", "session_id": "mine", "prompt": "1.5"})
    await bench.witness.said(start, "working")
    await bench.control(identity, {"action": "cancel", "task_id": start}, client=mallory)
    await bench.control(identity, {"action": "cancel", "task_id": start, "from": bench.me}, client=mallory)
    send = {"action": "session_send", "session_id": "mine", "message": "0"}
    foreign_send = await bench.control(identity, send, client=mallory)
    foreign_close = await bench.control(identity, {"action": "session_close", "session_id": "mine"}, client=mallory)
    same_name = {"action": "session_start", "session_id": "mine", "prompt": "0"}
    another_session = await bench.control(identity, same_name, client=mallory)
    sent = await mallory.send_to(identity, {"prompt": "0", "task_channel": "task.victim"})
    foreign_channel = sent.envelope.meta.id
    verify = {"action": "session_start", "session_id": "v", "prompt": "0", "verify_cmd": "true"}
    verified = await bench.control(identity, verify, client=mallory)
    wave = {"action": "session_start", "session_id": "w", "prompt": "0", "session_channel": "wave.w.task.t"}
    in_a_wave = await bench.control(identity, wave, client=mallory)
    assert (await bench.witness.result(start))["result"] == "slept 1.5"
    assert (await bench.witness.result(another_session))["result"] == "slept 0"
    assert (await bench.witness.result(foreign_send))["code"] == "bad_request"
    assert (await bench.witness.result(foreign_close))["code"] == "bad_request"
    assert (await bench.witness.result(verified))["code"] == "rejected"
    assert (await theirs.result(foreign_channel))["code"] == "bad_request"  # by direct messages
    assert (await theirs.result(in_a_wave))["code"] == "bad_request"
    assert len(bench.starts()) == 2
    assert len(worker.events("ignored")) >= 1


async def test_only_those_who_are_accepted_may_use_a_worker(
    bench: Bench, another: Callable[[str], Awaitable[HubClient]]
) -> None:
    identity = bench.name()
    other = await another(bench.name())
    await bench.start(":echo", identity, "--accept-from", bench.me)
    refused = await other.delegate(identity, "hello")
    assert (await refused.result(20)).code == "rejected"
    assert (await bench.witness.result(await bench.send(identity, "hello")))["status"] == "done"


async def test_a_handler_delegates_on_as_its_worker(bench: Bench) -> None:
    first, second = bench.name(), bench.name()
    await asyncio.gather(bench.start("pass_on", first), bench.start(":echo", second))
    assert (await bench.witness.result(await bench.send(first, second)))["result"] == "passed on"


async def test_a_turn_has_a_folder_of_its_own_until_it_ends(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("touch_workdir", identity)
    folder = (await bench.witness.result(await bench.send(identity, "x")))["result"]
    assert folder.startswith(str(bench.home))
    assert await worker.stop() == 0
    assert not list((bench.home / "work" / identity).iterdir())
