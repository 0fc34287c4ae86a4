"""Addresses of storage, and what importing it costs."""

import subprocess
import sys

import pytest

from hub.storage import BadStorageUrl, open_storage


def test_none_is_no_storage() -> None:
    assert open_storage("none") is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///some/file.db", "/some/file.db"),
        ("sqlite:////abs/file.db", "sqlite:////abs/file.db"),
        ("postgresql://u:secret@host:5433/db", "postgresql://u:***@host:5433/db"),
        ("postgres://u@host/db?sslmode=require", "postgresql://u@host/db"),
        ("postgresql://u@/db?host=/run/socket", "host"),
    ],
)
def test_an_address_names_a_storage_that_connects_only_when_it_is_opened(url: str, shown: str) -> None:
    storage = open_storage(url)
    assert storage is not None
    assert shown in storage.url
    assert "secret" not in storage.url
    with pytest.raises(RuntimeError, match="not open"):
        _ = storage.storage_id


@pytest.mark.parametrize(
    "url",
    [
        "",
        "NONE",
        "file.db",
        "sqlite://",
        "sqlite:///",
        "sqlite://file.db",
        "sqlite:///:memory:",
        "sqlite:///file.db?mode=memory",
        "sqlite+pysqlite:///file.db",
        "mysql://u:secret@host/db",
        "surrealkv:///data",
        "surreal+ws://host",
        "postgresql://u:secret@host",
        "postgresql://u:secret@host/db?nosuchoption=1",
        "postgresql://u:secret@host:port/db",
    ],
)
def test_any_other_address_is_refused_with_what_is_supported_and_without_its_password(url: str) -> None:
    with pytest.raises(BadStorageUrl) as caught:
        open_storage(url)
    assert "sqlite:///path/to/file" in str(caught.value)
    assert "postgresql://" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_interface_is_imported_without_a_database_driver() -> None:
    probe = (
        "import sys, hub.storage.base, hub.storage; print([m for m in sys.modules if m.split('.')[0] in sys.argv[1:]])"
    )
    drivers = ["sqlalchemy", "alembic", "asyncpg", "aiosqlite"]
    done = subprocess.run([sys.executable, "-c", probe, *drivers], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
