"""Errors of the mailbox: one family, each with a `code` word and its facts in fields."""

import sqlite3
from pathlib import Path
from typing import ClassVar


class MailboxError(Exception):
    """The mailbox could not do this.

    Attributes:
        code: one word for logs and exit texts.
        is_retriable: nothing was written and the same call may succeed later (the caller keeps what it holds, and
            does not ack).
    """

    code: ClassVar[str] = "mailbox"
    is_retriable: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").partition("\n")[0])


class MailboxUnavailable(MailboxError):
    """The mailbox file cannot be read or written now; nothing was written, try again later."""

    code = "unavailable"
    is_retriable = True


class MailboxFull(MailboxUnavailable):
    """The disk (or the file's quota) is full; nothing was written, free some space, what came is kept at its sender."""

    code = "disk_full"


class MailboxBusy(MailboxUnavailable):
    """Another program holds the mailbox file's lock; nothing was written, close it (a shell, a backup) and go on."""

    code = "file_locked"


class MailboxClosed(MailboxError):
    """The mailbox is closed; nothing was written."""

    code = "closed"


class MailboxBroken(MailboxError):
    """The mailbox's writer died of an internal error; the process must end and be started again."""

    code = "internal"


class StateChanged(MailboxError):
    """The turn is not in the state that this change expects; nothing was written.

    Attributes:
        seq: the turn.
        expected: the states that the change starts from.
        found: the turn's state; None when there is no such turn.
        is_stale: the state would fit, but the turn was claimed anew since.
    """

    code = "state_changed"

    def __init__(self, seq: int, expected: tuple[str, ...], found: str | None, *, is_stale: bool = False) -> None:
        self.seq = seq
        self.expected = expected
        self.found = found
        self.is_stale = is_stale
        what = "does not exist" if found is None else f"is {found}"
        stale = ", by a later claim" if is_stale else ""
        super().__init__(f"turn {seq} {what}{stale}; expected {' or '.join(expected)}")


class IdentityInUse(MailboxError):
    """Another process on this machine has this identity.

    Attributes:
        identity: the identity.
        pid: the other process; None when it has not yet written its number.
        lock_file: the lock that it holds.
    """

    code = "identity_in_use"

    def __init__(self, identity: str, pid: int | None, lock_file: Path) -> None:
        self.identity = identity
        self.pid = pid
        self.lock_file = lock_file
        who = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"identity {identity} is in use by {who} on this machine (lock {lock_file}): "
            "stop it, or take another identity"
        )


class MailboxTooNew(MailboxError):
    """The mailbox file was written by a newer version of this program.

    Attributes:
        path: the file.
        found: its schema version.
        known: the newest version that this program knows.
    """

    code = "too_new"

    def __init__(self, path: Path, found: int, known: int) -> None:
        self.path = path
        self.found = found
        self.known = known
        super().__init__(
            f"mailbox {path} has schema version {found}, this program knows versions up to {known}: "
            "start the newer program again, or restore a backup made before it"
        )


class ForeignFile(MailboxError):
    """The file at the mailbox's place is an SQLite file, but no mailbox.

    Attributes:
        path: the file.
    """

    code = "foreign_file"

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} is an SQLite file but no mailbox: move it away, or use another state folder")


class MailboxDamaged(MailboxError):
    """The mailbox file is damaged.

    Attributes:
        path: where the mailbox was.
        set_aside: where the damaged file is kept; None while it is still in place (it is moved at the close).
        detail: what SQLite says.
    """

    code = "damaged"

    def __init__(self, path: Path, set_aside: Path | None, detail: str) -> None:
        self.path = path
        self.set_aside = set_aside
        self.detail = detail
        kept = f"it is kept as {set_aside}" if set_aside is not None else "it will be set aside at the close"
        super().__init__(
            f"mailbox {path} is damaged ({detail}); {kept}. Restore a backup to {path.name}, or start once with a "
            "fresh mailbox: queued turns and unsent results are then gone, and direct messages that the stream still "
            "retains can run again"
        )


def from_sqlite(error: sqlite3.Error, path: Path) -> MailboxError | None:
    """What an SQLite error means for every operation; None when it is about one operation alone (a constraint, …)."""
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if primary == sqlite3.SQLITE_FULL:
        return MailboxFull()
    if primary in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return MailboxBusy()
    if primary in {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
    }:
        return MailboxUnavailable(f"mailbox {path} cannot be used now ({error}); nothing was written, try again later")
    if primary in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return MailboxDamaged(path, None, str(error))
    return None
