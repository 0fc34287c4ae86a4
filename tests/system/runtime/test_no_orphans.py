"""Nothing outlives its supervisor, its shim or its leader; and nobody starts before what was left is gone."""

import os
import signal
from collections.abc import Callable

import psutil

from tests.support.up_process import UpProcess
from tests.support.waiting import eventually

IGNORES_TERM = """python -c "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(1000)\""""
# Leaves its session twice over: what a daemon does.
DAEMON = """sh -c "setsid sh -c 'setsid sleep 1003 & sleep 1004' & sleep 1005\""""
FAMILY = f"""\
direct: python -c "import time; time.sleep(1000)"
family: sleep 1001 & sleep 1002 & wait
deaf: {IGNORES_TERM}
daemon: {DAEMON}
"""

MakeUp = Callable[..., UpProcess]


async def all_of(up: UpProcess, count: int) -> None:
    """The processes of the Procfile and their shims are there."""
    await eventually(lambda: len(up.survivors()) >= count, within=20, what=f"{count} processes: {up.survivors()}")


async def test_a_killed_up_leaves_no_child_and_no_grandchild(make_up: MakeUp) -> None:
    up = await make_up(FAMILY).start()
    await eventually(lambda: up.lines_of("deaf.0") == ["deaf"])
    # 4 shims, direct, sh and 2 sleeps, deaf, sh and 4 of the daemon's (some of them exec in place)
    await all_of(up, 4 + 1 + 3 + 1 + 4)
    up.signal(signal.SIGKILL)
    await up.ended()
    await eventually(lambda: not up.survivors(), within=5, what=f"all gone: {up.survivors()}")


async def test_the_next_up_starts_after_a_kill_9_once_what_was_left_is_gone(make_up: MakeUp) -> None:
    up = await make_up(f"deaf: {IGNORES_TERM}\n").start()
    await eventually(lambda: up.lines_of("deaf.0") == ["deaf"])
    old = up.replica("deaf.0")["pid"]
    up.signal(signal.SIGKILL)
    await up.ended()
    assert up.state.control_socket.exists()
    assert up.state.lock_file.exists()
    up.spawn()
    await up.reaches("deaf.0", "ready")
    assert not psutil.pid_exists(old), "both generations ran side by side"
    assert up.events("processes of an earlier `up` are still ending; waiting for them")
    assert await up.stop_hurried() == 0


async def test_what_a_crashed_leader_leaves_is_killed(make_up: MakeUp) -> None:
    up = await make_up(
        "one: sleep 1001 & echo $$; sleep 1002\nother: sleep 1006\n", '[process.one]\nrestart = "temporary"'
    ).start()
    await all_of(up, 2 + 3 + 1)
    os.kill(up.replica("one.0")["pid"], signal.SIGSEGV)
    parked = await up.reaches("one.0", "failed")
    assert "SIGSEGV" in parked["why"]
    assert not [line for line in up.survivors() if "sleep 100" in line and "1006" not in line and "shim" not in line]
    assert up.replica("other.0")["state"] == "ready"
    assert up.replica("other.0")["starts"] == 1


async def test_a_killed_shim_takes_its_child_along_and_both_come_back(make_up: MakeUp) -> None:
    up = await make_up(f"family: sleep 1001 & sleep 1002 & wait\ndaemon: {DAEMON}\n").start()
    await all_of(up, 2 + 3 + 4)
    pids = [up.replica(label)["pid"] for label in ("family.0", "daemon.0")]
    before = {line for line in up.survivors() if "shim" not in line}
    for pid in pids:
        os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
    for label in ("family.0", "daemon.0"):
        again = await up.reaches(label, "ready", starts=2)
        assert again["last_exit"].startswith("its shim was killed")
    await eventually(lambda: not before & set(up.survivors()), within=5, what=f"{before & set(up.survivors())} gone")


async def test_one_up_a_state_directory(make_up: MakeUp) -> None:
    first = make_up("one: sleep 1001\n").spawn()
    second = make_up("one: sleep 1001\n")
    second.output = first.home / "second.out"
    second.spawn()
    # Whoever came first: one runs, the other one is refused with its pid.
    await eventually(lambda: first.process.poll() is not None or second.process.poll() is not None)  # type: ignore[union-attr]
    running, refused = (second, first) if first.process.poll() is not None else (first, second)  # type: ignore[union-attr]
    assert await refused.ended() == 73
    await running.settled()
    assert "another `up` (" in refused.text()
    refused.process = running.process  # its fixture ends what runs
    third = running.run("up")
    assert third.returncode == 73
    assert f"pid {running.process.pid}," in third.stderr  # type: ignore[union-attr]
    assert running.replica("one.0")["state"] == "ready"


async def test_nothing_is_left_of_an_orderly_stop_either(make_up: MakeUp) -> None:
    up = await make_up(f"family: sleep 1001 & sleep 1002 & wait\ndaemon: {DAEMON}\n").start()
    await all_of(up, 2 + 3 + 4)
    assert await up.stop() == 0
    assert not up.survivors()
    assert not list(up.state.notify_sockets.iterdir())
    assert not up.state.control_socket.exists()
