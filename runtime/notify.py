"""The sd_notify protocol: what a child says of itself, and what we say to our own supervisor."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from runtime.paths import socket_path

_DATAGRAM_BYTES: Final = 65536  # systemd takes no more than a page or so; a longer one is cut
_STATUS_CHARACTERS: Final = 1000  # shown in a table
_FIGURES: Final = 32  # names that one child may report
_SEND_TIMEOUT_SECS: Final = 1.0


class Notice(msgspec.Struct, frozen=True):
    """One datagram.

    Attributes:
        is_ready: READY=1.
        is_stopping: STOPPING=1.
        is_beat: WATCHDOG=1.
        is_hung: WATCHDOG=trigger: it asks to be treated as hung.
        status: STATUS=…, None when absent.
        figures: X_NAME=value: figures that the process reports, by name in lower case.
    """

    is_ready: bool = False
    is_stopping: bool = False
    is_beat: bool = False
    is_hung: bool = False
    status: str | None = None
    figures: dict[str, str] = {}


def parse(datagram: bytes) -> Notice:
    """Read one datagram; lines that are not known or not understood are left out."""
    values: dict[str, str] = {}
    for line in datagram.decode("utf-8", "replace").split("\n"):
        name, equals, value = line.partition("=")
        if equals:
            values[name] = value
    figures = {
        name[2:].lower(): value[:_STATUS_CHARACTERS]
        for name, value in values.items()
        if name.startswith("X_") and name[2:]
    }
    return Notice(
        is_ready=values.get("READY") == "1",
        is_stopping=values.get("STOPPING") == "1",
        is_beat=values.get("WATCHDOG") == "1",
        is_hung=values.get("WATCHDOG") == "trigger",
        status=values["STATUS"][:_STATUS_CHARACTERS] if "STATUS" in values else None,
        figures=dict(list(figures.items())[:_FIGURES]),
    )


class NotifySocket:
    """Receives the datagrams of one child, and of no other: each start has its own, so nothing stale is taken for new.

    Args:
        path: where; unlinked at the end.
        on_notice: called in the loop for each datagram.
    """

    def __init__(self, path: Path, on_notice: Callable[[Notice], None]) -> None:
        self._path = path
        self._on_notice = on_notice
        self._socket: socket.socket | None = None
        self._address = contextlib.ExitStack()

    def open(self) -> str:
        """Bind; returns the address for `NOTIFY_SOCKET`."""
        address = self._address.enter_context(socket_path(self._path))
        self._path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(address)
        asyncio.get_running_loop().add_reader(self._socket, self._receive)
        return address

    def close(self) -> None:
        """Receive what is there, and no more. Closing twice is fine."""
        if self._socket is not None:
            self._receive()
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            self._path.unlink(missing_ok=True)
            self._address.close()

    def _receive(self) -> None:
        assert self._socket is not None
        for _ in range(100):  # a child that floods us is read on at the next turn of the loop
            try:
                # A plain receive: the kernel closes descriptors that come along (BARRIER=1), which is the answer.
                datagram = self._socket.recv(_DATAGRAM_BYTES)
            except BlockingIOError:
                return
            self._on_notice(parse(datagram))


def tell(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Tell our own supervisor (systemd) a state; nothing happens when there is none."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.settimeout(_SEND_TIMEOUT_SECS)
        channel.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
