"""The announcer: tells the hub that an agent is here, who it is and what it can do (contract §2)."""

import asyncio
import itertools
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from hub.delivery.connection import Connection
from hub.delivery.errors import NotConnected
from hub.protocol import Envelope, TooLarge, format_time, make, subjects

log = structlog.get_logger(__name__)

FIRST_PAUSES_SECS: Final = (1.0, 1.0, 2.0, 4.0)  # at 0, 1, 2, 4 and 8 s: a hub that starts together with us hears one
EVERY_SECS: Final = 30.0


class Announcer:
    """Announces an agent: presence, then registration; at once, after 1, 2, 4 and 8 s, then every 30 s.

    Announcements are best effort and never pile up: while disconnected none is made.

    Args:
        connection: the connection.
        identity: the agent.
        capabilities: what it can do, words that `agent.find` looks for.
        metadata: more about it.
        presence: more members for its presence (a worker's `takeover`); a function is asked at each announcement.

    Attributes:
        instance: random for each process; two of one identity tell themselves apart by it.
        started_at: when it started, as the wire has it.

    Raises:
        TooLarge, BadPayload: what is to be announced cannot be sent.
    """

    def __init__(
        self,
        connection: Connection,
        identity: str,
        *,
        capabilities: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        presence: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self.instance = secrets.token_hex(8)
        self.started_at = format_time(datetime.now(UTC))
        self._connection = connection
        self._identity = identity
        self._presence = presence
        self._registration = {
            "identity": identity,
            "capabilities": list(capabilities),
            "metadata": dict(metadata or {}),
        }
        self._task: asyncio.Task[None] | None = None
        for envelope in (self._make_presence(), self._make_registration()):
            if len(envelope.body) > connection.usable_size:
                what = f"{envelope.meta.channel} of {identity}"
                raise TooLarge(what, len(envelope.body), connection.usable_size)

    def start(self) -> None:
        """Begin. Starting twice is fine."""
        if self._task is None:
            self._task = self._connection.own(self._announce_for_ever(), name=f"announcer {self._identity}")

    async def stop(self) -> None:
        """Announce no more. Nothing says "gone": who is not seen for 90 s is not alive."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def announce(self) -> None:
        """Announce now, presence first."""
        if not self._connection.is_connected:
            return
        await self._connection.publish(subjects.presence(self._identity), self._make_presence().body)
        await self._connection.publish(subjects.register(self._identity), self._make_registration().body)

    async def _announce_for_ever(self) -> None:
        pauses = itertools.chain(FIRST_PAUSES_SECS, itertools.repeat(EVERY_SECS))
        for pause_secs in pauses:
            try:
                await self.announce()
            except NotConnected as error:
                log.info("not announced", identity=self._identity, reason=str(error))
            await asyncio.sleep(pause_secs)

    def _make_presence(self) -> Envelope:
        more = self._presence() if callable(self._presence) else self._presence or {}
        own = {"identity": self._identity, "instance": self.instance, "started_at": self.started_at}
        return make(sender=self._identity, channel="presence", kind="status", payload={**more, **own})

    def _make_registration(self) -> Envelope:
        return make(sender=self._identity, channel="register", kind="control", payload=self._registration)
