"""Admission: how many requests are under way, of one caller and of all. Pure."""

from typing import Final

from hub.api.errors import Unavailable

MOST_OF_ONE: Final = 8  # contract §10
MOST_OF_ALL: Final = 64  # eight busy callers; storage has fewer connections, the rest would only hold memory


class Admission:
    """Counts what is under way and refuses at once what is above the bounds: nothing waits, so nobody is starved."""

    def __init__(self, *, of_one: int = MOST_OF_ONE, of_all: int = MOST_OF_ALL) -> None:
        self._of_one = of_one
        self._of_all = of_all
        self._by_caller: dict[str, int] = {}
        self.under_way = 0

    def enter(self, identity: str) -> None:
        """Let a request in.

        Raises:
            Unavailable: this caller, or all together, have too many under way; nothing was counted.
        """
        mine = self._by_caller.get(identity, 0)
        if mine >= self._of_one:
            raise Unavailable(f"{identity} has {mine} requests under way already, the most: ask again when one is done")
        if self.under_way >= self._of_all:
            raise Unavailable(f"busy: {self.under_way} requests are under way; ask again in a moment")
        self._by_caller[identity] = mine + 1
        self.under_way += 1

    def leave(self, identity: str) -> None:
        """A request that was let in has ended."""
        mine = self._by_caller[identity] - 1
        self.under_way -= 1
        if mine:
            self._by_caller[identity] = mine
        else:
            del self._by_caller[identity]
