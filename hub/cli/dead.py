"""`hub-dead`: what could not be delivered: list it, look at it, send it again."""

import base64
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from msgspec import Raw

from hub.api.records import DeadLetter
from hub.cli.asking import LIMIT, Follow, Follower, Limit, Since, ask_api, newest_first, read, show_raw, since_of
from hub.cli.moments import shown
from hub.cli.options import CONNECT_SECS, CONTEXT, As, Connecting, ConnectTimeout, Json, Verbose, connects
from hub.cli.output import Output, harmless, say, stdout
from hub.cli.tables import show_members, show_table
from hub.client import Queries
from hub.service.exits import Exit

HELP: Final = """What could not be delivered, with its bytes and the reason. For API admins only.

\b
  list     the newest dead letters
  show     one of them, whole
  replay   send one again as its sender did, once

Reasons: undecodable, bad_identity, bad_channel, bad_recipient, replayed, too_large, expired, exhausted. A letter that
the replay guard refused (`replayed`), one that was cut at 64 KiB, and one that would only be dropped again cannot be
replayed; the refusal says which it is.

\b
Exit codes:
  0    done
  1    no such letter, it cannot be replayed, no server, no query API, or you are no API admin
  2    wrong usage
  3    no answer in time
  130  ended by Ctrl-C

\b
Examples:
  hub-dead list --identity ops --since 1d
  hub-dead list -i ops --reason expired --follow
  hub-dead show -i ops 3f2a91c04be7
  hub-dead replay -i ops 3f2a91c04be7
"""

COLUMNS: Final = ("dead letter", "received", "reason", "from", "subject", "size", "replayed")

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=CONTEXT,
    help=HELP,
)

DeadId = Annotated[str, typer.Argument(metavar="ID", help="The dead letter's id.")]


@app.command("list", help="Show the newest dead letters, oldest of them first.")
@connects
def list_dead(
    *,
    connecting: Connecting,
    identity: As = None,
    reason: Annotated[str | None, typer.Option("--reason", "-r", metavar="WORD", help="Dropped for this.")] = None,
    since: Since = None,
    limit: Limit = LIMIT,
    follow: Follow = False,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work(queries: Queries) -> Exit:
        out = stdout()
        filters = {"reason": reason, "since": since_of(since)}
        if follow:
            await _follow(queries, out, filters, limit=limit, as_json=json)
            return Exit.OK
        raws = (await newest_first(queries, "dead.list", filters, "dead", limit=limit))[::-1]
        if json:
            for raw in raws:
                show_raw(out, raw)
        else:
            show_table(out, COLUMNS, [_row(read(raw, DeadLetter)) for raw in raws])
        return Exit.OK

    ask_api(
        "hub-dead list",
        work,
        connecting=connecting,
        identity=identity,
        connect_timeout=connect_timeout,
        as_json=json,
        verbose=verbose,
    )


async def _follow(queries: Queries, out: Output, filters: dict[str, Any], *, limit: int, as_json: bool) -> None:
    def show(raw: Raw) -> None:
        if as_json:
            show_raw(out, raw)
        else:
            out.line(harmless("  ".join(str(cell) for cell in _row(read(raw, DeadLetter)) if cell != "")))

    follower = Follower(
        queries,
        "dead.list",
        "dead",
        filters,
        time_of=lambda raw: datetime.fromisoformat(read(raw, DeadLetter).received_at),
        key_of=lambda raw: read(raw, DeadLetter).dead_id,
        show=show,
    )
    await follower.show_newest(limit)
    await follower.follow(out)


def _row(letter: DeadLetter) -> tuple[object, ...]:
    return (
        letter.dead_id,
        shown(letter.received_at),
        letter.reason,
        letter.sender or "",
        letter.subject,
        letter.size,
        shown(letter.replayed_at),
    )


@app.command("show", help="Show one dead letter, whole.")
@connects
def show_dead(
    *,
    connecting: Connecting,
    dead_id: DeadId,
    identity: As = None,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work(queries: Queries) -> Exit:
        out = stdout()
        raw = (await queries.ask("dead.get", {"dead_id": dead_id}))["dead"]
        if json:
            show_raw(out, raw)
        else:
            _show_whole(out, read(raw, DeadLetter))
        return Exit.OK

    ask_api(
        "hub-dead show",
        work,
        connecting=connecting,
        identity=identity,
        connect_timeout=connect_timeout,
        as_json=json,
        verbose=verbose,
    )


def _show_whole(out: Output, letter: DeadLetter) -> None:
    kept = f", {len(letter.data)} of them kept" if len(letter.data) < letter.size else ""
    show_members(
        out,
        [
            ("dead letter", letter.dead_id),
            ("reason", letter.reason),
            ("detail", letter.detail),
            ("subject", letter.subject),
            ("from", letter.sender),
            ("message", letter.envelope_id),
            ("received", shown(letter.received_at)),
            ("replayed", shown(letter.replayed_at) or None),
            ("size", f"{letter.size} bytes{kept}"),
            *((f"header {name}", value) for name, value in letter.headers),
        ],
    )
    try:
        text = letter.data.decode()
    except UnicodeDecodeError:
        out.line(f"base64: {base64.b64encode(letter.data).decode()}")
    else:
        out.line(harmless(text, keep="\n\t"))


@app.command("replay", help="Send a dead letter again as its sender did; once, and never one of doubtful origin.")
@connects
def replay_dead(
    *,
    connecting: Connecting,
    dead_id: DeadId,
    identity: As = None,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work(queries: Queries) -> Exit:
        await queries.ask("dead.replay", {"dead_id": dead_id})
        if json:
            stdout().json({"replayed": True, "dead_id": dead_id})
        else:
            say(f"replayed: {dead_id} is on its way again")
        return Exit.OK

    ask_api(
        "hub-dead replay",
        work,
        connecting=connecting,
        identity=identity,
        connect_timeout=connect_timeout,
        as_json=json,
        verbose=verbose,
    )


def hub_dead() -> None:
    """Run the console script `hub-dead`."""
    app(prog_name="hub-dead")
