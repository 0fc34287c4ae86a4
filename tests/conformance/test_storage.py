"""Every backend of storage against the one suite: SQLite and a real PostgreSQL."""

from collections.abc import AsyncIterator

import pytest

from hub.storage import open_storage
from hub.storage.conformance import CASES, Case, Clock, Harness


@pytest.fixture
async def harness(storage_url: str) -> AsyncIterator[Harness]:
    clock = Clock()
    storage = open_storage(storage_url, clock=clock)
    another = open_storage(storage_url, clock=clock)
    assert storage is not None
    assert another is not None
    async with storage, another:
        yield Harness(storage, another, clock)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_every_backend(case: Case, harness: Harness) -> None:
    await case(harness)
