"""Databases for storage tests: each empty, from one that was made and migrated once a process."""

import asyncio
import shutil
from pathlib import Path

import asyncpg
import pytest

from hub.storage import open_storage
from hub.storage.sql.schema import metadata
from tests.support.postgres import Postgres

BACKENDS = ("sqlite", "postgresql")


async def empty(url: str) -> None:
    tables = ", ".join(table for table in metadata.tables if table != "hub_meta")
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE")
    finally:
        await connection.close()


async def migrate(url: str) -> None:
    storage = open_storage(url)
    assert storage is not None
    async with storage:
        pass


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "hub.db"
    asyncio.run(migrate(f"sqlite:///{path}"))
    return path


@pytest.fixture(scope="session")
def postgres_database(postgres_cluster: Postgres) -> str:
    """Made once and emptied for each test: a database of its own costs a second each."""
    url = postgres_cluster.url(asyncio.run(postgres_cluster.create_database()))
    asyncio.run(migrate(url))
    return url


@pytest.fixture(params=BACKENDS)
def storage_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each backend, at this version's schema."""
    if request.param == "sqlite":
        path = tmp_path / "hub.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        return f"sqlite:///{path}"
    url: str = request.getfixturevalue("postgres_database")
    asyncio.run(empty(url))
    return url
