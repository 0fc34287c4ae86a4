"""What follows on a position, by table and by property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.events.continuity import Continuation, Gap, continue_from
from hub.events.cursor import START, Position, event_digest
from hub.events.log import Item, Slice, Tail


def items(*sequences: int) -> list[Item]:
    return [Item(sequence, sequence * 10, None) for sequence in sequences]


AT_2 = Position(2, 20, event_digest("e2"))
SAME, OTHER = event_digest("e2"), event_digest("x2")


@pytest.mark.parametrize(
    ("position", "found", "fresh", "wanted"),
    [
        (START, Slice(items=[], more=False), True, Continuation([])),
        (START, Slice(items=items(1, 2), more=False), True, Continuation(items(1, 2))),
        (START, Slice(items=items(4, 5), more=False), True, Continuation(items(4, 5), holes=True)),
        (START, Slice(items=items(1, 3), more=False), True, Continuation(items(1, 3), holes=True)),
        (START, Slice(items=items(4), more=False), False, Gap(Position(3, 39))),
        (AT_2, Slice(items=items(3, 4), more=True, anchor=SAME), False, Continuation(items(3, 4))),
        (AT_2, Slice(items=items(3), more=False, anchor=None), False, Continuation(items(3))),
        (AT_2, Slice(items=items(1, 2, 3), more=False, anchor=SAME), False, Continuation(items(3))),
        (AT_2, Slice(items=items(5), more=False, anchor=None), False, Gap(Position(4, 49))),
        (AT_2, Slice(items=items(3, 5), more=False, anchor=SAME), False, Continuation(items(3), cut=True)),
        (AT_2, Slice(items=items(3), more=False, anchor=OTHER), False, Gap(START)),
        (AT_2, Slice(items=[], more=False, anchor=SAME, tail=Tail(2, closed=False)), False, Continuation([])),
        (AT_2, Slice(items=[], more=False, anchor=None, tail=Tail(1, closed=False)), False, Gap(START)),
        (AT_2, Slice(items=[], more=False, anchor=None, tail=None), False, Gap(START)),
        (AT_2, Slice(items=[], more=True), False, Continuation([])),
    ],
)
def test_table(position: Position, found: Slice, fresh: bool, wanted: Continuation | Gap) -> None:
    assert continue_from(position, found, fresh=fresh) == wanted


@given(
    st.sets(st.integers(1, 30), min_size=1).map(sorted),
    st.integers(0, 30),
    st.integers(1, 6),
)
def test_a_reader_that_follows_every_gaps_advice_gets_all_that_is_retained(
    retained: list[int], after: int, limit: int
) -> None:
    """Whatever was trimmed: going on from `earliest` at each gap yields exactly what stands behind the position."""
    position, got = Position(after, after * 10), []
    after = min(after, retained[-1])
    position = Position(after, after * 10)
    for _ in range(100):
        behind = [sequence for sequence in retained if sequence > position.sequence]
        tail = Tail(retained[-1], closed=False)
        found = Slice(items=items(*behind[:limit]), more=len(behind) > limit, tail=tail)
        verdict = continue_from(position, found, fresh=False)
        if isinstance(verdict, Gap):
            assert verdict.earliest.sequence > position.sequence
            position = verdict.earliest
            continue
        if not verdict.items:
            break
        got += [item.sequence for item in verdict.items]
        position = verdict.items[-1].position
    assert got == [sequence for sequence in retained if sequence > after]
