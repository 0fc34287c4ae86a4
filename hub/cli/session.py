"""`hub-session`: the notes of orchestrators about the sessions that they run."""

from typing import Annotated, Final

import msgspec
import typer
from msgspec import Raw

from hub.api.records import Session
from hub.cli.asking import LIMIT, Limit, ask_api, newest_first, read, show_raw
from hub.cli.inputs import json_of
from hub.cli.moments import shown
from hub.cli.options import CONNECT_SECS, CONTEXT, As, Connecting, ConnectTimeout, Json, Verbose, connects
from hub.cli.output import Output, stdout
from hub.cli.running import CommandError
from hub.cli.tables import show_members, show_table
from hub.client import Queries
from hub.service.exits import Exit

HELP: Final = """Sessions as their orchestrators noted them. You see those that you run or work for; an API admin all.

\b
  list     the newest sessions
  show     one of them, whole
  create   note a new one, run by you
  close    note that one is over; it stays so

These are notes: they start and end nothing at a worker. Tasks of waves have none.

\b
Exit codes:
  0    done
  1    no such session, it is there already, no server, no query API, or no permission
  2    wrong usage
  3    no answer in time
  130  ended by Ctrl-C

\b
Examples:
  hub-session list --identity olga --status active
  hub-session create -i olga review-7 --worker wanda --cwd /src
  hub-session show -i olga review-7
  hub-session close -i olga review-7 --failed
"""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=CONTEXT,
    help=HELP,
)

SessionId = Annotated[str, typer.Argument(metavar="ID", help="The session's id.")]
Orchestrator = Annotated[
    str | None,
    typer.Option("--orchestrator", "-o", metavar="ID", help="Whose session, where several have this id."),
]


@app.command("list", help="Show the newest sessions first.")
@connects
def list_sessions(
    *,
    connecting: Connecting,
    identity: As = None,
    status: Annotated[
        str | None, typer.Option("--status", "-s", metavar="WORD", help="active, closed or failed.")
    ] = None,
    worker: Annotated[str | None, typer.Option("--worker", "-w", metavar="ID", help="With this worker.")] = None,
    orchestrator: Annotated[str | None, typer.Option("--orchestrator", "-o", metavar="ID", help="Run by this.")] = None,
    limit: Limit = LIMIT,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work(queries: Queries) -> Exit:
        out = stdout()
        filters = {"status": status, "worker": worker, "orchestrator": orchestrator}
        raws = await newest_first(queries, "session.list", filters, "sessions", limit=limit)
        if json:
            for raw in raws:
                show_raw(out, raw)
            return Exit.OK
        found = [read(raw, Session) for raw in raws]
        rows = [(s.session_id, s.status, s.orchestrator, s.worker, shown(s.updated_at)) for s in found]
        show_table(out, ("session", "status", "orchestrator", "worker", "changed"), rows)
        return Exit.OK

    ask_api(
        "hub-session list",
        work,
        connecting=connecting,
        identity=identity,
        connect_timeout=connect_timeout,
        as_json=json,
        verbose=verbose,
    )


@app.command("show", help="Show one session, whole.")
@connects
def show_session(
    *,
    connecting: Connecting,
    session_id: SessionId,
    identity: As = None,
    orchestrator: Orchestrator = None,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work(queries: Queries) -> Exit:
        answer = await queries.ask("session.get", {"session_id": session_id, "orchestrator": orchestrator})
        _tell(stdout(), answer["session"], as_json=json)
        return Exit.OK

    ask_api(
        "hub-session show",
        work,
        connecting=connecting,
        identity=identity,
        connect_timeout=connect_timeout,
        as_json=json,
        verbose=verbose,
    )


@app.command("create", help="Note a new session, run by you.")
@connects
def create_session(
    *,
    connecting: Connecting,
    session_id: SessionId,
    worker: Annotated[str, typer.Option("--worker", "-w", metavar="ID", help="Who works in it.")],
    identity: As = None,
    cwd: Annotated[str | None, typer.Option("--cwd", metavar="PATH", help="Its work folder.")] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="Its model.")] = None,
    provider: Annotated[str | None, typer.Option("--provider", metavar="NAME", help="The model's provider.")] = None,
    metadata: Annotated[
        str | None, typer.Option("--metadata", metavar="JSON", help="Anything else, an object.")
    ] = None,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work(queries: Queries) -> Exit:
        given = None if metadata is None else json_of(metadata, "--metadata")
        if given is not None and not isinstance(given, dict):
            raise CommandError('--metadata: expected a JSON object as {"team": "red"}', Exit.USAGE)
        params = {"session_id": session_id, "worker": worker, "cwd": cwd, "model": model, "provider": provider}
        answer = await queries.ask("session.create", {**params, "metadata": given})
        _tell(stdout(), answer["session"], as_json=json)
        return Exit.OK

    ask_api(
        "hub-session create",
        work,
        connecting=connecting,
        identity=identity,
        connect_timeout=connect_timeout,
        as_json=json,
        verbose=verbose,
    )


@app.command("close", help="Note that a session is over; it stays so.")
@connects
def close_session(
    *,
    connecting: Connecting,
    session_id: SessionId,
    identity: As = None,
    orchestrator: Orchestrator = None,
    failed: Annotated[bool, typer.Option("--failed", help="It failed.")] = False,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work(queries: Queries) -> Exit:
        status = "failed" if failed else "closed"
        params = {"session_id": session_id, "orchestrator": orchestrator, "status": status}
        answer = await queries.ask("session.update_status", params)
        _tell(stdout(), answer["session"], as_json=json)
        return Exit.OK

    ask_api(
        "hub-session close",
        work,
        connecting=connecting,
        identity=identity,
        connect_timeout=connect_timeout,
        as_json=json,
        verbose=verbose,
    )


def _tell(out: Output, raw: Raw, *, as_json: bool) -> None:
    if as_json:
        show_raw(out, raw)
        return
    session = read(raw, Session)
    kept = session.backend_ctx
    show_members(
        out,
        [
            ("session", session.session_id),
            ("status", session.status),
            ("orchestrator", session.orchestrator),
            ("worker", session.worker),
            ("cwd", session.cwd),
            ("model", session.model),
            ("provider", session.provider),
            ("created", shown(session.created_at)),
            ("changed", shown(session.updated_at)),
            ("closed", shown(session.closed_at) or None),
            ("metadata", msgspec.json.encode(session.metadata).decode() if session.metadata else None),
            ("backend", None if kept is None else msgspec.json.encode(kept).decode()),
        ],
    )


def hub_session() -> None:
    """Run the console script `hub-session`."""
    app(prog_name="hub-session")
