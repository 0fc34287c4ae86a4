"""What the API makes the hub send: an admin's cancel, and a dead letter again, through the ingress and once."""

import asyncio
from typing import Any

import pytest

from hub.protocol import make, parse
from hub.storage.conformance.harness import START
from hub.storage.records import NewDeadLetter
from tests.support.api import ADMIN, ApiWorld
from tests.support.bus import count_in
from tests.support.live_hub import LiveHub
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.hub


def letter(dead_id: str, body: bytes, *, reason: str = "exhausted", **members: Any) -> NewDeadLetter:
    return NewDeadLetter(
        reason=reason, detail="x", subject="hub.pub.alice.room", sender="alice", data=body, dead_id=dead_id, **members
    )


class Heard:
    """What arrives live at `bob` and in the room."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def listen(self, world: ApiWorld) -> "Heard":
        assert world.hub is not None

        async def take(message: Any) -> None:
            self.messages.append(message)

        for subject in ("channel.inbox.bob", "channel.room"):
            await world.hub.subscribe(subject, take)
        await world.hub.flush()
        return self

    async def count(self, number: int) -> list[Any]:
        await eventually(lambda: len(self.messages) >= number, what=f"{number} messages arrive")
        return self.messages


@pytest.fixture
async def hub(nats_server: NatsServer, hub_mode: str):  # type: ignore[no-untyped-def]
    live = await LiveHub(nats_server.url, hub_mode).start()
    yield live
    await live.stop()


def world_of(nats_server: NatsServer, storage_url: str | None, hub: LiveHub) -> ApiWorld:
    return ApiWorld(nats_server.url, storage_url, ingress=hub.config.ingress.name if hub.is_durable else None)


async def test_an_admins_cancel_reaches_the_worker_in_the_hubs_voice_with_whose_task_it_is(
    nats_server: NatsServer, sqlite_url: str, hub: LiveHub
) -> None:
    async with world_of(nats_server, sqlite_url, hub) as world:
        heard = await Heard().listen(world)
        assert await world.data(ADMIN, "task.cancel", worker="bob", task_id="t-1", from_="alice") == {"sent": True}
        envelope = parse((await heard.count(1))[0].data)
        assert (envelope.meta.sender, envelope.meta.to, envelope.meta.kind) == ("hub-orchestrator", "bob", "control")
        assert envelope.payload == {"action": "cancel", "task_id": "t-1", "from": "alice"}


@pytest.mark.parametrize(
    "params",
    [
        {"worker": "hub-orchestrator", "task_id": "t", "from_": "alice"},
        {"worker": "a.b", "task_id": "t", "from_": "alice"},
        {"worker": ">", "task_id": "t", "from_": "alice"},
        {"worker": "bob", "task_id": "", "from_": "alice"},
        {"worker": "bob", "task_id": "a b", "from_": "alice"},
        {"worker": "bob", "task_id": "t", "from_": "x\r\nPUB"},
        {"worker": "bob", "task_id": "t"},
    ],
)
async def test_a_cancel_with_a_bad_name_sends_nothing(
    nats_server: NatsServer, sqlite_url: str, hub: LiveHub, params: dict[str, Any]
) -> None:
    async with world_of(nats_server, sqlite_url, hub) as world:
        heard = await Heard().listen(world)
        assert await world.code(ADMIN, "task.cancel", **params) == "bad_request"
        await world.data(ADMIN, "task.cancel", worker="bob", task_id="the-good-one", from_="alice")
        assert [parse(each.data).payload["task_id"] for each in await heard.count(1)] == ["the-good-one"]


async def test_a_dead_letter_goes_out_again_as_its_sender_sent_it_and_only_once(
    nats_server: NatsServer, sqlite_url: str, hub: LiveHub
) -> None:
    direct = make(sender="alice", channel="room", to="bob", payload={"text": "at last"}, id="m1")
    broadcast = make(sender="mallory", channel="elsewhere", payload=1, id="m2")
    async with world_of(nats_server, sqlite_url, hub) as world:
        trace = [("traceparent", "00-abc"), ("Nats-Msg-Id", "squatted"), ("x-evil", "1"), ("traceparent", "00-late")]
        await world.bury(letter("d1", direct.body, headers=trace), letter("d2", broadcast.body, reason="expired"))
        heard = await Heard().listen(world)
        for number, dead_id in enumerate(("d1", "d2"), start=1):
            assert await world.data(ADMIN, "dead.replay", dead_id=dead_id) == {"replayed": True}
            await heard.count(number)
        first, second = heard.messages
        assert (first.subject, parse(first.data)) == ("channel.inbox.bob", direct)
        assert first.headers["traceparent"] == "00-abc"
        assert "x-evil" not in first.headers
        meta = parse(second.data).meta
        assert (second.subject, meta.sender, meta.channel) == ("channel.room", "alice", "room")
        reply = await world.ask(ADMIN, "dead.replay", dead_id="d1")
        assert (reply["code"], "once only" in reply["error"]) == ("conflict", True)
        replayed = (await world.data(ADMIN, "dead.get", dead_id="d1"))["dead"]["replayed_at"]
        assert replayed == "2030-01-02T03:04:05.678901Z"
        assert len(heard.messages) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"reason": "replayed"},
        {"size": 70_000},
        {"headers": [("Nats-Stream", "HUB_INBOX")]},
        {"subject": "channel.inbox.bob"},
        {"subject": "hub.pub.hub-orchestrator.room"},
        {"subject": "$JS.API.STREAM.DELETE.HUB_TASKS"},
        {"data": b"no envelope"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_letter_of_doubtful_origin_or_without_hope_is_not_sent(
    nats_server: NatsServer, sqlite_url: str, hub: LiveHub, change: dict[str, Any]
) -> None:
    usual = {
        "reason": "exhausted", "detail": "", "subject": "hub.pub.alice.room", "dead_id": "d1",
        "data": make(sender="alice", channel="room", payload="bad").body,
    }  # fmt: skip
    async with world_of(nats_server, sqlite_url, hub) as world:
        await world.bury(NewDeadLetter(**{**usual, **change}))
        heard = await Heard().listen(world)
        assert await world.code(ADMIN, "dead.replay", dead_id="d1") == "conflict"
        await world.data(ADMIN, "task.cancel", worker="bob", task_id="t", from_="alice")
        assert [message.subject for message in await heard.count(1)] == ["channel.inbox.bob"]
        assert (await world.data(ADMIN, "dead.get", dead_id="d1"))["dead"]["replayed_at"] is None


async def test_a_letter_that_could_not_be_sent_can_be_replayed_later(
    nats_server: NatsServer, sqlite_url: str, hub: LiveHub
) -> None:
    async with world_of(nats_server, sqlite_url, hub) as world:
        await world.bury(letter("d1", make(sender="alice", channel="room", to="bob").body))
        await hub.stop()
        if hub.is_durable:
            assert world.hub is not None
            await world.hub.jetstream().delete_stream("HUB_INGRESS")
        assert await world.code(ADMIN, "dead.replay", dead_id="d1") == "unavailable"
        await hub.start()
        heard = await Heard().listen(world)
        await world.data(ADMIN, "dead.replay", dead_id="d1")
        await heard.count(1)


@pytest.mark.durable_only
async def test_two_admins_at_once_send_one_message(nats_server: NatsServer, sqlite_url: str, hub: LiveHub) -> None:
    async with world_of(nats_server, sqlite_url, hub) as world:
        await world.bury(letter("d1", make(sender="alice", channel="room", payload=1).body, received_at=START))
        heard = await Heard().listen(world)
        codes = await asyncio.gather(*(world.code(ADMIN, "dead.replay", dead_id="d1") for _ in range(5)))
        assert codes.count("ok") == 1
        assert set(codes) == {"ok", "conflict"}
        await world.data(ADMIN, "task.cancel", worker="bob", task_id="t", from_="alice")
        assert [message.subject for message in await heard.count(2)] == ["channel.room", "channel.inbox.bob"]
        assert world.hub is not None
        assert await count_in(world.hub, "HUB_INGRESS") == 0
