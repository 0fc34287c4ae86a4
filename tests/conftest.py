"""What every test may ask for: a nats-server of its own, and the mode that this run is for."""

import asyncio
import gc
import signal
import threading
from argparse import ArgumentTypeError
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
    text = "which kinds of hub the mode-dependent tests run, with commas: " + ", ".join(MODES)
    parser.addoption("--hub-mode", type=_modes, default=("core",), metavar="MODE,...", help=text)


def _modes(text: str) -> tuple[str, ...]:
    modes = tuple(text.split(","))
    if not set(modes) <= set(MODES):
        raise ArgumentTypeError(f"expected some of {', '.join(MODES)}, with commas; got {text}")
    return modes


def modes_of(item: pytest.Item, modes: tuple[str, ...]) -> tuple[str, ...]:
    """In which of these modes does this test run?

    What is marked `hub` runs in every mode, what is marked for one mode in that one; everything else does not depend
    on the mode and runs once, with `core`.
    """
    only = [name for name, marker in MODE_MARKERS.items() if item.get_closest_marker(marker)]
    if not only and item.get_closest_marker("hub"):
        return modes
    return tuple(mode for mode in modes if mode in (only or ("core",)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "hub_mode" in metafunc.fixturenames:
        modes = metafunc.config.getoption("--hub-mode")
        # Of a module's scope: its tests of one mode stand together, and share what its fixtures start.
        metafunc.parametrize(
            "hub_mode", modes_of(metafunc.definition, modes) or modes[:1], indirect=True, scope="module"
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without collecting garbage: nearly all that is made now stays, and is looked at again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without a core run, files without a mark of a mode need not even be imported."""
    if "core" in config.getoption("--hub-mode") or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    return None if any(f"mark.{mark}" in text for mark in ("hub", *MODE_MARKERS.values())) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    modes = config.getoption("--hub-mode")
    if "soak" in (config.getoption("-m") or ""):
        return
    kept, dropped = [], []
    for item in items:
        is_kept = not item.get_closest_marker("soak") and modes_of(item, modes)
        (kept if is_kept else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


@pytest.fixture(scope="module")
def hub_mode(request: pytest.FixtureRequest) -> str:
    """The mode of this run of the test: `core`, `durable` or `bound`."""
    return str(request.param)


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
