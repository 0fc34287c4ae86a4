"""Continuity: does what a log holds follow on a position, or are events gone in between? Pure."""

from dataclasses import dataclass

from hub.events.cursor import START, Position
from hub.events.log import Item, Slice


@dataclass(frozen=True, slots=True)
class Continuation:
    """What may be handed out behind a position.

    Attributes:
        items: in order, ending before the first gap that a reader has to be told of.
        cut: there is more behind such a gap.
        holes: trimmed history was passed over (only where reading began with the oldest retained event).
    """

    items: list[Item]
    cut: bool = False
    holes: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """Events directly behind the position are gone; `earliest` is the first position that can go on."""

    earliest: Position


def continue_from(position: Position, found: Slice, *, fresh: bool) -> Continuation | Gap:
    """Judge a slice.

    Args:
        position: where the reader stands.
        found: what the log holds behind it.
        fresh: the reader began with the oldest retained event and has not caught up yet, so what was trimmed is
            history and no loss.
    """
    if position.event and found.anchor is not None and found.anchor != position.event:
        return Gap(START)  # another event has this number: the log was made anew
    if not found.items and not found.more and position.sequence > (found.tail.sequence if found.tail else 0):
        return Gap(START)  # nothing here has come as far as the reader
    taken: list[Item] = []
    holes = False
    last = position.sequence
    for item in found.items:
        if item.sequence <= last:
            continue  # a repeat
        if item.sequence > last + 1:
            if not fresh and not taken:
                return Gap(Position(item.sequence - 1, max(0, item.place - 1)))
            if not fresh:
                return Continuation(taken, cut=True)
            holes = True
        taken.append(item)
        last = item.sequence
    return Continuation(taken, holes=holes)
