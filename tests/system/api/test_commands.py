"""The commands against a real hub: an operator finds a message, its thread, its dead letter and what is pending."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hub.protocol import make, subjects
from tests.support.bus import connect, delivery_config
from tests.support.commands import Command
from tests.support.hub_process import HubProcess
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.durable_only  # the API's answers in both modes are integration/api's to test

Run = Callable[..., Awaitable[Command]]
ADMINS = {"NATS_HUB_API_ADMINS": "ops, root"}


def hub_process(home: Path, url: str, mode: str, role: str = "server") -> HubProcess:
    options = [] if mode == "core" else ["--durable", "--delivery-config", str(delivery_config(home))]
    return HubProcess(home, url, "hub", role, *options, environ=ADMINS)


@pytest.fixture(scope="module")
def shared_hub(hub_mode: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, HubProcess]]:
    """A server and a hub with a little history, for all tests that do not kill them: starting them takes seconds."""

    async def start() -> None:
        await nats.start()
        await hub.start()
        await fill(nats.url, hub)

    async def end() -> None:
        await hub.kill()
        await nats.kill()

    nats = NatsServer(tmp_path_factory.mktemp("nats"))
    hub = hub_process(tmp_path_factory.mktemp("hub"), nats.url, hub_mode)
    asyncio.run(start())
    yield nats.url, hub
    asyncio.run(end())


@pytest.fixture
async def hub(nats_server: NatsServer, hub_mode: str, tmp_path: Path) -> AsyncIterator[HubProcess]:
    """A hub of the test's own, to kill."""
    process = hub_process(tmp_path / "hub", nats_server.url, hub_mode)
    await process.start()
    yield process
    await process.kill()


async def run_on(
    url: str, home: Path, name: str, *arguments: str, identity: str = "ops", expected: int = 0, fresh: bool = False
) -> Command:
    environ = {"NATS_HUB_IDENTITY": identity}
    command = await Command.start(name, *arguments, url=url, home=home, environ=environ, fresh=fresh)
    assert await command.ended() == expected, (command.out, command.err)
    return command


@pytest.fixture
def run(shared_hub: tuple[str, HubProcess]) -> Run:
    url, hub = shared_hub
    return partial(run_on, url, hub.home)


def objects(command: Command) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command.out.splitlines()]


async def fill(url: str, hub: HubProcess) -> None:
    """Two messages to bob, one answered, and one that is none; returns when history has them."""
    await hub.logged("the api has its storage")
    await hub.logged("recording")
    async with AsyncExitStack() as stack:
        connections = {}
        for name in ("alice", "bob", "ops"):
            connections[name] = await connect(url, name)
            stack.push_async_callback(connections[name].close)
        for envelope in (
            make(sender="alice", channel="room", to="bob", payload={"text": "are you there?"}, id="m1"),
            make(sender="alice", channel="room", to="bob", payload={"text": "\x1b[31mred\u202e"}, id="m2"),
            make(sender="bob", channel="room", to="alice", payload={"text": "yes"}, reply_to="m1", id="r1"),
        ):
            sender = envelope.meta.sender
            await connections[sender].request(subjects.publish(sender, "room"), envelope.body, timeout_secs=5)
        await connections["alice"].request("hub.pub.alice.room", b"{broken", timeout_secs=5)

        async def count(op: str, items: str) -> int:
            reply = await connections["ops"].request(subjects.api("ops", op), b"", timeout_secs=5)
            return len(json.loads(reply.data)["data"][items])

        async def is_recorded() -> bool:
            return await count("history.query", "envelopes") == 3 and await count("dead.list", "dead") == 1

        await eventually(is_recorded, poll=0.1, what="three messages and a dead letter are in history")


async def test_an_operator_finds_each_thing_with_one_command(run: Run) -> None:
    found, thread, pending, dead, listed, stats = await asyncio.gather(
        run("history", "m1", fresh=True),
        run("thread", "r1", fresh=True),
        run("thread", "--pending", "--of", "bob", "--json"),
        run("dead", "list", "--json", "--since", "1h", fresh=True),
        run("history", identity="bob"),
        run("stats", "--json", "--agent", "bob", fresh=True),
    )
    assert all(word in found.out for word in ("alice", "bob", "are you there?"))
    lines = thread.out.splitlines()
    assert [("are you there?" in line, "yes" in line) for line in lines] == [(True, False), (False, True)]
    assert lines[1].startswith("  ")
    assert [each["id"] for each in objects(pending)] == ["m2"]
    assert [each["reason"] for each in objects(dead)] == ["undecodable"]
    assert len(listed.out.splitlines()) == 3
    assert "\x1b" not in listed.out
    assert "\u202e" not in listed.out
    figures = objects(stats)[0]
    assert (figures["messages"], figures["agent"]["pending"]) == (3, 1)
    dead_id = objects(dead)[0]["dead_id"]
    shown, refused = await asyncio.gather(run("dead", "show", dead_id), run("dead", "replay", dead_id, expected=1))
    assert "{broken" in shown.out
    assert "would be dropped again as undecodable" in refused.err


async def test_refusals_have_their_exit_codes_and_one_clear_line(run: Run) -> None:
    refusals = [
        (("history", "nope"), "bob", 1, "there is no envelope"),
        (("history", "--from", "a.b"), "bob", 2, "bad identity"),
        (("dead", "list"), "bob", 1, "for API admins"),
        (("agents",), "", 2, "who asks?"),
    ]
    commands = await asyncio.gather(
        *(run(*arguments, identity=identity, expected=code) for arguments, identity, code, _ in refusals)
    )
    for command, (_, _, _, words) in zip(commands, refusals, strict=True):
        assert words in command.err
        assert len(command.err.splitlines()) == 1
        assert command.out == ""


async def test_sessions_are_kept_and_closed_by_command(run: Run) -> None:
    await run("session", "create", "s1", "--worker", "wanda", "--metadata", '{"a": 1}', identity="olga", fresh=True)
    closed = await run("session", "close", "s1", "--failed", "--json", identity="wanda")
    assert [(each["metadata"], each["status"]) for each in objects(closed)] == [({"a": 1}, "failed")]


async def test_following_shows_what_comes_and_goes_on_after_the_hub_was_killed(
    nats_server: NatsServer, hub: HubProcess
) -> None:
    await fill(nats_server.url, hub)
    following = await Command.start(
        "history", "--follow", "--json", "-n", "1", "-i", "ops", url=nats_server.url, home=hub.home
    )
    try:
        await eventually(lambda: len(objects(following)) == 1, within=30, what="the newest is shown")
        await hub.kill()
        await following.says("waiting: ")
        await hub.start()
        await hub.logged("recording", times=2)
        alice = await connect(nats_server.url, "alice")
        envelope = make(sender="alice", channel="room", to="bob", payload=2, id="after")
        await alice.request("hub.pub.alice.room", envelope.body, timeout_secs=10)
        await alice.close()
        await eventually(lambda: len(objects(following)) == 2, within=30, what="what came is shown")
        assert [each["id"] for each in objects(following)][1] == "after"
        following.interrupt()
        assert await following.ended() == 130
    finally:
        await following.kill()


async def test_an_api_beside_a_hub_shares_its_history_and_answers_when_that_dies(
    nats_server: NatsServer, hub: HubProcess, hub_mode: str
) -> None:
    await fill(nats_server.url, hub)
    second = hub_process(hub.home, nats_server.url, hub_mode, "api")
    try:
        await second.start()
        await second.logged("the api has its storage")
        await hub.kill()
        thread = await run_on(nats_server.url, hub.home, "thread", "m1", "--json")
        assert [each["id"] for each in objects(thread)] == ["m1", "r1"]
        assert await second.stop() == 0
    finally:
        await second.kill()


async def test_a_task_for_a_name_that_nobody_bears_says_so(run: Run) -> None:
    command = await run("delegate", "--to", "bbo", "--prompt", "x", "--timeout", "4", expected=3)
    assert "the hub never heard of bbo: the task waits until a worker of that name starts" in command.err
