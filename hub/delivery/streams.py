"""The keeper of the three streams: makes them, holds them to the config, waits, notices a lost store."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, retry_if_not_exception_type, stop_after_delay
from tenacity.wait import wait_exponential

from hub.delivery import blueprints, jetstream
from hub.delivery.blueprints import ROLES, StreamRole
from hub.delivery.config import DeliveryConfig
from hub.delivery.consumers import ensure_router_consumer
from hub.delivery.errors import DeliveryError, PermissionDenied
from hub.delivery.inspector import StreamFinding, examine
from hub.delivery.jetstream import JetStreamApi
from hub.delivery.overtaken import Overtaken, look_and_act
from hub.delivery.refusals import FieldDrift, JetStreamError, QuotaExceeded, StreamMissing, StreamRefused

log = structlog.get_logger(__name__)

_VERIFY_POLL_SECS: Final = 0.25  # the first waits of `verify`: a router makes the streams in well under a second
_VERIFY_POLL_MOST_SECS: Final = 2.0

_NEW_STREAM: Final = (
    "JetStream cannot change that on a stream that exists: ask for what is there, or name another stream in the "
    "delivery config, or stop the hub, delete the stream (`nats stream rm`, what it holds is lost) and start again"
)
_UNCHANGEABLE: Final = frozenset(
    {
        "allow_msg_counter",
        "allow_msg_schedules",
        "allow_msg_ttl",
        "deny_delete",
        "deny_purge",
        "max_consumers",
        "mirror",
        "persist_mode",
        "retention",
        "sealed",
        "storage",
    }
)


class StreamState(msgspec.Struct, frozen=True):
    """A stream as it was found or made.

    Attributes:
        name: its name.
        created: its creation time as JetStream writes it. With a sequence it is a position (contract §4): another
            creation time means another stream.
        first_seq, last_seq: the oldest and the newest sequence.
        was_made: True when it was not there before.
    """

    name: str
    created: str
    first_seq: int
    last_seq: int
    was_made: bool


class Standing(msgspec.Struct, frozen=True):
    """The three streams at one moment.

    Attributes:
        streams: ingress, inbox, tasks.
        lost: names of the streams that lost what they held since the standing before; only `keep` fills it.
    """

    streams: tuple[StreamState, ...]
    lost: tuple[str, ...] = ()


async def ensure(js: JetStreamApi, config: DeliveryConfig) -> Standing:
    """Make the three streams and the routers' consumer, or hold them to the config; looks first (contract §4).

    Safe in several processes at once.

    Raises:
        ServerTooOld: the server is older than 2.14.
        StreamRefused: JetStream does not give a stream or the consumer what was asked; the error names the field, what
            it is, what was asked, and the way out.
        JetStreamDisabled, QuotaExceeded, PermissionDenied, RequestTimedOut: as they say.
    """
    js.require_server()
    for settings in config.streams:
        if settings.storage == "memory":
            log.warning("stream in memory: a restart of the server loses what it holds", stream=settings.name)
    states = [await _ensure_stream(js, role, config) for role in ROLES]
    await ensure_router_consumer(js, config)
    return Standing(tuple(states))


async def keep(js: JetStreamApi, config: DeliveryConfig, before: Standing) -> Standing:
    """Call after every reconnect: `ensure`, and say loudly when the server's store was lost.

    Args:
        before: what `ensure` or `keep` returned last.

    Returns:
        The standing now; `lost` names the streams that were made again or stand behind where they stood. What they
        held is gone; mailboxes, outboxes and the history go on (contract §13).

    Raises:
        As `ensure`.
    """
    now = await ensure(js, config)
    lost = []
    for old, new in zip(before.streams, now.streams, strict=True):
        if new.name == old.name and (new.created != old.created or new.last_seq < old.last_seq):
            lost.append(new.name)
            log.error(
                "stream was lost: what it held is gone",
                stream=new.name,
                created_before=old.created,
                created=new.created,
                last_seq_before=old.last_seq,
                last_seq=new.last_seq,
                made_again=new.was_made,
            )
    return msgspec.structs.replace(now, lost=tuple(lost))


async def verify(js: JetStreamApi, config: DeliveryConfig, *, deadline_secs: float = 30.0) -> list[StreamFinding]:
    """Wait until the streams are there and safe; for processes that do not make them (attach, API).

    Another limit than this process is configured with is only warned of: the router decides the limits, and it may run
    with a newer config. Another subject, retention or flag is refused.

    Args:
        deadline_secs: how long to wait for a router to make them.

    Raises:
        ServerTooOld, PermissionDenied: at once.
        StreamMissing: at the deadline a stream is not there.
        StreamRefused: at the deadline a stream is not what a hub can stand on.
        JetStreamDisabled, RequestTimedOut: so it was until the deadline.
    """
    js.require_server()
    findings: list[StreamFinding] = []
    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type(DeliveryError) & retry_if_not_exception_type(PermissionDenied),
        stop=stop_after_delay(deadline_secs),
        wait=wait_exponential(multiplier=_VERIFY_POLL_SECS, max=_VERIFY_POLL_MOST_SECS),
        reraise=True,
    ):
        with attempt:
            findings = await examine(js, config)
            _require_safe(findings)
    for finding in findings:
        if finding.drift:
            fields = [str(field) for field in finding.drift]
            log.warning("stream is not as this process is configured", stream=finding.stream, fields=fields)
    return findings


def _require_safe(findings: Sequence[StreamFinding]) -> None:
    for finding in findings:
        if finding.consumer:
            continue  # the router's own business
        if finding.is_missing:
            advice = "start a router (`python -m hub router --durable`): it makes the streams"
            what = f"stream {finding.stream}: wait for it"
            raise StreamMissing(what, 404, jetstream.STREAM_MISSING, "it is not there", advice)
        unsafe = [field for field in finding.drift if field.field not in blueprints.LIMITS]
        if unsafe:
            raise StreamRefused(
                finding.stream,
                drift=unsafe,
                reason="a hub cannot stand on that",
                way_out="restart a router with this delivery config: it puts that right or says why it cannot",
            )


async def _ensure_stream(js: JetStreamApi, role: StreamRole, config: DeliveryConfig) -> StreamState:
    wanted = blueprints.stream_blueprint(role, config)

    async def step() -> StreamState:
        try:
            info = await js.stream_info(wanted["name"])
        except StreamMissing:
            info = await _create(js, wanted)
            return _state(info, was_made=True)
        drift = blueprints.stream_drift(info["config"], wanted)
        if drift:
            await _update(js, info["config"], wanted, drift)
            info = await js.stream_info(wanted["name"])
            _require_taken(info["config"], wanted)
        return _state(info, was_made=False)

    return await look_and_act(step)


def _state(info: dict[str, Any], *, was_made: bool) -> StreamState:
    state = info["state"]
    return StreamState(info["config"]["name"], info["created"], state["first_seq"], state["last_seq"], was_made)


async def _create(js: JetStreamApi, wanted: dict[str, Any]) -> dict[str, Any]:
    stream = wanted["name"]
    try:
        info = await js.create_stream(wanted)
    except QuotaExceeded:
        raise
    except JetStreamError as error:
        if error.err_code == jetstream.STREAM_EXISTS:
            raise Overtaken(error.what) from error
        if error.err_code == jetstream.SUBJECTS_OVERLAP:
            raise await _overlapping(js, wanted, error) from error
        raise _refused(wanted, (), error) from error
    _require_taken(info["config"], wanted)
    log.info("stream made", stream=stream, subjects=wanted["subjects"])
    return info


async def _overlapping(js: JetStreamApi, wanted: dict[str, Any], error: JetStreamError) -> StreamRefused:
    """Another stream has the subjects: mostly ours, under the name that it had before."""
    others = {name for subject in wanted["subjects"] for name in await js.streams_on(subject)}
    names = ", ".join(sorted(others)) or "unknown"
    return StreamRefused(
        wanted["name"],
        drift=[FieldDrift("name", names, wanted["name"])],
        reason=f"stream {names} captures {', '.join(wanted['subjects'])} ({error.reason})",
        way_out=f"JetStream cannot rename a stream: name {names} in the delivery config, or stop the hub, let that "
        "stream be read, delete it (`nats stream rm`, what it holds is lost) and start again",
    )


async def _update(js: JetStreamApi, found: dict[str, Any], wanted: dict[str, Any], drift: Sequence[FieldDrift]) -> None:
    stream = wanted["name"]
    smaller = blueprints.shrunk(found, wanted)
    if smaller:
        fields = [str(field) for field in smaller]
        log.warning("stream gets smaller limits: what is above them is deleted now", stream=stream, fields=fields)
    try:
        await js.update_stream(blueprints.stream_update(found, wanted))
    except QuotaExceeded:
        raise
    except StreamMissing as error:
        raise Overtaken(error.what) from error
    except JetStreamError as error:
        raise _refused(wanted, drift, error) from error
    log.info("stream updated", stream=stream, fields=[str(field) for field in drift])


def _refused(wanted: dict[str, Any], drift: Sequence[FieldDrift], error: JetStreamError) -> StreamRefused:
    """JetStream's refusal with the fields that it can be about: its own words name none of them."""
    stream = wanted["name"]
    culprits = [field for field in drift if field.field in _UNCHANGEABLE]
    if culprits:
        return StreamRefused(stream, drift=culprits, reason=error.reason, way_out=_NEW_STREAM)
    if "replicas" in error.description:
        culprits = [field for field in drift if field.field == "num_replicas"]
        culprits = culprits or [FieldDrift("num_replicas", None, wanted["num_replicas"])]
        way_out = "set replicas to 1 in the delivery config, or run a NATS cluster of at least so many servers"
        return StreamRefused(stream, drift=culprits, reason=error.reason, way_out=way_out)
    way_out = "ask for what is there in the delivery config, or delete the stream (what it holds is lost)"
    return StreamRefused(stream, drift=drift, reason=error.reason, way_out=way_out)


def _require_taken(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Read back: what JetStream says it has must be what was asked."""
    drift = blueprints.stream_drift(found, wanted)
    if drift:
        raise StreamRefused(
            wanted["name"],
            drift=drift,
            reason="JetStream took the config and reads it back otherwise",
            way_out="check that every router runs with the same delivery config, and the server's version",
        )
