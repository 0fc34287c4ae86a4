"""The three streams on a real server: made, held to the config, refused with a way out, noticed when lost."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog

from hub.delivery import streams
from hub.delivery.blueprints import ROLES, inbox_blueprint, router_blueprint, stream_blueprint, stream_drift
from hub.delivery.config import DeliveryConfig, parse
from hub.delivery.connection import Connection
from hub.delivery.errors import PermissionDenied
from hub.delivery.inspector import examine
from hub.delivery.jetstream import QUOTAS, SERVER_FLOOR, JetStreamApi
from hub.delivery.refusals import JetStreamDisabled, QuotaExceeded, ServerTooOld, StreamMissing, StreamRefused
from tests.integration.delivery.conftest import Connect
from tests.support.nats_server import NatsServer

CONFIG = DeliveryConfig()
StartNats = Callable[..., Awaitable[NatsServer]]


def configured(**keys: Any) -> DeliveryConfig:
    return parse(json.dumps(keys).encode(), "test")


async def test_the_streams_and_the_consumer_are_made_as_the_contract_says(js: JetStreamApi) -> None:
    standing = await streams.ensure(js, CONFIG)
    assert [(state.name, state.was_made) for state in standing.streams] == [
        ("HUB_INGRESS", True),
        ("HUB_INBOX", True),
        ("HUB_TASKS", True),
    ]
    for role in ROLES:
        found = (await js.stream_info(getattr(CONFIG, role).name))["config"]
        assert stream_drift(found, stream_blueprint(role, CONFIG)) == []
    consumer = (await js.consumer_info("HUB_INGRESS", "router"))["config"]
    assert (consumer["ack_policy"], consumer["max_deliver"], consumer["max_ack_pending"]) == ("explicit", -1, 1000)


async def test_a_second_start_changes_nothing(js: JetStreamApi) -> None:
    first = await streams.ensure(js, CONFIG)
    second = await streams.ensure(js, CONFIG)
    assert [state.was_made for state in second.streams] == [False] * 3
    assert [state.created for state in second.streams] == [state.created for state in first.streams]
    assert all(finding.is_fine for finding in await examine(js, CONFIG))


async def test_other_limits_are_taken_and_messages_and_positions_stay(js: JetStreamApi, hub: Connection) -> None:
    await streams.ensure(js, CONFIG)
    await hub.request("channel.inbox.bob", b"x", timeout_secs=5)
    other = configured(
        inbox={"max_age_secs": 1000, "max_msgs_per_subject": 7, "max_bytes": 10**6},
        ingress={"max_msgs_per_subject": 9},
        duplicate_window_secs=60,
        ack_wait_secs=3,
        router_max_ack_pending=2,
    )
    standing = await streams.ensure(js, other)
    assert standing.streams[1].last_seq == 1
    assert all(finding.is_fine for finding in await examine(js, other))
    assert {finding.stream for finding in await examine(js, CONFIG) if finding.drift} == {
        "HUB_INGRESS",
        "HUB_INBOX",
        "HUB_TASKS",
    }
    await streams.ensure(js, CONFIG)
    assert all(finding.is_fine for finding in await examine(js, CONFIG))


async def test_a_stream_that_was_made_dangerous_by_hand_is_made_safe(js: JetStreamApi) -> None:
    await streams.ensure(js, CONFIG)
    await js.update_stream(
        {
            **stream_blueprint("inbox", CONFIG),
            "allow_rollup_hdrs": True,
            "allow_direct": True,
            "allow_atomic": True,
            "allow_batched": True,
            "republish": {"src": "channel.inbox.>", "dest": "leak.>"},
            "description": "an operator's words",
        }
    )
    drifted = [finding for finding in await examine(js, CONFIG) if finding.drift]
    assert [finding.stream for finding in drifted] == ["HUB_INBOX"]
    assert {drift.field for drift in drifted[0].drift} == {
        "allow_rollup_hdrs",
        "allow_direct",
        "allow_atomic",
        "allow_batched",
        "republish",
    }
    await streams.ensure(js, CONFIG)
    assert all(finding.is_fine for finding in await examine(js, CONFIG))
    assert (await js.stream_info("HUB_INBOX"))["config"]["description"] == "an operator's words"


async def test_two_routers_that_start_at_once_make_one_set(connect: Connect) -> None:
    connections = [await connect() for _ in range(4)]
    standings = await asyncio.gather(*(streams.ensure(JetStreamApi(connection), CONFIG) for connection in connections))
    assert len({tuple(state.created for state in standing.streams) for standing in standings}) == 1


CANNOT_CHANGE: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    # stream, made with, asked config, the field that is named, what is shown of both
    ("HUB_INGRESS", {"retention": "limits"}, {}, "retention", 'retention is "limits", asked was "workqueue"'),
    ("HUB_INBOX", {"retention": "workqueue", "discard": "new"}, {}, "retention", 'is "workqueue", asked was "limits"'),
    ("HUB_TASKS", {}, {"tasks": {"storage": "memory"}}, "storage", 'storage is "file", asked was "memory"'),
    ("HUB_INBOX", {}, {"inbox": {"replicas": 3}}, "num_replicas", "num_replicas is 1, asked was 3"),
    ("HUB_INBOX", {"sealed": True, "subjects": []}, {}, "sealed", "sealed is true, asked was false"),
    ("HUB_INBOX", {"allow_msg_ttl": True}, {}, "allow_msg_ttl", "allow_msg_ttl is true, asked was false"),
    ("HUB_INBOX", {"deny_delete": True}, {}, "deny_delete", "deny_delete is true, asked was false"),
    ("HUB_INBOX", {"allow_msg_counter": True}, {}, "allow_msg_counter", "asked was false"),
]


@pytest.mark.parametrize(("stream", "made", "asked", "field", "shown"), CANNOT_CHANGE)
async def test_what_jetstream_refuses_to_change_ends_in_one_clear_line(
    js: JetStreamApi, stream: str, made: dict[str, Any], asked: dict[str, Any], field: str, shown: str
) -> None:
    role = next(role for role in ROLES if getattr(CONFIG, role).name == stream)
    blueprint = {**stream_blueprint(role, CONFIG), **made}
    if made.get("sealed"):
        await js.create_stream(stream_blueprint(role, CONFIG))
        await js.update_stream({**stream_blueprint(role, CONFIG), "sealed": True})
    else:
        await js.create_stream(blueprint)
    before = (await js.stream_info(stream))["config"]
    with pytest.raises(StreamRefused) as caught:
        await streams.ensure(js, configured(**asked))
    assert caught.value.code == "config"
    assert [drift.field for drift in caught.value.drift if drift.field == field] == [field]
    text = str(caught.value)
    assert text.startswith(f"stream {stream}: ")
    assert shown in text
    assert "delete the stream" in text or "set replicas to 1" in text
    assert "\n" not in text
    assert (await js.stream_info(stream))["config"] == before


async def test_more_replicas_than_servers_are_refused_at_the_first_start_too(js: JetStreamApi) -> None:
    with pytest.raises(StreamRefused, match=r"HUB_INGRESS: num_replicas is null, asked was 3: .*set replicas to 1"):
        await streams.ensure(js, configured(ingress={"replicas": 3}))


async def test_a_renamed_stream_is_refused_and_names_the_old_one(js: JetStreamApi) -> None:
    await streams.ensure(js, CONFIG)
    with pytest.raises(StreamRefused) as caught:
        await streams.ensure(js, configured(tasks={"name": "TASKS_2"}))
    text = str(caught.value)
    assert 'stream TASKS_2: name is "HUB_TASKS", asked was "TASKS_2"' in text
    assert "JetStream cannot rename a stream" in text


async def test_a_renamed_router_consumer_beside_the_old_one_is_refused(js: JetStreamApi) -> None:
    await streams.ensure(js, CONFIG)
    with pytest.raises(StreamRefused) as caught:
        await streams.ensure(js, configured(router_consumer="router2"))
    text = str(caught.value)
    assert 'stream HUB_INGRESS: router_consumer is "router", asked was "router2"' in text
    assert "nats consumer rm HUB_INGRESS router" in text
    assert await js.consumer_names("HUB_INGRESS") == ["router"]


async def test_a_router_consumer_that_cannot_be_changed_is_refused(js: JetStreamApi) -> None:
    await js.create_stream(stream_blueprint("ingress", CONFIG))
    await js.create_consumer("HUB_INGRESS", {**router_blueprint(CONFIG), "replay_policy": "original"})
    with pytest.raises(StreamRefused) as caught:
        await streams.ensure(js, CONFIG)
    text = str(caught.value)
    assert text.startswith('consumer router on stream HUB_INGRESS: replay_policy is "original", asked was "instant"')
    assert "nats consumer rm HUB_INGRESS router" in text


async def test_smaller_limits_are_said_before_they_delete(js: JetStreamApi) -> None:
    await streams.ensure(js, CONFIG)
    with structlog.testing.capture_logs() as logs:
        await streams.ensure(js, configured(inbox={"max_msgs": 3}))
    warned = [entry for entry in logs if entry["log_level"] == "warning"]
    assert [(entry["stream"], entry["fields"]) for entry in warned] == [("HUB_INBOX", ["max_msgs is -1, asked was 3"])]


async def test_a_lost_store_is_made_again_and_said_loudly(
    nats_server: NatsServer, js: JetStreamApi, hub: Connection
) -> None:
    before = await streams.ensure(js, CONFIG)
    await hub.request("channel.inbox.bob", b"x", timeout_secs=5)
    reconnected = asyncio.Event()

    async def on_reconnect() -> None:
        reconnected.set()

    hub.on_reconnect(on_reconnect)
    await nats_server.restart(lose_store=True)
    await asyncio.wait_for(reconnected.wait(), 10)
    with structlog.testing.capture_logs() as logs:
        now = await streams.keep(js, CONFIG, before)
    assert now.lost == ("HUB_INGRESS", "HUB_INBOX", "HUB_TASKS")
    assert [entry["stream"] for entry in logs if entry["log_level"] == "error"] == list(now.lost)
    assert all(finding.is_fine for finding in await examine(js, CONFIG))


async def test_a_restart_on_the_same_store_loses_nothing_and_says_nothing(
    nats_server: NatsServer, js: JetStreamApi, hub: Connection
) -> None:
    before = await streams.ensure(js, CONFIG)
    await hub.request("channel.inbox.bob", b"x", timeout_secs=5)
    restarted = asyncio.Event()

    async def on_reconnect() -> None:
        restarted.set()

    hub.on_reconnect(on_reconnect)
    await nats_server.restart()
    await asyncio.wait_for(restarted.wait(), 10)
    with structlog.testing.capture_logs() as logs:
        now = await streams.keep(js, CONFIG, before)
    assert now.lost == ()
    assert now.streams[1].last_seq == 1
    assert [entry for entry in logs if entry["log_level"] == "error"] == []


async def test_an_older_copy_of_a_stream_counts_as_lost(js: JetStreamApi) -> None:
    before = await streams.ensure(js, CONFIG)
    ahead = streams.Standing(
        (
            before.streams[0],
            streams.StreamState("HUB_INBOX", before.streams[1].created, 1, 99, False),
            before.streams[2],
        )
    )
    assert (await streams.keep(js, CONFIG, ahead)).lost == ("HUB_INBOX",)


async def test_verify_waits_for_the_router_to_make_the_streams(js: JetStreamApi, connect: Connect) -> None:
    verifying = asyncio.create_task(streams.verify(js, CONFIG, deadline_secs=10))
    await streams.ensure(JetStreamApi(await connect()), CONFIG)
    findings = await verifying
    assert [finding.stream for finding in findings if not finding.consumer] == ["HUB_INGRESS", "HUB_INBOX", "HUB_TASKS"]


async def test_verify_says_which_stream_is_missing_at_its_deadline(js: JetStreamApi) -> None:
    with pytest.raises(StreamMissing, match=r"stream HUB_INGRESS.*start a router"):
        await streams.verify(js, CONFIG, deadline_secs=0.3)


async def test_verify_only_warns_of_other_limits_but_refuses_a_dangerous_stream(js: JetStreamApi) -> None:
    await streams.ensure(js, configured(inbox={"max_age_secs": 1000}))
    with structlog.testing.capture_logs() as logs:
        await streams.verify(js, CONFIG, deadline_secs=0)
    assert [entry["stream"] for entry in logs if entry["log_level"] == "warning"] == ["HUB_INBOX"]
    await js.update_stream({**stream_blueprint("tasks", CONFIG), "allow_rollup_hdrs": True})
    with pytest.raises(StreamRefused, match="HUB_TASKS: allow_rollup_hdrs is true"):
        await streams.verify(js, CONFIG, deadline_secs=0.1)


@pytest.mark.parametrize(
    "options", [{"jetstream": False}, {"config": "accounts {A {users: [{user: a, password: a}]}}"}]
)
async def test_a_server_without_jetstream_is_said_to_be_one(
    start_nats: StartNats, connect: Connect, options: dict[str, Any]
) -> None:
    server = await start_nats(**options)
    login = {} if "jetstream" in options else {"user": "a", "password": "a"}
    js = JetStreamApi(await connect(server, **login))
    with pytest.raises(JetStreamDisabled, match=r"stream HUB_INGRESS: look up: .*jetstream \{ store_dir"):
        await streams.ensure(js, CONFIG)


async def test_a_hub_that_may_not_is_told_so_at_once(start_nats: StartNats, connect: Connect) -> None:
    server = await start_nats(config='authorization {users: [{user: a, password: a, permissions: {publish: ["x"]}}]}')
    js = JetStreamApi(await connect(server, user="a", password="a"))
    async with asyncio.timeout(2):
        with pytest.raises(PermissionDenied):
            await streams.ensure(js, CONFIG)
        with pytest.raises(PermissionDenied):
            await streams.verify(js, CONFIG)


LIMITS = [
    ("max_bytes_required: true", {}, "max_bytes_required"),
    ("max_file: 1MB", {"ingress": {"max_bytes": 10**7}}, "storage"),
    ("max_streams: 1", {}, "max_streams"),
    ("max_mem: 0", {"ingress": {"storage": "memory", "max_bytes": 10**6}}, "memory"),
    ("max_ack_pending: 100", {}, "max_ack_pending"),
]


@pytest.mark.parametrize(("limit", "asked", "name"), LIMITS)
async def test_an_accounts_quota_is_named(
    start_nats: StartNats, connect: Connect, limit: str, asked: dict[str, Any], name: str
) -> None:
    limits = {"max_file": "1GB", "max_mem": "1GB", **dict([limit.split(": ")])}
    lines = ", ".join(f"{key}: {value}" for key, value in limits.items())
    server = await start_nats(config=f"accounts {{Q {{jetstream: {{{lines}}}, users: [{{user: q, password: q}}]}}}}")
    js = JetStreamApi(await connect(server, user="q", password="q"))
    with pytest.raises(QuotaExceeded) as caught:
        await streams.ensure(js, configured(**asked))
    assert QUOTAS[caught.value.err_code][0] == name


async def test_a_refused_create_of_a_consumer_leaves_the_one_that_is_there(js: JetStreamApi) -> None:
    await streams.ensure(js, CONFIG)
    await js.create_consumer("HUB_INBOX", inbox_blueprint("bob", CONFIG))
    before = await js.consumer_info("HUB_INBOX", "inbox-bob")
    with pytest.raises(Exception, match="10148"):
        await js.create_consumer("HUB_INBOX", {**inbox_blueprint("bob", CONFIG), "ack_wait": 10**9})
    after = await js.consumer_info("HUB_INBOX", "inbox-bob")
    assert after["config"] == before["config"]
    assert after["created"] == before["created"]


VERSIONS = [
    ("2.13.9", False),
    ("1.99.99", False),
    ("2.14.0", True),
    ("2.14.0-RC.1", True),
    ("3.0.0", True),
    ("odd", True),
]


@pytest.mark.parametrize(("version", "is_taken"), VERSIONS)
async def test_a_server_that_is_too_old_is_refused_with_the_reason(
    js: JetStreamApi, hub: Connection, monkeypatch: pytest.MonkeyPatch, version: str, *, is_taken: bool
) -> None:
    monkeypatch.setattr(Connection, "server_version", f"<nats server v{version}>")
    if is_taken:
        js.require_server()
    else:
        with pytest.raises(ServerTooOld, match=rf"nats-server {version} is too old.*2\.14\.0 or newer.*refused create"):
            await streams.ensure(js, CONFIG)
        assert await js.streams_on("hub.pub.>") == []
    assert SERVER_FLOOR == (2, 14, 0)
