"""A real, private PostgreSQL cluster: made once a test process, a database of its own for each test."""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.nats_server import free_port

START_DEADLINE_SECS = 30.0  # a loaded two-core machine starts one in about a second
STOP_DEADLINE_SECS = 30.0
USER = "hub"

# A kill -9 of the server is survived without fsync; only a power cut would not be.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "autovacuum_naptime": "10s",
    "listen_addresses": "127.0.0.1",
}


def binaries() -> Path | None:
    """The folder of the newest server's programs, or None when there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def why_not() -> str:
    """Why no cluster can be made here; empty when one can."""
    if binaries() is None:
        return "no PostgreSQL server programs (initdb) on this machine"
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            return "initdb refuses root, and there is no setpriv to leave it"
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "initdb refuses root, and there is no user postgres to be instead"
    return ""


class PostgresCluster:
    """One server with its data folder. The port stays over `kill` and `start`."""

    def __init__(self) -> None:
        found = binaries()
        assert found is not None, why_not()
        self._bin = found
        self.home = Path(tempfile.mkdtemp(prefix="pg-"))
        self.data = self.home / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(self.home, account.pw_uid, account.pw_gid)
            self._as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
        self._run("initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [*self._as_user, str(self._bin / program), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=self.home,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr or done.stdout}")
        return done.stdout

    def _client(self, program: str, *arguments: str) -> str:
        return self._run(program, "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, *arguments)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> "PostgresCluster":
        assert self._process is None, "already running"
        options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        log_file = self.home / "server.log"
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._as_user,
                    str(self._bin / "postgres"),
                    *("-D", str(self.data), "-p", str(self.port), "-k", str(self.home)),
                    *options,
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.home,
            )
        deadline = time.monotonic() + START_DEADLINE_SECS
        while True:
            try:
                self._client("psql", "-d", "postgres", "-c", "SELECT 1")
            except RuntimeError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{error}\n{log_file.read_text(errors='replace')}") from None
                time.sleep(0.05)
            else:
                return self

    def make_database(self) -> str:
        """A new, empty database; its name."""
        name = f"test_{secrets.token_hex(6)}"
        self._client("createdb", name)
        return name

    def drop_database(self, name: str) -> None:
        self._client("dropdb", "--force", "--if-exists", name)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(STOP_DEADLINE_SECS)
            self._process = None

    def stop(self) -> None:
        """Fast shutdown: clients are cut off. Stopping what does not run is fine."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Immediate shutdown: as after a crash, the next start recovers.

        SIGQUIT and not SIGKILL: the latter leaves the server's children and its shared memory behind.
        """
        self._end(signal.SIGQUIT)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)
