"""The caller's side of the query API: asks one operation, or reads a list to its end (contract §10)."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from hub.client.errors import ClientError
from hub.delivery.connection import Connection
from hub.delivery.errors import BadSettings, NoResponders
from hub.protocol import TooLarge, names, subjects

TIMEOUT_SECS: Final = 30.0  # above every deadline of the API, so that its own word for "too late" arrives
ABSENT_SECS: Final = 2.0  # a restart, or a reload of the server's accounts, leaves a hole in which nobody answers


class QueryRefused(ClientError):
    """The API said no.

    Attributes:
        op: what was asked.
        code: a word of contract §10.
        next_cursor: of a list whose next record is too large to be sent: where it goes on behind it.
    """

    def __init__(self, op: str, code: str, text: str, next_cursor: str | None = None) -> None:
        self.op = op
        self.code = code
        self.next_cursor = next_cursor
        super().__init__(f"{text} ({code})")


class NoApi(ClientError):
    """Nobody answers queries here."""

    code = "unavailable"

    def __init__(self, servers: str) -> None:
        super().__init__(f"no query API answers at {servers}: start one with `python -m hub api`, or hub-server")


class _Reply(msgspec.Struct):
    ok: bool
    data: dict[str, Raw] = {}
    error: str = ""
    code: str = "internal"
    next_cursor: str | None = None


class Queries:
    """Asks the query API as one identity.

    Args:
        connection: a connection with an identity.
        timeout_secs: for one answer.

    Raises:
        BadSettings: the connection has no identity.
    """

    def __init__(self, connection: Connection, *, timeout_secs: float = TIMEOUT_SECS) -> None:
        if connection.identity is None:
            raise BadSettings("a query needs an identity: set NATS_HUB_IDENTITY or pass identity=")
        self.identity = names.agent_identity(connection.identity)
        self._connection = connection
        self._timeout_secs = timeout_secs

    async def ask(self, op: str, params: Mapping[str, Any] | None = None) -> dict[str, Raw]:
        """Call one operation.

        Args:
            op: as `history.query`.
            params: its parameters; those that are None are left out.

        Returns:
            The members of the answer, each still JSON.

        Raises:
            QueryRefused: the API said no, and why.
            NoApi: nobody answers.
            RequestTimedOut, PermissionDenied, NotConnected: as `Connection.request`.
            TooLarge: the request fits into no message.
        """
        given = {name: value for name, value in (params or {}).items() if value is not None}
        body = msgspec.json.encode({"params": given})
        if len(body) > self._connection.usable_size:
            raise TooLarge(f"the request {op}", len(body), self._connection.usable_size)
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(NoResponders),
                stop=stop_after_delay(ABSENT_SECS),
                wait=wait_random_exponential(multiplier=0.05, max=0.5),
                reraise=True,
            ):
                with attempt:
                    message = await self._connection.request(
                        subjects.api(self.identity, op), body, timeout_secs=self._timeout_secs
                    )
        except NoResponders:
            raise NoApi(self._connection.settings.shown_servers) from None
        try:
            reply = msgspec.json.decode(message.data, type=_Reply)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise QueryRefused(op, "internal", f"the answer is none of a query API ({error})") from None
        if not reply.ok:
            raise QueryRefused(op, reply.code, reply.error, reply.next_cursor)
        return reply.data

    async def each(
        self,
        op: str,
        params: Mapping[str, Any] | None,
        items: str,
        *,
        most: int | None = None,
        on_skipped: Callable[[QueryRefused], None] | None = None,
    ) -> AsyncIterator[Raw]:
        """The records of a list, page by page.

        Args:
            op: an operation that answers a list.
            params: its parameters; `limit` is the length of a page.
            items: the list's name in the answer, as `envelopes`.
            most: how many at most; None reads to the end.
            on_skipped: told of each record that is too large to be sent, and left out; without it that is an error.

        Raises:
            As `ask`.
        """
        asked = dict(params or {})
        left = most
        while left is None or left > 0:
            if left is not None:
                asked["limit"] = min(left, asked.get("limit") or 1000)
            try:
                data = await self.ask(op, asked)
            except QueryRefused as refused:
                if refused.code != "too_large" or on_skipped is None:
                    raise
                on_skipped(refused)
                if refused.next_cursor is None:
                    return
                asked["cursor"] = refused.next_cursor
                continue
            records = msgspec.json.decode(data[items], type=list[Raw])
            for record in records:
                yield record
            if left is not None:
                left -= len(records)
            if "next_cursor" not in data:
                return
            asked["cursor"] = msgspec.json.decode(data["next_cursor"], type=str)
