"""What every test may ask for: a nats-server of its own, and the mode that this run is for."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.support.nats_server import NatsServer
from tests.support.postgres import Postgres

pytest_plugins = ["tests.support.storages"]

# A shell's background job inherits SIGINT as ignored, and so would every process of ours that a test interrupts.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

MODES = ("core", "durable", "bound")
MODE_MARKERS = {"core": "core_only", "durable": "durable_only", "bound": "bound_only"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hub-mode", choices=MODES, default="core", help="which kind of hub the mode-dependent tests run")


def runs_in(item: pytest.Item, mode: str) -> bool:
    """Does this test belong to a run of this mode?

    What is marked `hub` runs in every mode, what is marked for one mode in that one; everything else does not depend
    on the mode and runs once, with `core`. A bound hub is a durable one, so `durable_only` tests that are also `hub`
    run there too.
    """
    only = [name for name, marker in MODE_MARKERS.items() if item.get_closest_marker(marker)]
    if only:
        return mode in only
    if item.get_closest_marker("hub"):
        return True
    return mode == "core"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Outside the core run, files without a mark of a mode need not even be imported."""
    if config.getoption("--hub-mode") == "core" or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    return None if any(f"mark.{mark}" in text for mark in ("hub", *MODE_MARKERS.values())) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mode = config.getoption("--hub-mode")
    if "soak" in (config.getoption("-m") or ""):
        return
    kept, dropped = [], []
    for item in items:
        is_kept = not item.get_closest_marker("soak") and runs_in(item, mode)
        (kept if is_kept else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


@pytest.fixture
def hub_mode(request: pytest.FixtureRequest) -> str:
    """The mode of this run: `core`, `durable` or `bound`."""
    return str(request.config.getoption("--hub-mode"))


@pytest.fixture
async def start_nats(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[NatsServer]]]:
    """Start nats-servers with options of your own; each is stopped at the end of the test."""
    servers: list[NatsServer] = []

    async def start(**options: object) -> NatsServer:
        server = NatsServer(tmp_path / f"nats-{len(servers)}", **options)  # type: ignore[arg-type]
        servers.append(server)
        return await server.start()

    yield start
    for server in servers:
        await server.kill()


@pytest.fixture
async def nats_server(start_nats: Callable[..., Awaitable[NatsServer]]) -> NatsServer:
    """A running nats-server with JetStream on a private store."""
    return await start_nats()


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[Postgres]:
    """One PostgreSQL cluster for all tests of this process; ask it for a database of your own, and never kill it."""
    cluster = Postgres()
    try:
        asyncio.run(cluster.start())
        yield cluster
    finally:
        asyncio.run(cluster.remove())


@pytest.fixture
async def postgres_server() -> AsyncIterator[Postgres]:
    """A PostgreSQL cluster of the test's own, to kill and restart."""
    cluster = Postgres()
    try:
        yield await cluster.start()
    finally:
        await cluster.remove()
