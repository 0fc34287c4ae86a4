"""Where the supervisor keeps what it keeps: the state directory and the files in it (contract §12)."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

SOCKET_PATH_BYTES: Final = 100  # sun_path is 104 bytes on macOS, 108 on Linux, with the final NUL

_NO_HOME: Final = "no home directory"


class StateDir(msgspec.Struct, frozen=True):
    """The state directory.

    Attributes:
        root: absolute; shared with the processes, which are given it as `NATS_HUB_STATE_DIR`.
        source: why this one.
    """

    root: Path
    source: str

    @property
    def is_makeshift(self) -> bool:
        """Is it only the current folder, for want of a home? The next start may stand elsewhere."""
        return self.source.startswith(_NO_HOME)

    @property
    def url_file(self) -> Path:
        """The embedded server's address, for every command that has no NATS_URL."""
        return self.root / "nats.url"

    @property
    def runtime(self) -> Path:
        """What is the supervisor's alone."""
        return self.root / "runtime"

    @property
    def lock_file(self) -> Path:
        """Held by the running `up`."""
        return self.runtime / "up.lock"

    @property
    def children_lock_file(self) -> Path:
        """Held by the shims: free when nothing of an earlier `up` is left."""
        return self.runtime / "children.lock"

    @property
    def control_socket(self) -> Path:
        """Where commands are answered."""
        return self.runtime / "control.sock"

    @property
    def notify_sockets(self) -> Path:
        """One socket a running child."""
        return self.runtime / "notify"

    @property
    def logs(self) -> Path:
        """One file a child, rotated."""
        return self.runtime / "logs"

    @property
    def stopped_file(self) -> Path:
        """What the operator stopped."""
        return self.runtime / "stopped.json"

    @property
    def nats(self) -> Path:
        """The embedded server's config and store."""
        return self.root / "nats"

    def make(self) -> None:
        """Make the folders; private to the user."""
        for folder in (self.root, self.runtime, self.notify_sockets, self.logs):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def find_state_dir(environ: Mapping[str, str]) -> StateDir:
    """`NATS_HUB_STATE_DIR`, else `$XDG_STATE_HOME/nats-hub`, else `~/.local/state/nats-hub`, else `.state` here.

    Nothing is made. The last one is a warning to give: the next start may stand in another folder.
    """
    if environ.get("NATS_HUB_STATE_DIR"):
        return StateDir(Path(environ["NATS_HUB_STATE_DIR"]).expanduser().absolute(), "NATS_HUB_STATE_DIR")
    if environ.get("XDG_STATE_HOME"):
        return StateDir(Path(environ["XDG_STATE_HOME"]).absolute() / "nats-hub", "XDG_STATE_HOME")
    home = environ.get("HOME", "")
    if home and Path(home).is_dir():
        return StateDir(Path(home).absolute() / ".local" / "state" / "nats-hub", "HOME")
    return StateDir(Path(".state").absolute(), f"{_NO_HOME}: kept here; set NATS_HUB_STATE_DIR")


@contextmanager
def socket_path(path: Path) -> Iterator[str]:
    """A name for a Unix socket that the kernel takes: long paths go through a symbolic link in the temporary folder.

    The link is gone when the context ends; a socket that was bound through it stays at `path`.
    """
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        yield str(path)
        return
    with tempfile.TemporaryDirectory(prefix="up-") as folder:
        link = Path(folder, "s")
        link.symlink_to(path.parent)
        yield str(link / path.name)
