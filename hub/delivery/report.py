"""The report of a probe: findings for the doctor, readiness, status and `$SRV`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

Level = Literal["ok", "warn", "fail"]
Mode = Literal["core", "durable", "unknown"]

_RANK: Final[dict[Level, int]] = {"ok": 0, "warn": 1, "fail": 2}


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        name: what it is about (`server`, `stream HUB_INBOX`, `inbox bob`, …).
        level: `ok`; `warn`: works, and somebody should look; `fail`: does not work.
        text: one line for people, with the numbers.
        data: the same numbers for programs, units in their names.
    """

    name: str
    level: Level
    text: str
    data: Mapping[str, Any] = {}


class Report(msgspec.Struct, frozen=True):
    """What one probe found.

    Attributes:
        mode: how the hub delivers, as far as could be seen.
        findings: in the order in which a message meets the things.
        at: the server's time when it answered; None when no server did.
    """

    mode: Mode
    findings: tuple[Finding, ...]
    at: datetime | None = None

    @property
    def level(self) -> Level:
        """The worst level of all."""
        return max((finding.level for finding in self.findings), key=_RANK.__getitem__, default="ok")

    def of(self, level: Level) -> list[Finding]:
        """The findings of one level."""
        return [finding for finding in self.findings if finding.level == level]

    def named(self, name: str) -> Finding | None:
        """The first finding about this."""
        return next((finding for finding in self.findings if finding.name == name), None)


def shown_secs(secs: float) -> str:
    """A duration for people: `0.4 s`, `12 s`, `4 min`, `3 h`, `2 d`."""
    if secs < 10:
        return f"{secs:.1f} s"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if secs >= 2 * length:
            return f"{secs / length:.0f} {unit}"
    return f"{secs:.0f} s"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """`1 message`, `2 messages`."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
