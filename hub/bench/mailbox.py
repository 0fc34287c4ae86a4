"""Benchmark of the mailbox: accepts a second and their latency, beside a plain loop that commits each.

`python -m hub.bench.mailbox [--count N] [--folder DIR]` prints one JSON object a line. The folder decides what a sync
costs: take one on the disk that mailboxes will be on.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiosqlite

from hub.mailbox import Mailbox, Outcome, Task
from hub.mailbox.opener import Durability
from hub.protocol import Envelope, make

IN_FLIGHT: Final = 256  # contract §4: inbox_max_ack_pending, what a worker has between arrival and ack at most
LATENCY_RATE_PER_SEC: Final = 100
LATENCY_COUNT: Final = 300
PAYLOAD_CHARACTERS: Final = 150  # makes an envelope of about 400 bytes


def _envelopes(count: int) -> list[Envelope]:
    prompt = "x" * PAYLOAD_CHARACTERS
    return [
        make(sender="bench", channel="tasks", to="worker", payload={"prompt": prompt, "n": n}) for n in range(count)
    ]


async def _in_flight(envelopes: list[Envelope], take: Callable[[Envelope], "asyncio.Future[Any]"]) -> float:
    """Take all, at most `IN_FLIGHT` at a time, as an intake does; how many a second."""
    room = asyncio.Semaphore(IN_FLIGHT)
    taken = []
    start = time.perf_counter()
    for envelope in envelopes:
        await room.acquire()
        future = take(envelope)
        future.add_done_callback(lambda _: room.release())
        taken.append(future)
    await asyncio.gather(*taken)
    return len(envelopes) / (time.perf_counter() - start)


async def _latencies_ms(envelopes: list[Envelope], take: Callable[[Envelope], Awaitable[Any]]) -> list[float]:
    """Take them at a steady rate; how long each was on its way."""
    taken: list[float] = []

    async def one(envelope: Envelope) -> None:
        start = time.perf_counter()
        await take(envelope)
        taken.append((time.perf_counter() - start) * 1000)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, envelope in enumerate(envelopes):
            await asyncio.sleep(max(0.0, start + number / LATENCY_RATE_PER_SEC - time.perf_counter()))
            group.create_task(one(envelope))
    return sorted(taken)


async def natural(folder: Path, durability: Durability, count: int, latency_count: int) -> dict[str, object]:
    """The mailbox: accepts with natural batches, then the same turns claimed and settled, then latency."""
    mailbox = await Mailbox.open(folder, "bench", durability=durability)
    envelopes = _envelopes(count)
    accepts = await _in_flight(envelopes, lambda envelope: mailbox.accept(envelope, Task()))
    start = time.perf_counter()
    while turns := await mailbox.turns.claim(IN_FLIGHT):
        await asyncio.gather(*(mailbox.turns.settle(turn, Outcome.done("ok")) for turn in turns))
    settles = count / (time.perf_counter() - start)
    latencies = await _latencies_ms(_envelopes(latency_count), lambda envelope: mailbox.accept(envelope, Task()))
    await mailbox.close()
    return {
        "case": f"mailbox, natural batches, {durability}",
        "accepts_per_sec": round(accepts),
        "claims_and_settles_per_sec": round(settles),
        **_percentiles(latencies),
    }


async def commit_each(folder: Path, durability: Durability, count: int, latency_count: int) -> dict[str, object]:
    """The comparator: a table with a unique key, aiosqlite, one commit for each envelope."""
    async with aiosqlite.connect(folder / "plain.db", isolation_level=None) as db:
        await db.execute("PRAGMA journal_mode = WAL")
        await db.execute(f"PRAGMA synchronous = {durability}")
        await db.execute("CREATE TABLE queue (seq INTEGER PRIMARY KEY, sender, id, body, UNIQUE (sender, id))")

        async def take(envelope: Envelope) -> None:
            await db.execute("BEGIN IMMEDIATE")
            await db.execute(
                "INSERT OR IGNORE INTO queue (sender, id, body) VALUES (?, ?, ?)",
                (envelope.meta.sender, envelope.meta.id, envelope.body),
            )
            await db.execute("COMMIT")

        envelopes = _envelopes(count)
        start = time.perf_counter()
        for envelope in envelopes:
            await take(envelope)
        accepts = count / (time.perf_counter() - start)
        latencies = []
        for envelope in _envelopes(latency_count):
            start = time.perf_counter()
            await take(envelope)
            latencies.append((time.perf_counter() - start) * 1000)
    return {
        "case": f"aiosqlite, a commit each, {durability}",
        "accepts_per_sec": round(accepts),
        **_percentiles(sorted(latencies)),
    }


def _percentiles(latencies_ms: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(latencies_ms, n=100)
    return {"latency_p50_ms": round(cuts[49], 2), "latency_p99_ms": round(cuts[98], 2)}


async def run(folder: Path, count: int, latency_count: int = LATENCY_COUNT) -> list[dict[str, object]]:
    """All cases, one after the other, each in a folder of its own.

    Args:
        folder: where to put them.
        count: envelopes per case; the comparator, being slow, takes a tenth.
        latency_count: envelopes per case whose latency is measured.
    """
    found = []
    for durability in ("FULL", "NORMAL"):
        for name, case, most in (("natural", natural, count), ("each", commit_each, max(100, count // 10))):
            place = folder / f"{name}-{durability}"
            place.mkdir()
            found.append(await case(place, durability, most, latency_count))
    return found


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="accepts a second into a mailbox, and their latency")
    parser.add_argument("--count", type=int, default=20_000, help="envelopes per case (default 20000)")
    parser.add_argument("--folder", type=Path, default=None, help="where to write (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for line in asyncio.run(run(Path(folder), options.count)):
            sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
