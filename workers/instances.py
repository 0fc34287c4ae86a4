"""The watch for other instances: two processes with one identity notice each other by their presence (contract §2)."""

import asyncio
import time
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

import msgspec
import structlog

from hub.delivery.connection import Connection
from hub.delivery.nats_client import Incoming
from hub.protocol import BadEnvelope, BadPayload, parse, subjects

log = structlog.get_logger(__name__)

LOOK_SECS: Final = 35.0  # contract §2: a worker announces itself every 30 s


class Verdict(Enum):
    """What another instance's presence means for this one."""

    NOTHING = "nothing"
    DUPLICATE = "duplicate"  # it was here first: leave
    TAKEN_OVER = "taken over"  # it comes to replace us: drain and leave


class Own(msgspec.Struct, frozen=True):
    """What this instance is.

    Attributes:
        instance: its random name.
        started_at: when it started, as the wire has it.
        takes_over: its operator said so.
    """

    instance: str
    started_at: str
    takes_over: bool


def judge(payload: Any, own: Own, *, age_secs: float) -> Verdict:
    """Decide over a presence of our identity.

    Args:
        payload: what it says.
        own: what we are.
        age_secs: for how long we run.
    """
    if not isinstance(payload, dict):
        return Verdict.NOTHING
    instance, started_at = payload.get("instance"), payload.get("started_at")
    if not isinstance(instance, str) or instance == own.instance or not isinstance(started_at, str):
        return Verdict.NOTHING
    theirs, ours = _moment(started_at), _moment(own.started_at)
    if theirs is None or ours is None:
        return Verdict.NOTHING
    is_older = (theirs, instance) < (ours, own.instance)  # the names decide between two of the same microsecond
    if not is_older:
        return Verdict.TAKEN_OVER if payload.get("takeover") is True else Verdict.NOTHING
    return Verdict.DUPLICATE if age_secs <= LOOK_SECS and not own.takes_over else Verdict.NOTHING


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class InstanceWatch:
    """Hears the presence of one's own identity.

    Args:
        connection: the connection.
        identity: whose.
        own: this instance.

    Attributes:
        verdict: set once, when another instance is heard that makes this one leave.
    """

    def __init__(self, connection: Connection, identity: str, own: Own) -> None:
        self.verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._subject = subjects.presence(identity)
        self._own = own
        self._began = time.monotonic()
        self._sid: int | None = None

    async def start(self) -> None:
        """Begin to listen; before the first announcement, or an answer to it is missed."""
        self._sid = await self._connection.client.subscribe_direct(self._subject, self._on_message)
        await self._connection.flush()

    async def stop(self) -> None:
        """Listen no more. Stopping twice is fine."""
        sid, self._sid = self._sid, None
        if sid is not None:
            await self._connection.client.unsubscribe_direct(sid)

    def _on_message(self, message: Incoming) -> None:
        if message.status:
            return
        try:
            payload = parse(message.data).payload
        except (BadEnvelope, BadPayload) as error:
            log.info("a presence that is none", error=str(error))
            return
        verdict = judge(payload, self._own, age_secs=time.monotonic() - self._began)
        if verdict is not Verdict.NOTHING and not self.verdict.done():
            log.error("another instance", verdict=verdict.value, theirs=payload["instance"], ours=self._own.instance)
            self.verdict.set_result(verdict)
