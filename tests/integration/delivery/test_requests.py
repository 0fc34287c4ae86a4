"""Requests of a connection on a real server: each gets its own answer, in time or an error that says why not."""

import asyncio
import time

import pytest

from hub.delivery.connection import Connection
from hub.delivery.errors import NoResponders, NotConnected, PermissionDenied, RequestTimedOut
from hub.delivery.nats_client import Incoming
from hub.delivery.settings import ConnectSettings
from tests.integration.delivery.conftest import Connect
from tests.support.nats_server import NatsServer


async def echo(connection: Connection, subject: str) -> None:
    def answer(message: Incoming) -> None:
        connection.client.publish_now(message.reply, message.data[::-1], headers={"X-Size": str(len(message.data))})

    await connection.client.subscribe_direct(subject, answer)
    await connection.flush()


async def test_many_requests_at_once_get_each_its_own_answer(connect: Connect) -> None:
    asker, answerer = await connect(), await connect()
    await echo(answerer, "echo.*")
    asked = [f"{number:05d}".encode() for number in range(2_000)]
    answers = await asyncio.gather(
        *(asker.request(f"echo.{number}", body, timeout_secs=20) for number, body in enumerate(asked))
    )
    assert [answer.data for answer in answers] == [body[::-1] for body in asked]
    assert answers[0].headers == {"X-Size": "5"}


async def test_a_request_that_nobody_answers_says_whether_somebody_listens(connect: Connect) -> None:
    asker, deaf = await connect(), await connect()
    with pytest.raises(NoResponders):
        await asker.request("nobody", b"", timeout_secs=5)
    await deaf.client.subscribe_direct("silence", lambda _: None)
    await deaf.flush()
    began = time.monotonic()
    with pytest.raises(RequestTimedOut):
        await asker.request("silence", b"", timeout_secs=0.2)
    assert 0.15 < time.monotonic() - began < 5


async def test_an_answer_after_its_asker_has_left_disturbs_nobody(connect: Connect) -> None:
    asker, late = await connect(), await connect()
    replies: list[str] = []
    await late.client.subscribe_direct("late", lambda message: replies.append(message.reply))
    await late.flush()
    leaving = asyncio.create_task(asker.request("late", b"", timeout_secs=20))
    while not replies:
        await late.check_health()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    late.client.publish_now(replies[0], b"too late")
    await late.flush()
    await echo(late, "echo")
    assert (await asker.request("echo", b"ab", timeout_secs=5)).data == b"ba"


async def test_a_request_that_the_server_refuses_ends_at_once_and_others_go_on(start_nats: object) -> None:
    config = 'authorization { users: [ { user: a, password: p, permissions: { publish: { deny: "Denied.>" } } } ] }'
    server: NatsServer = await start_nats(config=config)  # type: ignore[operator]
    settings = ConnectSettings(servers=(server.url,), user="a", password="p")
    connection = await Connection.open(settings, name="test")
    try:
        await echo(connection, "echo")
        await connection.client.subscribe_direct("silence", lambda _: None)
        other = asyncio.create_task(connection.request("silence", b"", timeout_secs=1))
        began = time.monotonic()
        with pytest.raises(PermissionDenied):
            await connection.request("Denied.it", b"", timeout_secs=20)
        assert time.monotonic() - began < 10
        assert (await connection.request("echo", b"ab", timeout_secs=5)).data == b"ba"
        with pytest.raises(RequestTimedOut):
            await other
    finally:
        await connection.close()


async def test_a_request_on_a_closed_connection_says_that_nothing_was_sent(connect: Connect) -> None:
    connection = await connect()
    await echo(connection, "echo")
    await connection.request("echo", b"", timeout_secs=5)
    await connection.close()
    with pytest.raises(NotConnected):
        await connection.request("echo", b"", timeout_secs=5)


async def test_requests_go_on_after_a_restart_of_the_server(connect: Connect, nats_server: NatsServer) -> None:
    asker = await connect()
    await echo(asker, "echo")
    assert (await asker.request("echo", b"1", timeout_secs=5)).data == b"1"
    await nats_server.restart()
    assert (await asker.request("echo", b"2", timeout_secs=20)).data == b"2"
