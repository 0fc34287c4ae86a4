"""A real `python -m runtime up` on files of the test's own, asked and ended like an operator does."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from runtime.client import ControlClient
from runtime.errors import NotRunning
from runtime.paths import StateDir
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
START_SECS = 20.0  # two busy cores
STOP_SECS = 20.0
NOWHERE = "nats://127.0.0.1:1"  # a server that is named is not started


class UpProcess:
    """One `up`.

    Args:
        home: its folder: Procfile, runtime.toml, `state`, its output.
        procfile: the Procfile; `python` in it is this interpreter.
        toml: the runtime.toml.
        environ: more environment.
        prefix: a command in front, as `unshare`.
    """

    def __init__(
        self,
        home: Path,
        procfile: str,
        toml: str = "",
        *,
        environ: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
    ) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.write(procfile, toml)
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        given = {"NATS_URL": NOWHERE, "NATS_HUB_STATE_DIR": str(home / "state"), "PYTHONPATH": str(ROOT)}
        self.environ = {name: value for name, value in (kept | given | (environ or {})).items() if value}
        self.prefix = prefix
        self.output = home / "up.out"
        self.process: subprocess.Popen[bytes] | None = None
        self.state = StateDir(home / "state", "test")
        self.client = ControlClient(self.state)

    def write(self, procfile: str | None = None, toml: str | None = None) -> None:
        """Write the files anew."""
        if procfile is not None:
            (self.home / "Procfile").write_text(procfile)
        if toml is not None:
            (self.home / "runtime.toml").write_text(toml)

    def spawn(self, command: str = "up", **options: Any) -> "UpProcess":
        """Start it and do not wait."""
        with self.output.open("ab") as output:
            streams = {"stdout": output, "stderr": output, "stdin": subprocess.DEVNULL, "start_new_session": True}
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "runtime", command],
                cwd=self.home,
                env=self.environ,
                **(streams | options),
            )
        return self

    async def start(self) -> "UpProcess":
        """Start it and wait until everything is ready, or parked."""
        self.spawn()
        await self.settled()
        return self

    async def settled(self) -> None:
        try:
            await eventually(lambda: self.look()["state"] == "up", within=START_SECS)
        except AssertionError as error:
            raise AssertionError(f"{error}; it wrote:\n{self.text()}") from None

    def look(self) -> dict[str, Any]:
        """`status`; one that does not answer yet is `absent`."""
        try:
            return dict(self.client.ask("status", within_secs=10.0))
        except NotRunning:
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"up ended with {self.process.returncode}:\n{self.text()}") from None
            return {"state": "absent", "replicas": []}

    def replica(self, label: str) -> dict[str, Any]:
        """One replica of `status`; empty when there is none."""
        return next((replica for replica in self.look()["replicas"] if replica["label"] == label), {})

    async def reaches(self, label: str, state: str, within: float = START_SECS, **fields: Any) -> dict[str, Any]:
        """Wait until a replica is in a state, and has some values."""
        wanted = {"state": state, **fields}

        def found() -> dict[str, Any]:
            replica = self.replica(label)
            return replica if wanted.items() <= replica.items() else {}

        return await eventually(found, within=within, what=f"{label} is {wanted}; {self.replica(label)}")

    async def ask(self, command: str, **fields: Any) -> Any:
        """A command of the control socket."""
        return await asyncio.to_thread(self.client.ask, command, within_secs=60.0, **fields)

    def run(self, *arguments: str, timeout: float = 30.0) -> subprocess.CompletedProcess[str]:
        """A command of the command line."""
        return subprocess.run(
            [sys.executable, "-m", "runtime", *arguments],
            cwd=self.home,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def text(self) -> str:
        """What it wrote."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def events(self, event: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """Its JSON lines, or those of one event with these fields."""
        lines = [json.loads(line) for line in self.text().splitlines() if line.startswith("{")]
        wanted = fields | ({"event": event} if event else {})
        return [line for line in lines if wanted.items() <= line.items()]

    def lines_of(self, label: str) -> list[str]:
        """What one replica said."""
        return [line["line"] for line in self.events(process=label) if "line" in line]

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def ended(self, within: float = STOP_SECS) -> int:
        """Wait for its end; returns its exit code."""
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, within)

    async def stop(self) -> int:
        """SIGTERM; returns its exit code."""
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def stop_hurried(self) -> int:
        """SIGINT twice; returns its exit code."""
        self.signal(signal.SIGINT)
        await eventually(lambda: self.events("stopping"))
        self.signal(signal.SIGINT)
        return await self.ended()

    def survivors(self) -> list[str]:
        """Processes that came from it and live, by the state directory in their environment; `up` itself left out."""
        marker = str(self.state.root)
        found = []
        for process in psutil.process_iter():
            try:
                is_ours = process.environ().get("NATS_HUB_STATE_DIR") == marker
                is_up = self.process is not None and process.pid == self.process.pid
                if is_ours and not is_up and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {' '.join(process.cmdline())}")
            except psutil.Error:
                continue
        return found

    def survivors_named(self, text: str) -> list[int]:
        """The pids of the survivors with this text in their command, but not behind it (as `unshare` has it)."""
        lines = [line for line in self.survivors() if text in line and "unshare" not in line]
        return [int(line.split()[0]) for line in lines]

    @staticmethod
    def zombies(pid: int) -> list[int]:
        """The dead children of a process that it did not wait for."""
        children = psutil.Process(pid).children()
        return [child.pid for child in children if child.status() == psutil.STATUS_ZOMBIE]

    def end(self) -> None:
        """At the end of a test: nothing of it stays."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        deadline = time.monotonic() + 6
        while (left := self.survivors()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for line in left:
            os.kill(int(line.split()[0]), signal.SIGKILL)
        assert not left, f"outlived a killed `up`: {left}"
