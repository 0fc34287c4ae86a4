"""Parameters: the types that requests are decoded into, and what their members may be. Pure.

Names, sizes, times and numbers are checked where they are decoded, so that an operation is handed what it can use.
"""

import difflib
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Raw

from hub.api.errors import BadRequest
from hub.protocol import BadName, BadPayload, encode_payload
from hub.storage.records import DEFAULT_LIMIT, MAX_LIMIT, MAX_THREAD_DEPTH

MAX_SECS: Final = 10 * 366 * 86_400  # ten years, the longest window that storage looks at
_MOST_CURSOR: Final = 128
_MOST_TEXT: Final = 4096  # a path, a model's name, a reason: more is a mistake
_MOST_DETAIL: Final = 300  # characters of a decoder's complaint, which quotes what came

P = TypeVar("P")
T = TypeVar("T")

Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT)]
Depth = Annotated[int, Meta(ge=0, le=MAX_THREAD_DEPTH)]
Secs = Annotated[float, Meta(ge=1, le=MAX_SECS)]
Time = Annotated[datetime, Meta(tz=True)]
Text = Annotated[str, Meta(max_length=_MOST_TEXT)]
Cursor = Annotated[str, Meta(max_length=_MOST_CURSOR)]
Ignored = Raw
"""A member that the hub decides itself: whatever is given is ignored (contract §10)."""
NOT_GIVEN: Final = Raw(b"")


class Params(msgspec.Struct, forbid_unknown_fields=True, rename={"sender": "from"}):
    """Base of all parameters: what is not declared is refused by name."""


class NoParams(Params):
    """An operation without parameters."""


class PageParams(Params):
    """A part of a list."""

    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor | None = None


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    params: Raw = Raw(b"{}")


_decode_request: Final = msgspec.json.Decoder(_Request).decode


def decode(body: bytes, kind: type[P]) -> P:
    """Decode a request.

    Args:
        body: `{"params": {...}}`; nothing at all counts as `{}`.
        kind: the parameters' type.

    Raises:
        BadRequest: it says which member, what was expected and what came.
    """
    try:
        request = _decode_request(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f'expected {{"params": {{...}}}}: {_cut(error)}') from None
    try:
        return msgspec.json.decode(request.params, type=kind)
    except msgspec.ValidationError as error:
        text = str(error).replace("at `$", "at `params")
        raise BadRequest(f"bad params: {_cut(text)}{_closest(text, kind)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise BadRequest(f"bad params: {_cut(error)}") from None


def _cut(error: object) -> str:
    text = ascii(str(error))[1:-1]
    return text if len(text) <= _MOST_DETAIL else f"{text[:_MOST_DETAIL]}…"


def _closest(text: str, kind: Any) -> str:
    """For an unknown member at the top: the known one that was probably meant."""
    if not text.startswith("Object contains unknown field `") or not issubclass(kind, msgspec.Struct):
        return ""
    unknown = text.split("`")[1][:64]
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    meant = difflib.get_close_matches(unknown, known, n=1)
    return f"; did you mean {meant[0]!r}?" if meant else f"; known are {', '.join(sorted(known))}" if known else ""


def named(check: Callable[[object], T], value: object, where: str) -> T:
    """A name of a parameter, checked by one of `hub.protocol.names`.

    Raises:
        BadRequest: it breaks its rule.
    """
    try:
        return check(value)
    except BadName as error:
        raise BadRequest(f"params.{where}: {error}") from None


def maybe_named(check: Callable[[object], T], value: object, where: str) -> T | None:
    """As `named`; None stays."""
    return None if value is None else named(check, value, where)


def require_json(value: Any, where: str, *, most_bytes: int) -> None:
    """Refuse an object that other readers could not decode, or that is too large to be read in lists.

    Raises:
        BadRequest: nested deeper than 128, a number out of range, or more than `most_bytes` as JSON.
    """
    try:
        size = len(encode_payload(value))
    except BadPayload as error:
        raise BadRequest(f"params.{where}{error.path.removeprefix('$.payload')}: {error.detail}") from None
    if size > most_bytes:
        raise BadRequest(f"params.{where}: expected at most {most_bytes} bytes of JSON, got {size}")


def one_of(options: tuple[str, ...], value: str | None, where: str) -> Any:
    """A word of a parameter; None stays.

    Raises:
        BadRequest: it is none of the options.
    """
    if value is None or value in options:
        return value
    raise BadRequest(f"params.{where}: expected {', '.join(options[:-1])} or {options[-1]}, got {ascii(value)[:80]}")
