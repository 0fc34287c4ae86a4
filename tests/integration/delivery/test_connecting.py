"""Connecting with what cannot work: it ends soon, and says why."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hub.delivery.connection import Connection
from hub.delivery.errors import BadSettings, CannotConnect
from hub.delivery.settings import ConnectSettings


async def test_no_server_at_all_is_refused_and_does_not_spin() -> None:
    async with asyncio.timeout(5):
        with pytest.raises(BadSettings, match="no server address"):
            await Connection.open(ConnectSettings(servers=()), name="test", timeout_secs=1)


@pytest.mark.parametrize("names", [("ca",), ("certificate", "key"), ("creds",), ("nkey_seed",)])
async def test_a_file_that_holds_something_else_is_named_as_the_reason(names: tuple[str, ...], tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_text("listen: 4222\n")
    settings = ConnectSettings(servers=("nats://127.0.0.1:1",), **{name: str(garbage) for name in names})

    async with asyncio.timeout(5):
        with pytest.raises(CannotConnect) as failed:
            await Connection.open(settings, name="test", timeout_secs=1)

    assert "Client.connect must be called first" not in str(failed.value)


async def test_a_server_that_is_away_is_told_once_with_its_address_and_what_named_it() -> None:
    settings = ConnectSettings.from_environ({"NATS_URL": "nats://127.0.0.1:1"})
    with capture_logs() as lines, pytest.raises(CannotConnect) as failed:
        await Connection.open(settings, name="test", timeout_secs=2)
    told = [line for line in lines if line["log_level"] == "warning"]
    assert [(line["server"], line["source"]) for line in told] == [("nats://127.0.0.1:1", "NATS_URL")]
    assert str(failed.value).startswith("cannot connect to NATS at nats://127.0.0.1:1 (from NATS_URL): ")


async def test_giving_up_ends_also_where_the_client_loses_a_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = 0

    async def connect(self: Connection, name: str) -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                lost += 1
                if lost > 1:
                    raise

    monkeypatch.setattr(Connection, "_connect", connect)
    settings = ConnectSettings(servers=("nats://127.0.0.1:1",))
    async with asyncio.timeout(5):
        with pytest.raises(CannotConnect):
            await Connection.open(settings, name="test", timeout_secs=0.05)
    assert lost == 2


async def test_a_cancel_ends_the_tries_to_connect_at_whatever_moment_it_comes() -> None:
    for turns in range(60):
        opening = asyncio.create_task(
            Connection.open(ConnectSettings(servers=("nats://127.0.0.1:1",)), name="test", timeout_secs=30)
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        done, _ = await asyncio.wait({opening}, timeout=5)
        assert done, f"cancelled after {turns} turns of the loop, it goes on"
        assert opening.cancelled()
