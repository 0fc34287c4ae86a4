"""Errors of the query API: one family; each `code` is a word of contract §10."""

from typing import Final

from hub.delivery.errors import DeliveryError
from hub.protocol import ProtocolError
from hub.storage import StorageError
from hub.waves import WaveError

CODES: Final = frozenset({"bad_request", "not_found", "forbidden", "conflict", "too_large", "unavailable", "internal"})
_MOST_TEXT: Final = 1000  # characters of an error; some quote what came, which may be megabytes


class ApiError(Exception):
    """The request cannot be answered."""

    code = "internal"


class BadRequest(ApiError):
    """The request breaks a rule; the text says which, what was expected and what came."""

    code = "bad_request"


class NotFound(ApiError):
    """There is nothing of that name, or nothing that the caller may see.

    Attributes:
        what: which kind of record.
        name: what was asked for.
    """

    code = "not_found"

    def __init__(self, what: str, name: str) -> None:
        self.what = what
        self.name = name
        super().__init__(f"there is no {what} {name!a} that you may see")


class Forbidden(ApiError):
    """The caller may not do that; the text says who may."""

    code = "forbidden"


class Clash(ApiError):
    """What is there stands against it; nothing was changed."""

    code = "conflict"


class Unavailable(ApiError):
    """Not now; the same request may succeed later."""

    code = "unavailable"


class ReplyTooLarge(ApiError):
    """A single record does not fit into a reply.

    Attributes:
        what: the record, for people.
        size: its size in bytes.
        limit: what fits.
        next_cursor: in a list, where it goes on behind this record; None at its end.
    """

    code = "too_large"

    def __init__(self, what: str, size: int, limit: int, next_cursor: str | None = None) -> None:
        self.what = what
        self.size = size
        self.limit = limit
        self.next_cursor = next_cursor
        tail = "; `next_cursor` goes on behind it" if next_cursor is not None else ""
        super().__init__(f"{what} takes {size} bytes, and {limit} fit into a reply{tail}")


class RequestTooLarge(ApiError):
    """The request is larger than this operation takes.

    Attributes:
        op: the operation.
        size: the request's size in bytes.
        limit: what it takes.
    """

    code = "too_large"

    def __init__(self, op: str, size: int, limit: int) -> None:
        self.op = op
        self.size = size
        self.limit = limit
        super().__init__(f"a request of {size} bytes is too large for {op}: expected at most {limit}")


def told(error: Exception) -> tuple[str, str] | None:
    """The code and the text by which a caller is told of an error; None for one that is nobody's business but ours."""
    if not isinstance(error, ApiError | StorageError | DeliveryError | ProtocolError | WaveError):
        return None
    if error.code not in CODES or error.code == "internal":
        return None
    text = str(error)
    return error.code, text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
