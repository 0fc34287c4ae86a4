"""The whole way of a task, from a person's command to its result, while what stands in between dies."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.bus import delivery_config
from tests.support.commands import Command
from tests.support.hub_process import HubProcess
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually
from tests.support.witness import Witness
from tests.system.workers.conftest import Bench, open_client

StartNats = Callable[..., Awaitable[NatsServer]]


@pytest.mark.parametrize("killed", ["hub", "both", pytest.param("worker", marks=pytest.mark.soak)])
async def test_hub_delegate_prints_the_result_when_what_is_in_between_is_killed(
    start_nats: StartNats, tmp_path: Path, killed: str
) -> None:
    server = await start_nats()
    home = tmp_path / "state"
    arguments = ["hub", "server", "--db", "none", "--durable", "--delivery-config", str(delivery_config(home))]
    hub = await HubProcess(home, server.url, *arguments).start()
    client = await open_client(server.url, "alice")
    bench = Bench(server.url, home, client, Witness(client.connection))
    worker = await bench.start("nap_again", "bob")
    asked = await Command.start(
        "delegate", "--from", "alice", "--to", "bob", "--prompt", "1.2", url=server.url, home=home
    )
    await eventually(bench.starts, within=20)
    if killed in {"hub", "both"}:
        await hub.kill()
    if killed in {"worker", "both"}:
        await worker.kill()
        worker = await bench.start("nap_again", "bob")  # bound to its inbox also while no hub runs
    if killed in {"hub", "both"}:
        await worker.logged("settled")
        hub = await HubProcess(home, server.url, *arguments).start()
    assert await asked.ended() == 0, asked.stderr
    assert asked.stdout == b"slept 1.2\n"
    assert await worker.stop() == 0
    assert len(bench.starts()) == (1 if killed == "hub" else 2)
    await hub.kill()
    await client.close()


async def test_in_core_mode_a_worker_answers_those_who_are_there_and_keeps_what_it_took(
    start_nats: StartNats, tmp_path: Path
) -> None:
    server = await start_nats()
    client = await open_client(server.url, "alice")
    bench = Bench(server.url, tmp_path / "state", client, await Witness(client.connection, "alice").start())
    hub = await bench.process("hub", "server", "--db", "none").start()
    worker = await bench.start("nap", "bob", "--concurrency", "1")
    assert worker.events("ready")[0]["mode"] == "core"
    assert (await (await client.delegate("bob", "0")).result(20)).result == "slept 0"
    running, queued, cancelled = [await bench.send("bob", prompt) for prompt in ("60", "0.1", "0.2")]
    await bench.witness.said(running, "started")
    await bench.witness.said(cancelled, "queued")
    await bench.cancel("bob", cancelled)
    assert (await bench.witness.result(cancelled))["status"] == "cancelled"
    await worker.kill()
    await hub.kill()
    worker = bench.worker("nap", "bob").spawn()
    await worker.logged("rescued")
    await worker.logged("settled")
    assert bench.witness.results(queued) == [], "no router, so nobody has it"
    hub = await bench.process("hub", "server", "--db", "none").start()
    assert (await bench.witness.result(running))["code"] == "interrupted"
    assert (await bench.witness.result(queued))["result"] == "slept 0.1"
    assert await worker.stop() == 0
    assert {bench.witness.counts()[each] for each in (running, queued, cancelled)} == {1}
    assert len(bench.starts()) == 3
    await hub.kill()
    await client.close()
