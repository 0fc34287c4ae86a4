"""Readiness and life to whoever supervises: the sd_notify protocol over `NOTIFY_SOCKET` (systemd, `runtime up`)."""

import asyncio
import os
import socket
from collections.abc import Mapping
from typing import Final

import structlog

log = structlog.get_logger(__name__)

_SEND_TIMEOUT_SECS: Final = 1.0  # a supervisor that does not read must not hold up the service
_BEATS: Final = 3  # within the time after which we count as dead; sd_watchdog_enabled(3) says at least two


def notify(state: str, *, wait_secs: float = _SEND_TIMEOUT_SECS) -> bool:
    """Tell the supervisor a state (`READY=1`, `STOPPING=1`, `STATUS=…`, `WATCHDOG=1`).

    Args:
        state: one or more lines of the protocol.
        wait_secs: how long a supervisor that does not read may hold us up; 0 for what is said again anyway.

    Returns:
        False when nobody asked to be told, or could not be.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # Linux: the abstract namespace
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.settimeout(wait_secs)
            channel.sendto(state.encode(), address)
    except OSError as error:
        log.warning("the supervisor was not told", state=state, error=str(error))
        return False
    return True


def watchdog_secs(environ: Mapping[str, str]) -> float | None:
    """After how long without a beat the supervisor counts this process as hung; None: it does not watch us.

    `WATCHDOG_USEC`, and `WATCHDOG_PID` when it is there: another's watchdog is no business of ours.
    """
    text, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID")
    if pid is not None and pid != str(os.getpid()):
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        if text:
            log.warning("no watchdog: expected microseconds in WATCHDOG_USEC", got=text[:40])
        return None
    return int(text) / 1e6


class WatchdogBeat:
    """Says `WATCHDOG=1` out of the event loop, so that a loop that is stuck is silent and the supervisor acts.

    It begins before the service is ready and goes on while it stops: long starts and drains are no hangs.
    """

    def __init__(self) -> None:
        secs = watchdog_secs(os.environ)
        self._every_secs = None if secs is None else secs / _BEATS
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, when the supervisor watches us."""
        if self._every_secs is not None:
            notify("WATCHDOG=1", wait_secs=0)
            self._timer = asyncio.get_running_loop().call_later(self._every_secs, self.start)

    def stop(self) -> None:
        """End. Stopping twice is fine."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
