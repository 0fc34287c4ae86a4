"""Readiness to whoever supervises: the sd_notify protocol over `NOTIFY_SOCKET` (systemd, `runtime up`)."""

import os
import socket
from typing import Final

import structlog

log = structlog.get_logger(__name__)

_SEND_TIMEOUT_SECS: Final = 1.0  # a supervisor that does not read must not hold up the service


def notify(state: str) -> bool:
    """Tell the supervisor a state (`READY=1`, `STOPPING=1`, `STATUS=…`, `WATCHDOG=1`).

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
            channel.settimeout(_SEND_TIMEOUT_SECS)
            channel.sendto(state.encode(), address)
    except OSError as error:
        log.warning("the supervisor was not told", state=state, error=str(error))
        return False
    return True
