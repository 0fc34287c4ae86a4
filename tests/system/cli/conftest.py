"""A nats-server and a hub of this run's mode, one pair for all tests of a module: starting them takes seconds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.support.bus import delivery_config
from tests.support.commands import Command
from tests.support.hub_process import HubProcess
from tests.support.nats_server import NatsServer

Run = Callable[..., Awaitable[Command]]


@pytest.fixture(scope="module")
def server(hub_mode: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One a mode: what a durable hub leaves in JetStream is nothing for a core hub to find."""
    started = NatsServer(tmp_path_factory.mktemp("nats"))
    asyncio.run(started.start())
    yield started
    asyncio.run(started.kill())


@pytest.fixture(scope="module")
def hub(server: NatsServer, hub_mode: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub process in this run's mode, without history."""
    home = tmp_path_factory.mktemp("hub")
    arguments = ["hub", "server", "--db", "none"]
    if hub_mode != "core":
        arguments += ["--durable", "--delivery-config", str(delivery_config(home))]
    process = HubProcess(home, server.url, *arguments)
    asyncio.run(process.start())
    yield process
    asyncio.run(process.kill())


@pytest.fixture
async def start(server: NatsServer, tmp_path: Path) -> AsyncIterator[Run]:
    """Start a command against `server`; it is ended at the end of the test."""
    started: list[Command] = []

    async def start_one(*arguments: str, **options: object) -> Command:
        url = str(options.pop("url", server.url))
        command = await Command.start(*arguments, url=url, home=tmp_path, **options)  # type: ignore[arg-type]
        started.append(command)
        return command

    yield start_one
    for command in started:
        await command.kill()


@pytest.fixture
async def run(start: Run) -> Run:
    """Run a command to its end."""

    async def run_one(*arguments: str, **options: object) -> Command:
        command = await start(*arguments, **options)
        await command.ended()
        return command

    return run_one
