"""Codec of payloads: any JSON value, and the deep refusals that protect whoever acts on one (contract §1)."""

import math
import re
from collections.abc import Collection
from typing import Any, Final

import msgspec

from hub.protocol.errors import BadPayload
from hub.protocol.scanner import LONE_SURROGATES, STRING

MAX_DEPTH: Final = 128  # contract §1: nesting deeper than this is refused; a scalar has depth 0
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1  # int64 and uint64 together: what other languages can hold

MOST_VALUES: Final = 8_388_608  # more have no room in a message of 8 MiB; also what ends a value that holds itself
_PATH_SEARCH_MOST_BYTES: Final = 262_144  # beyond this only "$.payload" is named: finding a path must not cost seconds
_MOST_STEPS: Final = 8  # of a path, for people
_SHORTEST_SUSPECT_DIGITS: Final = 19  # 2**63 has 19 digits: shorter integers are always in range

_TEXT: Final = frozenset({str})
_LONG_DIGITS = re.compile(rb"[0-9]{%d}" % _SHORTEST_SUSPECT_DIGITS)
_TOKEN = re.compile(
    rb"(?P<string>%s(?:\"|\Z))|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<open>[\[{])|(?P<close>[\]}])|(?P<comma>,)|(?P<colon>:)"
    % STRING,
    re.DOTALL,
)


def decode_payload(text: bytes) -> Any:
    """Decode a payload and refuse what no receiver should act on.

    Of members of one object with the same name the last one counts; a number too small for a double is 0.

    Args:
        text: the payload's JSON bytes.

    Raises:
        BadPayload: not JSON, a number outside IEEE double or the int64/uint64 range, a lone surrogate, or nesting
            deeper than 128. `path` names the place.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = _first_offence(text)
        raise found or BadPayload("$.payload", f"expected JSON text, got something else ({error})") from None
    may_be_deep = text.count(b"[") + text.count(b"{") > MAX_DEPTH
    if may_be_deep or _LONG_DIGITS.search(text):
        _levels(value, len(text))
    return value


def encode_payload(value: Any) -> bytes:
    """Encode a payload as compact JSON, refusing what would not arrive as it was meant.

    Subclasses (an `OrderedDict`, a `StrEnum`, an `IntEnum`, a named tuple) go as what they hold.

    Args:
        value: None, bool, int, float, str, list or tuple, dict with text keys; nested.

    Raises:
        BadPayload: another type (a set, bytes, a datetime, a dataclass, …), NaN or an infinity, an integer outside
            int64/uint64, a lone surrogate, nesting deeper than 128, or more than 8 388 608 values, which is what a
            value that holds itself comes to. `path` names the place.
    """
    levels = _levels(value, MOST_VALUES)
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except UnicodeEncodeError:
        depth, index = next(
            (depth, index)
            for depth, level in enumerate(levels)
            for index, item in enumerate(level)
            if _has_lone_surrogate(item)
        )
        path = _path_of(levels, depth, index)
        raise BadPayload(_shown_path(path), "expected Unicode text, got a lone surrogate") from None


def _plain(value: Any) -> Any:
    """What a subclass of str, int or float holds; the encoder takes only those of list and dict by itself."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__int__(value) if isinstance(value, int) else float.__float__(value)


def _levels(value: Any, most_values: int) -> list[list[Any]]:
    """Every value inside, level by level: `[[value], its items, their items, …]`.

    Without recursion, so that depth is a finding and not a crash, and without paths, which only an offence needs.

    Raises:
        BadPayload: one of them is refused, or there are more than `most_values`.
    """
    level: list[Any] = [value]
    levels: list[list[Any]] = []
    room = most_values - 1
    while level:
        levels.append(level)
        is_last = len(levels) > MAX_DEPTH
        below: list[Any] = []
        inner: Collection[Any]
        for item in level:
            kind = type(item)
            if kind is str or item is None or kind is bool:
                continue
            if kind is int or kind is float:
                if INT_MIN <= item <= INT_MAX or (kind is float and math.isfinite(item)):
                    continue
                raise _refusal(levels, item)
            if kind is list and not is_last:
                inner = item
            elif kind is dict and not is_last and _TEXT.issuperset(map(type, item)):
                inner = item.values()
            elif _offence(item, is_too_deep=is_last) is None:  # a tuple, a subclass
                inner = _items(item)
            else:
                raise _refusal(levels, item)
            room -= len(inner)
            if room < 0:
                raise BadPayload("$.payload", f"expected at most {most_values} values, got more (does it hold itself?)")
            below += inner
        level = below
    return levels


def _items(item: Any) -> list[Any]:
    """What stands directly inside, as the encoder sees it, whatever a subclass says."""
    if isinstance(item, dict):
        return list(dict.values(item))
    if isinstance(item, list):
        return list.copy(item)
    return list(tuple.__iter__(item)) if isinstance(item, tuple) else []


def _offence(item: Any, *, is_too_deep: bool) -> str | None:
    """Why this one value is refused; None when it is not."""
    if isinstance(item, str | None):
        return None
    if isinstance(item, int):
        if INT_MIN <= item <= INT_MAX:
            return None
        return "expected an integer in the int64 or uint64 range, got a larger one"
    if isinstance(item, float):
        return None if math.isfinite(item) else f"expected a finite number, got {float(item)!r}"
    if not isinstance(item, list | tuple | dict):
        kind = type(item)
        expected = "expected a JSON value (None, bool, int, float, str, list, dict)"
        return f"{expected}, got {kind.__module__}.{kind.__qualname__}"
    if is_too_deep:
        return f"expected at most {MAX_DEPTH} levels of nesting, got more"
    if isinstance(item, dict):
        for key in dict.keys(item):
            if not isinstance(key, str):
                return f"expected text as the name of a member, got {type(key).__name__}"
    return None


def _refusal(levels: list[list[Any]], item: Any) -> BadPayload:
    """The error for a value of the last level, which is the first of it that is refused."""
    depth = len(levels) - 1
    index = next(index for index, other in enumerate(levels[depth]) if other is item)
    detail = _offence(item, is_too_deep=depth == MAX_DEPTH) or ""
    return BadPayload(_shown_path(_path_of(levels, depth, index)), detail)


def _path_of(levels: list[list[Any]], depth: int, index: int) -> list[Any]:
    """The names and indices that lead to one value: the holders in the level above are counted through, upwards."""
    path: list[Any] = []
    for level in reversed(levels[:depth]):
        for position, holder in enumerate(level):
            size = len(holder) if type(holder) in (list, dict) else len(_items(holder))
            if index < size:
                path.append(list(dict.keys(holder))[index] if isinstance(holder, dict) else index)
                index = position
                break
            index -= size
    return path[::-1]


def _has_lone_surrogate(item: Any) -> bool:
    """Does UTF-8 not encode this text, or one of these names?"""
    texts = [item] if isinstance(item, str) else list(dict.keys(item)) if isinstance(item, dict) else []
    try:
        for text in texts:
            str.encode(text)
    except UnicodeEncodeError:
        return True
    return False


def _shown_path(path: list[Any]) -> str:
    """`["a", 3]` as `$.payload.a[3]`, safe to print; None is no step."""
    shown = "$.payload"
    steps = [step for step in path if step is not None]
    for step in steps[:_MOST_STEPS]:
        if isinstance(step, int):
            shown += f"[{step}]"
        elif isinstance(step, str) and step.isidentifier() and step.isascii():
            shown += f".{step}"
        else:
            shown += f"[{step!a}]"
    return shown[:200] + ("…" if len(steps) > _MOST_STEPS or len(shown) > 200 else "")


def _first_offence(text: bytes) -> BadPayload | None:
    """Find what the decoder did not take, by tokens and without recursion; None when it is plain bad syntax."""
    path: list[Any] = []  # None stands for a member whose name has not come yet
    key: Any = None
    for found in _TOKEN.finditer(text, 0, _PATH_SEARCH_MOST_BYTES):
        token, group = found.group(), found.lastgroup
        if group == "open":
            if len(path) >= MAX_DEPTH:
                return BadPayload(_shown_path(path), f"expected at most {MAX_DEPTH} levels of nesting, got more")
            path.append(None if token == b"{" else 0)
        elif group == "close" and path:
            path.pop()
        elif group == "comma" and path:
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
        elif group == "string":
            if any(escape.lastgroup == "lone" for escape in LONE_SURROGATES.finditer(token)):
                return BadPayload(_shown_path(path), "expected Unicode text, got a lone surrogate")
            key = token[1:-1].decode(errors="replace")
        elif group == "colon" and path:
            path[-1] = key
        elif group == "number" and _is_out_of_range(token):
            return BadPayload(_shown_path(path), f"expected a number in range, got {token[:40].decode()}")
    return None


def _is_out_of_range(number: bytes) -> bool:
    """Is this JSON number outside IEEE double, or an integer outside int64 and uint64?"""
    if number.lstrip(b"-").isdigit():
        return len(number) > 20 or not INT_MIN <= int(number) <= INT_MAX
    try:
        return not math.isfinite(float(number))
    except ValueError:
        return False
