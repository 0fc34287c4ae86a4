"""The keeper of the hub's durable consumers: the routers' on the ingress, each identity's on the inbox stream."""

from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from hub.delivery import blueprints, jetstream
from hub.delivery.config import DeliveryConfig
from hub.delivery.jetstream import JetStreamApi
from hub.delivery.overtaken import Overtaken, look_and_act
from hub.delivery.refusals import (
    ConsumerMissing,
    FieldDrift,
    JetStreamError,
    QuotaExceeded,
    StreamMissing,
    StreamRefused,
)

log = structlog.get_logger(__name__)

_Refuse = Callable[[JetStreamError], Awaitable[StreamRefused]]


async def ensure_router_consumer(js: JetStreamApi, config: DeliveryConfig) -> bool:
    """Make the consumer that all routers share, or hold it to the config; looks first.

    Returns:
        True when it was made.

    Raises:
        StreamRefused: another consumer, mostly the same under an older name, reads the ingress; or JetStream does not
            change the one that is there.
    """
    stream, wanted = config.ingress.name, blueprints.router_blueprint(config)

    async def refuse(error: JetStreamError) -> StreamRefused:
        return await _router_refused(js, stream, config.router_consumer, error)

    return await _ensure(js, stream, wanted, refuse)


async def ensure_inbox_consumer(
    js: JetStreamApi, config: DeliveryConfig, identity: str, *, start_seq: int | None = None
) -> bool:
    """Make the consumer of an identity's inbox, or hold it to the config; looks first (contract §5).

    Args:
        identity: whose, validated.
        start_seq: the first sequence to deliver, used only when it is made; None is all that is retained.

    Returns:
        True when it was made.

    Raises:
        StreamRefused: JetStream does not give it the config.
        QuotaExceeded, StreamMissing, JetStreamDisabled, PermissionDenied, RequestTimedOut: as they say.
    """
    stream = config.inbox.name
    wanted = blueprints.inbox_blueprint(identity, config, start_seq=start_seq)

    async def refuse(error: JetStreamError) -> StreamRefused:
        return _refused(stream, wanted["name"], error, ())

    return await _ensure(js, stream, wanted, refuse)


async def ensure_consumer(js: JetStreamApi, stream: str, wanted: dict[str, Any]) -> bool:
    """Make a durable consumer by its blueprint, or hold it to that; looks first.

    Returns:
        True when it was made.

    Raises:
        As `ensure_inbox_consumer`.
    """

    async def refuse(error: JetStreamError) -> StreamRefused:
        return _refused(stream, wanted["name"], error, ())

    return await _ensure(js, stream, wanted, refuse)


async def _ensure(js: JetStreamApi, stream: str, wanted: dict[str, Any], refuse: _Refuse) -> bool:
    async def step() -> bool:
        try:
            info = await js.consumer_info(stream, wanted["name"])
        except ConsumerMissing:
            await _create(js, stream, wanted, refuse)
            return True
        await _hold(js, stream, info["config"], blueprints.keep_start(info["config"], wanted))
        return False

    return await look_and_act(step)


async def _create(js: JetStreamApi, stream: str, wanted: dict[str, Any], refuse: _Refuse) -> None:
    try:
        await js.create_consumer(stream, wanted)
    except (QuotaExceeded, StreamMissing):
        raise
    except JetStreamError as error:
        if error.err_code == jetstream.CONSUMER_EXISTS:
            raise Overtaken(error.what) from error
        raise await refuse(error) from error
    log.info("consumer made", stream=stream, consumer=wanted["name"])


async def _hold(js: JetStreamApi, stream: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Hold a consumer that is there to its blueprint; its position stays."""
    drift = blueprints.consumer_drift(found, wanted)
    if not drift:
        return
    try:
        await js.update_consumer(stream, blueprints.consumer_update(found, wanted))
    except ConsumerMissing as error:
        raise Overtaken(error.what) from error
    except (QuotaExceeded, StreamMissing):
        raise
    except JetStreamError as error:
        raise _refused(stream, wanted["name"], error, drift) from error
    log.info("consumer updated", stream=stream, consumer=wanted["name"], fields=[str(field) for field in drift])


def _refused(stream: str, consumer: str, error: JetStreamError, drift: list[FieldDrift] | tuple[()]) -> StreamRefused:
    return StreamRefused(
        stream,
        consumer=consumer,
        drift=drift,
        reason=error.reason,
        way_out="ask for what is there in the delivery config, or delete it "
        f"(`nats consumer rm {stream} {consumer}`): it is made again and delivers what is still stored",
    )


async def _router_refused(js: JetStreamApi, stream: str, asked: str, error: JetStreamError) -> StreamRefused:
    if error.err_code not in jetstream.WORK_QUEUE_TAKEN:
        return _refused(stream, asked, error, ())
    others = ", ".join(sorted(await js.consumer_names(stream))) or "unknown"
    return StreamRefused(
        stream,
        drift=[FieldDrift("router_consumer", others, asked)],
        reason=f"one work queue has one consumer ({error.reason})",
        way_out=f"set router_consumer to {others} in the delivery config; or stop every router, delete that consumer "
        f"(`nats consumer rm {stream} {others}`) and start again: what it had in flight is delivered again",
    )
