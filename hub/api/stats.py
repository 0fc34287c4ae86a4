"""Statistics: totals that everybody may see, and what one identity did."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from hub.api import records
from hub.api.authorisation import Caller, require_about
from hub.api.operation import Answer, Context, Operation
from hub.api.params import Params, Secs, maybe_named, named, one_of
from hub.protocol import names

INTERVALS: Final = ("minute", "hour", "day")
HOUR_SECS: Final = 3600.0
DAY_SECS: Final = 86_400.0
TOP: Final = 10


class RateParams(Params):
    """Of `stats.message_rate` and `stats.error_rate`."""

    secs: Secs = HOUR_SECS
    interval: str = "minute"


class LatencyParams(Params):
    """Of `stats.latency`."""

    secs: Secs = HOUR_SECS
    channel: str | None = None


class ActivityParams(Params):
    """Of `stats.agent_activity`."""

    identity: str
    secs: Secs = DAY_SECS


class HotspotParams(Params):
    """Of `stats.channel_hotspots`."""

    secs: Secs = HOUR_SECS
    limit: Annotated[int, Meta(ge=1, le=1000)] = TOP


async def message_rate(context: Context, _caller: Caller, params: RateParams) -> Answer:
    """Envelopes by interval."""
    interval = one_of(INTERVALS, params.interval, "interval")
    buckets = await context.storage.stats.message_rate(secs=params.secs, interval=interval)
    return {"data": [records.bucket(bucket) for bucket in buckets]}


async def error_rate(context: Context, _caller: Caller, params: RateParams) -> Answer:
    """Results with the status `error` by interval."""
    interval = one_of(INTERVALS, params.interval, "interval")
    buckets = await context.storage.stats.error_rate(secs=params.secs, interval=interval)
    return {"data": [records.bucket(bucket) for bucket in buckets]}


async def latency(context: Context, _caller: Caller, params: LatencyParams) -> Answer:
    """From a message to its first reply."""
    channel = maybe_named(names.channel, params.channel, "channel")
    return msgspec.structs.asdict(await context.storage.stats.latency(secs=params.secs, channel=channel))


async def agent_activity(context: Context, caller: Caller, params: ActivityParams) -> Answer:
    """What one identity sent and was sent."""
    identity = named(names.identity, params.identity, "identity")
    require_about("stats.agent_activity", caller, identity)
    return msgspec.structs.asdict(await context.storage.stats.agent_activity(identity, secs=params.secs))


async def channel_hotspots(context: Context, _caller: Caller, params: HotspotParams) -> Answer:
    """The channels with the most envelopes."""
    return {"hotspots": await context.storage.stats.channel_hotspots(secs=params.secs, limit=params.limit)}


OPERATIONS: Final = (
    Operation("stats.message_rate", RateParams, message_rate),
    Operation("stats.error_rate", RateParams, error_rate),
    Operation("stats.latency", LatencyParams, latency),
    Operation("stats.agent_activity", ActivityParams, agent_activity),
    Operation("stats.channel_hotspots", HotspotParams, channel_hotspots),
)
