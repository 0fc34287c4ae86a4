"""Pages: lists that end before a reply gets too large, whatever is in them (contract §10)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from hub.api.errors import ReplyTooLarge
from hub.delivery.connection import RESERVED_BYTES
from hub.storage.records import DEFAULT_PAGE_BYTES, Page

T = TypeVar("T")

FRAME_BYTES: Final = 512  # of a reply around its records: `{"ok":true,"data":{"envelopes":[` … a cursor
MARGIN_BYTES: Final = RESERVED_BYTES // 2  # a stored record is its message and a few members more


class Room(msgspec.Struct, frozen=True):
    """How much fits into a reply.

    Attributes:
        page_bytes: all records of a page together.
        record_bytes: a record that comes alone: what could be sent can be read, though its record is a little larger.
    """

    page_bytes: int
    record_bytes: int

    @classmethod
    def of(cls, usable_size: int) -> "Room":
        """The room that the server's limit leaves (`Connection.usable_size`)."""
        return cls(min(usable_size - FRAME_BYTES, DEFAULT_PAGE_BYTES), usable_size + MARGIN_BYTES)

    def require_fit(self, what: str, encoded: bytes, next_cursor: str | None = None) -> None:
        """Refuse a single record that fits into no reply."""
        if len(encoded) > self.record_bytes:
            raise ReplyTooLarge(what, len(encoded), self.record_bytes, next_cursor)

    def count_fitting(self, items: list[Raw]) -> int:
        """How many of these, from the first on, fit together; the first fits if it fits alone."""
        room = self.page_bytes
        for index, item in enumerate(items):
            room -= len(bytes(item)) + 1
            if room < 0 and (index > 0 or len(bytes(item)) > self.record_bytes):
                return index
        return len(items)


async def encoded(items: list[T], record: Callable[[T], Any]) -> list[Raw]:
    """The wire's records, made in a thread: the loop does not wait for megabytes of strangers' payloads."""

    def encode() -> list[Raw]:
        return [Raw(msgspec.json.encode(record(item))) for item in items]

    return await asyncio.to_thread(encode)


async def fit(
    room: Room,
    read: Callable[[int, int], Awaitable[Page[T]]],
    record: Callable[[T], Any],
    *,
    limit: int,
    items: str,
    what: str,
) -> dict[str, Any]:
    """Read a page and encode its records, and as few of them as it takes to fit.

    Storage ends a page by the weight of what is stored; escapes and base64 make records larger than that, so a page
    that does not fit is read again with fewer records, until it does.

    Args:
        room: what fits.
        read: reads a page by limit and weight.
        record: makes the wire's record.
        limit: how many at most.
        items: the name of the list in the answer.
        what: the kind of record, for the error.

    Returns:
        The answer: the encoded records, and `next_cursor` when the list goes on.

    Raises:
        ReplyTooLarge: the first record alone does not fit; `next_cursor` goes on behind it.
    """
    while True:
        page = await read(limit, room.page_bytes)
        found = await encoded(page.items, record)
        fitting = room.count_fitting(found)
        if fitting == len(found):
            return {items: found} if page.next_cursor is None else {items: found, "next_cursor": page.next_cursor}
        if len(found) == 1:
            room.require_fit(f"the {what} at this place of the list", bytes(found[0]), page.next_cursor)
        limit = max(1, fitting)  # fewer than before, so that this ends
