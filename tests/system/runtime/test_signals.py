"""Signals to `up`: orderly, hurried, at any moment of the start; a closed terminal; PID 1 of a container."""

import asyncio
import contextlib
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.up_process import UpProcess
from tests.support.waiting import eventually

MakeUp = Callable[..., UpProcess]
DEAF = """python -c "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(1000)\""""
POLITE = """python polite.py"""
POLITE_CODE = """\
import os, signal, sys, time
def leave(*_):
    time.sleep(0.1)
    print("bye")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("here")
while True:
    time.sleep(1000)
"""


@pytest.mark.parametrize("after_ms", [0, 50, 200])
async def test_a_sigterm_during_the_start_ends_it_cleanly(make_up: MakeUp, after_ms: int) -> None:
    up = make_up("one: sleep 1001\ntwo: sleep 1002 & sleep 1003\n").spawn()
    await asyncio.sleep(after_ms / 1000)
    up.signal(signal.SIGTERM)
    # Before its first line ran there is nobody to catch it, and nothing to clean up.
    assert await up.ended(within=8) in {0, -signal.SIGTERM}
    assert not up.survivors()
    up.spawn()
    await up.settled()


async def test_it_stops_in_reverse_and_waits_for_each(make_up: MakeUp, tmp_path: Path) -> None:
    (tmp_path / "polite.py").write_text(POLITE_CODE)
    up = await make_up(
        f"first: {POLITE}\nsecond: {POLITE}\nthird: {POLITE}\n", '[process.first]\nafter = ["third"]'
    ).start()
    names = ("third.0", "second.0", "first.0")
    await eventually(lambda: all(up.lines_of(name) == ["here"] for name in names))
    assert await up.stop() == 0
    # `first` comes after `third`, so it was started behind it.
    assert [line["process"] for line in up.events("stopped")] == ["second.0", "first.0", "third.0"]
    assert [line["process"] for line in up.events(line="bye")] == ["second.0", "first.0", "third.0"]
    assert all(line["how"] == "exit code 0" for line in up.events("stopped"))


async def test_one_deadline_for_all(make_up: MakeUp) -> None:
    toml = "".join(f"[process.{name}]\nstop_timeout_secs = 1.0\n" for name in ("a", "b", "c"))
    up = await make_up(f"a: {DEAF}\nb: {DEAF}\nc: {DEAF}\n", toml).start()
    await eventually(lambda: all(up.lines_of(f"{name}.0") == ["deaf"] for name in "abc"))
    began = time.monotonic()
    assert await up.stop() == 0
    assert 1.0 <= time.monotonic() - began < 3.0  # not three times one second
    assert len(up.events("did not stop in time; killing it")) == 3


async def test_a_second_sigint_within_50_ms_hurries_and_stays_clean(make_up: MakeUp) -> None:
    up = await make_up(f"deaf: {DEAF}\none: sleep 1001 & sleep 1002\n").start()
    await eventually(lambda: up.lines_of("deaf.0") == ["deaf"])
    began = time.monotonic()
    up.signal(signal.SIGINT)
    await asyncio.sleep(0.05)
    up.signal(signal.SIGINT)
    assert await up.ended() == 0
    assert time.monotonic() - began < 8  # instead of its 35 s
    assert not up.survivors()


async def test_an_environment_with_nothing_in_it(make_up: MakeUp) -> None:
    procfile = "one: sh -c 'echo $HOME $PROCESS_NAME; exec sleep 1001'\n"
    up = make_up(procfile, environ={"HOME": "/nonexistent", "LANG": "", "NATS_HUB_STATE_DIR": "", "PYTHONPATH": ""})
    up.environ.pop("NATS_HUB_STATE_DIR", None)
    assert set(up.environ) == {"PATH", "HOME", "NATS_URL"}
    up.state = type(up.state)(up.home / ".state", "test")
    up.client = type(up.client)(up.state)
    await up.start()
    await eventually(lambda: up.lines_of("one.0") == ["/nonexistent one"])
    assert up.events("no home directory: the state is kept in the current one; set NATS_HUB_STATE_DIR")
    assert (up.home / ".state" / "runtime").stat().st_mode & 0o077 == 0
    assert await up.stop() == 0


async def test_a_closed_terminal_ends_it_cleanly(make_up: MakeUp) -> None:
    up = make_up("one: sh -c 'echo hello; sleep 1001 & exec sleep 1002'\n")
    ours, theirs = pty.openpty()
    # `setsid -c` makes the terminal the controlling one of the new session.
    up.prefix = ("setsid", "-c", "-w")
    up.spawn(stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=False)
    os.close(theirs)
    os.set_blocking(ours, False)
    shown = bytearray()

    def is_shown() -> bool:
        with contextlib.suppress(BlockingIOError):
            shown.extend(os.read(ours, 65536))
        return b"hello" in shown and b"everything is up" in shown

    await eventually(is_shown, within=20, what=f"the terminal shows it: {bytes(shown)!r}")
    assert b"one.0" in shown
    assert b"\x1b[" in shown  # colours
    os.close(ours)
    await up.ended(within=10)
    assert not up.survivors()


def may_unshare() -> bool:
    try:
        done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


@pytest.mark.skipif(not may_unshare(), reason="needs Linux, and the right to make a pid namespace")
async def test_as_pid_1_it_reaps_forwards_and_ends(make_up: MakeUp) -> None:
    up = make_up("one: sh -c 'echo $$; exec sleep 1001'\nfamily: sleep 1002 & sleep 1003\n")
    up.prefix = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    await up.start()
    assert up.look()["pid"] == 1
    (inner,) = up.survivors_named("-m runtime up")
    # A stranger that lands at PID 1 (what `docker exec` leaves) is reaped and not taken for ours.
    subprocess.run(
        ["nsenter", "--target", str(inner), "--pid", "--mount", "sh", "-c", "(sleep 0.1; exit 3) & exit 0"], check=True
    )
    await eventually(lambda: not up.zombies(inner), what="no zombie at PID 1")
    os.kill(inner, signal.SIGTERM)
    assert await up.ended() == 0
    assert not up.survivors()


async def test_sighup_applies_the_difference_and_touches_nothing_else(make_up: MakeUp) -> None:
    up = await make_up("same: sleep 1001\ngone: sleep 1002\nother: sleep 1003\n").start()
    same, other = up.replica("same.0")["pid"], up.replica("other.0")["pid"]
    up.write("same: sleep 1001\nother: sleep 1004\nnew: sleep 1005\n", "[process.same]\nreplicas = 2")
    up.signal(signal.SIGHUP)
    await eventually(lambda: up.events("the configuration was read again"))
    assert up.events("the configuration was read again")[0]["changes"] == [
        "gone: removed",
        "same: 2 replicas",
        "other: changed",
        "new: added",
    ]
    await up.reaches("new.0", "ready")
    await up.reaches("same.1", "ready")
    assert up.replica("same.0")["pid"] == same
    assert up.replica("other.0")["pid"] != other
    assert not up.replica("gone.0")
    assert not [line for line in up.survivors() if "sleep 1002" in line or "sleep 1003" in line]

    up.write("same: sleep 1001\nbroken\n")
    up.signal(signal.SIGHUP)
    await eventually(lambda: up.events("the configuration was read again and refused; all goes on as before"))
    assert up.replica("same.0")["pid"] == same
    assert await up.stop() == 0
