"""The start of a hub process: what it refuses, with which exit code (contract §11); and its stop."""

import asyncio
import socket
import sqlite3
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from hub.api.service import ApiService
from hub.delivery.settings import ConnectSettings
from hub.process import HubOptions, HubProcess, serve
from hub.service.exits import Exit
from hub.service.http import HttpEndpoint, Readiness, parse_address
from hub.storage import StorageUnavailable, open_storage
from tests.support.nats_server import NatsServer, free_port


async def start(url: str, home: Path, **options: Any) -> Exit:
    """Start a hub that is expected to end by itself."""
    environ = {"NATS_URL": url, "NATS_HUB_STATE_DIR": str(home)}
    async with asyncio.timeout(30):
        return await serve(HubOptions(**({"roles": ("router",)} | options)), environ)


@pytest.mark.parametrize("role", ["router", "api"])
async def test_a_database_of_another_program_ends_a_process_for_good(
    role: str, nats_server: NatsServer, tmp_path: Path
) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("create table theirs (id integer)")

    assert await start(nats_server.url, tmp_path, roles=(role,), db=f"sqlite:///{path}") is Exit.CONFIG


async def test_a_state_folder_that_cannot_be_made_ends_it_for_good(nats_server: NatsServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert await start(nats_server.url, tmp_path / "file" / "below") is Exit.CONFIG


async def test_a_bad_prefix_for_agents_ends_it_for_good(nats_server: NatsServer, tmp_path: Path) -> None:
    assert await start(nats_server.url, tmp_path, db="none", agent_js_prefix="$JS..API") is Exit.CONFIG


async def test_an_address_that_is_taken_is_tried_again_later(nats_server: NatsServer, tmp_path: Path) -> None:
    port = free_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert await start(nats_server.url, tmp_path, db="none", metrics=f"127.0.0.1:{port}") is Exit.UNAVAILABLE


async def test_the_endpoint_listens_on_ipv6() -> None:
    endpoint = HttpEndpoint(
        *parse_address("[::1]:0"), registry=CollectorRegistry(), readiness=lambda: Readiness(is_ready=True)
    )
    endpoint.start()
    try:
        url = f"http://[::1]:{endpoint.address[1]}/readyz"
        answer = await asyncio.to_thread(lambda: urlopen(url, timeout=5).status)
        assert answer == 200
    finally:
        endpoint.stop()


async def test_a_part_that_fails_to_stop_does_not_keep_the_others_running(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: ApiService) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(ApiService, "stop", fails)
    storage = open_storage(f"sqlite:///{tmp_path}/hub.db")
    assert storage is not None
    settings = ConnectSettings(servers=(nats_server.url,), identity=None)
    process = HubProcess(HubOptions(roles=("router", "api")), settings, None, storage, None)
    await process._start_parts()
    connection = process._connection

    with pytest.raises(ExceptionGroup) as caught:
        await process._stop()

    assert caught.group_contains(RuntimeError, match="a bug")
    assert connection is not None
    assert connection.is_closed
    assert not connection._tasks
    with pytest.raises(StorageUnavailable, match="closed"):
        await storage.check_health()
