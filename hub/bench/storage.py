"""Benchmark of storage: rows a second of the mirror's batches, and latencies of queries at a given number of rows.

    python -m hub.bench.storage sqlite:///bench.db --rows 1000000

The figures depend on the machine and on what else it does; nothing here passes or fails.
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from hub.storage import Storage, open_storage
from hub.storage.records import MAX_BATCH, EnvelopeFilter, NewEnvelope, Position

AGENTS = 100
PAYLOAD = b'{"prompt":"' + b"x" * 360 + b'"}'  # 400-byte envelopes, as in the other benchmarks
REPEATS = 20
START = datetime(2030, 1, 1, tzinfo=UTC)


def make_rows(first: int, count: int, chance: random.Random) -> list[NewEnvelope]:
    """Traffic as a hub has it: direct messages and answers to most of them, progress, some broadcasts."""
    rows: list[NewEnvelope] = []
    for number in range(first, first + count):
        sender, to = (f"agent-{chance.randrange(AGENTS)}" for _ in range(2))
        what = chance.random()
        kind, channel = "message", "general"
        reply_to: str | None = None
        recipient: str | None = to
        if what < 0.35 and number > 1000:  # an answer
            reply_to = f"id-{number - chance.randrange(1, 1000)}"
        elif what < 0.6:  # progress on a task channel
            kind, channel, recipient = "event", f"task.{number % 50_000:08d}", None
            reply_to = f"id-{max(0, number - 10)}"
        elif what < 0.65:
            recipient = None
        moment = START + timedelta(milliseconds=number)
        rows.append(
            NewEnvelope(
                id=f"id-{number}",
                sender=sender,
                destination=f"channel.inbox.{recipient}" if recipient else f"channel.{channel}",
                channel=channel,
                to=recipient,
                timestamp=moment,
                kind=kind,
                reply_to=reply_to,
                payload=PAYLOAD,
                stored_at=moment,
            )
        )
    return rows


async def fill(storage: Storage, rows: int) -> None:
    """Insert as a mirror does, and say how fast."""
    chance = random.Random(7)  # noqa: S311 - the same rows every time
    made = 0
    inserting = 0.0
    while made < rows:
        batch = make_rows(made, min(MAX_BATCH, rows - made), chance)
        begin = time.perf_counter()
        position = Position(stream="HUB_TASKS", created=START, sequence=made + len(batch))
        await storage.envelopes.insert_mirrored(batch, [position])
        inserting += time.perf_counter() - begin
        made += len(batch)
        if made % (MAX_BATCH * 400) == 0 or made == rows:
            _say(f"{made:>9} rows stored, {made / inserting:>8.0f} rows/s in batches of {MAX_BATCH}")


async def ask(storage: Storage, rows: int) -> None:
    """Each query some times over, by different callers; milliseconds."""
    chance = random.Random(8)  # noqa: S311 - the same questions every time
    envelopes = storage.envelopes

    def somebody() -> str:
        return f"agent-{chance.randrange(AGENTS)}"

    def some_id() -> str:
        return f"id-{chance.randrange(rows)}"

    queries: dict[str, Callable[[], Awaitable[object]]] = {
        "history, newest page, admin": envelopes.query,
        "history, newest page, one agent": lambda: envelopes.query(visible_to=somebody()),
        "history, 1000 rows, one agent": lambda: envelopes.query(visible_to=somebody(), limit=1000),
        "history, of one sender, one agent": lambda: envelopes.query(
            EnvelopeFilter(sender=somebody()), visible_to=somebody()
        ),
        "history, one channel, one agent": lambda: envelopes.query(
            EnvelopeFilter(channel=f"task.{chance.randrange(min(rows, 50_000)):08d}"), visible_to=somebody()
        ),
        "history, the busiest channel, one agent": lambda: envelopes.query(
            EnvelopeFilter(channel="general"), visible_to=somebody()
        ),
        "history, a stranger": lambda: envelopes.query(visible_to="stranger"),
        "envelope by id": lambda: envelopes.get(some_id(), visible_to=somebody()),
        "thread": lambda: envelopes.thread(some_id()),
        "thread, from its root, one agent": lambda: envelopes.thread(some_id(), resolve=True, visible_to=somebody()),
        "pending": lambda: envelopes.pending(somebody()),
        "stats.message_rate, an hour": storage.stats.message_rate,
        "stats.latency, an hour": storage.stats.latency,
        "stats.agent_activity, a day": lambda: storage.stats.agent_activity(somebody()),
        "stats.channel_hotspots, an hour": storage.stats.channel_hotspots,
    }
    _say(f"{'milliseconds over ' + str(REPEATS) + ' calls':<45} {'p50':>8} {'max':>8}")
    for name, query in queries.items():
        took: list[float] = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            await query()
            took.append((time.perf_counter() - begin) * 1000)
        _say(f"{name:<45} {statistics.median(took):>8.1f} {max(took):>8.1f}")


async def run(url: str, rows: int, *, filled: bool) -> None:
    """Fill (unless that was done) and ask."""
    end = START + timedelta(milliseconds=rows)
    storage = open_storage(url, clock=lambda: end)
    if storage is None:
        raise SystemExit("a database is needed, not `none`")
    async with storage:
        if not filled:
            await fill(storage, rows)
            await storage.apply_retention([])  # as a hub does from time to time: the planner's statistics
        await ask(storage, rows)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url", help="sqlite:///path or postgresql://…; filled with rows")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--filled", action="store_true", help="the database holds the rows of a run before")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.url, arguments.rows, filled=arguments.filled))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
