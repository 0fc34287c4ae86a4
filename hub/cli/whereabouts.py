"""The whereabouts of a worker, for whoever gives it a task: is it there, away, or did nobody ever hear of it?"""

import asyncio
from typing import Final

import msgspec

from hub.cli.moments import shown
from hub.client import ClientError, HubClient, QueryRefused
from hub.delivery.errors import DeliveryError

ASK_SECS: Final = 3.0  # the task is sent already: this is a courtesy, which nobody waits for longer


class _Seen(msgspec.Struct):
    alive: bool
    last_seen: str


async def absence(client: HubClient, worker: str) -> str | None:
    """What to know of a worker that is not there, as one line; None when it is, or when nobody can say.

    Args:
        client: asks the query API; a hub without one says nothing.
        worker: its identity.
    """
    try:
        async with asyncio.timeout(ASK_SECS):
            seen = msgspec.json.decode(
                (await client.queries.ask("agent.get", {"identity": worker}))["agent"], type=_Seen
            )
    except QueryRefused as refused:
        if refused.code != "not_found":
            return None
        return f"the hub never heard of {worker}: the task waits until a worker of that name starts; is it spelt right?"
    except (ClientError, DeliveryError, TimeoutError, KeyError, msgspec.ValidationError):
        return None
    return None if seen.alive else f"{worker} is away, last seen {shown(seen.last_seen)}: the task waits for it"
