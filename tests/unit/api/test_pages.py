"""Pages end before a reply is too large, whatever is in them, and none is a dead end."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.api.errors import ReplyTooLarge
from hub.api.pages import FRAME_BYTES, Room, fit
from hub.storage.records import Page

ROOM = Room(page_bytes=1000, record_bytes=1500)


def reader(sizes: list[int], *, weigh: bool):  # type: ignore[no-untyped-def]
    """A list of texts of these sizes, as storage reads it; without `weigh` it knows nothing of their size."""

    def read_from(cursor: str | None):  # type: ignore[no-untyped-def]
        async def read(limit: int, max_bytes: int) -> Page[str]:
            start = int(cursor or 0)
            end, weight = start, 0
            while end < len(sizes) and end - start < limit:
                weight += sizes[end]
                if weigh and weight > max_bytes and end > start:
                    break
                end += 1
            return Page(["x" * size for size in sizes[start:end]], str(end) if end < len(sizes) else None)

        return read

    return read_from


@given(
    st.lists(st.integers(0, 1600) | st.sampled_from([10, 997, 998, 999, 1496, 1497, 1498, 1499]), max_size=30),
    st.booleans(),
    st.integers(1, 40),
)
async def test_page_by_page_every_record_that_fits_comes_once_and_in_order(
    sizes: list[int], weigh: bool, limit: int
) -> None:
    read_from = reader(sizes, weigh=weigh)
    got: list[int] = []
    refused = 0
    cursor: str | None = None
    for _ in range(len(sizes) + 1):
        try:
            answer = await fit(ROOM, read_from(cursor), lambda text: text, limit=limit, items="texts", what="text")
        except ReplyTooLarge as error:
            refused += 1
            cursor = error.next_cursor
        else:
            items = [bytes(item) for item in answer["texts"]]
            assert len(items) <= limit
            assert len(items) == 1 or sum(map(len, items)) <= ROOM.page_bytes
            got += [len(msgspec.json.decode(item)) for item in items]
            cursor = answer.get("next_cursor")
        if cursor is None:
            break
    assert got == [size for size in sizes if size + 2 <= ROOM.record_bytes]
    assert refused == len(sizes) - len(got)


def test_what_could_be_sent_can_be_read() -> None:
    usable = 1_048_576 - 8192
    room = Room.of(usable)
    assert room.page_bytes + FRAME_BYTES <= usable
    assert usable < room.record_bytes < 1_048_576


def test_a_record_that_fits_into_no_reply_says_its_size() -> None:
    with pytest.raises(ReplyTooLarge, match=r"the envelope takes 1501 bytes, and 1500 fit"):
        ROOM.require_fit("the envelope", b"x" * 1501)
