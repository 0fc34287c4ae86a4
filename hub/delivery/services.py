"""The roll call: which routers and responders answer `$SRV.PING`."""

import asyncio
import time
from typing import Any, Final

import msgspec

from hub.delivery.connection import Connection
from hub.delivery.errors import PermissionDenied
from hub.delivery.nats_client import Incoming

ROUTER: Final = "hub-router"
ATTACH: Final = "hub-attach"

_PING: Final = "$SRV.PING"
_MOST_SECS: Final = 1.0  # for all answers together; a process that is busy longer is in trouble
_QUIET_SECS: Final = 0.15  # after the last answer; on one network all come within a few milliseconds
_MOST_ANSWERS: Final = 1000


class Service(msgspec.Struct, frozen=True):
    """One instance of a service.

    Attributes:
        name, id, version: as it says.
        mode: `core` or `durable`; empty when it does not say.
    """

    name: str
    id: str = ""
    version: str = ""
    metadata: dict[str, str] = {}

    @property
    def mode(self) -> str:
        """`core` or `durable`; empty when it does not say."""
        return self.metadata.get("mode", "")


async def roll_call(connection: Connection) -> list[Service]:
    """Ask all services of this account for a sign of life and wait until no more answer.

    Raises:
        PermissionDenied: this identity may not ask.
        NotConnected: the connection is closed.
    """
    heard: list[Service] = []
    news = asyncio.Event()
    is_nobody = asyncio.Event()

    def take(message: Incoming) -> None:
        if message.status == 503:
            is_nobody.set()
        elif len(heard) < _MOST_ANSWERS:
            service = _read(message.data)
            if service is not None:
                heard.append(service)
        news.set()

    reply = connection.new_reply_subject()
    sid = await connection.client.subscribe_direct(reply, take)
    denials = _denials(connection)
    try:
        await connection.publish(_PING, b"", reply=reply)
        await connection.flush()
        if _denials(connection) > denials:
            raise PermissionDenied("publish", _PING, connection.identity)
        ends = time.monotonic() + _MOST_SECS
        wait_secs = _MOST_SECS / 2  # for the first answer
        while not is_nobody.is_set() and time.monotonic() < ends:
            news.clear()
            try:
                async with asyncio.timeout(min(wait_secs, max(0.0, ends - time.monotonic()))):
                    await news.wait()
            except TimeoutError:
                break
            wait_secs = _QUIET_SECS
    finally:
        await connection.client.unsubscribe_direct(sid)
    return heard


def _denials(connection: Connection) -> int:
    return connection.denied.get(("publish", _PING.lower()), 0)


def _read(data: bytes) -> Service | None:
    try:
        return msgspec.convert(msgspec.json.decode(data), Service)
    except (msgspec.MsgspecError, RecursionError):
        return None  # somebody else's service, or somebody's joke


def described(services: list[Service]) -> dict[str, Any]:
    """How many of which, for programs."""
    counts: dict[str, int] = {}
    for service in services:
        counts[service.name] = counts.get(service.name, 0) + 1
    return {"services": counts, "versions": sorted({service.version for service in services if service.version})}
