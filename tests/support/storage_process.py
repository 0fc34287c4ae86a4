"""A process that works on a shared storage until it is told to stop; run with `python -m`.

    python -m tests.support.storage_process URL NAME SECS

It writes batches as a mirror does (with a duplicate in each), records presence, beats a lease, and reads; at the end it
prints how many rows it stored and what went wrong (nothing, it is hoped).
"""

import asyncio
import json
import sys
import time

from hub.storage import Storage, StorageError, open_storage
from hub.storage.conformance.harness import envelope
from hub.storage.records import EnvelopeFilter, Position, Sighting

BATCH = 20


async def write(storage: Storage, name: str, until: float) -> int:
    stored = 0
    number = 0
    while time.monotonic() < until:
        rows = [
            envelope(f"{name}-{number + offset}", sender=name, after_secs=number + offset) for offset in range(BATCH)
        ]
        number += BATCH
        position = Position(stream=f"STREAM-{name}", created=rows[0].timestamp.replace(microsecond=0), sequence=number)
        report = await storage.envelopes.insert_mirrored([*rows, rows[0]], [position])
        assert (report.stored, report.duplicates) == (BATCH, 1), report
        stored += report.stored
        print(json.dumps({"stored": stored}), flush=True)
        await storage.agents.record([Sighting(identity=name, capabilities=[name])])
    return stored


async def read(storage: Storage, name: str, until: float) -> int:
    reads = 0
    while time.monotonic() < until:
        page = await storage.envelopes.query(EnvelopeFilter(sender=name), visible_to=name, limit=50)
        times = [item.stored_at for item in page.items]
        assert times == sorted(times, reverse=True)
        await storage.envelopes.pending("bob", limit=10)
        await storage.stats.agent_activity(name)
        reads += 1
    return reads


async def main(url: str, name: str, secs: float) -> None:
    storage = open_storage(url)
    assert storage is not None
    errors: list[str] = []
    stored = reads = 0
    try:
        async with storage:
            print(json.dumps({"ready": storage.storage_id}), flush=True)
            until = time.monotonic() + secs
            stored, reads = await asyncio.gather(write(storage, name, until), read(storage, name, until))
    except (StorageError, AssertionError) as error:
        errors.append(f"{type(error).__name__}: {error}")
    print(json.dumps({"done": stored, "reads": reads, "errors": errors}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
