"""Attaching: one consumer for an identity, made once, kept, and answered only where the asker may be answered."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hub.delivery import streams
from hub.delivery.attach import AttachResponder, Outcome
from hub.delivery.attach_request import AttachData, Attached, NoHub, Refused, TimedOut, request_attach
from hub.delivery.config import DeliveryConfig, parse
from hub.delivery.connection import Connection
from hub.delivery.errors import PermissionDenied
from hub.delivery.jetstream import JetStreamApi
from tests.integration.delivery.conftest import Connect
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

CONFIG = DeliveryConfig()
BOB = AttachData("HUB_INBOX", "inbox-bob", "HUB_TASKS", "$JS.API", 604_800, 0)


@pytest.fixture
async def outcomes() -> list[Outcome]:
    return []


@pytest.fixture
async def responder(hub: Connection, js: JetStreamApi, outcomes: list[Outcome]) -> AsyncIterator[AttachResponder]:
    await streams.ensure(js, CONFIG)
    responder = AttachResponder(hub, CONFIG, on_outcome=lambda outcome, _: outcomes.append(outcome))
    await responder.start()
    yield responder
    await responder.stop()


@pytest.fixture
async def bob(connect: Connect) -> Connection:
    return await connect(identity="bob")


async def deliver(hub: Connection, *bodies: bytes) -> None:
    for body in bodies:
        await hub.request("channel.inbox.bob", body, timeout_secs=5)


async def pull(client: Connection, count: int) -> list[bytes]:
    sub = await client.client.jetstream().pull_subscribe_bind(consumer="inbox-bob", stream="HUB_INBOX")
    messages = await sub.fetch(count, timeout=5)
    for message in messages:
        await message.ack_sync()
    return [message.data for message in messages]


async def ask(client: Connection, body: bytes) -> dict[str, Any]:
    answer = await client.request("hub.delivery.bob.inbox", body, timeout_secs=5)
    decoded = json.loads(answer.data)
    assert isinstance(decoded, dict)
    return decoded


async def test_an_attached_client_reads_what_came_while_it_was_away(
    responder: AttachResponder, hub: Connection, bob: Connection
) -> None:
    await deliver(hub, b"1", b"2")
    result = await request_attach(bob, "bob")
    assert isinstance(result, Attached)
    made = result.data.stream_created
    assert result.data == AttachData(
        "HUB_INBOX", "inbox-bob", "HUB_TASKS", "$JS.API", 604_800, 1, ack_wait_secs=30, stream_created=made
    )
    assert await pull(bob, 2) == [b"1", b"2"]


async def test_the_answer_is_the_contracts_json(responder: AttachResponder, js: JetStreamApi, bob: Connection) -> None:
    assert await ask(bob, b"{}") == {
        "ok": True,
        "data": {
            "stream": "HUB_INBOX",
            "consumer": "inbox-bob",
            "tasks_stream": "HUB_TASKS",
            "js_prefix": "$JS.API",
            "max_age_secs": 604_800,
            "first_seq": 0,
            "ack_wait_secs": 30,
            "stream_created": (await js.stream_info("HUB_INBOX"))["created"],
        },
    }


async def test_a_second_attach_leaves_the_consumer_and_its_position(
    responder: AttachResponder, hub: Connection, js: JetStreamApi, bob: Connection
) -> None:
    await request_attach(bob, "bob")
    await deliver(hub, b"1", b"2")
    assert await pull(bob, 1) == [b"1"]
    before = await js.consumer_info("HUB_INBOX", "inbox-bob")
    await request_attach(bob, "bob", after_seq=2)
    after = await js.consumer_info("HUB_INBOX", "inbox-bob")
    assert after["created"] == before["created"]
    assert await pull(bob, 1) == [b"2"]


async def test_a_consumer_that_went_away_starts_behind_the_clients_own_floor(
    responder: AttachResponder, hub: Connection, bob: Connection
) -> None:
    await deliver(hub, b"1", b"2", b"3")
    await request_attach(bob, "bob", after_seq=2)
    assert await pull(bob, 1) == [b"3"]


@pytest.mark.parametrize("after_seq", [0, 4, 2**62])
async def test_a_floor_that_cannot_be_of_this_stream_means_from_the_start(
    responder: AttachResponder, hub: Connection, bob: Connection, after_seq: int
) -> None:
    await deliver(hub, b"1", b"2", b"3")
    await request_attach(bob, "bob", after_seq=after_seq)
    assert await pull(bob, 3) == [b"1", b"2", b"3"]


async def test_a_floor_of_a_stream_that_was_made_again_means_from_the_start(
    responder: AttachResponder, hub: Connection, js: JetStreamApi, bob: Connection
) -> None:
    made = (await js.stream_info("HUB_INBOX"))["created"]
    await deliver(hub, b"1", b"2", b"3")
    await request_attach(bob, "bob", after_seq=2, stream_created="2020-01-01T00:00:00Z")
    assert await pull(bob, 3) == [b"1", b"2", b"3"]
    await hub.jetstream().delete_consumer("HUB_INBOX", "inbox-bob")
    await request_attach(bob, "bob", after_seq=2, stream_created=made)
    assert await pull(bob, 1) == [b"3"]


async def test_a_consumer_with_another_config_is_updated_and_keeps_its_position(
    responder: AttachResponder, hub: Connection, js: JetStreamApi, bob: Connection
) -> None:
    await request_attach(bob, "bob", after_seq=0)
    await deliver(hub, b"1", b"2")
    assert await pull(bob, 1) == [b"1"]
    other = AttachResponder(hub, parse(b'{"ack_wait_secs": 3, "inbox_max_ack_pending": 7}', "test"))
    await responder.stop()
    await other.start()
    assert isinstance(await request_attach(bob, "bob"), Attached)
    config = (await js.consumer_info("HUB_INBOX", "inbox-bob"))["config"]
    assert (config["ack_wait"], config["max_ack_pending"]) == (3 * 10**9, 7)
    assert await pull(bob, 1) == [b"2"]
    await other.stop()


async def test_responders_with_different_configs_that_race_lose_nothing(
    responder: AttachResponder, nats_server: NatsServer, hub: Connection, bob: Connection, connect: Connect
) -> None:
    """Scenario B28: unacked messages, racing creates and updates, a restart of the server."""
    others = [AttachResponder(await connect(), parse(b'{"ack_wait_secs": %d}' % secs, "test")) for secs in (1, 2)]
    for other in others:
        await other.start()
    await deliver(hub, b"1", b"2")
    clients = [await connect(identity="bob") for _ in range(3)]
    results = await asyncio.gather(*(request_attach(client, "bob") for client in clients * 5))
    assert {type(result) for result in results} == {Attached}
    sub = await bob.client.jetstream().pull_subscribe_bind(consumer="inbox-bob", stream="HUB_INBOX")
    assert len(await sub.fetch(2, timeout=5)) == 2  # taken and not acked
    await nats_server.restart()
    await eventually(lambda: all(client.is_connected for client in [*clients, bob, hub]), what="reconnected")
    results = await asyncio.gather(*(request_attach(client, "bob") for client in clients * 5))
    assert {type(result) for result in results} == {Attached}
    for other in (responder, *others):
        await other.stop()
    short = AttachResponder(hub, parse(b'{"ack_wait_secs": 1}', "test"))
    await short.start()
    assert isinstance(await request_attach(bob, "bob"), Attached)
    received: set[bytes] = set()
    while received != {b"1", b"2"}:
        async with asyncio.timeout(40):
            received |= set(await pull(bob, 1))
    await short.stop()


BAD_BODIES = [
    (b"[]", "Expected `object`"),
    (b"null", "Expected `object`"),
    (b"{", "expected {}"),
    (b"\xff", "expected {}"),
    (b'{"after_seq": -1}', "$.after_seq"),
    (b'{"after_seq": "1"}', "$.after_seq"),
    (b'{"after_seq": true}', "$.after_seq"),
    (b'{"after_seq": 1.5}', "$.after_seq"),
    (b'{"after_seq": 9223372036854775808}', "$.after_seq"),
    (b'{"filter_subject": "channel.inbox.alice"}', "filter_subject"),
    (b"[" * 1000, "expected {}"),
    (b" " * 2000, "at most 1024 bytes"),
]


@pytest.mark.parametrize(("body", "detail"), BAD_BODIES)
async def test_a_body_that_cannot_be_meant_is_refused(
    responder: AttachResponder, js: JetStreamApi, bob: Connection, body: bytes, detail: str
) -> None:
    answer = await ask(bob, body)
    assert (answer["ok"], answer["code"]) == (False, "bad_request")
    assert detail in answer["error"]
    assert await js.consumer_names("HUB_INBOX") == []


async def test_an_empty_body_and_a_null_are_taken_as_nothing_said(responder: AttachResponder, bob: Connection) -> None:
    assert (await ask(bob, b""))["ok"] is True
    assert (await ask(bob, b'{"after_seq": null}'))["ok"] is True


async def test_the_hubs_own_voice_has_no_inbox(responder: AttachResponder, connect: Connect) -> None:
    client = await connect(identity="hub-orchestrator")
    result = await request_attach(client, "hub-orchestrator")
    assert isinstance(result, Refused)
    assert result.code == "bad_request"


@pytest.mark.parametrize(
    "reply", ["hub.pub.bob.x", "channel.inbox.alice", "$JS.API.STREAM.DELETE.HUB_TASKS", "_INBOX_alice.x"]
)
async def test_nothing_is_answered_where_the_asker_may_not_be_answered(
    responder: AttachResponder, js: JetStreamApi, bob: Connection, outcomes: list[Outcome], reply: str
) -> None:
    await bob.publish("hub.delivery.bob.inbox", b"{}", reply=reply)
    await eventually(lambda: outcomes == ["bad_reply"])
    assert [name for name in ("HUB_INGRESS", "HUB_INBOX", "HUB_TASKS") if await js.stream_info(name)]
    assert await js.consumer_names("HUB_INBOX") == []
    assert (await js.stream_info("HUB_INGRESS"))["state"]["messages"] == 0


async def test_a_request_from_anothers_account_is_not_answered(
    responder: AttachResponder, bob: Connection, outcomes: list[Outcome]
) -> None:
    headers = {"Nats-Request-Info": '{"acc":"A_mallory"}'}
    await bob.client.publish("hub.delivery.bob.inbox", b"{}", reply=bob.new_reply_subject(), headers=headers)
    await eventually(lambda: outcomes == ["bad_reply"])


async def test_no_hub_a_silent_one_and_a_refusing_one_are_told_apart(
    hub: Connection, bob: Connection, outcomes: list[Outcome]
) -> None:
    assert await request_attach(bob, "bob") == NoHub()
    silent = await hub.client.subscribe("hub.delivery.bob.inbox")
    await hub.flush()
    assert await request_attach(bob, "bob", timeout_secs=0.2) == TimedOut(0.2)
    await silent.unsubscribe()
    responder = AttachResponder(hub, CONFIG)
    await responder.start()
    refused = await request_attach(bob, "bob")
    assert isinstance(refused, Refused)
    assert refused.code == "unavailable"
    assert "stream HUB_INBOX" in refused.error
    assert responder.describe() == {"requests": 1, "errors": 1, "unavailable": 1}
    await responder.stop()


@pytest.mark.parametrize(
    "change",
    [{"stream": "A.>"}, {"consumer": "inbox-alice"}, {"js_prefix": "$JS.*"}, {"tasks_stream": ""}, {"first_seq": "1"}],
)
async def test_an_answer_whose_names_are_none_is_not_taken(
    hub: Connection, bob: Connection, change: dict[str, Any]
) -> None:
    data = {name: getattr(BOB, name) for name in BOB.__struct_fields__}

    async def answer(message: Any) -> None:
        await hub.publish(message.reply, json.dumps({"ok": True, "data": {**data, **change}}).encode())

    await hub.subscribe("hub.delivery.bob.inbox", answer)
    await hub.flush()
    result = await request_attach(bob, "bob")
    assert isinstance(result, Refused)
    assert result.code == "internal"


async def test_a_quota_reaches_the_client_by_its_words(start_nats: Any, connect: Connect) -> None:
    account = "jetstream: {max_file: 1GB, max_mem: 1GB, max_consumers: 1}"
    server = await start_nats(config=f"accounts {{Q {{{account}, users: [{{user: q, password: q}}]}}}}")
    hub = await connect(server, user="q", password="q")
    await streams.ensure(JetStreamApi(hub), CONFIG)
    responder = AttachResponder(hub, CONFIG)
    await responder.start()
    client = await connect(server, user="q", password="q", identity="bob")
    assert isinstance(await request_attach(client, "bob"), Attached)  # the limit is for each stream
    other = await connect(server, user="q", password="q", identity="carol")
    refused = await request_attach(other, "carol")
    assert isinstance(refused, Refused)
    assert refused.code == "unavailable"
    assert "maximum consumers limit reached" in refused.error
    await responder.stop()


async def test_start_and_stop_are_idempotent_and_stop_ends_the_answers(
    hub: Connection, js: JetStreamApi, bob: Connection
) -> None:
    await streams.ensure(js, CONFIG)
    responder = AttachResponder(hub, CONFIG)
    await responder.stop()
    await responder.start()
    await responder.start()
    asking = [asyncio.create_task(request_attach(bob, "bob")) for _ in range(20)]
    await eventually(lambda: responder.describe()["requests"] > 0)
    await responder.stop()
    await responder.stop()
    results = await asyncio.gather(*asking)
    assert {type(result) for result in results} <= {Attached, NoHub}
    assert await request_attach(bob, "bob") == NoHub()
    await responder.start()
    assert isinstance(await request_attach(bob, "bob"), Attached)
    await responder.stop()


async def test_an_agent_in_an_account_of_its_own_attaches_and_reads(start_nats: Any, connect: Connect) -> None:
    """The topology of bound mode: the request comes with `_R_.` and the server's own word on whose it is."""
    services = [
        '"hub.delivery.bob.inbox"',
        '"$JS.ACK.HUB_INBOX.inbox-bob.>"',
        '"$JS.API.CONSUMER.MSG.NEXT.HUB_INBOX.inbox-bob"',
    ]
    exports = ", ".join(
        [
            '{service: "hub.delivery.*.inbox"}',
            '{service: "$JS.ACK.HUB_INBOX.*.>"}',
            '{service: "$JS.API.CONSUMER.MSG.NEXT.HUB_INBOX.*", response_type: stream, threshold: "30s"}',
        ]
    )
    imports = ", ".join(f"{{service: {{account: HUB, subject: {subject}}}}}" for subject in services)
    grants = f'publish: {{allow: [{", ".join(services)}]}}, subscribe: {{allow: ["_INBOX_bob.>"]}}'
    server = await start_nats(
        config=f"""accounts {{
            HUB {{jetstream: enabled, users: [{{user: hub, password: hub}}], exports: [{exports}]}}
            A_bob {{users: [{{user: bob, password: bob, permissions: {{{grants}}}}}], imports: [{imports}]}}
        }}"""
    )
    hub = await connect(server, user="hub", password="hub")
    await streams.ensure(JetStreamApi(hub), CONFIG)
    responder = AttachResponder(hub, CONFIG)
    await responder.start()
    await deliver(hub, b"1")
    bob = await connect(server, user="bob", password="bob", identity="bob")
    assert isinstance(await request_attach(bob, "bob"), Attached)
    assert await pull(bob, 1) == [b"1"]
    with pytest.raises(PermissionDenied):
        await request_attach(bob, "alice")
    await responder.stop()
