"""Opening a source from an address, with a connection of its own that is closed with it: for commands and bridges."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hub.events.base import AgentEventSource
from hub.events.cursor import CursorSecret
from hub.events.errors import BackendUnavailableError, InvalidInputError

if TYPE_CHECKING:
    from nats.aio.client import Client

CONNECT_SECS = 10.0
DEFAULT_STREAM = "prism_agent_events"

ConnectNats = Callable[[str], Awaitable["Client"]]


@asynccontextmanager
async def open_event_source(
    url: str,
    *,
    cursor_secret: CursorSecret,
    stream: str = DEFAULT_STREAM,
    connect_nats: ConnectNats | None = None,
    **options: Any,
) -> AsyncIterator[AgentEventSource]:
    """A source on its own connection.

    Args:
        url: `nats://…`, `tls://…` or `postgresql://…`.
        cursor_secret: signs cursors; processes that exchange cursors share it.
        stream: the JetStream stream, or the PostgreSQL schema.
        connect_nats: opens the NATS connection (credentials, callbacks); None: a plain one that reconnects for ever.
        options: of the source: see `Limits`, and `prefix` and `ack_wait_secs` on JetStream.

    Raises:
        InvalidInputError: an address of another kind, or an option that is wrong.
        BackendUnavailableError: nobody answered there within 10 s.
    """
    scheme = url.partition("://")[0]
    if scheme in ("nats", "tls"):
        given = {"stream": stream, "cursor_secret": cursor_secret, **options}
        opened = _on_nats(url, connect_nats or _connect_nats, given)
    elif scheme in ("postgresql", "postgres"):
        opened = _on_postgres(url, {"schema": stream, "cursor_secret": cursor_secret, **options})
    else:
        raise InvalidInputError(f"expected nats://, tls:// or postgresql://, not {scheme!r}")
    async with opened as source:
        yield source


@asynccontextmanager
async def _on_nats(url: str, connect: ConnectNats, options: dict[str, Any]) -> AsyncIterator[AgentEventSource]:
    from hub.events.jetstream import JetStreamEventSource  # noqa: PLC0415 - loads nats

    try:
        async with asyncio.timeout(CONNECT_SECS):
            connection = await connect(url)
    except (OSError, TimeoutError) as error:
        raise BackendUnavailableError(f"cannot connect to NATS: {type(error).__name__}") from error
    try:
        async with JetStreamEventSource(connection, **options) as source:
            yield source
    finally:
        await connection.close()


async def _connect_nats(url: str) -> "Client":
    import nats  # noqa: PLC0415

    return await nats.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.5)


@asynccontextmanager
async def _on_postgres(url: str, options: dict[str, Any]) -> AsyncIterator[AgentEventSource]:
    import asyncpg  # noqa: PLC0415

    from hub.events.postgres import PostgresEventSource  # noqa: PLC0415 - loads asyncpg
    from hub.events.postgres.errors import backend  # noqa: PLC0415

    with backend(options["schema"], "connecting to PostgreSQL"):
        pool = await asyncpg.create_pool(url, min_size=1, max_size=4, timeout=CONNECT_SECS)
    try:
        async with PostgresEventSource(pool, listen=url, **options) as source:
            yield source
    finally:
        await pool.close()
