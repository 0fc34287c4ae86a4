"""Errors of storage: one family, each with a `code` word (contract §10) and its facts in fields."""

from typing import Final

SUPPORTED_URLS: Final = "sqlite:///path/to/file, postgresql://user@host/database, or none"


class StorageError(Exception):
    """Storage cannot do this."""

    code = "internal"


class BadStorageUrl(StorageError):
    """The address of the storage is not one that can be used.

    Attributes:
        url: what came, without its password.
        detail: what is wrong with it.
    """

    code = "bad_request"

    def __init__(self, url: str, detail: str) -> None:
        self.url = url
        self.detail = detail
        super().__init__(f"storage address {url!a}: {detail}; expected {SUPPORTED_URLS}")


class StorageUnavailable(StorageError):
    """The database does not answer now; the same call may succeed later.

    Attributes:
        detail: what the driver said.
        outcome_unknown: True when the connection was lost while committing: the change may or may not be stored.
    """

    code = "unavailable"

    def __init__(self, detail: str, *, outcome_unknown: bool = False) -> None:
        self.detail = detail
        self.outcome_unknown = outcome_unknown
        tail = "; it was lost while committing, so the change may be stored" if outcome_unknown else ""
        super().__init__(f"storage does not answer: {detail}{tail}")


class StorageFailed(StorageUnavailable):
    """The database refused a statement: it is damaged, its tables were changed by others, or this is a bug of ours.

    A kind of unavailable, so that delivery and the mirror go on as they do while storage is down.
    """

    code = "internal"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.args = (f"the database refused: {detail}",)


class StorageMismatch(StorageError):
    """The database is not one that this version can work with; a start with it must end (exit code 78).

    Attributes:
        detail: what was found and what to do.
    """

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"cannot use this database: {detail}")


class BadValue(StorageError):
    """A value breaks its rule and is not stored or searched for.

    Attributes:
        what: which parameter or member.
        value: what came.
        rule: what was expected.
    """

    code = "bad_request"

    def __init__(self, what: str, value: object, rule: str) -> None:
        self.what = what
        self.value = value
        self.rule = rule
        shown = ascii(value)
        super().__init__(f"bad {what} {shown if len(shown) <= 80 else shown[:80] + '…'}: expected {rule}")


class Conflict(StorageError):
    """A record with this name is there already; nothing was written.

    Attributes:
        what: which kind of record (`session`, `wave`, …).
        name: its name.
    """

    code = "conflict"

    def __init__(self, what: str, name: str) -> None:
        self.what = what
        self.name = name
        super().__init__(f"{what} {name} exists already")


class Stale(StorageError):
    """A compare-and-set inside a transaction matched nothing, so the whole transaction was undone.

    Attributes:
        what: which kind of record (`wave`, `wave task`).
        name: its name.
        expected: the state that it should have had.
    """

    code = "conflict"

    def __init__(self, what: str, name: str, expected: str) -> None:
        self.what = what
        self.name = name
        self.expected = expected
        super().__init__(f"{what} {name} is not {expected} any more; nothing was written")


class LeaseLost(StorageError):
    """The lease that fences this change is another's now, so nothing was written.

    Attributes:
        name: the lease's name.
        token: the token that the caller held.
    """

    code = "conflict"

    def __init__(self, name: str, token: int) -> None:
        self.name = name
        self.token = token
        super().__init__(f"lease {name} with token {token} was lost; nothing was written")
