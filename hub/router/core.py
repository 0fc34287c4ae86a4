"""The core router: plain NATS, no JetStream request of any kind (contract §3.1)."""

from typing import Any, Final

import msgspec
import structlog

from hub.delivery.connection import Connection
from hub.delivery.headers import header_lines
from hub.delivery.nats_client import Incoming
from hub.delivery.replies import fits_request_info, may_answer
from hub.protocol import TooLarge, subjects
from hub.router.dead_letters import DeadLetters
from hub.router.durable import publish_live
from hub.router.live_mirror import LiveMirror
from hub.router.metrics import RouterMetrics
from hub.router.rules import TOLD_TO_SENDER, Drop, Reason, Route, route
from hub.router.undelivered import notice

log = structlog.get_logger(__name__)

ROUTED: Final = b'{"ok":true,"mode":"core"}'  # contract §2


class CoreRouter:
    """Routes what it hears, at once or not at all; routers share the work by a queue group.

    Args:
        connection: the hub's connection.
        metrics: where it counts.
        dead_letters: where what goes nowhere is kept.
        live_mirror: where everything is mirrored, best effort.
    """

    def __init__(
        self, connection: Connection, *, metrics: RouterMetrics, dead_letters: DeadLetters, live_mirror: LiveMirror
    ) -> None:
        self._connection = connection
        self._metrics = metrics
        self._dead_letters = dead_letters
        self._live_mirror = live_mirror
        self._sid: int | None = None

    async def start(self) -> None:
        """Begin to route. Starting twice is fine."""
        if self._sid is None:
            client = self._connection.client
            self._sid = await client.subscribe_direct(
                subjects.INGRESS_ALL, self._on_message, queue=subjects.QUEUE_ROUTER
            )
            await self._connection.flush()

    async def stop(self) -> None:
        """Take no more; what was taken has gone out when this returns."""
        if self._sid is None:
            return
        sid, self._sid = self._sid, None
        await self._connection.client.unsubscribe_direct(sid)
        await self._connection.flush()

    def describe(self) -> dict[str, Any]:
        """Its numbers, for status."""
        return {"routed": sum(self._metrics.routed.values())}

    def _on_message(self, message: Incoming) -> None:
        headers = header_lines(message.header_block) if message.header_block else []
        decided = _decide(message, headers)
        if not isinstance(decided, Drop):
            try:
                publish_live(self._connection, decided)
            except TooLarge as error:
                meta = decided.envelope.meta
                decided = Drop(Reason.TOO_LARGE, str(error), meta.sender, meta.channel, meta.id)
        if isinstance(decided, Drop):
            self._drop(message, headers, decided)
            return
        self._metrics.routed[decided.home] += 1
        self._live_mirror.offer(decided.envelope, decided.destination)
        self._answer(message, ROUTED)

    def _drop(self, message: Incoming, headers: list[tuple[str, str]], drop: Drop) -> None:
        self._metrics.dropped[drop.reason] += 1
        self._dead_letters.put(message.subject, headers, message.data, drop)
        told = notice(drop) if drop.reason in TOLD_TO_SENDER else None
        if told is not None and told.meta.to is not None:
            _send(self._connection, subjects.inbox(told.meta.to), told.body)
        self._answer(message, msgspec.json.encode({"ok": False, "error": drop.detail, "code": drop.reason.value}))

    def _answer(self, message: Incoming, body: bytes) -> None:
        """Tell the sender, on a reply subject of its own only (see `hub.delivery.replies`)."""
        split = subjects.split_publish(message.subject)
        if message.reply and split is not None and may_answer(message.reply, split[0]):
            _send(self._connection, message.reply, body)


def _decide(message: Incoming, headers: list[tuple[str, str]]) -> Route | Drop:
    """The rules, and what only live messages have: the account that the server says they came from."""
    decided = route(message.subject, headers, message.data, is_guarded=False)
    if isinstance(decided, Route) and not fits_request_info(dict(headers), decided.envelope.meta.sender):
        return Drop(Reason.BAD_IDENTITY, "the server says that it came from another identity's account")
    return decided


def _send(connection: Connection, subject: str, body: bytes) -> None:
    connection.client.send(b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(body), body))
