"""Opening a source from an address, with a connection of its own that is closed with it: for commands and bridges."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hub.events.base import AgentEventSource
from hub.events.cursor import CursorSecret
from hub.events.errors import BackendUnavailableError, InvalidInputError

if TYPE_CHECKING:
    from hub.delivery.settings import ConnectSettings

CONNECT_SECS = 10.0
DEFAULT_STREAM = "prism_agent_events"
POSTGRES_SCHEMES = ("postgresql://", "postgres://")


@asynccontextmanager
async def open_event_source(
    url: str | None,
    *,
    cursor_secret: CursorSecret,
    stream: str = DEFAULT_STREAM,
    settings: "ConnectSettings | None" = None,
    connect_secs: float = CONNECT_SECS,
    **options: Any,
) -> AsyncIterator[AgentEventSource]:
    """A source on its own connection.

    Args:
        url: `postgresql://…`, or an address of NATS; None: NATS, where the settings or the environment say.
        cursor_secret: signs cursors; processes that exchange cursors share it.
        stream: the JetStream stream, or the PostgreSQL schema.
        settings: of the NATS connection (credentials); None: the environment's (contract §12).
        connect_secs: how long to try to connect, in seconds.
        options: of the source: see `Limits`, and `prefix` and `ack_wait_secs` on JetStream.

    Raises:
        InvalidInputError: an address of another kind, or an option that is wrong.
        BackendUnavailableError: nobody answered there in time.
    """
    if url is not None and url.startswith(POSTGRES_SCHEMES):
        given = {"schema": stream, "cursor_secret": cursor_secret, **options}
        opened = _on_postgres(url, connect_secs, given)
    else:
        given = {"stream": stream, "cursor_secret": cursor_secret, **options}
        opened = _on_nats(url, settings, connect_secs, given)
    async with opened as source:
        yield source


@asynccontextmanager
async def _on_nats(
    url: str | None, settings: "ConnectSettings | None", connect_secs: float, options: dict[str, Any]
) -> AsyncIterator[AgentEventSource]:
    from hub.delivery.connection import Connection  # noqa: PLC0415 - loads nats
    from hub.delivery.errors import BadSettings, CannotConnect  # noqa: PLC0415
    from hub.delivery.settings import ConnectSettings  # noqa: PLC0415
    from hub.events.jetstream import JetStreamEventSource  # noqa: PLC0415

    try:
        if settings is None:
            settings = ConnectSettings.from_environ(os.environ, servers=None if url is None else (url,))
        connection = await Connection.open(settings, name="agent events", timeout_secs=connect_secs)
    except BadSettings as error:
        raise InvalidInputError(str(error)) from error
    except CannotConnect as error:
        raise BackendUnavailableError(str(error)) from error
    try:
        js = connection.client.jetstream(prefix=settings.js_prefix)
        async with JetStreamEventSource(js, **options) as source:
            yield source
    finally:
        await connection.close()


@asynccontextmanager
async def _on_postgres(url: str, connect_secs: float, options: dict[str, Any]) -> AsyncIterator[AgentEventSource]:
    import asyncpg  # noqa: PLC0415

    from hub.events.postgres import PostgresEventSource  # noqa: PLC0415 - loads asyncpg
    from hub.events.postgres.errors import backend  # noqa: PLC0415

    with backend(options["schema"], "connecting to PostgreSQL"):
        pool = await asyncpg.create_pool(url, min_size=1, max_size=4, timeout=connect_secs)
    try:
        async with PostgresEventSource(pool, listen=url, **options) as source:
            yield source
    finally:
        await pool.close()
