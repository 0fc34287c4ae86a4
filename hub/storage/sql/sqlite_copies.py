"""Copier of SQLite files: backups, restores and vacuums, each in one blocking call for a thread of its own."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from hub.storage.errors import BadValue, StorageUnavailable

WAIT_SECS: Final = 60.0  # for the file's lock; a copy is asked for by a person


def back_up(source: Path, target: Path) -> None:
    """Copy the live database to a new file, verified and complete or not there at all.

    Raises:
        BadValue: the target exists or cannot be made.
        StorageUnavailable: the copy failed (a full disk, a damaged database).
    """
    if target.exists():
        raise BadValue("backup file", str(target), "a file that does not exist yet")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise BadValue("backup file", str(target), f"a place that can be written ({error.strerror})") from None
    try:
        with closing(_connect(source)) as live, closing(_connect(partial)) as copy:
            # All pages in one step: a copy in several begins again whenever another process writes in between.
            live.backup(copy, pages=-1)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, nothing beside it
            said = copy.execute("PRAGMA quick_check").fetchone()[0]
            if said != "ok":
                raise StorageUnavailable(f"the copy is damaged, as the database may be: {said}")
        _sync(partial)
        os.link(partial, target)  # fails when somebody made it meanwhile
        _sync(target.parent)
    except FileExistsError:
        raise BadValue("backup file", str(target), "a file that does not exist yet") from None
    except sqlite3.Error as error:
        raise StorageUnavailable(f"the backup failed: {error}") from None
    finally:
        partial.unlink(missing_ok=True)


def restore(source: Path, target: Path) -> None:
    """Replace the live database's content by a backup's, in one transaction.

    Raises:
        BadValue: the source is no backup of ours.
        StorageUnavailable: others kept the database locked, or the disk is full.
    """
    try:
        with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as backup:
            backup.execute("SELECT version_num FROM hub_schema_version").fetchone()
            said = backup.execute("PRAGMA quick_check").fetchone()[0]
            if said != "ok":
                raise BadValue("backup file", str(source), f"an undamaged one ({said})")
            try:
                with closing(_connect(target)) as live:
                    backup.backup(live, pages=-1)
            except sqlite3.Error as error:
                raise StorageUnavailable(f"the restore failed, nothing was changed: {error}") from None
    except sqlite3.Error as error:
        raise BadValue("backup file", str(source), f"a backup of this hub's storage ({error})") from None


def vacuum(path: Path) -> None:
    """Rewrite the file without its holes.

    Raises:
        StorageUnavailable: others kept it locked, or the disk has no room for the second copy.
    """
    try:
        with closing(_connect(path)) as connection:
            connection.execute("VACUUM")
            connection.execute("ANALYZE")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise StorageUnavailable(f"the vacuum failed, nothing was changed: {error}") from None


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=WAIT_SECS, isolation_level=None)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
