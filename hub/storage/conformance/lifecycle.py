"""Cases of opening, closing and sharing."""

import asyncio
import re

from hub.storage.conformance.harness import Harness, envelope, ids, refusal
from hub.storage.errors import StorageUnavailable


async def all_who_open_it_share_one_storage_id(harness: Harness) -> None:
    assert re.fullmatch("[0-9a-f]{8}", harness.storage.storage_id)
    assert harness.storage.storage_id == harness.another.storage_id


async def opening_twice_and_closing_twice_is_fine(harness: Harness) -> None:
    await harness.another.open()
    await harness.another.close()
    await harness.another.close()
    await refusal(StorageUnavailable, harness.another.envelopes.query())


async def it_says_how_fast_it_answers(harness: Harness) -> None:
    assert 0 <= await harness.storage.check_health() < 30


async def one_sees_what_another_stored(harness: Harness) -> None:
    await harness.store(envelope("a"))
    assert ids(await harness.another.envelopes.query()) == ["a"]


async def a_cancelled_write_leaves_nothing_locked(harness: Harness) -> None:
    for index in range(20):
        write = asyncio.create_task(harness.storage.envelopes.insert_mirrored([envelope(f"c{index}")]))
        for _ in range(index):
            await asyncio.sleep(0)
        write.cancel()
        await asyncio.gather(write, return_exceptions=True)
    async with asyncio.timeout(20):
        await harness.another.envelopes.insert_mirrored([envelope("after")])
        assert await harness.storage.envelopes.get("after") is not None


async def a_vacuum_changes_nothing(harness: Harness) -> None:
    await harness.store(envelope("a"))
    await harness.storage.vacuum()
    assert ids(await harness.storage.envelopes.query()) == ["a"]


CASES = [
    all_who_open_it_share_one_storage_id,
    opening_twice_and_closing_twice_is_fine,
    it_says_how_fast_it_answers,
    one_sees_what_another_stored,
    a_cancelled_write_leaves_nothing_locked,
    a_vacuum_changes_nothing,
]
