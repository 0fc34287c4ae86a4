"""The rounds: subject and comparators measured in turn, so that what the machine does meanwhile meets all of them."""

from collections.abc import Awaitable, Callable

import msgspec

from hub.bench.actors import READER
from hub.bench.figures import Load, Measurement, Report, Standard, compare, summarise
from hub.bench.load import Template
from hub.bench.machine import machine_line

Measure = Callable[[Load], Awaitable[Measurement]]
Progress = Callable[[str], None]


class Contender(msgspec.Struct, frozen=True):
    """One of those that are measured.

    Attributes:
        name: one word.
        title: what it is, for people.
        measure: measures it once, from nothing (its own server, streams and processes).
    """

    name: str
    title: str
    measure: Measure


class Case(msgspec.Struct, frozen=True):
    """A benchmark: who runs against whom.

    Attributes:
        name: the command's word.
        title: what it is about, for people.
        contenders: in the order in which each round measures them.
        standards: what of them is compared, and what is asked.
    """

    name: str
    title: str
    contenders: tuple[Contender, ...]
    standards: tuple[Standard, ...]


async def run(case: Case, load: Load, say: Progress) -> Report:
    """Measure a case.

    Args:
        case: the case.
        load: what everybody is loaded with.
        say: told what is being measured.

    Raises:
        LoadError: an envelope cannot be so small.
    """
    Template(load.size, to=READER)
    rounds: list[dict[str, Measurement]] = []
    for number in range(1, load.rounds + 1):
        measured = {}
        for contender in case.contenders:
            say(f"{case.name}: round {number} of {load.rounds}, {contender.title}")
            measured[contender.name] = await contender.measure(load)
        rounds.append(measured)
    return Report(
        case=case.name,
        title=case.title,
        machine=machine_line(),
        load=load,
        contenders=tuple(summarise(one.name, one.title, rounds) for one in case.contenders),
        ratios=tuple(compare(standard, rounds) for standard in case.standards),
    )
