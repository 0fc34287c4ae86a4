"""History: what was sent, single and in threads, and what nobody has answered."""

from typing import Final

from hub.api import records
from hub.api.authorisation import Caller, require_about
from hub.api.errors import NotFound
from hub.api.operation import Answer, Context, Operation
from hub.api.pages import encoded, fit
from hub.api.params import Depth, Limit, PageParams, Params, Time, maybe_named, named, one_of
from hub.protocol import names
from hub.protocol.envelope import KINDS
from hub.storage.records import DEFAULT_LIMIT, MAX_THREAD_DEPTH, EnvelopeFilter


class QueryParams(PageParams):
    """Of `history.query`; `since` is included, `until` is not."""

    channel: str | None = None
    sender: str | None = None
    to: str | None = None
    kind: str | None = None
    since: Time | None = None
    until: Time | None = None


class GetParams(Params):
    """Of `envelope.get`."""

    id: str
    sender: str | None = None
    to: str | None = None


class ThreadParams(Params):
    """Of `thread.get`."""

    root_id: str
    sender: str | None = None
    limit: Limit = DEFAULT_LIMIT
    max_depth: Depth = MAX_THREAD_DEPTH
    resolve: bool = False


class PendingParams(PageParams, kw_only=True):
    """Of `thread.pending`."""

    identity: str


async def query(context: Context, caller: Caller, params: QueryParams) -> Answer:
    """Envelopes that the caller may see, by filter, newest first."""
    filters = EnvelopeFilter(
        channel=maybe_named(names.channel, params.channel, "channel"),
        sender=maybe_named(names.identity, params.sender, "from"),
        to=maybe_named(names.identity, params.to, "to"),
        kind=one_of(KINDS, params.kind, "kind"),
        since=params.since,
        until=params.until,
    )
    return await fit(
        context.room,
        lambda limit, max_bytes: context.storage.envelopes.query(
            filters, visible_to=caller.sees, limit=limit, cursor=params.cursor, max_bytes=max_bytes
        ),
        records.envelope,
        limit=params.limit,
        items="envelopes",
        what="envelope",
    )


async def get(context: Context, caller: Caller, params: GetParams) -> Answer:
    """The newest envelope of that id that the caller may see: ids are chosen by senders, so several may have one."""
    envelope_id = named(names.message_id, params.id, "id")
    found = await context.storage.envelopes.get(
        envelope_id,
        sender=maybe_named(names.identity, params.sender, "from"),
        to=maybe_named(names.identity, params.to, "to"),
        visible_to=caller.sees,
    )
    if found is None:
        raise NotFound("envelope", envelope_id)
    return {"envelope": records.envelope(found)}


async def thread(context: Context, caller: Caller, params: ThreadParams) -> Answer:
    """A conversation, root first, then level by level; `truncated` when there is more of it."""
    root_id = named(names.message_id, params.root_id, "root_id")
    found = await context.storage.envelopes.thread(
        root_id,
        sender=maybe_named(names.identity, params.sender, "from"),
        resolve=params.resolve,
        max_depth=params.max_depth,
        limit=params.limit,
        visible_to=caller.sees,
        max_bytes=context.room.page_bytes,
    )
    if found is None:
        raise NotFound("envelope", root_id)
    items = await encoded(found.items, records.envelope)
    context.room.require_fit("the thread's root", bytes(items[0]))
    fitting = context.room.count_fitting(items)
    return {"thread": items[:fitting], "truncated": found.truncated or fitting < len(items)}


async def pending(context: Context, caller: Caller, params: PendingParams) -> Answer:
    """What was sent to an identity and asks for an answer that it has not given, newest first."""
    identity = named(names.identity, params.identity, "identity")
    require_about("thread.pending", caller, identity)
    return await fit(
        context.room,
        lambda limit, max_bytes: context.storage.envelopes.pending(
            identity, limit=limit, cursor=params.cursor, max_bytes=max_bytes
        ),
        records.envelope,
        limit=params.limit,
        items="pending",
        what="envelope",
    )


OPERATIONS: Final = (
    Operation("history.query", QueryParams, query),
    Operation("envelope.get", GetParams, get),
    Operation("thread.get", ThreadParams, thread),
    Operation("thread.pending", PendingParams, pending),
)
