"""The inspector: what the doctor and those who wait for the streams see of them. It changes nothing."""

import msgspec

from hub.delivery import blueprints
from hub.delivery.blueprints import ROLES, StreamRole
from hub.delivery.config import DeliveryConfig
from hub.delivery.jetstream import JetStreamApi
from hub.delivery.refusals import ConsumerMissing, FieldDrift, StreamMissing


class StreamFinding(msgspec.Struct, frozen=True):
    """What the doctor sees of one stream, or of the router's consumer on it.

    Attributes:
        role: which of the three.
        stream: its name.
        consumer: the consumer's name; empty when it is about the stream.
        is_missing: it is not there.
        drift: how it differs from the config; empty when it is as asked.
    """

    role: StreamRole
    stream: str
    consumer: str = ""
    is_missing: bool = False
    drift: tuple[FieldDrift, ...] = ()

    @property
    def is_fine(self) -> bool:
        """Is it there, and as asked?"""
        return not self.is_missing and not self.drift


async def examine(js: JetStreamApi, config: DeliveryConfig) -> list[StreamFinding]:
    """Look at the three streams and the router's consumer and change nothing.

    Raises:
        JetStreamDisabled, PermissionDenied, RequestTimedOut: it could not look.
    """
    findings = []
    for role in ROLES:
        wanted = blueprints.stream_blueprint(role, config)
        stream = wanted["name"]
        try:
            found = (await js.stream_info(stream))["config"]
        except StreamMissing:
            findings.append(StreamFinding(role, stream, is_missing=True))
            continue
        findings.append(StreamFinding(role, stream, drift=tuple(blueprints.stream_drift(found, wanted))))
        if role == "ingress":
            findings.append(await _examine_router_consumer(js, config))
    return findings


async def _examine_router_consumer(js: JetStreamApi, config: DeliveryConfig) -> StreamFinding:
    stream, consumer = config.ingress.name, config.router_consumer
    try:
        found = (await js.consumer_info(stream, consumer))["config"]
    except (ConsumerMissing, StreamMissing):
        return StreamFinding("ingress", stream, consumer, is_missing=True)
    drift = blueprints.consumer_drift(found, blueprints.router_blueprint(config))
    return StreamFinding("ingress", stream, consumer, drift=tuple(drift))
