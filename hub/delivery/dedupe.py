"""The memory that repeats are dropped by, where there is no disk (contract §5)."""

from collections import OrderedDict
from typing import Final

ACKED_MOST: Final = 4096  # contract §5: what has no disk remembers this many


class AckedMemory:
    """Remembers the last `(from, id)` that are done with, bounded; the one that came again last leaves last.

    In an inbox only what was acked belongs here: a message that was delivered and not acked comes again and must be
    handed out again.

    Args:
        most: how many are remembered; 0 for a reader that remembers on its disk.
    """

    def __init__(self, most: int = ACKED_MOST) -> None:
        if most < 0:
            raise ValueError(f"expected room for 0 or more, got {most}")
        self._most = most
        self._done: OrderedDict[tuple[str, str], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._done)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._done

    def remember(self, sender: str, message_id: str) -> None:
        """Note that an envelope is done with. A repeat counts as the newest: while it keeps coming it is not forgotten.

        Args:
            sender: `meta.from`; an id alone names nothing, since senders choose their ids.
            message_id: `meta.id`.
        """
        key = (sender, message_id)
        self._done[key] = None
        self._done.move_to_end(key)
        if len(self._done) > self._most:
            self._done.popitem(last=False)
