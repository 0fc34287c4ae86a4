"""A private PostgreSQL cluster for tests: unix socket only, started, killed and restarted at will.

`initdb` and `postgres` refuse root, so under root they run as the user `postgres` (or `nobody`). Folders of pytest are
closed to other users and too long for a socket path, so the cluster lives in a short folder of its own.
"""

import asyncio
import getpass
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from pathlib import Path

import asyncpg
import pytest

START_DEADLINE_SECS = 30.0  # recovery after a kill included
STOP_DEADLINE_SECS = 20.0
PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/pgsql/bin")


def postgres_binaries() -> Path | None:
    """The folder with `initdb` and `postgres`, the newest version's; None: this machine has none."""
    for place in PLACES:
        root, _, pattern = place[1:].partition("/")
        found = sorted(Path("/", root).glob(pattern), key=lambda path: (len(str(path)), str(path)))
        found = [path for path in found if (path / "initdb").exists() and (path / "postgres").exists()]
        if found:
            return found[-1]
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path and shutil.which("postgres") else None


def binaries_or_skip() -> Path:
    """As `postgres_binaries`; without them the test is skipped with the reason."""
    found = postgres_binaries()
    if found is None:
        pytest.skip("no PostgreSQL server on this machine (initdb and postgres): install the package postgresql")
    return found


def unprivileged_user() -> str | None:
    """Who runs the cluster where this process is root; None: this process's own user."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    pytest.skip("PostgreSQL refuses root, and there is neither a user postgres nor nobody to run it as")


class Postgres:
    """One cluster. Its socket stays over `kill` and `start`, so clients find it again.

    Args:
        durable: fsync on. Off, what was committed still survives a kill -9 of the server, but not one of the machine.
        settings: more settings for the server, e.g. `{"max_connections": "20"}`.
    """

    def __init__(self, *, durable: bool = False, settings: dict[str, str] | None = None) -> None:
        self._binaries = binaries_or_skip()
        self._user = unprivileged_user()
        self.superuser = self._user or getpass.getuser()
        self.home = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self.data = self.home / "data"
        self.log_file = self.home / "postgres.log"
        if self._user is not None:
            shutil.chown(self.home, self._user)
        safe = "on" if durable else "off"
        self._settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.home),
            "fsync": safe,
            "full_page_writes": safe,
            "shared_buffers": "32MB",
            "max_connections": "100",
            **(settings or {}),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres", *, driver: str = "") -> str:
        """Where to connect; `driver="+asyncpg"` for SQLAlchemy."""
        return f"postgresql{driver}://{self.superuser}@/{database}?host={self.home}"

    def log_text(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def _as_user(self) -> dict[str, object]:
        if self._user is None:
            return {}
        entry = pwd.getpwnam(self._user)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def initdb(self) -> None:
        command = [str(self._binaries / "initdb"), "-D", str(self.data), "-A", "trust", "-E", "UTF8", "--no-sync"]
        command += ["--locale=C", "-U", self.superuser]
        done = subprocess.run(command, capture_output=True, check=False, cwd="/", **self._as_user())  # type: ignore[call-overload]
        assert done.returncode == 0, f"initdb failed: {done.stderr.decode(errors='replace')}"

    async def start(self) -> "Postgres":
        assert self.process is None, "already running"
        if not self.data.exists():
            await asyncio.to_thread(self.initdb)
        async with asyncio.timeout(START_DEADLINE_SECS):
            while not await self._launch():
                # A killed server's shared memory lives until its last backend has noticed.
                await asyncio.sleep(0.1)
        return self

    async def _launch(self) -> bool:
        settings = [argument for name, value in self._settings.items() for argument in ("-c", f"{name}={value}")]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(  # type: ignore[call-overload]
                [str(self._binaries / "postgres"), "-D", str(self.data), *settings],
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                **self._as_user(),
            )
        while self.process.poll() is None:
            try:
                connection = await asyncpg.connect(self.url(), timeout=5)
            except (OSError, asyncpg.PostgresError, TimeoutError):
                await asyncio.sleep(0.02)
                continue
            await connection.close()
            return True
        self.process = None
        if "pre-existing shared memory" in self.log_text()[-2000:]:
            return False
        raise RuntimeError(f"postgres ended at start:\n{self.log_text()[-4000:]}")

    async def _ended(self) -> None:
        assert self.process is not None
        await asyncio.to_thread(self.process.wait, STOP_DEADLINE_SECS)
        self.process = None

    async def stop(self) -> None:
        """An orderly, fast shutdown: sessions are ended, nothing is lost."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            await self._ended()

    async def kill(self) -> None:
        """kill -9 of the server and all its backends, which are its process group."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            await self._ended()

    async def restart(self, *, graceful: bool = False) -> None:
        await (self.stop() if graceful else self.kill())
        await self.start()

    async def create_database(self) -> str:
        """A fresh, empty database; returns its name."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        connection = await asyncpg.connect(self.url())
        try:
            # Since 15 the template is logged block by block, which takes three times as long as a copy of its files.
            how = " STRATEGY FILE_COPY" if connection.get_server_version().major >= 15 else ""
            await connection.execute(f'CREATE DATABASE "{name}"{how}')
        finally:
            await connection.close()
        return name

    async def remove(self) -> None:
        """Kill it and delete its folder."""
        await self.kill()
        shutil.rmtree(self.home, ignore_errors=True)
