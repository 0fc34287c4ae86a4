"""A server, a durable hub, a client that delegates and a witness; and workers as real processes."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hub.client import HubClient
from hub.delivery.settings import ConnectSettings
from hub.protocol import Envelope, make, names
from hub.protocol.results import task_payload
from tests.support.bus import delivery_config
from tests.support.hub_process import HubProcess
from tests.support.nats_server import NatsServer
from tests.support.witness import Witness

HANDLERS = "tests.support.handlers"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    started = NatsServer(tmp_path_factory.mktemp("nats"))
    asyncio.run(started.start())
    yield started
    asyncio.run(started.kill())


@pytest.fixture(scope="module")
def hub(server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A durable hub without history."""
    home = tmp_path_factory.mktemp("hub")
    arguments = ["hub", "server", "--db", "none", "--durable", "--delivery-config", str(delivery_config(home))]
    process = HubProcess(home, server.url, *arguments)
    asyncio.run(process.start())
    yield process
    asyncio.run(process.kill())


class Bench:
    """What a test of workers works with.

    Attributes:
        client: delegates, as `me`.
        witness: hears every result.
        home: the workers' state folder.
        ledger: where test handlers write down their starts.
    """

    def __init__(self, url: str, home: Path, client: HubClient, witness: Witness) -> None:
        self.url = url
        self.home = home
        self.client = client
        self.me = client.identity
        self.witness = witness
        self.ledger = home / "ledger"
        self.workers: list[HubProcess] = []

    def worker(
        self, handler: str, identity: str | None = None, *arguments: str, home: Path | None = None
    ) -> HubProcess:
        """A worker, not started: `handler` of tests/support/handlers.py, or a built-in with a colon before."""
        who = identity or self.name()
        named = [handler.removeprefix(":")] if handler.startswith(":") else ["--handler", f"{HANDLERS}:{handler}"]
        return self.process("workers", "run", *named, "--identity", who, *arguments, home=home)

    def process(self, *arguments: str, home: Path | None = None) -> HubProcess:
        process = HubProcess(home or self.home, self.url, *arguments, environ={"LEDGER": str(self.ledger)})
        self.workers.append(process)
        return process

    def name(self) -> str:
        return f"worker-{next(_numbers)}"

    def starts(self, task_id: str | None = None) -> list[list[str]]:
        """The lines of the ledger."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [line.split() for line in lines if task_id is None or line.startswith(f"{task_id} ")]

    def task(self, to: str, prompt: str, *, sender: str | None = None, **more: Any) -> Envelope:
        task_id = names.new_message_id()
        who = sender or self.me
        return make(sender=who, channel="direct", to=to, payload=task_payload(prompt, task_id, more), id=task_id)

    async def send(self, to: str, prompt: str, **more: Any) -> str:
        """Delegate; returns the task id."""
        envelope = self.task(to, prompt, **more)
        await self.client.send_envelope(envelope)
        return envelope.meta.id

    async def control(self, to: str, payload: dict[str, Any], *, client: HubClient | None = None) -> str:
        return (await (client or self.client).send_control(to, payload)).envelope.meta.id

    async def cancel(self, to: str, task_id: str, **more: Any) -> str:
        return await self.control(to, {"action": "cancel", "task_id": task_id, **more})

    async def start(self, handler: str, identity: str | None = None, *arguments: str, **options: Any) -> HubProcess:
        return await self.worker(handler, identity, *arguments, **options).start()


async def open_client(url: str, identity: str) -> HubClient:
    return await HubClient.connect(ConnectSettings(servers=(url,), identity=identity), announce=False)


@pytest.fixture
async def bench(server: NatsServer, hub: HubProcess, tmp_path: Path) -> AsyncIterator[Bench]:
    client = await open_client(server.url, f"alice-{next(_numbers)}")
    witness = await Witness(client.connection, client.identity).start()
    bench = Bench(server.url, tmp_path / "state", client, witness)
    bench.home.mkdir()
    yield bench
    for worker in bench.workers:
        await worker.kill()
    await client.close()


@pytest.fixture
async def another(bench: Bench) -> AsyncIterator[Callable[[str], Any]]:
    """Open a client as somebody else."""
    clients: list[HubClient] = []

    async def open_one(identity: str) -> HubClient:
        clients.append(await open_client(bench.url, identity))
        return clients[-1]

    yield open_one
    for client in clients:
        await client.close()


def is_alive(pid: int) -> bool:
    """Does this process run? A zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
