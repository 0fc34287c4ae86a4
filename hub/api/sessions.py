"""Sessions: what orchestrators note about those that they run."""

from typing import Annotated, Any, Final

from msgspec import Meta

from hub.api import records
from hub.api.authorisation import Caller
from hub.api.errors import Clash, NotFound
from hub.api.operation import Answer, Context, Operation, audit_members
from hub.api.pages import fit
from hub.api.params import NOT_GIVEN, Ignored, PageParams, Params, Text, maybe_named, named, one_of, require_json
from hub.protocol import names
from hub.storage.records import MAX_METADATA_BYTES, Session

STATUSES: Final = ("active", "closed", "failed")
CONTEXT_BYTES: Final = 512 * 1024  # a backend's notes on one session; lists carry them, so a page has room for several
REQUEST_BYTES: Final = 1024 * 1024  # the largest context, however it is written

Object = dict[Annotated[str, Meta(max_length=1024)], Any]


class CreateParams(Params):
    """Of `session.create`; `orchestrator` counts from an admin only, the rest below it never."""

    session_id: str
    worker: str
    cwd: Text | None = None
    model: Text | None = None
    provider: Text | None = None
    metadata: Object | None = None
    orchestrator: str | None = None
    status: Ignored = NOT_GIVEN
    created_at: Ignored = NOT_GIVEN
    updated_at: Ignored = NOT_GIVEN
    closed_at: Ignored = NOT_GIVEN


class NameParams(Params):
    """Of `session.get`; sessions are named by `(orchestrator, session_id)`."""

    session_id: str
    orchestrator: str | None = None


class ListParams(PageParams):
    """Of `session.list`."""

    status: str | None = None
    worker: str | None = None
    orchestrator: str | None = None


class UpdateParams(NameParams, kw_only=True):
    """Of `session.update_status`."""

    status: str


class ContextParams(NameParams, kw_only=True):
    """Of `session.set_backend_ctx`."""

    backend_ctx: Object


async def create(context: Context, caller: Caller, params: CreateParams) -> Answer:
    """Note a new session, owned by the caller."""
    metadata = params.metadata or {}
    require_json(metadata, "metadata", most_bytes=MAX_METADATA_BYTES)
    named_owner = maybe_named(names.agent_identity, params.orchestrator, "orchestrator") if caller.is_admin else None
    now = context.clock()
    session = Session(
        session_id=named(lambda value: names.token(value, "session id"), params.session_id, "session_id"),
        orchestrator=caller.owner(named_owner),
        worker=named(names.agent_identity, params.worker, "worker"),
        cwd=params.cwd,
        model=params.model,
        provider=params.provider,
        metadata=metadata,
        created_at=now,
        updated_at=now,
    )
    await context.storage.sessions.create(session)
    return {"session": records.session(session)}


async def get(context: Context, caller: Caller, params: NameParams) -> Answer:
    """One session that the caller orchestrates or works for."""
    return {"session": records.session(await _find(context, caller, params))}


async def find(context: Context, caller: Caller, params: ListParams) -> Answer:
    """Sessions that the caller orchestrates or works for, newest first."""
    status = one_of(STATUSES, params.status, "status")
    worker = maybe_named(names.identity, params.worker, "worker")
    orchestrator = maybe_named(names.identity, params.orchestrator, "orchestrator")
    return await fit(
        context.room,
        lambda limit, max_bytes: context.storage.sessions.find(
            status=status,
            worker=worker,
            orchestrator=orchestrator,
            visible_to=caller.sees,
            limit=limit,
            cursor=params.cursor,
            max_bytes=max_bytes,
        ),
        records.session,
        limit=params.limit,
        items="sessions",
        what="session",
    )


async def update_status(context: Context, caller: Caller, params: UpdateParams) -> Answer:
    """Close a session, or say that it failed; both stay. The status that it has already is no change and no error."""
    status = one_of(STATUSES, params.status, "status")
    session = await _find(context, caller, params)
    owner, session_id = session.orchestrator, session.session_id
    changed = None
    if status != "active":
        changed = await context.storage.sessions.update_status(owner, session_id, status, at=context.clock())
    if changed is None:
        changed = await context.storage.sessions.get(session_id, orchestrator=owner)
        if changed is None:
            raise NotFound("session", session_id)
        if changed.status != status:
            raise Clash(f"session {session_id} is {changed.status} and stays so; it cannot become {status}")
    return {"session": records.session(changed)}


async def set_backend_ctx(context: Context, caller: Caller, params: ContextParams) -> Answer:
    """Replace what the backend keeps for a session."""
    require_json(params.backend_ctx, "backend_ctx", most_bytes=CONTEXT_BYTES)
    session = await _find(context, caller, params)
    changed = await context.storage.sessions.set_backend_ctx(
        session.orchestrator, session.session_id, params.backend_ctx, at=context.clock()
    )
    if changed is None:
        raise NotFound("session", session.session_id)
    return {"session": records.session(changed)}


async def _find(context: Context, caller: Caller, params: NameParams) -> Session:
    """The session that is meant: the named orchestrator's, else the caller's own, else the newest that it works for.

    Its own comes first, so that nobody can put a session of the same id before it.
    """
    session_id = named(lambda value: names.token(value, "session id"), params.session_id, "session_id")
    orchestrator = maybe_named(names.identity, params.orchestrator, "orchestrator")
    sessions = context.storage.sessions
    found = await sessions.get(session_id, orchestrator=orchestrator or caller.identity, visible_to=caller.sees)
    if found is None and orchestrator is None:
        found = await sessions.get(session_id, visible_to=caller.sees)
    if found is None:
        raise NotFound("session", session_id)
    return found


OPERATIONS: Final = (
    Operation(
        "session.create",
        CreateParams,
        create,
        audited=audit_members("session_id", "worker", "orchestrator"),
        most_bytes=REQUEST_BYTES,
    ),
    Operation("session.get", NameParams, get),
    Operation("session.list", ListParams, find),
    Operation(
        "session.update_status",
        UpdateParams,
        update_status,
        audited=audit_members("session_id", "orchestrator", "status"),
    ),
    Operation(
        "session.set_backend_ctx",
        ContextParams,
        set_backend_ctx,
        audited=audit_members("session_id", "orchestrator"),
        most_bytes=REQUEST_BYTES,
    ),
)
