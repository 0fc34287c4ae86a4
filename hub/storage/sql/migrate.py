"""Migrator: brings a database to this version's schema at open, under a lock; makes the storage id with it."""

import secrets
from typing import Any, Final

from sqlalchemy import Connection, exc, insert, inspect, select
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.errors import StorageMismatch
from hub.storage.sql.database import Database
from hub.storage.sql.schema import HEAD, VERSION_TABLE, hub_meta

SCRIPTS: Final = "hub.storage.sql:migrations"


async def bring_up(database: Database) -> str:
    """Make or migrate the database when it is not at this version; its storage id.

    Raises:
        StorageUnavailable: it does not answer.
        StorageMismatch: it is somebody else's, or a newer version's.
    """
    async with database.open_lock():
        await database.prepare()
        return await database.write(lambda connection: _bring_up(database, connection))


async def _bring_up(database: Database, connection: AsyncConnection) -> str:
    await database.lock_schema(connection)
    version = await connection.run_sync(_version)
    if version != HEAD:
        await connection.run_sync(_upgrade)
    storage_id = await connection.scalar(select(hub_meta.c.value).where(hub_meta.c.name == "storage_id"))
    if storage_id is None:
        storage_id = secrets.token_hex(4)  # 8 hex digits (contract §3.2)
        await connection.execute(insert(hub_meta).values(name="storage_id", value=storage_id))
    return str(storage_id)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()  # noqa: S608 - a constant


def _upgrade(connection: Connection) -> None:
    # Imported here: alembic costs a third of a second, and a start that finds the schema at HEAD needs none of it.
    from alembic import command  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    try:
        command.upgrade(config(connection), "head")
    except CommandError as error:
        detail = f"its schema is not one that this version knows (newest {HEAD}): {error}; use the newer version"
        raise StorageMismatch(detail) from None
    except exc.ProgrammingError as error:
        raise StorageMismatch(f"the schema cannot be made: {str(error.orig).splitlines()[0]}") from None


def config(connection: Connection) -> Any:
    """The alembic config for this connection, which is in a transaction already; there is no ini file."""
    from alembic.config import Config  # noqa: PLC0415

    made = Config()
    made.set_main_option("script_location", SCRIPTS)
    made.set_main_option("path_separator", "os")
    made.attributes["connection"] = connection
    return made
