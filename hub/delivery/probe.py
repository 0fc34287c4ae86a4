"""The probe: looks at server, hub, streams, consumers and grants, and changes nothing.

The one place that feeds the doctor, readiness, status and `$SRV`. What this identity may not see is said, not alarmed.
"""

import asyncio
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal

from hub.delivery import diagnosis, inspector
from hub.delivery.config import DeliveryConfig
from hub.delivery.connection import Connection
from hub.delivery.diagnosis import ConsumerState
from hub.delivery.errors import DeliveryError
from hub.delivery.grants import StreamNames, look_at_grants, not_visible
from hub.delivery.inbox_look import InboxLook, look_up
from hub.delivery.jetstream import JetStreamApi
from hub.delivery.refusals import ConsumerMissing, JetStreamDisabled, ServerTooOld, StreamMissing
from hub.delivery.report import Finding, Mode, Report, counted
from hub.delivery.services import ATTACH, ROUTER, Service, described, roll_call
from hub.protocol import subjects

_CONFIRM_SECS: Final = 0.3  # a router asks again within a round trip

Told = Literal["auto", "core", "durable"]


async def probe(
    connection: Connection,
    config: DeliveryConfig,
    *,
    mode: Told = "auto",
    is_light: bool = False,
    inboxes: Iterable[str] = (),
) -> Report:
    """Look at everything that delivery stands on.

    Args:
        connection: with or without an identity; that of an agent sees little, and says so.
        config: what the streams should be.
        mode: what the hub is; `core` makes no JetStream request of any kind, `auto` finds out.
        is_light: for a hub's own look every few seconds: no roll call, no grants, inboxes only as they are listed.
        inboxes: identities whose inboxes are shown by name, whatever their state.

    Returns:
        The report. What goes wrong while looking is a finding in it; this raises only what is a mistake of ours.
    """
    if not connection.is_connected:
        text = f"{connection.settings.shown_servers}: disconnected, reconnecting ({connection.last_error})"
        return Report("unknown", (Finding("server", "fail", text),))
    began = time.perf_counter()  # the loop's clock counts in milliseconds
    try:
        await connection.check_health()
    except DeliveryError as error:
        return Report("unknown", (Finding("server", "fail", f"{connection.settings.shown_servers}: {error}"),))
    rtt_secs = time.perf_counter() - began
    look = _Look(connection, config, inboxes)
    services: list[Service] = []
    if not is_light:
        services = await look.hub()
    look.mode = _mode(mode, services)
    if look.mode != "core":
        await look.jetstream(is_told=mode == "durable")
    look.server(rtt_secs)
    if not is_light:
        look.judge_hub(services)
    if mode == "core":
        look.say("jetstream", "core mode: no JetStream request was made")
    elif look.mode == "core":
        await look.leftover()
    elif look.has_streams:
        await look.inboxes(is_light=is_light)
    if connection.identity is not None and not is_light:
        await look.grants()
    return Report(look.mode, tuple(look.findings), look.now)


def _mode(told: Told, services: list[Service]) -> Mode:
    if told != "auto":
        return told
    modes = {service.mode for service in services if service.name == ROUTER}
    return "core" if modes == {"core"} else "durable" if "durable" in modes else "unknown"


class _Look:
    """One look: what was found so far."""

    def __init__(self, connection: Connection, config: DeliveryConfig, inboxes: Iterable[str]) -> None:
        self.mode: Mode = "unknown"
        self.findings: list[Finding] = []
        self.now: datetime | None = None
        self.has_streams = False
        self._is_hidden = False  # the streams may be there, and this identity may not look
        self._connection = connection
        self._config = config
        self._js = JetStreamApi(connection)
        self._wanted = list(dict.fromkeys([*inboxes, *([connection.identity] if connection.identity else [])]))
        self._roll_denied: DeliveryError | None = None

    def say(self, name: str, text: str) -> None:
        """Note something that is fine."""
        self.findings.append(Finding(name, "ok", text))

    # Server and hub

    def server(self, rtt_secs: float) -> None:
        """The server: first in the report, once it is known what is asked of it."""
        connection = self._connection
        version, most = connection.server_version, int(connection.client.max_payload)
        data = {"version": version, "rtt_ms": round(rtt_secs * 1000, 3), "max_payload": most}
        where = f"nats-server {version} at {connection.settings.shown_servers}"
        finding = Finding(
            "server", "ok", f"{where}, round trip {rtt_secs * 1000:.1f} ms, messages to {most} bytes", data
        )
        if self.mode != "core":
            try:
                self._js.require_server()
            except ServerTooOld as error:
                finding = Finding("server", "fail", str(error), data)
        self.findings.insert(0, finding)

    async def hub(self) -> list[Service]:
        """Which routers and responders answer."""
        try:
            return await roll_call(self._connection)
        except DeliveryError as error:
            self._roll_denied = error
            return []

    def judge_hub(self, services: list[Service]) -> None:
        """Is there a hub at all? Stands behind the server in the report."""
        if self._roll_denied is not None:
            self.findings.insert(1, not_visible("hub", self._roll_denied, self._connection.identity))
            return
        routers = [service for service in services if service.name == ROUTER]
        responders = [service for service in services if service.name == ATTACH]
        data = described(services)
        present = f"{counted(len(routers), 'router')}, {counted(len(responders), 'attach responder')}"
        modes = {service.mode for service in routers}
        start = "start `hub-server" + (" --durable`" if self.mode == "durable" else "` or `hub-server --durable`")
        if {"core", "durable"} <= modes:
            text = f"{present}: core and durable routers side by side take each other's messages: stop one kind"
            finding = Finding("hub", "fail", text, data)
        elif not routers:
            waits = "what is sent is stored and waits" if self.has_streams else "nothing that is sent arrives"
            finding = Finding("hub", "fail", f"no router answers: {waits}; {start}", data)
        elif self.mode == "durable" and not responders:
            text = f"{present}: inboxes that were never attached cannot be; start `python -m hub attach --durable`"
            finding = Finding("hub", "warn", text, data)
        else:
            finding = Finding("hub", "ok", f"{present}, {self.mode}", data)
        self.findings.insert(1, finding)

    # JetStream

    async def jetstream(self, *, is_told: bool) -> None:
        """The three streams, the routers' consumer, the age of what waits."""
        config = self._config
        try:
            found = await inspector.examine(self._js, config)
        except JetStreamDisabled as error:
            level: Literal["ok", "fail"] = "fail" if is_told or self.mode == "durable" else "ok"
            self.findings.append(Finding("jetstream", level, str(error)))
            return
        except DeliveryError as error:
            self._is_hidden = True
            self.findings.append(not_visible("streams", error, self._connection.identity))
            return
        self.say("jetstream", f"answers on {self._connection.settings.js_prefix}")
        if self.mode == "unknown" and all(each.is_missing for each in found):
            self.say("streams", "none of the hub's streams is there: no durable hub ran here")
            return
        self.has_streams = True
        self.mode = "durable"
        for each in found:
            await self._stream(each)

    async def _stream(self, each: inspector.StreamFinding) -> None:
        if each.consumer:
            info = None if each.is_missing else await self._consumer(each.stream, each.consumer)
            if info is None or each.drift:
                self.findings.append(diagnosis.judge_stream(each, None))
            if info is not None:
                self.findings.append(diagnosis.judge_router(await self._router(each.stream, each.consumer, info)))
            return
        try:
            stream = None if each.is_missing else await self._js.stream_info(each.stream)
        except DeliveryError as error:
            self.findings.append(not_visible(f"stream {each.stream}", error, self._connection.identity))
            return
        self.findings.append(diagnosis.judge_stream(each, stream))
        if stream is not None:
            self.now = diagnosis.moment(stream.get("ts")) or datetime.now(UTC)
            if each.role == "ingress":
                self.findings.append(diagnosis.judge_ingress_age(stream, self.now))

    async def _router(self, stream: str, consumer: str, info: dict[str, Any]) -> ConsumerState:
        """The routers' consumer; between two pulls of a router nobody asks, so that is looked at twice."""
        state = await look_up(self._js, stream, info, subjects.INGRESS_ALL)
        if state.is_unattended:
            await asyncio.sleep(_CONFIRM_SECS)
            again = await self._consumer(stream, consumer)
            if again is not None:
                state = await look_up(self._js, stream, again, subjects.INGRESS_ALL)
        return state

    async def _consumer(self, stream: str, consumer: str) -> dict[str, Any] | None:
        try:
            return await self._js.consumer_info(stream, consumer)
        except (ConsumerMissing, StreamMissing):
            return None

    async def inboxes(self, *, is_light: bool) -> None:
        """Inboxes and the mirrors of history."""
        look = InboxLook(self._js, self._config, wanted=self._wanted, identity=self._connection.identity)
        self.findings += await look.findings(is_light=is_light)

    async def leftover(self) -> None:
        """Core routers beside a stream that captures what is sent: all of it would be routed again later."""
        stream = self._config.ingress.name
        try:
            info = await self._js.stream_info(stream)
        except DeliveryError:
            return  # it is not there, or this identity may not look
        text = (
            f"core routers run and {stream} still captures what is sent ({info['state']['messages']} messages): a "
            "durable router would route it all again; start the hub with --durable, or delete that stream"
        )
        self.findings.append(Finding(f"stream {stream}", "fail", text, {"messages": info["state"]["messages"]}))

    # Grants

    async def grants(self) -> None:
        """May this identity do what an agent must?"""
        identity, settings = self._connection.identity, self._connection.settings
        assert identity is not None
        streams: StreamNames | None = None
        if self.has_streams:
            streams = StreamNames(self._config.inbox.name, self._config.tasks.name)
        elif self.mode == "durable" or self._is_hidden:
            streams = StreamNames(settings.inbox_stream, settings.tasks_stream)
        is_durable = self.mode == "durable"
        findings = await look_at_grants(self._connection, identity, streams, is_durable=is_durable)
        missing = [finding for finding in findings if finding.level == "fail"]
        if self.has_streams and missing:
            # Who may look into the streams and not do what an agent does is an operator.
            lacks = ", ".join(finding.name.removeprefix("grant ") for finding in missing)
            text = f"{identity} sees the streams as an operator does; not granted, and needed by agents only: {lacks}"
            findings = [Finding("permissions", "ok", text, {"identity": identity, "lacks": lacks.split(", ")})]
        self.findings += findings
