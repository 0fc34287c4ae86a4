"""One run of one replica: the only place that starts a child, signals it and learns of its end."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from runtime import shim
from runtime.bell import Bell
from runtime.logs.pump import LogPump, LogStream
from runtime.notify import Notice, NotifySocket
from runtime.reaper import Reaper
from runtime.restart import Ending
from runtime.settings import Readiness

ORPHAN_GRACE_SECS: Final = 2.0
"""From SIGTERM to SIGKILL when the supervisor or the leader died: with the looks in between well below 5 s."""

_DRAIN_SECS: Final = 5.0  # the pipes' ends close with the last process; one that escaped may hold them
_SWEEP_SECS: Final = 5.0  # what a killed shim left; a process that the kernel cannot kill must not hold us for ever
_SWEEP_POLL_SECS: Final = 0.05
_SHIM: Final = str(Path(shim.__file__).resolve())

Command = Literal["t", "i", "u", "h", "k"]


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to run.

    Attributes:
        label: the replica, as `router.0`.
        argv: the command.
        to_group: signals go to the whole group (a shell) and not to the leader alone.
        cwd, environ: its folder and its whole environment.
        readiness: when it counts as ready; None: somebody else says so.
        watchdog_secs: 0 is off.
        notify_path: of its notify socket.
        held_fds: descriptors (locks) that the shim holds until all is gone.
    """

    label: str
    argv: Sequence[str]
    to_group: bool
    cwd: str
    environ: Mapping[str, str]
    readiness: Readiness | None
    watchdog_secs: float
    notify_path: Path
    held_fds: tuple[int, ...] = ()


class Child:
    """A started command, from its start until nothing of it is left.

    Args:
        spec: what to run.
        pump: takes its output.
        reaper: waits for its shim.
        bell: rung when something about it changes.
    """

    def __init__(self, spec: ChildSpec, pump: LogPump, reaper: Reaper, bell: Bell) -> None:
        self.spec = spec
        self.pid = 0
        self.shim_pid = 0
        self.is_ready = False
        self.is_stopping = False
        self.status = ""
        self.figures: dict[str, str] = {}
        self.ending: Ending | None = None
        self.started_at = bell.now()
        self.ready_at: float | None = None
        self._pump = pump
        self._reaper = reaper
        self._bell = bell
        self._notify = NotifySocket(spec.notify_path, self._take_notice)
        self._notify_address = ""
        self._channel: socket.socket | None = None
        self._received = b""
        self._leader_status: int | None = None
        self._leader_ended_at = 0.0
        self._error = ""
        self._cause = ""
        self._is_empty = False
        self._streams: list[LogStream] = []
        self._ready_fd: int | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start it. What goes wrong shows as its `ending`."""
        try:
            self._spawn()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            # Not ours: too many processes, too many descriptors, an environment that is too large.
            self._error = f"cannot be started: {error}"
            self._shim_ended(clean=True)

    def send(self, command: Command) -> None:
        """Have a signal sent (see the shim); to one that has ended nothing happens."""
        if command in {"t", "i"}:
            self.is_stopping = True
            self._stop_watchdog()
        if self._channel is not None:
            with contextlib.suppress(OSError):  # the shim is gone, which is being noticed
                self._channel.send(command.encode())

    def kill(self, cause: str) -> None:
        """Kill all of it, because of `cause`, which its ending will tell."""
        self._cause = self._cause or cause
        self._stop_watchdog()
        self.send("k")

    @property
    def is_running(self) -> bool:
        """Is anything of it left?"""
        return self.ending is None

    @property
    def catches_sigusr1(self) -> bool:
        """Would SIGUSR1 drain it? Where the system does not tell, it is believed."""
        try:
            text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii", errors="replace")
        except OSError:
            return sys.platform != "linux"
        caught = next((line.split()[1] for line in text.splitlines() if line.startswith("SigCgt:")), "0")
        return bool(int(caught, 16) & (1 << (signal.SIGUSR1 - 1)))

    def mark_ready(self) -> None:
        """It is ready."""
        if not self.is_ready and self._leader_status is None and self.ending is None:
            self.is_ready = True
            self.ready_at = self._bell.now()
            self._beat()
            self._bell.ring()

    def _spawn(self) -> None:
        spec = self.spec
        environ = dict(spec.environ)
        given: list[int] = []  # the child's ends, closed here once it has them
        ours, theirs = socket.socketpair()
        self._channel = ours
        ours.setblocking(False)
        try:
            out_stream, out = self._pump.open_stream(spec.label, "stdout")
            given.append(out)
            err_stream, err = self._pump.open_stream(spec.label, "stderr")
            given.append(err)
            self._streams = [out_stream, err_stream]
            environ["NOTIFY_SOCKET"] = self._notify_address = self._notify.open()
            if spec.watchdog_secs:
                environ["WATCHDOG_USEC"] = str(int(spec.watchdog_secs * 1e6))
            if spec.readiness == "fd":
                self._ready_fd, ready = os.pipe()
                given.append(ready)
                environ["READY_FD"] = str(ready)
            else:
                environ.pop("READY_FD", None)
            mode = "group" if spec.to_group else "leader"
            process = subprocess.Popen(  # noqa: S603 - the Procfile is what we are here to run
                [sys.executable, "-I", "-S", _SHIM, str(theirs.fileno()), str(ORPHAN_GRACE_SECS), mode, *spec.argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=spec.cwd,
                env=environ,
                pass_fds=[theirs.fileno(), *spec.held_fds, *([given[2]] if spec.readiness == "fd" else [])],
                start_new_session=True,  # a Ctrl-C at the terminal is ours alone
            )
        finally:
            theirs.close()
            for fd in given:
                os.close(fd)
        self.shim_pid = process.pid
        process.returncode = 0  # the reaper waits for it, nobody else
        loop = asyncio.get_running_loop()
        loop.add_reader(ours, self._receive)
        if self._ready_fd is not None:
            os.set_blocking(self._ready_fd, False)
            loop.add_reader(self._ready_fd, self._receive_ready)
        self._reaper.watch(process.pid).add_done_callback(lambda _: self._shim_ended(clean=self._is_empty))

    def _receive(self) -> None:
        assert self._channel is not None
        try:
            data = self._channel.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._channel)
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode("utf-8", "replace").partition(" ")
            if word == "pid":
                self.pid = int(rest)
                for stream in self._streams:
                    self._pump.begin(stream, self.pid)
                if self.spec.readiness == "started":
                    self.mark_ready()
            elif word == "error":
                number, _, text = rest.partition(" ")
                self._error = f"cannot be executed: {self.spec.argv[0]}: {text or os.strerror(int(number))}"
                self._is_empty = True
            elif word == "exit":
                self._leader_status = int(rest)
                self._leader_ended_at = self._bell.now()
                self.is_ready = False
                self._stop_watchdog()
            elif word == "empty":
                self._is_empty = True
        self._bell.ring()

    def _receive_ready(self) -> None:
        assert self._ready_fd is not None
        try:
            data = os.read(self._ready_fd, 4096)
        except BlockingIOError:
            return
        if data:
            self.mark_ready()
        asyncio.get_running_loop().remove_reader(self._ready_fd)
        os.close(self._ready_fd)
        self._ready_fd = None

    def _take_notice(self, notice: Notice) -> None:
        if notice.status is not None:
            self.status = notice.status
        self.figures |= notice.figures
        if notice.is_hung:
            self.kill("watchdog: it said that it hangs")
        if notice.is_beat or notice.is_ready:
            self._beat()
        if notice.is_stopping:
            self.is_stopping = True
            self._stop_watchdog()
        if notice.is_ready and self.spec.readiness == "notify":
            self.mark_ready()
        self._bell.ring()

    def _beat(self) -> None:
        if self.spec.watchdog_secs and self.is_ready and not self.is_stopping:
            self._stop_watchdog()
            self._watchdog = asyncio.get_running_loop().call_later(self.spec.watchdog_secs, self._bark)

    def _bark(self) -> None:
        self.kill(f"watchdog: no WATCHDOG=1 for {self.spec.watchdog_secs:g} s")

    def _stop_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None

    def _shim_ended(self, *, clean: bool) -> None:
        if not self._is_empty and self._channel is not None and self.shim_pid:
            self._receive()  # what it wrote before it left
            clean = self._is_empty
        if not clean:
            self._cause = self._cause or "its shim was killed"
        self._closing = asyncio.get_running_loop().create_task(self._close(clean), name=f"close {self.spec.label}")

    async def _sweep(self) -> None:
        """The shim was killed: the kernel killed the leader along (Linux), the rest is for us to find and kill.

        Whatever carries this run's notify address in its environment came from it, in whichever session it is now; as a
        subreaper we are asked again and again, because what is killed may leave children of its own.
        """
        deadline = self._bell.now() + _SWEEP_SECS
        while (found := self._leftovers()) and self._bell.now() < deadline:
            for pid in found:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(_SWEEP_POLL_SECS)

    def _leftovers(self) -> list[int]:
        seen = shim.parents()
        found = set(shim.descendants(self.pid, self.pid, seen)) if self.pid else set()
        address = f"NOTIFY_SOCKET={self._notify_address}".encode()
        for pid in seen:
            with contextlib.suppress(OSError):  # ended, or another user's; or no /proc: then the walk is all there is
                if pid == self.pid or address in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    found.add(pid)
        return sorted(found)

    async def _close(self, clean: bool) -> None:
        """Read what is left of its output, then tell its end: the last lines belong to it."""
        if not clean:
            await self._sweep()
        deadline = self._bell.now() + _DRAIN_SECS
        for stream in self._streams:
            self._pump.begin(stream, self.pid)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await stream.drained.wait()
        loop = asyncio.get_running_loop()
        self._stop_watchdog()
        self._notify.close()
        if self._channel is not None:
            loop.remove_reader(self._channel)
            self._channel.close()
            self._channel = None
        if self._ready_fd is not None:
            loop.remove_reader(self._ready_fd)
            os.close(self._ready_fd)
            self._ready_fd = None
        self.is_ready = False
        self.ending = self._make_ending()
        self._bell.ring()

    def _make_ending(self) -> Ending:
        ran_secs = (self._leader_ended_at or self._bell.now()) - self.started_at
        if self._leader_status is None:
            return Ending(cause=self._error or self._cause or "ended without a word", ran_secs=ran_secs)
        code = os.waitstatus_to_exitcode(self._leader_status)
        if code < 0:
            return Ending(signal=-code, cause=self._cause, ran_secs=ran_secs)
        return Ending(exit_code=code, cause=self._cause, ran_secs=ran_secs)
