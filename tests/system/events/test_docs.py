"""The examples of docs/events.md run as they stand, and the two programs survive whatever is killed."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hub.events import EventRead, Ownership
from hub.events.jetstream import JetStreamEventSource
from hub.events.opening import open_event_source
from hub.events.postgres import PostgresEventSource
from tests.support.nats_server import NatsServer
from tests.support.postgres import Postgres
from tests.support.waiting import eventually

PAGE = Path(__file__).parents[3] / "docs" / "events.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
PROGRAMS = {match[1]: block for block in BLOCKS if (match := re.match(r"# (\w+\.py)\n", block))}
EXAMPLES = [block for block in BLOCKS if block not in PROGRAMS.values()]
SECRET = "a secret of the documentation, 32+"
STEPS = 1000


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES[number]], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_the_page_has_what_the_tests_below_run() -> None:
    assert sorted(PROGRAMS) == ["follow.py", "producer.py", "reader.py"]
    assert len(EXAMPLES) >= 3


@pytest.fixture(params=["jetstream", "postgres"])
def server(request: pytest.FixtureRequest) -> NatsServer | Postgres:
    found: NatsServer | Postgres = request.getfixturevalue(
        "nats_server" if request.param == "jetstream" else "postgres_server"
    )
    return found


@asynccontextmanager
async def program(name: str, url: str, home: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    (home / name).write_text(PROGRAMS[name])
    environ = {**os.environ, "NATS_HUB_EVENTS_URL": url, "NATS_HUB_EVENTS_CURSOR_SECRET": SECRET}
    with (home / f"{name}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(home / name), *arguments, env=environ, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def test_the_two_programs_survive_kills_of_server_producer_and_reader(
    server: NatsServer | Postgres, tmp_path: Path
) -> None:
    url = server.url() if isinstance(server, Postgres) else server.url
    async with open_event_source(url, cursor_secret=SECRET) as source:
        if isinstance(source, JetStreamEventSource):
            await source.ensure_stream()
        elif isinstance(source, PostgresEventSource):
            await source.migrate()
    output = tmp_path / "output"

    def written() -> int:
        return len(output.read_text().splitlines()) if output.exists() else 0

    def said() -> str:
        return "".join(path.read_text()[-2000:] for path in tmp_path.glob("*.log"))

    async with asyncio.timeout(90):
        async with (
            program("producer.py", url, tmp_path, str(STEPS)),
            program("reader.py", url, tmp_path, str(output)) as reader,
        ):
            await eventually(lambda: written() > 20, within=30, what=f"the reader reads: {said()}")
            await server.restart()
            before = written()
            await eventually(lambda: written() > before + 20 or written() > STEPS, within=30)
            reader.kill()
            await reader.wait()
        # Both are dead now, the producer in the middle or at its end. Started again with the same commands they go on.
        async with (
            program("producer.py", url, tmp_path, str(STEPS)) as producer,
            program("reader.py", url, tmp_path, str(output)) as reader,
        ):
            assert await producer.wait() == 0, said()
            assert await reader.wait() == 0, said()
    wanted = [f"{step} step {step}" for step in range(1, STEPS + 1)] + [f"{STEPS + 1} end"]
    assert output.read_text().splitlines() == wanted
    async with open_event_source(url, cursor_secret=SECRET) as source:
        owner = Ownership(tenant_id="acme", user_id="ann")
        page = await source.page(EventRead(ownership=owner, session_id="demo", run_id="run-1"))
        assert all("password" not in record.event for record in page.records)
