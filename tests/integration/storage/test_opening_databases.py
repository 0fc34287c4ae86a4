"""Making and migrating a database at open."""

import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage import Storage, StorageFailed, StorageMismatch, StorageUnavailable, open_storage
from hub.storage.records import Sighting
from hub.storage.sql import migrate
from hub.storage.sql.schema import HEAD, VERSION_TABLE, metadata
from hub.storage.sql.storage import SqlStorage
from tests.support.postgres import Postgres


def opened(url: str) -> Storage:
    storage = open_storage(url)
    assert storage is not None
    return storage


async def test_the_migrations_make_the_schema_that_the_code_works_with(storage_url: str) -> None:
    def differences(connection: Connection) -> list[object]:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)

    async def compare(connection: AsyncConnection) -> list[object]:
        return await connection.run_sync(differences)

    storage = opened(storage_url)
    assert isinstance(storage, SqlStorage)
    async with storage:
        assert await storage._database.read(compare) == []


def test_the_newest_migration_is_the_one_that_a_start_looks_for() -> None:
    scripts = ScriptDirectory.from_config(migrate.config(None))  # type: ignore[arg-type]
    assert scripts.get_heads() == [HEAD]


async def test_many_may_make_the_same_file_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new/folder/hub.db"
    storages = [opened(url) for _ in range(6)]
    await asyncio.gather(*(storage.open() for storage in storages))
    assert len({storage.storage_id for storage in storages}) == 1
    for storage in storages:
        await storage.close()


async def test_many_may_make_the_same_postgresql_database_at_once(postgres_cluster: Postgres) -> None:
    url = postgres_cluster.url(await postgres_cluster.create_database())
    storages = [opened(url) for _ in range(4)]
    await asyncio.gather(*(storage.open() for storage in storages))
    assert len({storage.storage_id for storage in storages}) == 1
    for storage in storages:
        await storage.close()


async def test_databases_have_ids_of_their_own(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/a.db") as one, opened(f"sqlite:///{tmp_path}/b.db") as other:
        assert one.storage_id != other.storage_id


async def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/hub.db"):
        for path in tmp_path.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def made_by(path: Path, *statements: str) -> str:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return f"sqlite:///{path}"


async def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    storage = opened(made_by(path, "CREATE TABLE turns (id)"))
    before = path.read_bytes()
    with pytest.raises(StorageMismatch, match="another program"):
        await storage.open()
    await storage.close()
    assert path.read_bytes() == before


async def test_a_newer_versions_database_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with opened(f"sqlite:///{path}"):
        pass
    storage = opened(made_by(path, f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(StorageMismatch, match="use the newer version"):
        await storage.open()
    await storage.close()


async def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    path.write_bytes(b"this is a text, and a long one, " * 100)
    storage = opened(f"sqlite:///{path}")
    with pytest.raises(StorageMismatch, match="not a database"):
        await storage.open()
    await storage.close()
    folder = opened(f"sqlite:///{tmp_path}")
    with pytest.raises(StorageMismatch, match="not a file"):
        await folder.open()
    await folder.close()


async def test_a_file_that_another_keeps_locked_is_unavailable_and_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.storage.sql.sqlite.BUSY_SECS", 0.1)
    monkeypatch.setattr("hub.storage.sql.database.RETRY_SECS", 0.3)
    path = tmp_path / "hub.db"
    storage = opened(f"sqlite:///{path}")
    async with storage:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageUnavailable, match="locked"):
            await storage.agents.record([Sighting(identity="ann")])
        assert (await storage.envelopes.query()).items == []  # readers wait for nobody
        holder.execute("ROLLBACK")
        holder.close()
        assert (await storage.agents.record([Sighting(identity="ann")])).stored == 1


async def test_a_query_without_an_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.storage.sql.sqlite.READ_SECS", 0.2)
    forever = text("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")
    storage = opened(f"sqlite:///{tmp_path}/hub.db")
    assert isinstance(storage, SqlStorage)
    async with storage, asyncio.timeout(20):
        with pytest.raises(StorageUnavailable, match="took more than"):
            await storage._database.read(lambda connection: connection.execute(forever))
        assert (await storage.envelopes.query()).items == []


async def test_a_database_whose_tables_somebody_took_away_says_that_it_failed(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with opened(f"sqlite:///{path}") as storage:
        made_by(path, "DROP TABLE envelopes")
        with pytest.raises(StorageFailed, match="the database refused: no such table: envelopes"):
            await storage.envelopes.query()
        assert (await storage.agents.find()).items == []
