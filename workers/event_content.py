"""The content of events: bounded copies of what handlers report, as JSON that every reader takes."""

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

TEXT_MOST: Final = 16_000  # characters of one text; an event holds 64 KiB
LINES_MOST: Final = 16_000  # characters of output that are gathered into one event
# A text is cut twice: with this much more before the secrets are taken out, so that one that stands across the last
# place is seen whole, and to its length after that.
OVERLAP: Final = 4_000
TOTAL_MOST: Final = 64_000  # characters of all texts, so that redacting one event takes milliseconds
VALUES_MOST: Final = 2_000
DEEPEST: Final = 32
CUT: Final = "… (cut)"


class Bounded:
    """Copies one event's members, for as long as there is room."""

    def __init__(self) -> None:
        self._characters = TOTAL_MOST
        self._values = VALUES_MOST

    def members(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """A copy that shares nothing with what the handler may still change."""
        return self._mapping(members, 1)

    def _any(self, value: Any, depth: int) -> Any:
        self._values -= 1
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int):
            return int(value) if -(2**63) <= value < 2**64 else self._text(hex(value))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else repr(float(value))
        if isinstance(value, msgspec.Raw):
            return self._any(msgspec.json.decode(value), depth)
        if depth >= DEEPEST and isinstance(value, Mapping | list | tuple):
            return CUT
        if isinstance(value, Mapping):
            return self._mapping(value, depth + 1)
        if isinstance(value, list | tuple):
            return self._list(value, depth + 1)
        return f"({type(value).__name__})"

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for name, each in value.items():
            if self._values <= 0:
                copied[CUT] = len(value) - len(copied)
                break
            copied[self._text(name if isinstance(name, str) else repr(name), 256)] = self._any(each, depth)
        return copied

    def _list(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        copied: list[Any] = []
        for each in value:
            if self._values <= 0:
                copied.append(CUT)
                break
            copied.append(self._any(each, depth))
        return copied

    def _text(self, text: str, most: int = TEXT_MOST + OVERLAP) -> str:
        most = min(most, max(self._characters, 0))
        kept = text[:most] + CUT if len(text) > most else text
        self._characters -= len(kept)
        # What UTF-8 cannot carry is escaped.
        return kept if kept.isascii() else kept.encode("utf-8", "backslashreplace").decode()


def cut_texts(value: Any) -> Any:
    """The same with each text cut to its length."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_MOST + len(CUT) else value[:TEXT_MOST] + CUT
    if isinstance(value, dict):
        return {name: cut_texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return [cut_texts(each) for each in value]
    return value
