"""Processes of our programs without the imports: each is forked from a process that has made them.

A start of Python with the project's imports costs 0.5 to 0.8 s of CPU, a fork a few hundredths. What is forked has its
own pid, signals, descriptors, folder and environment, and it ends as any program does. Where the start of a program is
the point, as with the supervisor's children and the programs of the docs, and once for each command, tests start Python
anew.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
END_SECS = 10.0
START_SECS = 60.0  # the imports, on two busy cores
# What a hub, a worker and a process of the tests import at their start, and on their first way to a database.
IMPORTS = (
    "hub.cli.main",
    "hub.cli.server",
    "hub.events.postgres",
    "hub.storage.sql.migrate",
    "hub.storage.sql.postgres",
    "hub.storage.sql.sqlite",
    "hub.storage.sql.storage",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "typer._adapters",
    "workers.cli",
)


class NurseryEnded(AssertionError):
    """The nursery is gone, and with it every process of it."""


class NurseryProcess:
    """One process, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = threading.Event()

    def _end(self, code: int) -> None:
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # its end is on its way to us
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """A nursery; started at its first use, ended by `end`, at the latest with this process.

    Args:
        imports: the modules that its processes find imported.
    """

    def __init__(self, imports: Sequence[str] = IMPORTS) -> None:
        self._imports = imports
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._answered = threading.Event()
        self._started: NurseryProcess | None = None
        self._alive: dict[int, NurseryProcess] = {}

    def spawn(
        self,
        program: str,
        arguments: Sequence[str],
        *,
        cwd: Path,
        stdin: IO[Any] | int | None = None,
        stdout: IO[Any] | int,
        stderr: IO[Any] | int = 2,
        environ: Mapping[str, str] | None = None,
    ) -> NurseryProcess:
        """Start a program.

        Args:
            program: a module's name, as behind `python -m`, or the path of a script.
            arguments: what it is told.
            cwd: its folder.
            stdin: None: there is nothing to read.
            stdout, stderr: where it writes; this process may close them afterwards.
            environ: its whole environment, by default ours.

        Raises:
            NurseryEnded: there is no process.
        """
        kept = dict(os.environ if environ is None else environ)
        order = {"program": program, "arguments": list(arguments), "environ": kept, "cwd": str(cwd)}
        with self._lock, Path(os.devnull).open("rb") as nothing:
            given = (nothing if stdin is None else stdin, stdout, stderr)
            descriptors = [each if isinstance(each, int) else each.fileno() for each in given]
            channel = self._channel = self._channel or self._open()
            self._answered.clear()
            self._started = None
            socket.send_fds(channel, [json.dumps(order).encode() + b"\n"], descriptors)
            if not self._answered.wait(START_SECS) or self._started is None:
                raise NurseryEnded(f"no process of the nursery within {START_SECS:g} s")
            return self._started

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.nursery_process", str(theirs.fileno()), *self._imports],
            env=kept | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            cwd=ROOT,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        threading.Thread(target=self._read, args=(ours,), name="nursery", daemon=True).start()
        atexit.register(self.end)
        return ours

    def end(self) -> None:
        """Kill every process of it, and end it."""
        channel, self._channel = self._channel, None
        if channel is not None and self._process is not None:
            channel.shutdown(socket.SHUT_RDWR)
            self._process.wait(END_SECS)

    def _read(self, channel: socket.socket) -> None:
        with channel.makefile("rb") as lines:
            for line in lines:
                match json.loads(line):
                    case {"started": pid}:
                        self._started = self._alive[pid] = NurseryProcess(pid)
                        self._answered.set()
                    case {"ended": pid, "code": code}:
                        self._alive.pop(pid)._end(code)
        for process in self._alive.values():
            process._end(-signal.SIGKILL)  # which is what the nursery did, or what ended it
        self._answered.set()


NURSERY = Nursery()
