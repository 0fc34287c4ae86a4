"""Agents: who was heard, and what they can do."""

from datetime import timedelta
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from hub.api import records
from hub.api.authorisation import Caller
from hub.api.errors import NotFound
from hub.api.operation import Answer, Context, Operation
from hub.api.pages import fit
from hub.api.params import PageParams, Params, Secs, Text, named
from hub.protocol import names


class FindParams(PageParams):
    """Of `agent.find`."""

    capabilities: Annotated[list[Text], Meta(max_length=64)] = msgspec.field(default_factory=list)
    alive_within_secs: Secs | None = None


class GetParams(Params):
    """Of `agent.get`."""

    identity: str


async def find(context: Context, _caller: Caller, params: FindParams) -> Answer:
    """Agents that have all these capabilities and were seen within so many seconds; newest registration first."""
    now = context.clock()
    alive = params.alive_within_secs
    return await fit(
        context.room,
        lambda limit, max_bytes: context.storage.agents.find(
            capabilities=params.capabilities,
            seen_since=None if alive is None else now - timedelta(seconds=alive),
            limit=limit,
            cursor=params.cursor,
            max_bytes=max_bytes,
        ),
        lambda agent: records.agent(agent, now=now),
        limit=params.limit,
        items="agents",
        what="agent",
    )


async def get(context: Context, _caller: Caller, params: GetParams) -> Answer:
    """One agent."""
    identity = named(names.identity, params.identity, "identity")
    agent = await context.storage.agents.get(identity)
    if agent is None:
        raise NotFound("agent", identity)
    return {"agent": records.agent(agent, now=context.clock())}


OPERATIONS: Final = (Operation("agent.find", FindParams, find), Operation("agent.get", GetParams, get))
