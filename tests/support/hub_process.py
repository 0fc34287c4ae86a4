"""Real hub processes for tests: started, killed and stopped like an operator does."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.nursery import NURSERY, NurseryProcess
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
READY_SECS = 30.0  # two busy cores; a process takes one to two seconds
STOP_SECS = 25.0


class HubProcess:
    """One process of ours, its log in a file.

    Args:
        home: folder of its state and log; shared by processes that share history.
        url: the nats-server.
        arguments: behind `python -m`, as `hub router --durable`.
        environ: more environment.
        fresh: start Python anew; for tests of the start itself and of memory, as a fork has all imports of ours.
    """

    def __init__(
        self, home: Path, url: str, *arguments: str, environ: dict[str, str] | None = None, fresh: bool = False
    ) -> None:
        self.home = home
        self.fresh = fresh
        home.mkdir(parents=True, exist_ok=True)
        self.arguments = arguments
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        state = {"NATS_URL": url, "NATS_HUB_STATE_DIR": str(home), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.environ = kept | state | (environ or {})
        self.log_file = home / f"{'-'.join(arguments[:2])}-{id(self):x}.log".replace("/", "_")
        self.process: NurseryProcess | subprocess.Popen[bytes] | None = None

    @property
    def database(self) -> Path:
        return self.home / "hub.db"

    def spawn(self) -> "HubProcess":
        """Start it and do not wait."""
        with self.log_file.open("ab") as log:
            if self.fresh:
                words = [sys.executable, "-m", *self.arguments]
                self.process = subprocess.Popen(words, env=self.environ, stdout=log, stderr=log, cwd=self.home)
                return self
            module, *arguments = self.arguments
            self.process = NURSERY.spawn(module, arguments, environ=self.environ, cwd=self.home, stdout=log, stderr=log)
        return self

    async def start(self) -> "HubProcess":
        """Start it and wait until it says that it is ready."""
        self.spawn()
        await self.logged("ready")
        return self

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Its log lines, or those of one event."""
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        parsed = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line for line in parsed if name is None or line.get("event") == name]

    async def logged(self, event: str, *, within: float = READY_SECS, times: int = 1) -> dict[str, Any]:
        """Wait for a log line; a process that ends without it fails the test with its log."""

        def found() -> bool:
            if len(self.events(event)) >= times:
                return True
            assert self.is_running, f"{self.arguments} ended with {self.returncode}:\n{self.log_file.read_text()}"
            return False

        await eventually(found, within=within, what=f"{self.arguments} logs {event!r}")
        return self.events(event)[-1]

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def returncode(self) -> int | None:
        return None if self.process is None else self.process.poll()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def ended(self, within: float = STOP_SECS) -> int:
        """Wait for its end and return its exit code."""
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, within)

    async def stop(self) -> int:
        """SIGTERM; returns its exit code."""
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> None:
        """kill -9; fine when it has ended already."""
        if self.is_running:
            self.signal(signal.SIGKILL)
        if self.process is not None:
            await self.ended()
