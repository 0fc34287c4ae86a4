"""Delegators, readers and hubs that die, as processes: no task is lost, no result unheard."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hub.client import HubClient
from hub.delivery.inbox_mode import Mode
from hub.delivery.settings import ConnectSettings
from tests.support.bus import delivery_config
from tests.support.hub_process import ROOT, HubProcess
from tests.support.nats_server import NatsServer
from tests.support.scripted_worker import ScriptedWorker
from tests.support.waiting import eventually

pytestmark = pytest.mark.durable_only


@pytest.fixture
async def hub(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[list[HubProcess]]:
    """A router and an attach responder, each a process."""
    home = tmp_path / "hub"
    environ = {"NATS_HUB_DELIVERY_CONFIG": str(delivery_config(home, ack_wait_secs=1))}
    processes = [
        HubProcess(home, nats_server.url, "hub", role, "--durable", environ=environ) for role in ("router", "attach")
    ]
    await asyncio.gather(*(process.start() for process in processes))
    yield processes
    for process in processes:
        await process.kill()


async def client(server: NatsServer, identity: str) -> HubClient:
    settings = ConnectSettings(servers=(server.url,), identity=identity)
    return await HubClient.connect(settings, announce=False)


async def test_a_killed_delegator_finds_its_result_when_it_resumes(
    nats_server: NatsServer, hub: list[HubProcess]
) -> None:
    worker = await ScriptedWorker(await client(nats_server, "worker")).start()
    arguments = [sys.executable, "-m", "tests.support.delegator", nats_server.url, "alice", "worker", "count"]
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        task_id = (await asyncio.to_thread(process.stdout.readline)).decode().strip()
        task = await worker.task()
        assert task.meta.id == task_id
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
        process.stdout.close()
    await worker.end(task, "for whoever asks")
    async with await client(nats_server, "alice") as alice:
        first, second = await alice.resume(task_id, "worker"), await alice.resume(task_id, "worker")
        assert (await first.result(10)).result == "for whoever asks"
        assert (await second.result(10)).result == "for whoever asks"
    await worker.stop()
    await worker.client.close()


async def test_with_the_whole_hub_killed_a_reader_goes_on_with_what_is_stored(
    nats_server: NatsServer, hub: list[HubProcess]
) -> None:
    alice = await client(nats_server, "alice")
    async with await client(nats_server, "bob") as first:
        inbox = await first.inbox().start()
        await inbox.wait_ready(5)
        await alice.send_to("bob", "seen")
        message = await inbox.next(5)
        assert message is not None
        message.ack()
    for number in range(20):
        await alice.send_to("bob", number)
    js = alice.connection.jetstream()

    async def all_routed() -> bool:
        return (await js.stream_info("HUB_INBOX")).state.messages == 21

    await eventually(all_routed)
    for process in hub:
        await process.kill()
    await alice.send_to("bob", "stored while no router runs")
    async with await client(nats_server, "bob") as bob:
        inbox = await bob.inbox(retry_secs=0.5).start()
        assert (await inbox.wait_ready(10)).mode is Mode.BOUND
        got = []
        for _ in range(20):
            message = await inbox.next(5)
            assert message is not None
            message.ack()
            got.append(message.payload)
        assert got == list(range(20))
        for process in hub:
            await process.start()
        message = await inbox.next(30)
        assert message is not None
        assert message.payload == "stored while no router runs"
        await eventually(lambda: inbox.state.mode is Mode.DURABLE)
    await alice.close()
