"""Options of a hub process that its agents notice."""

from pathlib import Path

import pytest

from hub.delivery.attach_request import Attached, request_attach
from tests.support.bus import connect
from tests.support.hub_process import HubProcess
from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.durable_only


async def test_agents_are_told_where_they_find_jetstream(nats_server: NatsServer, tmp_path: Path) -> None:
    arguments = ("hub", "server", "--durable", "--db", "none", "--agent-js-prefix", "$JS.hub.API")
    hub = await HubProcess(tmp_path / "hub", nats_server.url, *arguments).start()
    bob = await connect(nats_server.url, "bob")
    try:
        answer = await request_attach(bob, "bob")
    finally:
        await bob.close()
        await hub.stop()

    assert isinstance(answer, Attached)
    assert answer.data.js_prefix == "$JS.hub.API"
