"""`hub-events`: look at agent events, follow them, clean them up, and check where they are stored."""

import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from hub.cli.options import CONNECT_SECS, CONTEXT, Connecting, ConnectTimeout, Json, Verbose, connects
from hub.cli.output import harmless, stdout
from hub.cli.running import CommandError, run_command
from hub.events import (
    AgentEventSource,
    AgentEventSourceError,
    EventEnvelope,
    EventRead,
    JetStreamEventSource,
    Ownership,
    PostgresEventSource,
)
from hub.events.opening import DEFAULT_STREAM, POSTGRES_SCHEMES, open_event_source
from hub.service.exits import Exit

HELP: Final = """Look at agent events, follow them, clean them up, and check where they are stored.

Events are on JetStream (--url nats://…) or on PostgreSQL (--url postgresql://…, or NATS_HUB_EVENTS_URL).
"""
SECRET_VARIABLE: Final = "NATS_HUB_EVENTS_CURSOR_SECRET"
URL_VARIABLE: Final = "NATS_HUB_EVENTS_URL"

_USAGE_CODES: Final = frozenset({"INPUT", "CURSOR"})

Stream = Annotated[str, typer.Option("--stream", metavar="NAME", help="The JetStream stream, or PostgreSQL schema.")]
SecretFile = Annotated[
    Path | None,
    typer.Option("--cursor-secret-file", metavar="FILE", help=f"The cursor secret [{SECRET_VARIABLE}: the secret]."),
]
Tenant = Annotated[str, typer.Option("--tenant", metavar="ID", help="The owner's tenant.")]
Account = Annotated[str | None, typer.Option("--account", metavar="ID", help="The owner's account, if there is one.")]
Of = Annotated[str | None, typer.Option("--of-user", metavar="ID", help="The owner's user, if there is one.")]
After = Annotated[str | None, typer.Option("--after", metavar="CURSOR", help="Start behind this cursor.")]
Session = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=CONTEXT,
    help=HELP,
)


class EventsFailed(CommandError):
    """The event source refused or failed.

    Attributes:
        code: the source's word.
    """

    def __init__(self, error: AgentEventSourceError) -> None:
        self.code = error.code
        super().__init__(str(error), Exit.USAGE if error.code in _USAGE_CODES else Exit.ERROR)


@app.command(context_settings=CONTEXT)
@connects
def tail(
    *,
    connecting: Connecting,
    session: Session,
    run: RunId,
    tenant: Tenant,
    account: Account = None,
    of_user: Of = None,
    after: After = None,
    durable: Annotated[
        str | None, typer.Option("--durable", metavar="NAME", help="A reader whose position the server keeps.")
    ] = None,
    stream: Stream = DEFAULT_STREAM,
    cursor_secret_file: SecretFile = None,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show a run's events, first the stored ones, then live ones, until the run ends."""
    owner = Ownership(tenant_id=tenant, account_id=account, user_id=of_user)
    read = EventRead(ownership=owner, session_id=session, run_id=run, after=after)

    async def work(source: AgentEventSource) -> None:
        output = stdout()
        async with source.subscribe(read, durable=durable) as events:
            async for envelope in events:
                if json:
                    output.json(_event(envelope))
                else:
                    output.line(_line(envelope))
                if output.is_broken:
                    return

    opening = _Opening(connecting, stream, connect_timeout, cursor_secret_file, needs_secret=after is not None)
    opening.run("hub-events tail", work, as_json=json, verbose=verbose)


@app.command(context_settings=CONTEXT)
@connects
def page(
    *,
    connecting: Connecting,
    session: Session,
    run: RunId,
    tenant: Tenant,
    account: Account = None,
    of_user: Of = None,
    after: After = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", help="Most events to show, 1 to 100.")] = None,
    stream: Stream = DEFAULT_STREAM,
    cursor_secret_file: SecretFile = None,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show one page of a run's stored events."""
    owner = Ownership(tenant_id=tenant, account_id=account, user_id=of_user)
    read = EventRead(ownership=owner, session_id=session, run_id=run, after=after, limit=limit)

    async def work(source: AgentEventSource) -> None:
        output = stdout()
        found = await source.page(read)
        if json:
            output.json(
                {
                    "events": [_event(envelope) for envelope in found.events],
                    "next_cursor": found.next_cursor,
                    "terminal": found.terminal,
                    "first_sequence": found.first_sequence,
                    "truncated": found.truncated,
                }
            )
            return
        for envelope in found.events:
            output.line(_line(envelope))
        if found.truncated:
            output.line(f"(earlier events were trimmed; the oldest retained is {found.first_sequence})")
        if found.next_cursor is not None:
            output.line(f"(more: --after {found.next_cursor})")
        elif found.terminal:
            output.line("(the run has ended)")

    opening = _Opening(connecting, stream, connect_timeout, cursor_secret_file, needs_secret=after is not None)
    opening.run("hub-events page", work, as_json=json, verbose=verbose)


@app.command(context_settings=CONTEXT)
@connects
def cleanup(
    *,
    connecting: Connecting,
    tenant: Tenant,
    before: Annotated[str, typer.Option("--before", metavar="TIME", help="As YYYY-MM-DDTHH:MM:SS.mmmZ.")],
    account: Account = None,
    of_user: Of = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="Most records a step, 1 to 500.")] = 100,
    keep_open: Annotated[bool, typer.Option("--keep-open", help="Spare runs that have not ended.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Go on until nothing is left to delete.")] = False,
    stream: Stream = DEFAULT_STREAM,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Delete records of exactly one owner that are older than a time; each run keeps its last."""
    owner = Ownership(tenant_id=tenant, account_id=account, user_id=of_user)

    async def work(source: AgentEventSource) -> None:
        deleted = scanned = 0
        while True:
            report = await source.cleanup(ownership=owner, before=before, limit=limit, keep_open=keep_open)
            deleted, scanned = deleted + report.deleted, scanned + report.scanned
            if report.done or not everything:
                break
        if json:
            stdout().json({"deleted": deleted, "scanned": scanned, "done": report.done})
        else:
            rest = "nothing is left to delete" if report.done else "there is more: call again, or use --all"
            stdout().line(f"deleted {deleted} of {scanned} records looked at; {rest}")

    _Opening(connecting, stream, connect_timeout).run("hub-events cleanup", work, as_json=json, verbose=verbose)


@app.command(context_settings=CONTEXT)
@connects
def verify(
    *,
    connecting: Connecting,
    create: Annotated[bool, typer.Option("--create", help="Make the stream or tables that are missing.")] = False,
    storage: Annotated[str, typer.Option("--storage", help="With --create on JetStream: file or memory.")] = "file",
    replicas: Annotated[int, typer.Option("--replicas", help="With --create on JetStream: 1, 3 or 5.")] = 1,
    max_age: Annotated[
        float, typer.Option("--max-age", metavar="SECS", help="With --create on JetStream; 0: until cleanup.")
    ] = 0,
    stream: Stream = DEFAULT_STREAM,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Check that the stream or the tables can carry agent events; name everything that does not fit."""

    async def work(source: AgentEventSource) -> None:
        if create and isinstance(source, JetStreamEventSource):
            await source.ensure_stream(storage=storage, replicas=replicas, max_age_secs=max_age)
        elif create and isinstance(source, PostgresEventSource):
            await source.migrate()
        await source.verify()
        if json:
            stdout().json({"ok": True, "stream": stream})
        else:
            stdout().line(harmless(f"{stream}: fits"))

    _Opening(connecting, stream, connect_timeout).run("hub-events verify", work, as_json=json, verbose=verbose)


def main() -> None:
    """The console script."""
    app(prog_name="hub-events")


class _Opening:
    """How a command opens its source, and ends."""

    def __init__(
        self,
        connecting: Connecting,
        stream: str,
        connect_secs: float,
        secret_file: Path | None = None,
        *,
        needs_secret: bool = False,
    ) -> None:
        self._connecting, self._stream, self._connect_secs = connecting, stream, connect_secs
        self._secret_file, self._needs_secret = secret_file, needs_secret

    def run(
        self, name: str, work: Callable[[AgentEventSource], Awaitable[None]], *, as_json: bool, verbose: bool
    ) -> None:
        async def opened() -> Exit:
            url = self._connecting.url or os.environ.get(URL_VARIABLE) or None
            is_postgres = url is not None and url.startswith(POSTGRES_SCHEMES)
            connecting = msgspec.structs.replace(self._connecting, url=url)
            try:
                async with open_event_source(
                    url,
                    stream=self._stream,
                    cursor_secret=self._secret(),
                    settings=None if is_postgres else connecting.settings(None),
                    connect_secs=self._connect_secs,
                ) as source:
                    await work(source)
            except AgentEventSourceError as error:
                raise EventsFailed(error) from error
            return Exit.OK

        run_command(name, opened, verbose=verbose, as_json=as_json)

    def _secret(self) -> bytes:
        """The cursor secret; a random one will do as long as no cursor has to be understood."""
        if self._secret_file is not None:
            try:
                return self._secret_file.read_bytes().strip()
            except OSError as error:
                raise CommandError(f"cannot read {self._secret_file}: {error.strerror}", Exit.USAGE) from error
        if given := os.environ.get(SECRET_VARIABLE):
            return given.encode()
        if self._needs_secret:
            raise CommandError(
                f"--after needs the secret that signed it: --cursor-secret-file or {SECRET_VARIABLE}", Exit.USAGE
            )
        return secrets.token_bytes(32)


def _event(envelope: EventEnvelope) -> dict[str, Any]:
    return {"record": msgspec.to_builtins(envelope.record), "cursor": envelope.cursor}


def _line(envelope: EventEnvelope) -> str:
    record = envelope.record
    own = {"type", "sessionId", "runId"}
    said = {name: value for name, value in record.event.items() if name not in own}
    text = msgspec.json.encode(said).decode()
    return harmless(f"{record.sequence:>6}  {record.timestamp}  {record.type:<20}  {text}")


if __name__ == "__main__":
    main()
