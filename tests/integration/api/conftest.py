import asyncio
import shutil
from pathlib import Path

import pytest

from tests.support.storages import empty, postgres_database, sqlite_template, storage_url

__all__ = ["postgres_database", "sqlite_template", "storage_url"]


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """An empty SQLite database, where the backend makes no difference."""
    path = tmp_path / "hub.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def empty_postgres_url(postgres_database: str) -> str:
    """An empty PostgreSQL database."""
    asyncio.run(empty(postgres_database))
    return postgres_database
