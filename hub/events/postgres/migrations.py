"""Migrations of the event source's own tables, numbered, each applied once in its own transaction."""

from typing import Any

from hub.events.errors import StreamMisconfiguredError

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    # 1: runs and their records. A run's row is its counter and outlives its records; keys are (owner, session, run).
    (
        """
        CREATE TABLE {schema}.runs (
            run_key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            owner BYTEA NOT NULL,
            session_id TEXT COLLATE "C" NOT NULL,
            run_id TEXT COLLATE "C" NOT NULL,
            tenant_id TEXT NOT NULL,
            account_id TEXT,
            user_id TEXT,
            last_sequence BIGINT NOT NULL DEFAULT 0,
            closed BOOLEAN NOT NULL DEFAULT FALSE,
            UNIQUE (owner, session_id, run_id)
        )
        """,
        """
        CREATE TABLE {schema}.records (
            run_key BIGINT NOT NULL REFERENCES {schema}.runs,
            sequence BIGINT NOT NULL,
            id TEXT COLLATE "C" NOT NULL,
            place BIGINT GENERATED ALWAYS AS IDENTITY,
            occurred_at TIMESTAMPTZ NOT NULL,
            data BYTEA NOT NULL,
            PRIMARY KEY (run_key, sequence),
            UNIQUE (run_key, id)
        )
        """,
        "CREATE INDEX records_by_age ON {schema}.records (run_key, occurred_at)",
        """
        CREATE TABLE {schema}.readers (
            run_key BIGINT NOT NULL REFERENCES {schema}.runs,
            name TEXT COLLATE "C" NOT NULL,
            sequence BIGINT NOT NULL,
            event BYTEA NOT NULL,
            PRIMARY KEY (run_key, name)
        )
        """,
    ),
)
NEWEST = len(MIGRATIONS)
_LOCK = 0x6167_656E_7465  # "agente": one migrator at a time in a database


async def migrate(connection: Any, schema: str) -> int:
    """Bring a schema up to date; returns how many migrations were applied.

    Args:
        connection: an asyncpg connection whose role may create in the database.
        schema: the schema's name, made where it is not there.

    Raises:
        StreamMisconfiguredError: the schema was written by a newer version.
    """
    applied = 0
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        await connection.execute(
            f'CREATE TABLE IF NOT EXISTS "{schema}".migrations '
            "(version INTEGER PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())"
        )
        current = await connection.fetchval(f'SELECT coalesce(max(version), 0) FROM "{schema}".migrations')  # noqa: S608 - checked name
        if current > NEWEST:
            raise StreamMisconfiguredError(schema, [newer(current)])
        for version in range(current + 1, NEWEST + 1):
            for statement in MIGRATIONS[version - 1]:
                await connection.execute(statement.format(schema=f'"{schema}"'))
            await connection.execute(f'INSERT INTO "{schema}".migrations (version) VALUES ($1)', version)  # noqa: S608 - checked name
            applied += 1
    return applied


def newer(current: int) -> str:
    """What is wrong with a schema from the future."""
    return f"its tables are of version {current}; this program knows up to {NEWEST}: use a newer one"
