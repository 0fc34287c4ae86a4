"""Cursors: what goes in comes out, and nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.events.cursor import CursorCodec, Position, event_digest
from hub.events.errors import InvalidCursorError
from hub.events.limits import MIN_CURSOR_BYTES, RANGES
from hub.events.records import MAX_ID_BYTES, Ownership, RunKey

RUN = RunKey(Ownership(tenant_id="t"), "s", "r")
numbers = st.integers(0, 2**63 - 1)
positions = st.builds(
    Position, numbers, numbers, st.sampled_from(["e", "é", "x" * 256]).map(event_digest) | st.just(b"")
)


def codec(**changes: object) -> CursorCodec:
    options: dict[str, object] = {"adapter": "a", "stream": "s", "max_bytes": MIN_CURSOR_BYTES, **changes}
    return CursorCodec(b"k" * 32, **options)  # type: ignore[arg-type]


@given(positions)
def test_a_cursor_comes_back_as_the_position_that_it_was_made_of(position: Position) -> None:
    assert codec().decode(RUN, codec().encode(RUN, position)) == position


def test_the_longest_cursor_fits_the_least_limit() -> None:
    longest = Position(2**63 - 1, 2**63 - 1, event_digest("x" * MAX_ID_BYTES))
    keyed = CursorCodec({"k" * 32: b"k" * 32}, adapter="a", stream="s", max_bytes=MIN_CURSOR_BYTES)
    assert len(keyed.encode(RUN, longest)) <= MIN_CURSOR_BYTES == RANGES["max_cursor_bytes"][0]


@given(st.text("ab.-_=é \n", max_size=40) | st.binary() | st.integers() | st.none())
def test_whatever_else_comes_is_refused_as_a_cursor(garbage: object) -> None:
    with pytest.raises(InvalidCursorError):
        codec().decode(RUN, garbage)


@pytest.mark.parametrize("changes", [{"adapter": "b"}, {"stream": "t"}])
def test_a_cursor_belongs_to_its_adapter_and_stream(changes: dict[str, object]) -> None:
    cursor = codec().encode(RUN, Position(1, 1, b""))
    with pytest.raises(InvalidCursorError):
        codec(**changes).decode(RUN, cursor)
