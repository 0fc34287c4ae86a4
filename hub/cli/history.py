"""`hub-history`: what was sent, from the hub's history: one message, or a list by filter."""

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
import typer
from msgspec import Raw

from hub.api.records import Envelope as Record
from hub.cli.asking import LIMIT, Follow, Follower, Limit, Since, ask_api, newest_first, read, show_raw, since_of
from hub.cli.envelope_line import MOST_SHOWN, envelope_line
from hub.cli.moments import local, shown
from hub.cli.options import CONNECT_SECS, As, Connecting, ConnectTimeout, Json, Verbose, connects
from hub.cli.output import Output, harmless, stdout
from hub.cli.publish import MessageKind
from hub.cli.running import CommandError, console_script
from hub.cli.tables import show_members
from hub.client import Queries
from hub.protocol import Envelope, Meta
from hub.service.exits import Exit

HELP: Final = """Show what was sent: one message by its id, or the newest by filter, oldest of them first.

History has what you sent, what was sent to you, and what had no recipient; an API admin sees all of it. Messages to
agents and to task, session and wave channels are all there (they come from the streams themselves); broadcasts, and
everything of a core hub, are there best effort.

Each message is one line, cut at 2000 characters; what could steer a terminal is shown escaped. With --json it is one
object a line, as the query API sends it.

\b
Exit codes:
  0    done
  1    no such message, no server, no query API, or no permission
  2    wrong usage
  3    no answer in time
  130  ended by Ctrl-C

\b
Examples:
  hub-history --identity bob                         what bob may see, the newest 50
  hub-history -i bob 7f9c24e8-6a2b-4e5f-9c1d-2b3a4c5d6e7f
  hub-history -i ops --from alice --to bob --since 2h
  hub-history -i ops --channel builds --follow --json | jq .payload
"""


@connects
def history(
    *,
    connecting: Connecting,
    message_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Show this message, whole.")] = None,
    identity: As = None,
    sender: Annotated[str | None, typer.Option("--from", "-f", metavar="ID", help="Sent by this identity.")] = None,
    to: Annotated[str | None, typer.Option("--to", "-t", metavar="ID", help="Sent to this identity.")] = None,
    channel: Annotated[str | None, typer.Option("--channel", "-c", metavar="NAME", help="In this channel.")] = None,
    kind: Annotated[MessageKind | None, typer.Option("--kind", "-k", metavar="KIND", help="Of this kind.")] = None,
    since: Since = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before then, as --since.")] = None,
    limit: Limit = LIMIT,
    follow: Follow = False,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work(queries: Queries) -> Exit:
        out = stdout()
        about = {"from": sender, "to": to}
        if message_id is not None:
            if channel or kind or since or until or follow:
                raise CommandError(
                    "with an ID only --from and --to make sense: they tell whose message it is", Exit.USAGE
                )
            found = await queries.ask("envelope.get", {"id": message_id, **about})
            _show_whole(out, found["envelope"], as_json=json)
            return Exit.OK
        filters: dict[str, Any] = {
            **about,
            "channel": channel,
            "kind": None if kind is None else kind.value,
            "since": since_of(since),
            "until": since_of(until, "--until"),
        }
        if follow and until is not None:
            raise CommandError("--follow shows what comes, --until ends before that: give one of them", Exit.USAGE)
        await show_envelopes(queries, out, filters, limit=limit, follow=follow, as_json=json)
        return Exit.OK

    ask_api(
        "hub-history",
        work,
        connecting=connecting,
        identity=identity,
        connect_timeout=connect_timeout,
        as_json=json,
        verbose=verbose,
    )


async def show_envelopes(
    queries: Queries, out: Output, filters: dict[str, Any], *, limit: int, follow: bool, as_json: bool
) -> None:
    """Show the newest envelopes, oldest of them first, and what comes if asked to."""

    def show(raw: Raw) -> None:
        show_envelope(out, raw, as_json=as_json)

    if not follow:
        for raw in reversed(await newest_first(queries, "history.query", filters, "envelopes", limit=limit)):
            show(raw)
        return
    follower = Follower(
        queries,
        "history.query",
        "envelopes",
        filters,
        time_of=lambda raw: datetime.fromisoformat(read(raw, Record).stored_at),
        key_of=_key,
        show=show,
    )
    await follower.show_newest(limit)
    await follower.follow(out)


def _key(raw: Raw) -> object:
    record = read(raw, Record)
    return record.sender, record.id, record.to, record.channel


def show_envelope(out: Output, raw: Raw, *, as_json: bool, indent: int = 0) -> None:
    """Write one envelope as a line."""
    if as_json:
        show_raw(out, raw)
        return
    record = read(raw, Record)
    at = local(record.stored_at)
    out.line(f"{'  ' * indent}{at:%Y-%m-%d} {envelope_line(as_sent(record), at=at)}{_offence(record)}")


def as_sent(record: Record) -> Envelope:
    """The envelope of a record, as far as it is kept."""
    meta = Meta(
        record.id,
        record.sender,
        record.channel,
        datetime.fromisoformat(record.timestamp),
        record.kind,  # type: ignore[arg-type]  # history holds checked ones
        record.to,
        record.reply_to,
    )
    return Envelope(meta, bytes(record.payload), b"")


def _offence(record: Record) -> str:
    error = record.payload_error
    return "" if error is msgspec.UNSET else harmless(f"  (payload refused: {error})")


def _show_whole(out: Output, raw: Raw, *, as_json: bool) -> None:
    if as_json:
        show_raw(out, raw)
        return
    record = read(raw, Record)
    show_members(
        out,
        [
            ("id", record.id),
            ("from", record.sender),
            ("to", record.to),
            ("channel", record.channel),
            ("kind", record.kind),
            ("reply to", record.reply_to),
            ("sent", shown(record.timestamp)),
            ("stored", shown(record.stored_at)),
            ("refused", None if record.payload_error is msgspec.UNSET else record.payload_error),
        ],
    )
    payload = msgspec.json.format(bytes(record.payload), indent=2).decode()
    more = f"… ({len(payload)} characters; --json shows all)" if len(payload) > 10 * MOST_SHOWN else ""
    out.line(harmless(payload[: 10 * MOST_SHOWN], keep="\n") + more)


def hub_history() -> None:
    """Run the console script `hub-history`."""
    console_script("hub-history", history, HELP)
