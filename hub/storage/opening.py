"""Opener: the storage that an address names."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hub.storage.base import Storage
from hub.storage.errors import BadStorageUrl

NONE: Final = "none"
_POSTGRES: Final = ("postgresql", "postgres")


def _now() -> datetime:
    return datetime.now(UTC)


def open_storage(url: str, *, clock: Callable[[], datetime] = _now) -> Storage | None:
    """The storage of an address, not connected yet: `await storage.open()`, or `async with`.

    Args:
        url: `sqlite:///path` (relative) or `sqlite:////path` (absolute); `postgresql://user:password@host/database`,
            with `?sslmode=…`; `none`.
        clock: the time now, aware; for tests.

    Returns:
        The storage; None for `none`.

    Raises:
        BadStorageUrl: anything else. A start with it must end (exit code 78).
    """
    if url == NONE:
        return None
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise BadStorageUrl(url, "it has no scheme")
    # The drivers are imported only by those who use them.
    if scheme == "sqlite":
        path = rest.removeprefix("/")
        if not rest.startswith("/") or not path or path.startswith(":memory:") or "?" in path or "\0" in path:
            raise BadStorageUrl(url, "a file is needed, which all processes of the hub share")
        from hub.storage.sql.sqlite import SqliteDatabase  # noqa: PLC0415
        from hub.storage.sql.storage import SqlStorage  # noqa: PLC0415

        return SqlStorage(SqliteDatabase(Path(path)), clock)
    if scheme in _POSTGRES:
        from hub.storage.sql.postgres import PostgresDatabase  # noqa: PLC0415
        from hub.storage.sql.storage import SqlStorage  # noqa: PLC0415

        return SqlStorage(PostgresDatabase(f"postgresql://{rest}"), clock)
    shown = f"{scheme}://…"
    raise BadStorageUrl(shown, f"unsupported scheme {scheme!a}")
