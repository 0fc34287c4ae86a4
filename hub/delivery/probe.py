"""The probe: looks at server, hub, streams, consumers and grants, and changes nothing.

The one place that feeds the doctor, readiness, status and `$SRV`. What this identity may not see is said, not alarmed.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from hub.delivery import diagnosis, inspector
from hub.delivery.config import DeliveryConfig
from hub.delivery.connection import Connection
from hub.delivery.diagnosis import ConsumerState
from hub.delivery.errors import DeliveryError, PermissionDenied
from hub.delivery.grants import StreamNames, look_at_grants, not_visible
from hub.delivery.jetstream import JetStreamApi
from hub.delivery.refusals import ConsumerMissing, JetStreamDisabled, ServerTooOld, StreamMissing
from hub.delivery.report import Finding, Mode, Report, counted
from hub.delivery.services import ATTACH, ROUTER, Service, described, roll_call
from hub.protocol import names, subjects

Told = Literal["auto", "core", "durable"]

_NANOS: Final = 1_000_000_000
_INBOX_PREFIX: Final = "inbox-"
_MIRROR_PREFIX: Final = "mirror-"
_MOST_INBOXES: Final = 2048  # 8 pages; a look must not take minutes where there are a million
_MOST_ALONE: Final = 64  # looked up one by one, where the list is not allowed
_MOST_OLDEST: Final = 32  # inboxes whose oldest message is looked up: a request each
_MOST_SHOWN: Final = 20


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
    try:
        rtt_secs = await connection.check_health()
    except DeliveryError as error:
        return Report("unknown", (Finding("server", "fail", f"{connection.settings.shown_servers}: {error}"),))
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
    if look.mode == "core":
        look.say("jetstream", "core mode: no JetStream request was made")
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
                self.findings.append(diagnosis.judge_router(await self._state(each.stream, info, subjects.INGRESS_ALL)))
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

    async def _consumer(self, stream: str, consumer: str) -> dict[str, Any] | None:
        try:
            return await self._js.consumer_info(stream, consumer)
        except (ConsumerMissing, StreamMissing):
            return None

    async def _state(
        self, stream: str, info: dict[str, Any], subject: str, *, with_oldest: bool = True
    ) -> ConsumerState:
        """A consumer's state, and when there is a reason to look, the age of its oldest message that is not acked."""
        now = diagnosis.moment(info.get("ts")) or self.now or datetime.now(UTC)
        state = diagnosis.consumer_state(info, now)
        if not with_oldest or not state.unread:
            return state
        try:
            message = await self._js.next_message(stream, subject, state.floor_seq + 1)
        except DeliveryError:
            return state  # an operator may not read messages: the state goes without an age
        if message is None:
            return state
        age = diagnosis.age_secs(message.get("time"), now)
        return msgspec.structs.replace(state, oldest_seq=int(message["seq"]), oldest_secs=age)

    # Inboxes and mirrors

    async def inboxes(self, *, is_light: bool) -> None:
        """Every identity's inbox in one line, and those by name that somebody must look at."""
        stream = self._config.inbox.name
        try:
            infos, total = await self._listed(stream)
        except (JetStreamDisabled, StreamMissing):
            return  # said already
        except PermissionDenied as error:
            await self._inboxes_alone(stream, error)
        except DeliveryError as error:
            self.findings.append(not_visible("inboxes", error, self._connection.identity))
        else:
            await self._judge_inboxes(stream, infos, total)
            if not is_light:
                await self._unattached(stream, infos, total)
            await self._mirrors(stream, infos)
            await self._tasks_mirrors()

    async def _listed(self, stream: str) -> tuple[list[dict[str, Any]], int]:
        infos: list[dict[str, Any]] = []
        total = 1
        while len(infos) < min(total, _MOST_INBOXES):
            page, total = await self._js.consumer_page(stream, len(infos))
            if not page:
                break
            infos += page
        return infos, max(total, len(infos)) if infos else 0

    async def _inboxes_alone(self, stream: str, denied: PermissionDenied) -> None:
        """Where consumers may be looked up and not listed: those of the identities that have mail, or were named."""
        try:
            held = await self._js.subject_counts(stream, subjects.INBOX_ALL)
            owners = sorted(held, key=held.__getitem__, reverse=True)
            identities = [subject.rpartition(".")[2] for subject in owners][:_MOST_ALONE]
            infos = []
            for identity in dict.fromkeys([*self._wanted, *identities]):
                info = await self._consumer(stream, subjects.inbox_consumer(identity))
                if info is not None:
                    infos.append(info)
        except DeliveryError:
            self.findings.append(not_visible("inboxes", denied, self._connection.identity))
            return
        await self._judge_inboxes(stream, infos, len(infos))

    async def _judge_inboxes(self, stream: str, infos: list[dict[str, Any]], total: int) -> None:
        others = sum(not info["name"].startswith(_INBOX_PREFIX) for info in infos)
        mine = [info for info in infos if info["name"].startswith(_INBOX_PREFIX)]
        mine.sort(key=lambda info: info["num_pending"] + info["num_ack_pending"], reverse=True)
        settings = self._config.inbox
        states, judged = [], []
        for place, info in enumerate(mine):
            identity = info["name"].removeprefix(_INBOX_PREFIX)
            with_oldest = place < _MOST_OLDEST or identity in self._wanted
            state = await self._state(stream, info, subjects.inbox(identity), with_oldest=with_oldest)
            states.append(state)
            limit, age = settings.max_msgs_per_subject, settings.max_age_secs
            judged.append(diagnosis.judge_inbox(identity, state, limit=limit, max_age_secs=age))
        self.findings.append(diagnosis.summary_of_inboxes(states, max(0, total - others)))
        bad, left_out = diagnosis.worst(judged, _MOST_SHOWN)
        shown = {finding.name for finding in bad}
        asked = [f for f in judged if f.name.removeprefix("inbox ") in self._wanted and f.name not in shown]
        self.findings += [*asked, *bad]
        if left_out:
            self.findings.append(Finding("inboxes", "warn", f"{left_out} more inboxes like these are not shown"))

    async def _unattached(self, stream: str, infos: list[dict[str, Any]], total: int) -> None:
        if total > len(infos):
            return  # who has a consumer is not known for all
        attached = {info["name"] for info in infos}
        try:
            held = await self._js.subject_counts(stream, subjects.INBOX_ALL)
        except DeliveryError:
            return
        counts = {subject.rpartition(".")[2]: count for subject, count in held.items()}
        alone = {
            identity: count
            for identity, count in counts.items()
            if names.is_token(identity) and subjects.inbox_consumer(identity) not in attached
        }
        self.findings += diagnosis.judge_unattached(alone, self._config.inbox.max_msgs_per_subject)

    async def _mirrors(self, stream: str, infos: list[dict[str, Any]]) -> None:
        for info in infos:
            if info["name"].startswith(_MIRROR_PREFIX):
                state = await self._state(stream, info, "", with_oldest=False)
                self.findings.append(diagnosis.judge_mirror(stream, state))

    async def _tasks_mirrors(self) -> None:
        stream = self._config.tasks.name
        try:
            infos, _ = await self._js.consumer_page(stream)
        except DeliveryError:
            return
        await self._mirrors(stream, infos)

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
        self.findings += await look_at_grants(self._connection, identity, streams, is_durable=is_durable)
