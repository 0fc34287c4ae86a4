"""Backups, restores and vacuums of a live file."""

import asyncio
import os
import sqlite3
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hub.storage import BadValue, Storage, open_storage
from hub.storage.conformance.harness import envelope
from hub.storage.records import Position, RetentionRule
from tests.support.postgres import Postgres

CREATED = datetime(2030, 1, 1, tzinfo=UTC)


def opened(url: str) -> Storage:
    storage = open_storage(url)
    assert storage is not None
    return storage


async def store(storage: Storage, first: int, last: int) -> None:
    for number in range(first, last):
        position = Position(stream="S", created=CREATED, sequence=number)
        await storage.envelopes.insert_mirrored([envelope(f"e{number}", after_secs=number)], [position])


async def test_a_backup_of_a_busy_database_is_one_moment_of_it(tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    async with opened(f"sqlite:///{tmp_path}/hub.db") as storage:
        await store(storage, 0, 50)
        writing = asyncio.create_task(store(storage, 50, 150))
        await storage.backup(target)
        await writing
        storage_id = storage.storage_id
        with pytest.raises(BadValue, match="does not exist yet"):
            await storage.backup(target)
    assert sorted(path.name for path in tmp_path.glob("*backup*")) == ["backup.db"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    async with opened(f"sqlite:///{target}") as copy:
        assert copy.storage_id == storage_id
        position = await copy.envelopes.mirror_position("S")
        assert position is not None
        found = await copy.envelopes.query(limit=1000)
        assert [item.id for item in found.items] == [f"e{number}" for number in range(position.sequence, -1, -1)]


async def test_a_restore_brings_the_position_back_with_the_rows(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hub.db"
    async with opened(url) as storage, opened(url) as another:
        await store(storage, 0, 5)
        await storage.backup(tmp_path / "backup.db")
        await store(storage, 5, 9)
        await storage.restore(tmp_path / "backup.db")
        position = await another.envelopes.mirror_position("S")
        assert position is not None
        assert position.sequence == 4
        assert len((await another.envelopes.query()).items) == 5
        await store(another, 5, 7)
        assert len((await storage.envelopes.query()).items) == 7


@pytest.mark.parametrize("content", [b"", b"no database " * 100, None])
async def test_what_is_no_backup_is_not_restored(tmp_path: Path, content: bytes | None) -> None:
    source = tmp_path / "other.db"
    if content is None:
        sqlite3.connect(source).execute("CREATE TABLE turns (id)")
    else:
        source.write_bytes(content)
    async with opened(f"sqlite:///{tmp_path}/hub.db") as storage:
        await store(storage, 0, 1)
        with pytest.raises(BadValue, match="a backup of this hub's storage"):
            await storage.restore(source)
        with pytest.raises(BadValue, match="a backup of this hub's storage"):
            await storage.restore(tmp_path / "missing.db")
        assert not (tmp_path / "missing.db").exists()
        assert await storage.envelopes.get("e0") is not None


async def test_a_backup_to_nowhere_says_so(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/hub.db") as storage:
        with pytest.raises(BadValue, match="No such file or directory"):
            await storage.backup(tmp_path / "no" / "such" / "folder.db")


async def test_a_vacuum_gives_back_what_retention_freed(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with opened(f"sqlite:///{path}") as storage:
        for batch in range(4):
            rows = [envelope(f"e{batch}-{number}", payload=b"1" * 10_000) for number in range(100)]
            await storage.envelopes.insert_mirrored(rows)
        await storage.vacuum()
        before = path.stat().st_size
        while not (await storage.apply_retention([RetentionRule(kind="message", max_bytes=100_000)])).done:
            pass
        await storage.vacuum()
        assert path.stat().st_size < before / 5
        assert os.stat(f"{path}-wal").st_size == 0


async def test_postgresql_is_copied_with_its_own_tools(postgres_cluster: Postgres, tmp_path: Path) -> None:
    storage = opened(postgres_cluster.url())
    with pytest.raises(BadValue, match="pg_dump"):
        await storage.backup(tmp_path / "x")
    with pytest.raises(BadValue, match="pg_restore"):
        await storage.restore(tmp_path / "x")
    await storage.close()
