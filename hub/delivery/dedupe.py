"""The memory of acked messages: what a plain client drops repeats by (contract §5)."""

from collections import OrderedDict
from typing import Final

ACKED_MOST: Final = 4096  # contract §5: what has no disk remembers this many


class AckedMemory:
    """Remembers the last acked `(from, id)`, bounded; the one that was acked or seen again last leaves last.

    Only what was acked belongs here: a message that was delivered and not acked comes again and must be handed out
    again.

    Args:
        most: how many are remembered.
    """

    def __init__(self, most: int = ACKED_MOST) -> None:
        if most < 1:
            raise ValueError(f"expected room for at least 1, got {most}")
        self._most = most
        self._acked: OrderedDict[tuple[str, str], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._acked)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._acked

    def remember(self, sender: str, message_id: str) -> None:
        """Note that an envelope was acked. A repeat counts as the newest: while it keeps coming it is not forgotten.

        Args:
            sender: `meta.from`; an id alone names nothing, since senders choose their ids.
            message_id: `meta.id`.
        """
        key = (sender, message_id)
        self._acked[key] = None
        self._acked.move_to_end(key)
        if len(self._acked) > self._most:
            self._acked.popitem(last=False)
