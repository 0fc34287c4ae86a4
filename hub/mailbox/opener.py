"""Opener of mailbox files: makes, checks, migrates, and sets a damaged one aside. Blocking; runs in a thread.

The caller holds the identity's lock.
"""

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import structlog

from hub.mailbox import schema
from hub.mailbox.errors import ForeignFile, MailboxDamaged, MailboxError, MailboxTooNew, from_sqlite

Durability = Literal["FULL", "NORMAL"]
"""FULL: what was committed survives a power cut. NORMAL: it survives the process's death only; about a third faster."""

OLDEST_SQLITE: Final = (3, 35, 0)  # RETURNING
BUSY_TIMEOUT_MS: Final = 2000  # a shell or a backup holds the lock for moments; longer is reported, and tried again
CHECKED_MOST_BYTES: Final = (
    64 * 1024 * 1024
)  # SQLite's quick check reads it all: up to here it costs a blink at a start
WAL_MOST_BYTES: Final = 16 * 1024 * 1024  # the log file is cut back to this after a burst

_log = structlog.get_logger(__name__)


def connect(path: Path, durability: Durability, *, is_reader: bool = False) -> sqlite3.Connection:
    """A connection to a mailbox file, in autocommit mode, usable from any one thread at a time."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    try:
        db.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {durability}")
        db.execute(f"PRAGMA fullfsync = {int(durability == 'FULL')}")  # macOS: fsync alone stops in the drive's cache
        db.execute(f"PRAGMA journal_size_limit = {WAL_MOST_BYTES}")
        if is_reader:
            db.execute("PRAGMA query_only = ON")
    except sqlite3.Error:
        db.close()
        raise
    return db


def prepare(path: Path, durability: Durability, *, fresh: bool) -> None:
    """Leave a sound mailbox file of the newest version at `path`, or raise.

    Args:
        path: the file; its folder exists.
        durability: how it is synced.
        fresh: begin with an empty mailbox when the old one was set aside. A sound one is used as it is.

    Raises:
        MailboxDamaged: it is (or was, at an earlier start) set aside, and `fresh` is not given.
        MailboxTooNew, ForeignFile: it is not ours to touch.
        MailboxUnavailable: not now (permissions, disk full, locked).
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise MailboxError(f"SQLite {sqlite3.sqlite_version} is too old for a mailbox: install {wanted} or newer")
    try:
        damage = _look_for_damage(path, durability)
        if damage is not None:
            kept = set_aside(path, damage)
        elif path.exists():
            return
        elif kept_before := set_aside_files(path):
            kept, damage = kept_before[-1], "it was set aside at an earlier start"
        if damage is not None and not fresh:
            raise MailboxDamaged(path, kept, damage)
        _make(path, durability)
    except sqlite3.Error as error:
        raise from_sqlite(error, path) or error from error


def set_aside(path: Path, detail: str) -> Path:
    """Rename a damaged file, with its log, to a dated name. Nothing is ever deleted.

    Returns:
        The new name.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    target, number = path.with_name(f"{path.stem}.damaged-{stamp}.db"), 1
    while target.exists() or _beside(target, "-wal").exists():
        number += 1
        target = path.with_name(f"{path.stem}.damaged-{stamp}-{number}.db")
    # The file first: a log that is left alone is noticed at the next start, a file without its log would be believed.
    for ending in ("", "-wal", "-shm"):
        source = _beside(path, ending)
        if source.exists():
            source.rename(_beside(target, ending))
    _sync_folder(path.parent)
    _log.error("mailbox_set_aside", path=str(path), kept_as=str(target), detail=detail)
    return target


def set_aside_files(path: Path) -> list[Path]:
    """The damaged files that were set aside for this mailbox, oldest first; of some there is the log alone."""
    kept = path.parent.glob(f"{path.stem}.damaged-*")
    return sorted({one.with_name(one.name.removesuffix("-wal").removesuffix("-shm")) for one in kept})


def _look_for_damage(path: Path, durability: Durability) -> str | None:
    """Check and migrate the file if there is one; what is wrong with it, or None."""
    if not path.exists():
        # Deleted by hand while its process was dead, or that process died while it set the file aside.
        return "its log stands there without it" if _beside(path, "-wal").exists() else None
    if path.stat().st_size == 0:
        # `_make` gives a file its name only once it is whole, so this one was cut off (a file system after a crash).
        return "it is empty"
    try:
        with closing(connect(path, durability)) as db:
            version = schema.version_of(db)
            if db.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
                raise ForeignFile(path)
            if version > schema.VERSION:
                raise MailboxTooNew(path, version, schema.VERSION)
            if path.stat().st_size <= CHECKED_MOST_BYTES:
                finding = db.execute("PRAGMA quick_check(1)").fetchone()[0]
                if finding != "ok":
                    return str(finding)
            for number in schema.migrate(db):
                _log.info("mailbox_migrated", path=str(path), version=number)
    except sqlite3.Error as error:
        if isinstance(from_sqlite(error, path), MailboxDamaged):
            return str(error)
        raise
    return None


def _make(path: Path, durability: Durability) -> None:
    """Make an empty mailbox under another name and give it its own when it is whole and synced."""
    draft = path.with_name(f"{path.name}.new")
    for ending in ("", "-wal", "-shm", "-journal"):
        _beside(draft, ending).unlink(missing_ok=True)  # of a start that died here
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))  # prompts are nobody else's to read
    with closing(sqlite3.connect(draft, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = MEMORY")  # a draft that dies half made is thrown away
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only an empty file takes it; lets the pruner give space back
        db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        schema.migrate(db)
    draft.rename(path)
    with closing(connect(path, durability)):
        pass  # turns the log on
    _sync_folder(path.parent)
    _log.info("mailbox_made", path=str(path))


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _sync_folder(folder: Path) -> None:
    """Make renames survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
