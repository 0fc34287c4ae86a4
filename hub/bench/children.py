"""The children of a measurement: processes of ours, what they use of the processor, and their end."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import msgspec
import psutil

from hub.bench.actors import ActorSettings, Done, Job

READY_SECS: Final = 30.0  # a Python process with our imports is there within two, on a busy machine within ten
END_SECS: Final = 15.0
_LONGEST_LINE: Final = 16 * 1024 * 1024  # a job's latencies


class ChildFailed(RuntimeError):
    """A process of the benchmark ended, or did not do its work; the end of its log is in the text."""


class Child:
    """A Python process of ours with its log in a file; made by `start`.

    Args:
        name: for errors.
        process: the process.
        log: the file with its stderr.
    """

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        self._log = log

    @classmethod
    async def start(cls, name: str, arguments: list[str], *, home: Path, environ: Mapping[str, str]) -> Self:
        """Start `python <arguments>` with `environ` beside what it needs of ours; NATS variables are not handed on."""
        log = home / f"{name}.log"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("NATS_")}
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**kept, **environ},
                limit=_LONGEST_LINE,
                start_new_session=True,
            )
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def failed(self, what: str) -> ChildFailed:
        """The error that says so, with the end of its log."""
        end = self._log.read_text(errors="replace")[-4000:]
        return ChildFailed(f"{self.name}: {what} (exit code {self.process.returncode})\n{end}")

    def require_alive(self) -> None:
        """Is it still there?

        Raises:
            ChildFailed: it ended.
        """
        if self.process.returncode is not None:
            raise self.failed("ended")

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL when that does not help. Stopping what ended is fine."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECS):
                    await self.process.wait()


class ActorChild(Child):
    """An actor: it does one job at a time."""

    @classmethod
    async def begin(cls, name: str, settings: ActorSettings, *, home: Path) -> Self:
        """Start one and wait until it is ready."""
        arguments = ["-m", "hub.bench.actors", msgspec.json.encode(settings).decode()]
        self = await cls.start(name, arguments, home=home, environ={})
        await self._line(READY_SECS)
        return self

    async def work(self, job: Job, *, deadline_secs: float) -> Done:
        """Have it do a job.

        Raises:
            ChildFailed: it ended, or was not done in time.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(job) + b"\n")
        return msgspec.json.decode(await self._line(deadline_secs), type=Done)

    async def _line(self, deadline_secs: float) -> bytes:
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(deadline_secs):
                line = await self.process.stdout.readline()
        except TimeoutError:
            raise self.failed(f"not done within {deadline_secs:g} s") from None
        if not line:
            await self.process.wait()
            raise self.failed("ended")
        return line


class CpuMeter:
    """The processor seconds that processes used since it was made; `pids` are by the names of the figures."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._before = self._now()

    def used(self) -> dict[str, float]:
        """Seconds by process, user and system together."""
        return {name: now - self._before[name] for name, now in self._now().items()}

    def _now(self) -> dict[str, float]:
        times = {name: process.cpu_times() for name, process in self._processes.items()}
        return {name: one.user + one.system for name, one in times.items()}
