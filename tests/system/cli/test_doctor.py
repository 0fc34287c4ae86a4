"""hub-doctor, as a process, against a real hub; and what the hub says of itself by the same probe."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from hub.delivery import consumers, streams
from hub.delivery.config import load
from hub.delivery.connection import Connection
from hub.delivery.jetstream import JetStreamApi
from tests.support.bus import connect, delivery_config
from tests.support.hub_process import HubProcess
from tests.support.nats_server import NatsServer, free_port
from tests.support.waiting import eventually
from tests.system.cli.conftest import Run


@pytest.mark.hub
async def test_a_healthy_hub_ends_with_0_and_a_line_each(
    run: Run, server: NatsServer, hub: HubProcess, hub_mode: str
) -> None:
    config = ["--delivery-config", str(hub.home / "delivery.json")] if hub_mode != "core" else []
    doctor = await run("doctor", *config, fresh=True)
    assert doctor.code == 0, doctor.out
    assert doctor.err == ""
    assert all(line.startswith("ok ") for line in doctor.out.splitlines())
    mode = "core" if hub_mode == "core" else "durable"
    assert f", {mode}\n" in doctor.out
    asked = await run("doctor", *config, "--json", "--identity", "bob")
    told = json.loads(asked.out)
    assert (asked.code, told["level"], told["mode"]) == (0, "ok", mode)
    assert [f["level"] for f in told["findings"] if f["name"] == "permissions"] == ["ok"]


async def test_without_a_server_it_is_a_finding_and_ends_with_1(run: Run) -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    doctor = await run("doctor", "--connect-timeout", "1", url=url)
    assert doctor.code == 1
    assert doctor.out.startswith(f"fail  server  cannot connect to NATS at {url} (from ")
    assert (doctor.out.count("\n"), doctor.err) == (1, "")


async def test_refused_credentials_are_named_as_that(run: Run, start_nats: Any) -> None:
    server = await start_nats(config='authorization { users: [ {user: a, password: "b"} ] }')
    doctor = await run("doctor", "--user", "a", url=server.url, environ={"NATS_PASSWORD": "wrong"})
    assert doctor.code == 1
    assert "authorization violation" in doctor.out.lower()
    assert "wrong" not in doctor.out


async def test_a_bad_delivery_config_or_identity_ends_with_2(run: Run, server: NatsServer, tmp_path: Path) -> None:
    path = delivery_config(tmp_path, router_max_ackpending=1)
    doctor = await run("doctor", "--delivery-config", str(path))
    assert (doctor.code, doctor.out) == (2, "")
    assert "did you mean router_max_ack_pending?" in doctor.err
    as_json = await run("doctor", "--identity", "a.b", "--json")
    assert (as_json.code, json.loads(as_json.err)["code"]) == (2, "bad_request")


class TestWhatTheHubSaysOfItself:
    """Readiness, metrics and `$SRV.STATS` of a router, out of the same probe."""

    pytestmark = pytest.mark.durable_only

    async def get(self, port: int, page: str) -> tuple[int, str]:
        def fetch() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=5) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        return await asyncio.to_thread(fetch)

    async def stats(self, connection: Connection) -> dict[str, Any]:
        answer = await connection.request("$SRV.STATS.hub-router", b"", timeout_secs=5)
        found: dict[str, Any] = json.loads(answer.data)["endpoints"][0]["data"]
        return found

    async def test_readiness_stats_and_metrics_tell_what_the_look_found(
        self, nats_server: NatsServer, tmp_path: Path
    ) -> None:
        port = free_port()
        arguments = ["server", "--durable", "--db", "none", "--metrics", f"127.0.0.1:{port}"]
        config = delivery_config(tmp_path, inbox={"max_msgs_per_subject": 3})
        hub = HubProcess(tmp_path / "hub", nats_server.url, "hub", *arguments, "--delivery-config", str(config))
        agent = await connect(nats_server.url, "bob")
        try:
            # A full inbox stands there before the hub starts: its first look finds it.
            js, wanted = JetStreamApi(agent), load(str(config), {})
            await streams.ensure(js, wanted)
            await consumers.ensure_inbox_consumer(js, wanted, "bob")
            for _ in range(3):
                await agent.request("channel.inbox.bob", b"{}", timeout_secs=5)
            await hub.start()
            await agent.request("hub.delivery.bob.inbox", b"{}", timeout_secs=5)

            async def looked() -> bool:
                return "hub_inboxes_full 1.0" in (await self.get(port, "/metrics"))[1]

            await eventually(looked, within=10, poll=0.1)
            status, page = await self.get(port, "/readyz")
            assert status == 200, page  # a full inbox is somebody's trouble, not this process's
            assert "inbox bob: full: 3 unread is the limit" in page
            health = (await self.stats(agent))["health"]
            assert health["level"] == "warn"
            assert health["findings"][0].startswith("inbox bob: full")
            metrics = (await self.get(port, "/metrics"))[1]
            for line in ('hub_attach_requests_total{outcome="attached"} 1.0', "hub_ingress_oldest_age_seconds 0.0"):
                assert line in metrics
        finally:
            await agent.close()
            await hub.kill()
