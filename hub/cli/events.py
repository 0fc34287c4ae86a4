"""`hub-events`: look at agent events, follow them, clean them up, and check where they are stored."""

import os
import secrets
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer
import uvloop

from hub.events import (
    AgentEventSource,
    AgentEventSourceError,
    EventEnvelope,
    EventRead,
    JetStreamEventSource,
    Ownership,
    PostgresEventSource,
)
from hub.events.opening import DEFAULT_STREAM, open_event_source
from hub.service.exits import Exit

SECRET_VARIABLE = "NATS_HUB_EVENTS_CURSOR_SECRET"

# What an error of the source ends the command with (contract §11).
EXIT_OF = {"INPUT": Exit.USAGE, "CURSOR": Exit.USAGE, "UNAVAILABLE": Exit.UNAVAILABLE}

app = typer.Typer(
    name="hub-events",
    help="Look at agent events, follow them, clean them up, and check where they are stored.",
    no_args_is_help=True,
    add_completion=False,
)

Url = Annotated[
    str,
    typer.Option(
        envvar=["NATS_HUB_EVENTS_URL", "NATS_URL"], help="nats://…, tls://… or postgresql://…", show_default=True
    ),
]
Stream = Annotated[str, typer.Option(help="The JetStream stream, or the PostgreSQL schema.")]
SecretFile = Annotated[
    Path | None,
    typer.Option("--cursor-secret-file", help=f"File with the cursor secret; else ${SECRET_VARIABLE}.", dir_okay=False),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout; errors as JSON on stderr.")]
Tenant = Annotated[str, typer.Option(help="The owner's tenant.")]
Account = Annotated[str | None, typer.Option(help="The owner's account, where there is one.")]
User = Annotated[str | None, typer.Option(help="The owner's user, where there is one.")]
After = Annotated[str | None, typer.Option(help="A cursor to start behind.")]
Session = Annotated[str, typer.Argument(help="The session's id.")]
RunId = Annotated[str, typer.Argument(help="The run's id.")]

DEFAULT_URL = "nats://127.0.0.1:4222"


@app.command()
def tail(
    session: Session,
    run: RunId,
    tenant: Tenant,
    account: Account = None,
    user: User = None,
    after: After = None,
    durable: Annotated[str | None, typer.Option(help="Name of a reader whose position the server keeps.")] = None,
    url: Url = DEFAULT_URL,
    stream: Stream = DEFAULT_STREAM,
    secret_file: SecretFile = None,
    as_json: Json = False,
) -> None:
    """Show a run's events, first the stored ones, then live ones, until it ends."""
    owner = Ownership(tenant_id=tenant, account_id=account, user_id=user)
    read = EventRead(ownership=owner, session_id=session, run_id=run, after=after)

    async def work(source: AgentEventSource) -> None:
        async with source.subscribe(read, durable=durable) as events:
            async for envelope in events:
                _say(_event(envelope) if as_json else _line(envelope), as_json=as_json)

    _run(work, url, stream, secret_file, after=after, as_json=as_json)


@app.command()
def page(
    session: Session,
    run: RunId,
    tenant: Tenant,
    account: Account = None,
    user: User = None,
    after: After = None,
    limit: Annotated[int | None, typer.Option(help="Most events to show, 1 to 100.")] = None,
    url: Url = DEFAULT_URL,
    stream: Stream = DEFAULT_STREAM,
    secret_file: SecretFile = None,
    as_json: Json = False,
) -> None:
    """Show one page of a run's stored events."""
    owner = Ownership(tenant_id=tenant, account_id=account, user_id=user)
    read = EventRead(ownership=owner, session_id=session, run_id=run, after=after, limit=limit)

    async def work(source: AgentEventSource) -> None:
        found = await source.page(read)
        if as_json:
            _say(
                {
                    "events": [_event(envelope) for envelope in found.events],
                    "next_cursor": found.next_cursor,
                    "terminal": found.terminal,
                    "first_sequence": found.first_sequence,
                    "truncated": found.truncated,
                },
                as_json=True,
            )
            return
        for envelope in found.events:
            _say(_line(envelope))
        if found.truncated:
            _say(f"(earlier events were trimmed; the oldest retained is {found.first_sequence})")
        if found.next_cursor is not None:
            _say(f"(more: --after {found.next_cursor})")
        elif found.terminal:
            _say("(the run has ended)")

    _run(work, url, stream, secret_file, after=after, as_json=as_json)


@app.command()
def cleanup(
    tenant: Tenant,
    before: Annotated[str, typer.Option(help="Delete what is older, as YYYY-MM-DDTHH:MM:SS.mmmZ.")],
    account: Account = None,
    user: User = None,
    limit: Annotated[int, typer.Option(help="Most records a step, 1 to 500.")] = 100,
    keep_open: Annotated[bool, typer.Option("--keep-open", help="Spare runs that have not ended.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Go on until nothing is left to delete.")] = False,
    url: Url = DEFAULT_URL,
    stream: Stream = DEFAULT_STREAM,
    as_json: Json = False,
) -> None:
    """Delete old records of exactly one owner; each run keeps its last."""
    owner = Ownership(tenant_id=tenant, account_id=account, user_id=user)

    async def work(source: AgentEventSource) -> None:
        deleted = scanned = 0
        while True:
            report = await source.cleanup(ownership=owner, before=before, limit=limit, keep_open=keep_open)
            deleted, scanned = deleted + report.deleted, scanned + report.scanned
            if report.done or not everything:
                break
        if as_json:
            _say({"deleted": deleted, "scanned": scanned, "done": report.done}, as_json=True)
        else:
            rest = "nothing is left to delete" if report.done else "there is more: call again, or use --all"
            _say(f"deleted {deleted} of {scanned} records looked at; {rest}")

    _run(work, url, stream, None, after=None, as_json=as_json)


@app.command()
def verify(
    create: Annotated[
        bool, typer.Option("--create", help="Make the stream or the tables where they are missing.")
    ] = False,
    storage: Annotated[str, typer.Option(help="With --create on JetStream: file or memory.")] = "file",
    replicas: Annotated[int, typer.Option(help="With --create on JetStream: 1, 3 or 5.")] = 1,
    max_age_secs: Annotated[float, typer.Option(help="With --create on JetStream: 0 is until cleanup.")] = 0,
    url: Url = DEFAULT_URL,
    stream: Stream = DEFAULT_STREAM,
    as_json: Json = False,
) -> None:
    """Check that the stream or the tables can carry agent events; name everything that does not fit."""

    async def work(source: AgentEventSource) -> None:
        if create and isinstance(source, JetStreamEventSource):
            await source.ensure_stream(storage=storage, replicas=replicas, max_age_secs=max_age_secs)
        elif create and isinstance(source, PostgresEventSource):
            await source.migrate()
        await source.verify()
        _say({"ok": True, "stream": stream} if as_json else f"{stream}: fits", as_json=as_json)

    _run(work, url, stream, None, after=None, as_json=as_json)


def main() -> None:
    """The console script."""
    app()


def _run(
    work: Callable[[AgentEventSource], Awaitable[None]],
    url: str,
    stream: str,
    secret_file: Path | None,
    *,
    after: str | None,
    as_json: bool,
) -> None:
    """Run a command's work on a source and end with its exit code."""
    try:
        secret = _secret(secret_file, needed=after is not None)
        uvloop.run(_with_source(work, url, stream, secret))
    except AgentEventSourceError as error:
        _fail(error, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _with_source(
    work: Callable[[AgentEventSource], Awaitable[None]], url: str, stream: str, secret: bytes
) -> None:
    async with open_event_source(url, stream=stream, cursor_secret=secret, connect_nats=_connect) as source:
        await work(source)


async def _connect(url: str) -> Any:
    """A NATS connection with what the environment says about credentials (contract §12)."""
    import nats  # noqa: PLC0415

    wanted = {
        "user": "NATS_USER",
        "password": "NATS_PASSWORD",
        "token": "NATS_TOKEN",
        "user_credentials": "NATS_CREDS",
        "nkeys_seed": "NATS_NKEY_SEED",
    }
    options: dict[str, Any] = {name: os.environ[key] for name, key in wanted.items() if os.environ.get(key)}
    last: list[Exception] = []

    async def remember(error: Exception) -> None:
        last[:] = [error]

    return await nats.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.5, error_cb=remember, **options)


def _secret(path: Path | None, *, needed: bool) -> bytes:
    """The cursor secret; without one a random one will do as long as no cursor has to be understood."""
    if path is not None:
        try:
            return path.read_bytes().strip()
        except OSError as error:
            typer.echo(f"hub-events: cannot read {path}: {error.strerror}", err=True)
            raise typer.Exit(Exit.NO_INPUT) from None
    if given := os.environ.get(SECRET_VARIABLE):
        return given.encode()
    if needed:
        typer.echo(
            f"hub-events: --after needs the secret that signed it: --cursor-secret-file or ${SECRET_VARIABLE}", err=True
        )
        raise typer.Exit(Exit.USAGE)
    return secrets.token_bytes(32)


def _event(envelope: EventEnvelope) -> dict[str, Any]:
    return {"record": msgspec.to_builtins(envelope.record), "cursor": envelope.cursor}


def _line(envelope: EventEnvelope) -> str:
    record = envelope.record
    own = {"type", "sessionId", "runId"}
    said = {name: value for name, value in record.event.items() if name not in own}
    return f"{record.sequence:>6}  {record.timestamp}  {record.type:<20}  {msgspec.json.encode(said).decode()}"


def _say(what: object, *, as_json: bool = False) -> None:
    """One line on stdout. What a terminal would obey is shown escaped: events hold other people's text."""
    text = msgspec.json.encode(what).decode() if as_json else str(what)
    if not as_json:
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _fail(error: AgentEventSourceError, *, as_json: bool) -> NoReturn:
    if as_json:
        typer.echo(msgspec.json.encode({"error": str(error), "code": error.code}).decode(), err=True)
    else:
        typer.echo(f"hub-events: {error} ({error.code})", err=True)
    raise typer.Exit(EXIT_OF.get(error.code, Exit.ERROR)) from None


if __name__ == "__main__":
    main()
