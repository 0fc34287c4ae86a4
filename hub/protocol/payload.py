"""Codec of payloads: any JSON value, and the deep refusals that protect whoever acts on one (contract §1)."""

import math
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from hub.protocol.errors import BadPayload

MAX_DEPTH: Final = 128  # contract §1: nesting deeper than this is refused; a scalar has depth 0
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1  # int64 and uint64 together: what other languages can hold

_MOST_VALUES: Final = 8_388_608  # 8 MiB: more values than this have no room in a message of the largest size
_PATH_SEARCH_MOST_BYTES: Final = 262_144  # beyond this only "$.payload" is named: finding a path must not cost seconds
_SHORTEST_SUSPECT_DIGITS: Final = 19  # 2**63 has 19 digits: shorter integers are always in range

_LONG_DIGITS = re.compile(rb"[0-9]{%d}" % _SHORTEST_SUSPECT_DIGITS)
_TOKEN = re.compile(
    rb'(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<open>[\[{])|(?P<close>[\]}])|(?P<comma>,)'
    rb"|(?P<colon>:)",
    re.DOTALL,
)
_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\.",
    re.DOTALL,
)


def decode_payload(text: bytes) -> Any:
    """Decode a payload and refuse what no receiver should act on.

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
        _require_fine(value)
    return value


def encode_payload(value: Any) -> bytes:
    """Encode a payload as compact JSON, refusing what would not arrive as it was meant.

    Args:
        value: None, bool, int, float, str, list or tuple, dict with text keys; nested.

    Raises:
        BadPayload: another type (a set, bytes, a datetime, …), NaN or an infinity, an integer outside int64/uint64, a
            lone surrogate, or nesting deeper than 128. `path` names the place.
    """
    _require_fine(value)
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise _name_surrogate(value) from None


def _require_fine(value: Any) -> None:
    """Refuse what the wire cannot carry, naming the place; a quick look first, since nearly every payload is fine."""
    if _is_fine(value):
        return
    for path, item, depth in _walk(value):
        _judge(path, item, depth)


def _is_fine(value: Any) -> bool:
    """The rules of `_judge` over the whole value, level by level and without paths: about ten times as fast."""
    level: list[Any] = [value]
    seen = 0
    for depth in range(MAX_DEPTH + 1):
        seen += len(level)
        if seen > _MOST_VALUES:  # a value that holds itself; the walk by depth says so
            return False
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str or item is None or kind is bool:
                continue
            if kind is dict or kind is list or kind is tuple:
                if depth == MAX_DEPTH:
                    return False
                if kind is not dict:
                    below.extend(item)
                elif all(type(key) is str for key in item):
                    below.extend(item.values())
                else:
                    return False
            elif kind is int:
                if not INT_MIN <= item <= INT_MAX:
                    return False
            elif kind is not float or not math.isfinite(item):
                return False
        if not below:
            return True
        level = below
    return False


def _walk(value: Any) -> Iterator[tuple[tuple[Any, ...], Any, int]]:
    """Every value inside, with its path and depth; without recursion, so that depth is a finding and not a crash."""
    stack: list[tuple[tuple[Any, ...], Any, int]] = [((), value, 0)]
    while stack:
        path, item, depth = stack.pop()
        yield path, item, depth
        if isinstance(item, dict):
            stack += [((*path, key), inner, depth + 1) for key, inner in item.items()]
        elif isinstance(item, list | tuple):
            stack += [((*path, index), inner, depth + 1) for index, inner in enumerate(item)]


def _judge(path: tuple[Any, ...], item: Any, depth: int) -> None:
    """Refuse one value that JSON on this wire cannot carry."""
    kind = type(item)
    if kind is str or item is None or kind is bool:
        return
    if kind is int:
        if not INT_MIN <= item <= INT_MAX:
            raise BadPayload(_shown_path(path), "expected an integer in the int64 or uint64 range, got a larger one")
    elif kind is float:
        if not math.isfinite(item):
            raise BadPayload(_shown_path(path), f"expected a finite number, got {item!r}")
    elif kind is list or kind is tuple or kind is dict:
        if depth >= MAX_DEPTH:
            raise BadPayload(_shown_path(path[:8]), f"expected at most {MAX_DEPTH} levels of nesting, got more")
        if kind is dict:
            for key in item:
                if type(key) is not str:
                    detail = f"expected text as the name of a member, got {type(key).__name__}"
                    raise BadPayload(_shown_path(path), detail)
    else:
        expected = "expected a JSON value (None, bool, int, float, str, list, dict)"
        raise BadPayload(_shown_path(path), f"{expected}, got {kind.__module__}.{kind.__qualname__}")


def _name_surrogate(value: Any) -> BadPayload:
    """The error for the first text that UTF-8 cannot encode."""
    for path, item, _ in _walk(value):
        texts = item if isinstance(item, dict) else [item]
        for text in texts:
            if isinstance(text, str) and not text.isascii():
                try:
                    text.encode()
                except UnicodeEncodeError:
                    return BadPayload(_shown_path(path), "expected Unicode text, got a lone surrogate")
    return BadPayload("$.payload", "expected Unicode text, got a lone surrogate")


def _shown_path(path: tuple[Any, ...]) -> str:
    """`("a", 3)` as `$.payload.a[3]`, safe to print."""
    shown = "$.payload"
    for step in path:
        if isinstance(step, int) and not isinstance(step, bool):
            shown += f"[{step}]"
        elif isinstance(step, str) and step.isidentifier() and step.isascii():
            shown += f".{step}"
        else:
            shown += f"[{step!a}]"
    return shown if len(shown) <= 200 else f"{shown[:200]}…"


def _first_offence(text: bytes) -> BadPayload | None:
    """Find what the decoder did not take, by tokens and without recursion; None when it is plain bad syntax."""
    path: list[Any] = []
    in_object: list[bool] = []
    key: Any = None
    for found in _TOKEN.finditer(text, 0, _PATH_SEARCH_MOST_BYTES):
        token, group = found.group(), found.lastgroup
        if group == "open":
            if len(path) >= MAX_DEPTH:
                where = _shown_path(tuple(path[:8]))
                return BadPayload(where, f"expected at most {MAX_DEPTH} levels of nesting, got more")
            in_object.append(token == b"{")
            path.append(0)
        elif group == "close" and path:
            path.pop()
            in_object.pop()
        elif group == "comma" and path and not in_object[-1]:
            path[-1] += 1
        elif group == "string":
            if any(escape.lastgroup == "lone" for escape in _LONE_SURROGATE.finditer(token)):
                return BadPayload(_shown_path(tuple(path)), "expected Unicode text, got a lone surrogate")
            key = token[1:-1].decode(errors="replace")
        elif group == "colon" and path:
            path[-1] = key
        elif group == "number" and _is_out_of_range(token):
            return BadPayload(_shown_path(tuple(path)), f"expected a number in range, got {token[:40].decode()}")
    return None


def _is_out_of_range(number: bytes) -> bool:
    """Is this JSON number outside IEEE double, or an integer outside int64 and uint64?"""
    if number.lstrip(b"-").isdigit():
        return len(number) > 20 or not INT_MIN <= int(number) <= INT_MAX
    try:
        return not math.isfinite(float(number))
    except ValueError:
        return False
