"""Producers and readers of agent events as processes of their own, to be counted and killed.

python -m tests.support.event_process produce URL RUN COUNT PROCESSES    append COUNT events each
python -m tests.support.event_process follow URL RUN [CURSOR]            print `id cursor` a line, to the run's end
python -m tests.support.event_process durable URL RUN                    the same as the durable reader `reader`
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import nats

from hub.events import AgentEventSource, JetStreamEventSource, Ownership, PostgresEventSource
from hub.events.conformance.world import SECRET, Run

OWNER = Ownership(tenant_id="processes")
STREAM = "events"
ACK_WAIT_SECS = 1.0


@asynccontextmanager
async def open_source(url: str) -> AsyncIterator[AgentEventSource]:
    """A source on its own connection, as a process has one."""
    source: AgentEventSource
    if url.startswith("nats:"):
        connection = await nats.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
        source = JetStreamEventSource(connection, stream=STREAM, cursor_secret=SECRET, ack_wait_secs=ACK_WAIT_SECS)
        try:
            yield source
        finally:
            await source.close()
            await connection.close()
        return
    async with asyncpg.create_pool(url, min_size=1, max_size=2) as pool:
        source = PostgresEventSource(pool, cursor_secret=SECRET, listen=url)
        try:
            yield source
        finally:
            await source.close()


def say(*words: object) -> None:
    """A line in one write: several processes share the pipe."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def produce(url: str, run_id: str, name: str, count: int) -> None:
    async with open_source(url) as source:
        run = Run(source, OWNER, "session", run_id)
        for number in range(count):
            stored = await run.append(f"{name}-{number}")
            say(stored.id, stored.sequence)


async def follow(url: str, run_id: str, cursor: str | None, durable: str | None) -> None:
    async with open_source(url) as source:
        run = Run(source, OWNER, "session", run_id)
        async with source.subscribe(run.read(cursor), durable=durable) as events:
            async for envelope in events:
                say(envelope.record.id, envelope.cursor)


def fork_producers(url: str, run_id: str, count: int, processes: int) -> int:
    """Forked before any loop or thread exists: the imports are paid for once."""
    children = []
    for number in range(processes):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                asyncio.run(produce(url, run_id, f"p{number}", count))
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def main() -> int:
    command, url, run_id, *rest = sys.argv[1:]
    if command == "produce":
        return fork_producers(url, run_id, int(rest[0]), int(rest[1]))
    asyncio.run(follow(url, run_id, rest[0] if rest else None, "reader" if command == "durable" else None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
