"""A worker's life: shutdown, outages, two of one identity, a blocked loop, a long queue."""

import asyncio
import contextlib
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.bus import send_all, stored_in
from tests.support.commands import Command
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually
from tests.support.witness import Witness
from tests.system.workers.conftest import Bench, open_client


async def test_sigterm_lets_a_turn_finish_and_its_result_is_out_before_exit_0(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("nap", identity, "--grace", "10")
    task_id = await bench.send(identity, "2")
    await bench.witness.said(task_id, "started")
    waiting = [await bench.send(identity, "0") for _ in range(6)]
    assert await worker.stop() == 0
    assert [result["status"] for result in bench.witness.results(task_id)] == ["done"]
    await bench.start("nap", identity)
    assert [(await bench.witness.result(each))["status"] for each in waiting] == ["done"] * 6
    assert bench.witness.counts() == dict.fromkeys([task_id, *waiting], 1)


@pytest.mark.parametrize("handler", ["nap", "nap_plain"])
async def test_sigterm_settles_what_is_longer_than_the_grace(bench: Bench, handler: str) -> None:
    identity = bench.name()
    worker = await bench.start(handler, identity, "--grace", "0.2")
    task_id = await bench.send(identity, "60")
    await bench.witness.said(task_id, "started")
    assert await worker.stop() == 0
    result = await bench.witness.result(task_id)
    assert (result["status"], result["code"]) == ("error", "interrupted")


async def test_a_shutdown_burns_no_attempt_of_an_idempotent_turn(bench: Bench) -> None:
    identity = bench.name()
    task_id = await bench.send(identity, "1")
    for number in range(1, 4):
        worker = await bench.start("nap_again", identity, "--grace", "0")
        await bench.witness.said(task_id, "started")
        await eventually(lambda number=number: len(bench.starts(task_id)) == number)
        assert await worker.stop() == 0
    await bench.start("nap_again", identity)
    assert (await bench.witness.result(task_id))["status"] == "done"
    assert {attempt for _, attempt, *_ in bench.starts(task_id)} == {"1"}


async def test_sigterm_right_after_a_result_repeats_and_loses_nothing(bench: Bench) -> None:
    identity, ids = bench.name(), []
    for _ in range(3):
        worker = await bench.start("nap", identity)
        ids.append(await bench.send(identity, "0"))
        await bench.witness.result(ids[-1])
        assert await worker.stop() == 0
    assert bench.witness.counts() == dict.fromkeys(ids, 1)
    assert len(bench.starts()) == len(ids)


@pytest.mark.soak
async def test_sigterm_right_after_a_result_a_hundred_times(bench: Bench) -> None:
    identity, ids = bench.name(), []
    for _ in range(100):
        worker = await bench.start("nap", identity)
        ids.append(await bench.send(identity, "0"))
        await bench.witness.result(ids[-1])
        assert await worker.stop() == 0
    assert bench.witness.counts() == dict.fromkeys(ids, 1)
    assert len(bench.starts()) == len(ids)


@pytest.mark.parametrize("away_secs", [0, pytest.param(20, marks=pytest.mark.soak)])
async def test_results_that_end_while_the_server_is_away_arrive_afterwards_once_and_in_order(
    start_nats: Callable[..., Awaitable[NatsServer]], tmp_path: Path, away_secs: int
) -> None:
    server = await start_nats()
    client = await open_client(server.url, "alice")
    bench = Bench(server.url, tmp_path / "state", client, Witness(client.connection))
    bench.home.mkdir()
    hub = await bench.process("hub", "server", "--db", "none", "--durable").start()
    worker = await bench.start("nap", "bob", "--concurrency", "5")
    session = {"action": "session_start", "session_id": "talk", "prompt": "1"}
    send = {"action": "session_send", "session_id": "talk", "message": "0.1"}
    talk = [await bench.control("bob", each) for each in (session, send, send)]
    handles = [await client.delegate("bob", f"{1 + number / 10}") for number in range(4)]
    await eventually(lambda: len(bench.starts()) == 5)
    await eventually(lambda: worker_has(bench, "bob", 7), what="the session's further turns are on disk")
    await server.kill()
    await worker.logged("settled", times=7)
    await asyncio.sleep(away_secs)
    await server.start()
    results = [await handle.result(30) for handle in handles]
    assert [result.status for result in results] == ["done"] * 4
    assert len(bench.starts()) == 7
    assert await worker.stop() == 0
    said = [envelope for envelope in await stored_in(client.connection, "HUB_TASKS") if envelope.meta.sender == "bob"]
    ends = [envelope.meta.reply_to for envelope in said if envelope.meta.kind == "message"]
    assert sorted(map(str, ends)) == sorted([*talk, *(handle.task_id for handle in handles)]), "each once"
    assert [each for each in ends if each in talk] == talk, "in the order of the session's turns"
    for task_id in set(ends):
        assert [each for each in said if each.meta.reply_to == task_id][-1].meta.kind == "message"
    await hub.stop()
    await client.close()


def worker_has(bench: Bench, identity: str, turns: int) -> bool:
    """Are so many turns in the mailbox?"""
    with contextlib.closing(sqlite3.connect(bench.home / "mailboxes" / f"mailbox-{identity}.db")) as database:
        return bool(database.execute("SELECT count(*) FROM turn").fetchone() == (turns,))


async def test_a_second_process_of_an_identity_is_refused_with_the_first_one_s_pid(bench: Bench) -> None:
    identity = bench.name()
    first = await bench.start(":echo", identity)
    second = bench.worker(":echo", identity).spawn()
    assert await second.ended() == 78
    assert first.process is not None
    assert str(first.process.pid) in second.events("cannot start")[0]["error"]


async def test_on_another_machine_the_younger_one_leaves_and_a_takeover_ends_the_older_one(bench: Bench) -> None:
    identity, elsewhere, third = bench.name(), bench.home / "b", bench.home / "c"
    first = await bench.start(":echo", identity)
    second = bench.worker(":echo", identity, home=elsewhere).spawn()
    assert await second.ended(within=45) == 78
    assert second.events("leaving")
    assert first.is_running
    await bench.start(":echo", identity, "--takeover", home=third)
    assert await first.ended(within=45) == 78
    assert (await bench.witness.result(await bench.send(identity, "hi")))["status"] == "done"


async def test_a_handler_that_blocks_the_loop_ends_the_worker_and_is_interrupted(bench: Bench) -> None:
    identity = bench.name()
    worker = await bench.start("block_loop", identity, "--blocked-limit", "1.5")
    task_id = await bench.send(identity, "60")
    assert await worker.ended() == 1
    assert "block_loop" in worker.log_file.read_text(), "the traceback names the culprit"
    await bench.start("block_loop", identity)
    assert (await bench.witness.result(task_id))["code"] == "interrupted"


async def test_an_isolated_handler_that_holds_the_gil_leaves_the_worker_alive(bench: Bench) -> None:
    identity = bench.name()
    await bench.start("hold_gil", identity, "--blocked-limit", "2", "--concurrency", "2")
    held = await bench.send(identity, "60")
    await bench.witness.said(held, "started")
    other = await bench.send(identity, "0")
    assert (await bench.witness.result(other))["result"] == "held"
    began = time.monotonic()
    await bench.cancel(identity, held)
    assert (await bench.witness.result(held))["status"] == "cancelled"
    assert time.monotonic() - began < 8, "SIGTERM, and SIGKILL after 3 s"


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_a_long_queue_of_direct_messages_is_taken_in_and_all_of_them_are_answered(
    bench: Bench, count: int
) -> None:
    identity = bench.name()
    await send_all(bench.client.connection, [bench.task(identity, str(number)) for number in range(count)])
    worker = await bench.start(":echo", identity)
    await eventually(lambda: len(bench.witness.counts()) == count, within=60)
    assert set(bench.witness.counts().values()) == {1}
    assert await worker.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ["run", "nothing", "--identity", "x"],
            78,
            "no handler 'nothing'; installed are acp, claude, codex, echo, shell",
        ),
        (["run", "--handler", "tests.support.nowhere:x", "--identity", "x"], 78, "cannot import tests.support.nowhere"),
        (["run", "--handler", "tests.support.waiting:eventually", "--identity", "x"], 78, "is no handler"),
        (["run", "echo"], 78, "needs an identity"),
        (["run", "echo", "--identity", "a b"], 78, "identity"),
        (["run", "echo", "--identity", "x", "--option", "a=b"], 78, "has no options"),
        (["run", "shell", "--identity", "x"], 78, "command"),
        (["run", "shell", "--identity", "x", "--option", "comand=ls"], 78, "no option 'comand'"),
        (["run", "--identity", "x"], 2, "either NAME or --handler"),
        (["run", "echo", "--identity", "x", "--option", "a"], 2, "key=value"),
        (["run", "echo", "--identity", "x", "--workdir-root", "/nowhere"], 78, "is no folder"),
    ],
)
async def test_bad_usage_is_told_and_not_restarted(bench: Bench, arguments: list[str], code: int, words: str) -> None:
    worker = bench.process("workers", *arguments).spawn()
    assert await worker.ended() == code
    assert words in worker.log_file.read_text()


async def test_hub_delegate_prints_what_the_worker_answered_also_when_it_was_offline(bench: Bench) -> None:
    identity = bench.name()
    options = {"url": bench.url, "home": bench.home}
    asked = await Command.start("delegate", "--from", bench.me, "--to", identity, "--prompt", "hi", **options)
    await eventually(lambda: b"task " in asked.stderr)
    await bench.start(":echo", identity)
    assert await asked.ended() == 0
    assert asked.stdout == b"hi\n"


async def test_list_shows_what_is_installed_and_from_where() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers", "list", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert b"workers.builtin.echo:echo" in out
    assert b"workers.builtin.claude:claude " in out, "nothing is cut"
    assert b"nats-hub" in out
