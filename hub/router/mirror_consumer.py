"""The durable consumer of a mirror: one a storage, made again where a restored storage stands (contract §3.2)."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from hub.delivery.config import UNLIMITED, DeliveryConfig
from hub.delivery.consumers import ensure_consumer
from hub.delivery.jetstream import JetStreamApi
from hub.delivery.refusals import ConsumerMissing
from hub.storage.records import Position

log = structlog.get_logger(__name__)

OUTSTANDING: Final = 8192
"""How far behind the storage's newest position batches of other routers can be uncommitted: a consumer that is made
again starts this many messages earlier, and the repeats are dropped."""


def consumer_name(storage_id: str) -> str:
    """The mirror's durable name: one a storage."""
    return f"mirror-{storage_id}"


def blueprint(storage_id: str, config: DeliveryConfig, start_seq: int | None) -> dict[str, Any]:
    """The full config of the mirror's consumer; `start_seq` None is all that is retained."""
    name = consumer_name(storage_id)
    start: dict[str, Any] = {"deliver_policy": "all"}
    if start_seq is not None:
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": start_seq}
    return {
        **start,
        "name": name,
        "durable_name": name,
        "ack_policy": "explicit",
        "ack_wait": config.ack_wait_secs * 1_000_000_000,
        "max_deliver": UNLIMITED,
        "max_ack_pending": OUTSTANDING,
        "replay_policy": "instant",
        "num_replicas": 0,
        "mem_storage": False,
    }


async def ensure(
    js: JetStreamApi,
    config: DeliveryConfig,
    *,
    stream: str,
    storage_id: str,
    read_position: Callable[[str], Awaitable[Position | None]],
) -> datetime:
    """Make the mirror's consumer, or make it again where it stands ahead of the storage; looks first.

    Args:
        stream: the stream's name.
        storage_id: 8 hex digits, made with the database.
        read_position: tells how far the storage is in a stream.

    Returns:
        When the stream was made, for positions.

    Raises:
        As `hub.delivery.consumers`, and what `read_position` raises.
    """
    name = consumer_name(storage_id)
    # The consumer first: other routers commit and then ack, so that what is read later is never behind what it says.
    try:
        found = await js.consumer_info(stream, name)
    except ConsumerMissing:
        found = None
    info = await js.stream_info(stream)
    created = msgspec.convert(info["created"], datetime)
    position = await read_position(stream)
    known = position if position is not None and position.created == created else None
    start_seq = max(1, known.sequence + 1 - OUTSTANDING) if known is not None else None
    if found is not None:
        floor = int(found["ack_floor"]["stream_seq"])
        stored_to = max(known.sequence if known is not None else 0, int(info["state"]["first_seq"]) - 1)
        if floor > stored_to:
            log.warning(
                "the mirror's consumer stands ahead of the storage (a restored backup?): made again",
                stream=stream,
                consumer=name,
                consumer_at=floor,
                storage_at=stored_to,
            )
            await js.delete_consumer(stream, name)
    await ensure_consumer(js, stream, blueprint(storage_id, config, start_seq))
    return created
