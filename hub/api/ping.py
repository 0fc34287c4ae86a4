"""The sign of life: `ping`, the one operation that needs no storage."""

import asyncio
import time
from typing import Final

from hub.api.authorisation import Caller
from hub.api.operation import Answer, Context, Operation
from hub.api.params import NoParams
from hub.storage import StorageUnavailable

HEALTH_SECS: Final = 1.0  # a database that takes longer to say anything is not there for who asks


async def ping(context: Context, _caller: Caller, _params: NoParams) -> Answer:
    """Say which hub answers and whether it has what it needs.

    `storage` is `ok`, `unavailable` or `none`; `orchestrator` is `none` where nothing runs waves, else what it does.
    """
    facts = context.facts
    return {
        "version": facts.version,
        "mode": facts.mode,
        "uptime_secs": round(time.monotonic() - facts.started_at, 3),
        "storage": await _storage_state(context),
        "orchestrator": "none" if context.waves is None else context.waves.describe(),
    }


async def _storage_state(context: Context) -> str:
    if not context.has_storage:
        return "none"
    if context.recorded is None:
        return "unavailable"
    try:
        async with asyncio.timeout(HEALTH_SECS):
            await context.recorded.check_health()
    except (StorageUnavailable, TimeoutError):
        return "unavailable"
    return "ok"


OPERATIONS: Final = (Operation("ping", NoParams, ping, needs_storage=False),)
