"""The start with `--bound`: a server that lets anybody in is refused, whatever else it says."""

from collections.abc import Awaitable, Callable

import pytest

from hub.delivery.errors import CannotConnect
from hub.delivery.settings import ConnectSettings
from hub.process import HubOptions, ServerNotBound, require_bound, serve
from hub.service.exits import Exit
from tests.support.nats_server import NatsServer

USERS = 'authorization { users: [ { user: "hub", password: "secret" } ] }'


async def test_a_bound_hub_leaves_a_server_that_takes_anybody(nats_server: NatsServer) -> None:
    options = HubOptions(roles=("router",), db="none", bound=True)
    assert await serve(options, {"NATS_URL": nats_server.url}) is Exit.CONFIG


async def test_credentials_in_the_address_are_none_of_an_anonymous_client(
    start_nats: Callable[..., Awaitable[NatsServer]],
) -> None:
    server = await start_nats(config=USERS)
    await require_bound(ConnectSettings(servers=(server.url.replace("://", "://hub:secret@"),)))

    open_server = await start_nats()
    with pytest.raises(ServerNotBound):
        await require_bound(ConnectSettings(servers=(open_server.url.replace("://", "://hub:secret@"),)))


async def test_a_server_that_does_not_answer_is_not_taken_for_a_bound_one(
    start_nats: Callable[..., Awaitable[NatsServer]],
) -> None:
    server = await start_nats(config=USERS)
    await server.kill()
    with pytest.raises(CannotConnect):
        await require_bound(ConnectSettings(servers=(server.url,), user="hub", password="secret"))
