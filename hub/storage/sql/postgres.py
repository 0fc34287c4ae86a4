"""PostgreSQL: one database that many machines share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from sqlalchemy import URL, make_url, text
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from hub.storage.errors import BadStorageUrl, StorageMismatch
from hub.storage.sql.database import Database
from hub.storage.sql.schema import metadata

CONNECT_SECS: Final = 5.0
STATEMENT_SECS: Final = 30  # the server ends a statement then; the client waits a little longer for it to say so
LOCK_SECS: Final = 10  # a lock that is not had by then is tried again by `Database`
MIGRATION_SECS: Final = 3600  # an index on a large history takes its time; others wait for the lock meanwhile
POOL_SIZE: Final = 8  # connections a process; a server takes 100 by default, for all processes together
POOL_SECS: Final = 10.0
OPEN_LOCK_KEY: Final = 0x6E617473_68756201  # "natshub", 1: the advisory lock of migrations


class PostgresDatabase(Database):
    """A database on a PostgreSQL server.

    Args:
        url: `postgresql://user:password@host:port/database?sslmode=…`.
    """

    dialect = "postgresql"

    def __init__(self, url: str) -> None:
        address, ssl = _address(url)
        self.url = address.set(drivername="postgresql").render_as_string(hide_password=True)
        settings = {
            "application_name": "nats-hub",
            "statement_timeout": f"{STATEMENT_SECS}s",
            "lock_timeout": f"{LOCK_SECS}s",
            "idle_in_transaction_session_timeout": f"{2 * STATEMENT_SECS}s",  # a process that is frozen holds no locks
            "jit": "off",  # our statements are short: compiling one costs more than it saves
        }
        arguments: dict[str, Any] = {
            "timeout": CONNECT_SECS,
            "command_timeout": STATEMENT_SECS + 5,
            "server_settings": settings,
        }
        if ssl is not None:
            arguments["ssl"] = ssl
        engine = create_async_engine(
            address,
            pool_size=POOL_SIZE,
            max_overflow=0,
            pool_timeout=POOL_SECS,
            hide_parameters=True,  # private messages stay out of errors and logs
            connect_args=arguments,
        )
        super().__init__(reader=engine, writer=engine)

    @asynccontextmanager
    async def open_lock(self) -> AsyncIterator[None]:
        yield  # the lock is the transaction's: see `lock_schema`

    async def lock_schema(self, connection: AsyncConnection) -> None:
        await connection.execute(text(f"SET LOCAL statement_timeout = '{MIGRATION_SECS}s'"))
        await connection.execute(text(f"SET LOCAL lock_timeout = '{MIGRATION_SECS}s'"))
        await connection.execute(text(f"SELECT pg_advisory_xact_lock({OPEN_LOCK_KEY})"))

    async def prepare(self) -> None:
        async def encoding(connection: AsyncConnection) -> str:
            return str(await connection.scalar(text("SHOW server_encoding")))

        found = await self.read(encoding)
        if found != "UTF8":
            raise StorageMismatch(f"{self.url} has the encoding {found}; make it with ENCODING 'UTF8'")

    async def vacuum(self) -> None:
        async def run() -> None:
            async with self.writer.connect() as connection:
                raw: Any = (await connection.get_raw_connection()).driver_connection
                await raw.execute("SET statement_timeout = 0")
                try:
                    for table in metadata.tables:
                        await raw.execute(f"VACUUM (ANALYZE) {table}", timeout=MIGRATION_SECS)
                finally:
                    await raw.execute("RESET statement_timeout")

        await self.outside(run)


def _address(url: str) -> tuple[URL, str | None]:
    """The address for the driver, and the TLS mode (libpq's word `sslmode`)."""
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        raise BadStorageUrl(url.partition("@")[2] or url, "it cannot be parsed") from None
    shown = address.render_as_string(hide_password=True)
    if not address.database:
        raise BadStorageUrl(shown, "it names no database")
    query = dict(address.query)
    ssl = query.pop("sslmode", None) or query.pop("ssl", None)
    unknown = sorted(set(query) - {"host", "port"})
    if unknown:
        raise BadStorageUrl(shown, f"unknown option {unknown[0]!a} (sslmode, host and port are known)")
    if isinstance(ssl, tuple):
        raise BadStorageUrl(shown, "sslmode stands there twice")
    return address.set(drivername="postgresql+asyncpg", query=query), ssl
