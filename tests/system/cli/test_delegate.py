"""hub-delegate, as a process: progress on stderr, the result alone on stdout, exit codes that scripts rely on."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator

import pytest

from hub.cli import delegate
from hub.client import HubClient
from hub.delivery.settings import ConnectSettings
from hub.protocol import Envelope
from hub.service.exits import Exit
from tests.support.commands import Command
from tests.support.hub_process import HubProcess
from tests.support.nats_server import NatsServer
from tests.support.scripted_worker import ScriptedWorker
from tests.support.waiting import eventually
from tests.system.cli.conftest import Run

ASK = ("delegate", "--from", "alice", "--to", "bob")


@pytest.fixture
async def bob(server: NatsServer, hub: HubProcess) -> AsyncIterator[ScriptedWorker]:
    """A worker that does what the test tells it to."""
    async with await HubClient.connect(
        ConnectSettings(servers=(server.url,), identity="bob"), announce=False
    ) as client:
        worker = await ScriptedWorker(client).start()
        yield worker
        await worker.stop()


async def running(start: Run, bob: ScriptedWorker, *options: str) -> tuple[Command, Envelope]:
    """A delegation whose task bob has taken."""
    command = await start(*ASK, "--prompt", "build it", *options)
    task = await bob.task(within=30)
    return command, task


@pytest.mark.hub
async def test_the_result_alone_is_on_stdout_and_progress_on_stderr(start: Run, bob: ScriptedWorker) -> None:
    command = await start(
        *ASK,
        "--prompt",
        "-",
        "--payload",
        '{"depth": 2}',
        "--timeout",
        "60",
        fresh=True,
        stdin=b"gr\xc3\xb6\xc3\x9fe\n",
    )
    task = await bob.task(within=30)
    assert task.payload["prompt"] == "größe\n"
    assert task.payload["depth"] == 2
    await bob.say(task, "status", status="working")
    await bob.say(task, "event", event_type="progress", data={"message": "half\x1b[2J", "percent": 50})
    await command.says("half")
    await bob.end(task, "two\nlines")
    assert await command.ended() == 0
    assert command.out == "two\nlines\n"
    lines = command.err.splitlines()
    assert lines[0].startswith(f"task {task.meta.id} to bob (")
    assert lines[0].endswith(f"again: hub-delegate --from alice --to bob --resume {task.meta.id}")
    assert lines[1:] == ["working", "half\\x1b[2J (50 %)"]


async def test_a_json_result_comes_as_json_and_with_json_as_one_object(start: Run, bob: ScriptedWorker) -> None:
    plain, first = await running(start, bob)
    whole, second = await running(start, bob, "--json")
    await bob.end(first, {"n": 1.5})
    await bob.end(second, [1], verify="passed")
    assert (await plain.ended(), await whole.ended()) == (0, 0)
    assert plain.out == '{"n":1.5}\n'
    told = json.loads(whole.out)
    assert (told["status"], told["result"], told["verify"], told["task_id"]) == ("done", [1], "passed", second.meta.id)


async def test_a_failed_task_ends_with_1_and_its_reason(start: Run, bob: ScriptedWorker) -> None:
    command, task = await running(start, bob)
    await bob.end(task, status="error", error="no compiler", code="handler_error")
    assert await command.ended() == 1
    assert command.out == ""
    assert command.err.splitlines()[-1] == "hub-delegate: the task failed (handler_error): no compiler"


async def test_a_task_without_result_in_time_ends_with_3_and_goes_on(start: Run, bob: ScriptedWorker) -> None:
    command, task = await running(start, bob, "--timeout", "1.5")
    assert await command.ended() == 3
    assert "no result of task" in command.err
    assert f"it goes on: hub-delegate --from alice --to bob --resume {task.meta.id}" in command.err
    assert bob.cancels == []


@pytest.mark.hub
async def test_ctrl_c_cancels_and_a_confirmed_cancel_ends_with_4(start: Run, bob: ScriptedWorker) -> None:
    command, task = await running(start, bob)
    await command.says("again:")
    command.interrupt()
    await eventually(lambda: bob.cancels)
    assert bob.cancels[0]["task_id"] == task.meta.id
    await bob.end(task, status="cancelled", error="cancelled")
    assert await command.ended() == 4
    assert command.out == ""
    assert command.err.splitlines()[-2:] == ["cancelling, for at most 10 s; Ctrl-C again leaves", "cancelled"]


async def test_a_task_that_was_done_before_the_cancel_is_done(start: Run, bob: ScriptedWorker) -> None:
    command, task = await running(start, bob)
    await command.says("again:")
    command.interrupt()
    await command.says("cancelling")
    await bob.end(task, "in time")
    assert await command.ended() == 0
    assert command.out == "in time\n"


async def test_the_second_ctrl_c_leaves_with_130(start: Run, bob: ScriptedWorker) -> None:
    command, _ = await running(start, bob)
    await command.says("again:")
    command.interrupt()
    await command.says("cancelling")
    command.interrupt()
    assert await command.ended(within=8) == 130  # well before the 10 s of the cancel
    assert "left; the task may go on" in command.err


async def test_sigterm_leaves_and_cancels_nothing(start: Run, bob: ScriptedWorker) -> None:
    command, _ = await running(start, bob)
    await command.says("again:")
    command.process.send_signal(signal.SIGTERM)
    assert await command.ended() == 130
    assert "left; the task goes on" in command.err
    assert bob.cancels == []


async def test_a_cancel_that_nobody_confirms_ends_with_130(
    server: NatsServer, bob: ScriptedWorker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, with a shorter wait than the 10 s."""
    monkeypatch.setattr(delegate, "CANCEL_SECS", 0.5)
    settings = ConnectSettings(servers=(server.url,), identity="alice")
    async with await HubClient.connect(settings, announce=False) as alice:
        task = delegate.Task("bob", "task-unconfirmed", "build it")
        delegation = delegate._Delegation(alice, task, timeout_secs=None, as_json=False)
        ending = asyncio.create_task(delegation.run(is_waiting=True))
        await bob.task()
        delegation._on_interrupt()
        assert await asyncio.wait_for(ending, 10) is Exit.INTERRUPTED
    await eventually(lambda: bob.cancels)
    assert "the cancel was not confirmed within 0.5 s" in capsys.readouterr().err


async def test_a_result_that_cannot_be_written_is_no_success(start: Run, bob: ScriptedWorker) -> None:
    command, task = await running(start, bob)
    await command.says("again:")
    command.close_stdout()
    await bob.end(task, "lost")
    assert await command.ended() == 1
    assert "the result could not be written; it is still there" in command.err


@pytest.mark.durable_only
async def test_no_wait_prints_the_id_and_resume_finds_the_result(run: Run, start: Run, bob: ScriptedWorker) -> None:
    sent = await run(*ASK, "--prompt", "build it", "--no-wait")
    task = await bob.task()
    assert (sent.code, sent.out, sent.err) == (0, f"{task.meta.id}\n", "")
    await bob.say(task, "status", status="working")
    await bob.end(task, "built")
    resumed = await run(*ASK, "--resume", task.meta.id)
    assert (resumed.code, resumed.out) == (0, "built\n")
    assert "working" in resumed.err
    other = await run("delegate", "--from", "carol", "--to", "bob", "--resume", task.meta.id, "--timeout", "0.5")
    assert (other.code, other.out) == (3, "")  # another delegator's result is not hers


@pytest.mark.durable_only
async def test_a_task_for_a_worker_that_is_away_waits_for_it(start: Run, server: NatsServer, hub: HubProcess) -> None:
    command = await start("delegate", "--from", "alice", "--to", "late", "--prompt", "x", "--timeout", "60")
    await command.says("stored: HUB_INGRESS")
    settings = ConnectSettings(servers=(server.url,), identity="late")
    async with await HubClient.connect(settings, announce=False) as client:
        worker = await ScriptedWorker(client).start()
        await worker.end(await worker.task(), "better late")
        assert await command.ended() == 0
        await worker.stop()
    assert command.out == "better late\n"
