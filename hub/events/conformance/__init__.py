"""The conformance suite: what every event source must do, whatever it stands on.

    for case in suite(make_source):
        await case.run()

`make_source(**options)` returns a fresh source each time, all on one store: the cases use several at once as replicas,
with the given options of `Limits` (and `cursor_secret`). Every case makes its own tenants, so the store may be shared
and need not be empty. The suite closes the sources that it was given.
"""

from collections.abc import Iterable

from hub.events.conformance import appends, cleanups, cursors, ownerships, pages, subscriptions
from hub.events.conformance.world import Case, MakeSource, Poison, World


class BoundCase:
    """One promise, ready to be tried on one kind of source."""

    def __init__(self, case: Case, make_source: MakeSource, poison: Poison | None) -> None:
        self.name = case.__name__
        self._case, self._make_source, self._poison = case, make_source, poison

    async def run(self) -> None:
        """Try it; an AssertionError or any other exception is a failure."""
        async with World(self._make_source, self._poison) as world:
            await self._case(world)

    def __repr__(self) -> str:
        return f"BoundCase({self.name})"


def names() -> list[str]:
    """The names of all cases, for test runners that collect before there is a source."""
    return [case.__name__ for case in _cases()]


def suite(make_source: MakeSource, *, poison: Poison | None = None) -> dict[str, BoundCase]:
    """All cases by name, bound to one kind of source.

    Args:
        make_source: makes a source on the store under test, from options.
        poison: `await poison(read)` puts a broken record at the end of a run, behind the source's back; without it the
            cases about broken records prove nothing and are left out.
    """
    bound = [BoundCase(case, make_source, poison) for case in _cases() if poison or "broken" not in case.__name__]
    return {case.name: case for case in bound}


def _cases() -> Iterable[Case]:
    for module in (appends, pages, subscriptions, ownerships, cursors, cleanups):
        yield from module.CASES


__all__ = ["BoundCase", "MakeSource", "Poison", "World", "names", "suite"]
