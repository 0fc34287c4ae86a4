"""The probe on a real server: it sees what is wrong, says what it may not see, and leaves no trace."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog

from hub.delivery import consumers, streams
from hub.delivery.attach import AttachResponder
from hub.delivery.config import DeliveryConfig, StreamSettings
from hub.delivery.connection import Connection
from hub.delivery.health import HealthWatch
from hub.delivery.jetstream import JetStreamApi
from hub.delivery.micro import MicroService
from hub.delivery.probe import probe
from hub.delivery.report import Finding, Report
from hub.router.metrics import RouterMetrics
from tests.integration.delivery.conftest import Connect
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

StartNats = Callable[..., Awaitable[NatsServer]]

CONFIG = DeliveryConfig(
    ack_wait_secs=30,
    inbox=StreamSettings(name="HUB_INBOX", max_age_secs=604_800, max_msgs_per_subject=10),
    inbox_max_ack_pending=4,
)


def found(report: Report, name: str) -> Finding:
    finding = report.named(name)
    assert finding is not None, f"no finding {name!r} in {[f.name for f in report.findings]}"
    return finding


async def a_service(connection: Connection, name: str, mode: str) -> MicroService:
    service = MicroService(
        connection, name=name, version="1.0.0", description="", endpoints={}, stats=dict, metadata={"mode": mode}
    )
    await service.start()
    await connection.flush()
    return service


@pytest.fixture
async def durable(hub: Connection, js: JetStreamApi) -> Connection:
    """A hub's streams, and the signs of life of a router and a responder."""
    await streams.ensure(js, CONFIG)
    await a_service(hub, "hub-router", "durable")
    responder = AttachResponder(hub, CONFIG)
    await responder.start()
    await a_service(hub, "hub-attach", "durable")
    return hub


async def mail(connection: Connection, identity: str, count: int) -> None:
    for number in range(count):
        await connection.request(f"channel.inbox.{identity}", str(number).encode(), timeout_secs=5)


async def take(connection: Connection, identity: str, count: int) -> list[Any]:
    """Have messages delivered and ack none: a reader that hangs."""
    sub = await connection.jetstream().pull_subscribe_bind(f"inbox-{identity}", "HUB_INBOX")
    return await sub.fetch(count, timeout=5)


async def test_a_healthy_hub_has_nothing_but_ok(durable: Connection, connect: Connect) -> None:
    report = await probe(durable, CONFIG)
    assert [f for f in report.findings if f.level != "ok"] == []
    assert report.mode == "durable"
    assert found(report, "hub").text == "1 router, 1 attach responder, durable"
    assert found(report, "server").data["version"].startswith("2.")


async def test_a_stalled_inbox_says_how_many_and_how_old(durable: Connection, js: JetStreamApi) -> None:
    await consumers.ensure_inbox_consumer(js, CONFIG, "bob")
    await mail(durable, "bob", 6)
    await take(durable, "bob", 4)

    async def stalled() -> Finding | None:
        finding = (await probe(durable, CONFIG, is_light=True)).named("inbox bob")
        return finding if finding is not None and finding.data["stalled"] else None

    finding = await eventually(stalled, within=10, poll=0.3)
    assert finding.level == "warn"
    assert finding.text.startswith("stalled: 4 un-acked, oldest ")
    assert finding.text.endswith(", 2 behind")
    assert finding.data["oldest_secs"] > 2
    assert found(await probe(durable, CONFIG), "inboxes").data["stalled"] == 1


async def test_at_its_limit_with_acks_coming_no_inbox_is_stalled(durable: Connection, js: JetStreamApi) -> None:
    await consumers.ensure_inbox_consumer(js, CONFIG, "bob")
    await mail(durable, "bob", 6)
    await take(durable, "bob", 4)
    report = await probe(durable, CONFIG, inboxes=["bob"])
    assert found(report, "inbox bob").level == "ok"
    assert found(report, "inbox bob").data["unacked"] == 4


async def test_a_full_inbox_is_told_and_what_it_loses_is_counted(durable: Connection, js: JetStreamApi) -> None:
    await consumers.ensure_inbox_consumer(js, CONFIG, "bob")
    await mail(durable, "bob", 10)
    metrics = RouterMetrics()
    watch = HealthWatch(durable, CONFIG, on_report=metrics.take)
    report = await watch.look()
    assert "full: 10 unread is the limit" in found(report, "inbox bob").text
    assert (metrics.inboxes["full"], metrics.inboxes["unread"], metrics.evictions.total) == (1, 10, 0)
    await mail(durable, "bob", 1)
    await watch.look()
    assert metrics.evictions.total == 1
    await mail(durable, "bob", 20)
    await watch.look()
    assert metrics.evictions.total == 11
    scrape = {s.name: s.value for family in metrics.collect() for s in family.samples if not s.labels}
    assert scrape["hub_evictions_total"] == 11
    assert scrape["hub_inboxes_full"] == 1


async def test_the_watch_says_once_that_something_begins_and_once_that_it_is_over(
    durable: Connection, js: JetStreamApi
) -> None:
    await consumers.ensure_inbox_consumer(js, CONFIG, "bob")
    await mail(durable, "bob", 10)
    watch = HealthWatch(durable, CONFIG)
    with structlog.testing.capture_logs() as lines:
        await watch.look()
        await watch.look()
        assert watch.describe()["level"] == "warn"
        assert watch.warnings()[0].startswith("inbox bob: full: 10 unread")
        await durable.jetstream().purge_stream("HUB_INBOX")
        await watch.look()
    said = [(line["about"], line["level"], line["log_level"]) for line in lines if line["event"] == "health"]
    assert said == [("inbox bob", "warn", "warning"), ("inbox bob", "ok", "info")]
    assert watch.describe() == {"level": "ok", "at": watch.report and watch.report.at, "findings": []}


async def test_the_watch_goes_on_when_the_server_is_away(durable: Connection, nats_server: NatsServer) -> None:
    watch = HealthWatch(durable, CONFIG, every_secs=0.1)
    watch.start()
    await eventually(lambda: watch.report is not None and not watch.failures())
    await nats_server.kill()
    await eventually(watch.failures)
    await nats_server.start()
    await eventually(lambda: not watch.failures(), within=20)
    await watch.stop()
    await watch.stop()
    assert not durable.is_closed


async def test_mail_for_an_identity_that_never_attached_is_shown(durable: Connection) -> None:
    await mail(durable, "carol", 3)
    assert "carol (3)" in found(await probe(durable, CONFIG), "unattached").text


async def test_what_waits_with_no_router_is_a_failure_with_its_age(hub: Connection, js: JetStreamApi) -> None:
    await streams.ensure(js, CONFIG)
    await hub.request("hub.pub.alice.room", b"{}", timeout_secs=5)
    report = await probe(hub, CONFIG)
    assert found(report, "hub").level == "fail"
    assert "what is sent is stored and waits" in found(report, "hub").text
    assert found(report, "ingress").data["waiting"] == 1
    assert "1 message wait" in found(report, "consumer router").text
    assert found(report, "consumer router").level == "fail"


async def test_drift_and_missing_streams_are_told_apart(durable: Connection, js: JetStreamApi) -> None:
    other = DeliveryConfig(tasks=StreamSettings(name="HUB_TASKS", max_age_secs=60), duplicate_window_secs=60)
    report = await probe(durable, other)
    assert found(report, "stream HUB_TASKS").level == "warn"
    assert "max_age is 86400000000000, asked was 60000000000" in found(report, "stream HUB_TASKS").text
    await durable.jetstream().delete_stream("HUB_TASKS")
    assert "is not there" in found(await probe(durable, CONFIG), "stream HUB_TASKS").text


async def test_an_agent_may_do_what_it_must_and_the_check_leaves_no_trace(
    durable: Connection, js: JetStreamApi, connect: Connect
) -> None:
    bob = await connect(identity="bob")
    report = await probe(bob, CONFIG)
    finding = found(report, "permissions")
    assert finding.level == "ok"
    assert finding.data["works"] == [
        "receive",
        "attach",
        "send",
        "pull (not attached yet)",
        "ack",
        "read task channels",
    ]
    states = [(await js.stream_info(name))["state"] for name in ("HUB_INGRESS", "HUB_INBOX", "HUB_TASKS")]
    assert [state["last_seq"] for state in states] == [0, 0, 0]
    assert await js.consumer_names("HUB_INBOX") == []


async def test_no_hub_at_all_is_one_failure(hub: Connection) -> None:
    report = await probe(hub, CONFIG)
    assert [f.name for f in report.findings if f.level != "ok"] == ["hub"]
    assert "nothing that is sent arrives" in found(report, "hub").text


async def test_a_server_that_is_gone_is_a_finding_and_not_an_error(hub: Connection, nats_server: NatsServer) -> None:
    await nats_server.kill()
    await eventually(lambda: not hub.is_connected)
    report = await probe(hub, CONFIG)
    assert [(f.name, f.level) for f in report.findings] == [("server", "fail")]


class TestCore:
    """A core hub: told so, or found out."""

    @pytest.fixture
    async def requests(self, connect: Connect) -> list[str]:
        """The JetStream requests that anybody makes."""
        heard: list[str] = []
        listener = await connect()

        async def note(message: Any) -> None:
            heard.append(message.subject)

        await listener.subscribe("$JS.API.>", note)
        await listener.flush()
        return heard

    async def test_told_core_it_makes_no_jetstream_request(
        self, hub: Connection, connect: Connect, requests: list[str]
    ) -> None:
        await a_service(hub, "hub-router", "core")
        bob = await connect(identity="bob")
        for report in (
            await probe(hub, CONFIG, mode="core"),
            await probe(bob, CONFIG, mode="core"),
            await HealthWatch(hub, None).look(),
        ):
            assert report.level == "ok"
        await hub.request("$JS.API.INFO", b"", timeout_secs=5)
        await eventually(lambda: requests)
        assert requests == ["$JS.API.INFO"]

    async def test_without_jetstream_a_core_hub_is_fine(self, start_nats: StartNats, connect: Connect) -> None:
        server = await start_nats(jetstream=False)
        connection = await connect(server)
        await a_service(connection, "hub-router", "core")
        report = await probe(connection, CONFIG)
        assert (report.mode, report.level) == ("core", "ok")
        assert found(await probe(connection, CONFIG, mode="durable"), "jetstream").level == "fail"

    async def test_a_stream_that_still_captures_beside_core_routers_is_a_failure(
        self, hub: Connection, js: JetStreamApi
    ) -> None:
        await streams.ensure(js, CONFIG)
        await a_service(hub, "hub-router", "core")
        finding = found(await probe(hub, CONFIG), "stream HUB_INGRESS")
        assert finding.level == "fail"
        assert "still captures" in finding.text


BOUND = """
accounts {
  HUB {
    jetstream: enabled
    users: [ {user: hub, password: hub} ]
    exports: [
      {service: "hub.pub.*.>"}
      {service: "hub.delivery.*.inbox"}
      {service: "$JS.ACK.HUB_INBOX.*.>"}
      {service: "$JS.API.CONSUMER.MSG.NEXT.HUB_INBOX.*", response_type: stream, threshold: "30s"}
      {service: "$JS.API.DIRECT.GET.HUB_TASKS", response_type: stream, threshold: "30s"}
      {service: "$JS.API.STREAM.INFO.*"}
      {service: "$JS.API.CONSUMER.INFO.*.*"}
      {stream: "channel.>"}
    ]
  }
  A_bob {
    users: [ {user: bob, password: bob, permissions: {
      publish: {allow: [GRANTS]},
      subscribe: {allow: ["_INBOX_bob.>", "channel.inbox.bob", "hub.presence.bob", "channel.task.>",
        "channel.session.>", "channel.wave.>"]} } } ]
    imports: [
      {service: {account: HUB, subject: "hub.pub.bob.>"}}
      {service: {account: HUB, subject: "hub.delivery.bob.inbox"}}
      {service: {account: HUB, subject: "$JS.ACK.HUB_INBOX.inbox-bob.>"}}
      {service: {account: HUB, subject: "$JS.API.CONSUMER.MSG.NEXT.HUB_INBOX.inbox-bob"}}
      {service: {account: HUB, subject: "$JS.API.DIRECT.GET.HUB_TASKS"}}
    ]
  }
  OPS {
    users: [ {user: operator, password: operator, permissions: {
      publish: {allow: ["JSH.API.>"]}, subscribe: {allow: ["_INBOX_operator.>", "channel.>"]} } } ]
    imports: [
      {service: {account: HUB, subject: "$JS.API.STREAM.INFO.*"}, to: "JSH.API.STREAM.INFO.$1"}
      {service: {account: HUB, subject: "$JS.API.CONSUMER.INFO.*.*"}, to: "JSH.API.CONSUMER.INFO.$1.$2"}
    ]
  }
}
"""
GRANTS = [
    "hub.pub.bob.>",
    "hub.delivery.bob.inbox",
    "$JS.API.CONSUMER.MSG.NEXT.HUB_INBOX.inbox-bob",
    "$JS.API.DIRECT.GET.HUB_TASKS",
    "$JS.ACK.HUB_INBOX.inbox-bob.>",
]


class TestBound:
    """Agents in accounts of their own see little; that is no alarm. A missing grant is one, by name."""

    @pytest.fixture
    def start_bound(self, start_nats: StartNats, connect: Connect) -> Callable[..., Awaitable[NatsServer]]:
        async def start(*, without: str = "") -> NatsServer:
            grants = json.dumps([grant for grant in GRANTS if grant != without])[1:-1]
            server = await start_nats(config=BOUND.replace("GRANTS", grants))
            hub = await connect(server, user="hub", password="hub")
            await streams.ensure(JetStreamApi(hub), CONFIG)
            await AttachResponder(hub, CONFIG).start()
            await consumers.ensure_inbox_consumer(JetStreamApi(hub), CONFIG, "bob")
            await mail(hub, "bob", 2)
            return server

        return start

    async def test_an_agent_sees_its_own_part_without_alarm(self, start_bound: Any, connect: Connect) -> None:
        server = await start_bound()
        bob = await connect(server, user="bob", password="bob", identity="bob")
        report = await probe(bob, CONFIG)
        assert report.level == "ok", report
        assert "not visible: bob may not ask" in found(report, "hub").text
        assert "not visible" in found(report, "streams").text
        assert found(report, "permissions").data["works"] == [
            "receive",
            "attach",
            "send",
            "pull",
            "ack",
            "read task channels",
        ]

    @pytest.mark.parametrize(
        ("without", "ability"),
        [
            ("hub.pub.bob.>", "send"),
            ("$JS.API.CONSUMER.MSG.NEXT.HUB_INBOX.inbox-bob", "pull"),
            ("$JS.ACK.HUB_INBOX.inbox-bob.>", "ack"),
        ],
    )
    async def test_a_missing_grant_is_a_failure_that_names_it(
        self, start_bound: Any, connect: Connect, without: str, ability: str
    ) -> None:
        server = await start_bound(without=without)
        bob = await connect(server, user="bob", password="bob", identity="bob")
        report = await probe(bob, CONFIG)
        assert [f.name for f in report.findings if f.level == "fail"] == [f"grant {ability}"]
        assert without.removesuffix(".>").lower() in found(report, f"grant {ability}").text.lower()

    async def test_an_operator_who_may_look_up_and_not_list_sees_the_inboxes_with_mail(
        self, start_bound: Any, connect: Connect
    ) -> None:
        server = await start_bound()
        operator = await connect(server, user="operator", password="operator", identity="operator", js_prefix="JSH.API")
        report = await probe(operator, CONFIG, mode="durable", inboxes=["bob"], is_light=True)
        assert "2 unread" in found(report, "inbox bob").text
        assert found(report, "inboxes").data["unread"] == 2

    async def test_what_an_agent_needs_and_an_operator_lacks_is_no_alarm(
        self, start_bound: Any, connect: Connect
    ) -> None:
        server = await start_bound()
        operator = await connect(server, user="operator", password="operator", identity="operator", js_prefix="JSH.API")
        report = await probe(operator, CONFIG, mode="durable")
        assert report.of("fail") == []
        assert "needed by agents only" in found(report, "permissions").text
