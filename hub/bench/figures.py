"""Figures of a benchmark: what was measured, the ratios of the rounds, and the report of a case. Pure."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Final, Literal

import msgspec

Quantity = Literal["rate", "p50_ms", "p99_ms", "cpu_secs"]

QUICK_MESSAGES: Final = 1_000  # a smoke run: does every part of the bench work?


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What every contender of a run is loaded with.

    Attributes:
        messages: how many messages are measured in one round.
        size: bytes of an envelope.
        rate: messages a second while latency is measured.
        latency_messages: how many of those in one round.
        window: publishes in flight of a sender.
        rounds: how often every contender is measured, in turn.
    """

    messages: int = 20_000
    size: int = 400
    rate: float = 100.0
    latency_messages: int = 200
    window: int = 512
    rounds: int = 5


class Spread(msgspec.Struct, frozen=True):
    """The median of the rounds and their range."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of at least one value."""
        return cls(median(values), min(values), max(values))


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One contender in one round.

    Attributes:
        messages: how many were counted.
        secs: how long they took.
        cpu_secs: processor seconds by process while they ran, all that they caused included.
        latencies_ms: each latency at the load's rate; empty where none is measured.
        history_secs: until history had the last one too, from the start; None where there is no history.
    """

    messages: int
    secs: float
    cpu_secs: dict[str, float]
    latencies_ms: tuple[float, ...] = ()
    history_secs: float | None = None

    def value(self, quantity: Quantity) -> float:
        """One quantity: messages a second, a percentile in milliseconds, or CPU seconds for 10 000 messages."""
        if quantity == "rate":
            return self.messages / self.secs
        if quantity == "cpu_secs":
            return sum(self.cpu_secs.values()) * 10_000 / self.messages
        return percentile(self.latencies_ms, 0.5 if quantity == "p50_ms" else 0.99)


class Standard(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison that a case makes in every round.

    Attributes:
        subject, comparator: the contenders, by name.
        quantity: what of them is compared.
        at_least, at_most: what the ratio should be; None where nothing is asked.
    """

    subject: str
    comparator: str
    quantity: Quantity
    at_least: float | None = None
    at_most: float | None = None

    def is_met(self, ratio: float) -> bool:
        """Is this ratio good enough?"""
        return (self.at_least is None or ratio >= self.at_least) and (self.at_most is None or ratio <= self.at_most)


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a standard: the ratios of the rounds."""

    standard: Standard
    ratio: Spread
    is_met: bool


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One contender over all rounds.

    Attributes:
        name: the contender.
        title: what it is, for people.
        messages: how many were measured in a round.
        rate: messages a second.
        cpu_secs_per_10k: processor seconds for 10 000 messages, by process; the medians of the rounds.
        p50_ms, p99_ms: latency at the load's rate; None where none is measured.
        history_secs: see `Measurement`.
    """

    name: str
    title: str
    messages: int
    rate: Spread
    cpu_secs_per_10k: dict[str, float]
    p50_ms: Spread | None = None
    p99_ms: Spread | None = None
    history_secs: float | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A case as it was measured."""

    case: str
    title: str
    machine: str
    load: Load
    contenders: tuple[Summary, ...]
    ratios: tuple[Ratio, ...]


Rounds = Sequence[dict[str, Measurement]]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summarise(name: str, title: str, rounds: Rounds) -> Summary:
    """One contender over all rounds."""
    measured = [one[name] for one in rounds]
    first = measured[0]
    has_latency = bool(first.latencies_ms)
    history = [one.history_secs for one in measured if one.history_secs is not None]
    return Summary(
        name=name,
        title=title,
        messages=first.messages,
        rate=Spread.of([one.value("rate") for one in measured]),
        cpu_secs_per_10k={
            process: median(one.cpu_secs[process] * 10_000 / one.messages for one in measured)
            for process in first.cpu_secs
        },
        p50_ms=Spread.of([one.value("p50_ms") for one in measured]) if has_latency else None,
        p99_ms=Spread.of([one.value("p99_ms") for one in measured]) if has_latency else None,
        history_secs=median(history) if history else None,
    )


def compare(standard: Standard, rounds: Rounds) -> Ratio:
    """The ratio of each round, subject to comparator; the median is what counts."""
    spread = Spread.of(
        [
            one[standard.subject].value(standard.quantity) / one[standard.comparator].value(standard.quantity)
            for one in rounds
        ]
    )
    return Ratio(standard=standard, ratio=spread, is_met=standard.is_met(spread.median))
