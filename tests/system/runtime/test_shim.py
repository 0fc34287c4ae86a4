"""The shim by itself, as whoever isolates a process of their own starts it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from runtime import shim
from runtime.locks import is_free, try_lock
from tests.support.waiting import eventually


class Shim:
    """A started shim and our end of its channel."""

    def __init__(
        self, mode: str, *words: str, grace: float = 0.3, by_module: bool = False, held: tuple[int, ...] = ()
    ) -> None:
        self.channel, theirs = socket.socketpair()
        how = ["-m", "runtime.shim"] if by_module else ["-I", "-S", shim.__file__]
        self.process = subprocess.Popen(
            [sys.executable, *how, str(theirs.fileno()), str(grace), mode, *words],
            pass_fds=[theirs.fileno(), *held],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
        )
        theirs.close()
        self.channel.settimeout(10)
        self._lines = self.channel.makefile("r")

    def line(self) -> str:
        return self._lines.readline().strip()

    def output(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def close(self) -> None:
        self.channel.shutdown(socket.SHUT_RDWR)
        self.channel.close()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.close()
        self.process.wait(10)
        self.process.communicate()


@pytest.fixture
def start() -> Iterator[type[Shim]]:
    started: list[Shim] = []

    class Started(Shim):
        def __init__(self, *arguments: str, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[arg-type]
            started.append(self)

    yield Started
    for one in started:
        one.end()


@pytest.mark.parametrize("by_module", [False, True])
def test_it_tells_the_pid_the_exit_and_that_nothing_is_left(start: type[Shim], by_module: bool) -> None:
    one = start("leader", "sh", "-c", "echo $$; exit 3", by_module=by_module)
    pid = one.output()
    assert one.line() == f"pid {pid}"
    assert one.line() == f"exit {3 << 8}"
    assert one.line() == "empty"
    assert one.process.wait(10) == 0


def test_a_command_that_is_not_there_is_told_with_its_errno(start: type[Shim]) -> None:
    one = start("leader", "/nope/x")
    assert one.line() == "error 2 No such file or directory"
    assert one.process.wait(10) == 0


def test_a_closed_channel_ends_the_child_and_what_left_its_session(start: type[Shim]) -> None:
    one = start("leader", "sh", "-c", "setsid sh -c 'setsid sleep 1001 & echo $!; sleep 1002'")
    daemon = int(one.output())
    began = time.monotonic()
    one.close()
    assert one.process.wait(5) == 0
    assert time.monotonic() - began < 3
    assert not psutil.pid_exists(daemon)


def test_signals_go_to_the_leader_or_to_its_group(start: type[Shim]) -> None:
    child = "(trap 'echo child; exit' USR1; echo here; while :; do sleep 0.05; done)"
    line = f"trap 'echo parent' USR1; {child} & while :; do wait; done"
    alone = start("leader", "sh", "-c", line)
    assert alone.output() == "here"
    alone.channel.send(b"u")
    assert alone.output() == "parent"
    together = start("group", "sh", "-c", line)
    assert together.output() == "here"
    together.channel.send(b"u")
    assert {together.output(), together.output()} == {"parent", "child"}


def test_in_group_mode_the_rest_may_finish_after_a_sigterm(start: type[Shim]) -> None:
    flush = "(time.sleep(1), print('flushed', flush=True), sys.exit())"
    here = "print('here', flush=True); time.sleep(1000)"
    slow = f"import signal, sys, time; signal.signal(15, lambda *_: {flush}); {here}"
    one = start("group", "sh", "-c", f'{sys.executable} -c "{slow}" & wait', grace=0.1)
    assert one.output() == "here"
    one.channel.send(b"t")
    assert one.output() == "flushed"  # longer than the grace: the leader's end does not end it
    assert one.process.wait(10) == 0


def test_the_child_gets_no_descriptor_of_ours_and_the_shim_holds_them(start: type[Shim], tmp_path: Path) -> None:
    held = try_lock(tmp_path / "lock")
    assert held is not None
    code = "import os; print(sorted(map(int, os.listdir('/dev/fd')))[:-1]); input()"
    one = start("leader", sys.executable, "-c", code, held=(held,))
    os.close(held)
    assert one.output() == "[0, 1, 2]"
    assert not is_free(tmp_path / "lock")
    assert one.process.stdin is not None
    one.process.stdin.write(b"\n")
    one.process.stdin.flush()
    assert one.process.wait(10) == 0
    assert is_free(tmp_path / "lock")


def test_what_is_ignored_here_is_not_ignored_there(start: type[Shim]) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        one = start("leader", "sh", "-c", "echo here; exec sleep 1001")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert one.output() == "here"
    assert one.line().startswith("pid ")
    one.channel.send(b"t")
    assert one.line() == f"exit {int(signal.SIGTERM)}"


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
async def test_a_killed_shim_takes_the_leader_along(start: type[Shim]) -> None:
    one = start("leader", "sh", "-c", "echo $$; exec sleep 1001")
    pid = int(one.output())
    one.process.kill()
    one.process.wait(5)

    def is_gone() -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # its new parent may be slow
        except psutil.NoSuchProcess:
            return True

    await eventually(is_gone, within=5)
