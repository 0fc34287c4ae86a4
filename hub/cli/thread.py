"""`hub-thread`: a conversation as a tree, or what nobody has answered yet."""

from typing import Annotated, Final

import msgspec
import typer
from msgspec import Raw

from hub.api.records import Envelope as Record
from hub.cli.asking import LIMIT, Limit, ask_api, newest_first, read, show_raw
from hub.cli.history import show_envelope
from hub.cli.options import CONNECT_SECS, As, Connecting, ConnectTimeout, Json, Verbose, connects
from hub.cli.output import say, stdout
from hub.cli.running import CommandError, console_script
from hub.client import Queries
from hub.service.exits import Exit

HELP: Final = """Show the conversation that a message belongs to, as a tree; or with --pending what waits for an answer.

A thread is a message and what replies to it, directly or not. It begins at its root, wherever in it the ID stands;
with --below it begins at the ID. You see what you sent, what was sent to you, and what had no recipient.

With --pending it shows the messages to you that no message of yours replies to; --of ID asks for another identity,
which only an API admin may.

\b
Exit codes:
  0    done
  1    no such message, no server, no query API, or no permission
  2    wrong usage
  3    no answer in time
  130  ended by Ctrl-C

\b
Examples:
  hub-thread --identity bob 7f9c24e8-6a2b-4e5f-9c1d-2b3a4c5d6e7f
  hub-thread -i bob --pending
  hub-thread -i ops --pending --of bob --json
"""

DEPTH: Final = 64  # contract §10.1


@connects
def thread(
    *,
    connecting: Connecting,
    message_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A message of the conversation.")] = None,
    identity: As = None,
    sender: Annotated[
        str | None, typer.Option("--from", "-f", metavar="ID", help="The message's sender, where several used its id.")
    ] = None,
    below: Annotated[bool, typer.Option("--below", help="Begin at the ID, not at the root above it.")] = False,
    depth: Annotated[int, typer.Option("--depth", metavar="N", min=0, max=DEPTH, help="Levels below.")] = DEPTH,
    pending: Annotated[bool, typer.Option("--pending", help="Messages that wait for an answer.")] = False,
    of: Annotated[str | None, typer.Option("--of", metavar="ID", help="With --pending: whose answer.")] = None,
    limit: Limit = LIMIT,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work(queries: Queries) -> Exit:
        out = stdout()
        if pending == (message_id is not None) or (of is not None and not pending):
            raise CommandError("give the ID of a message, or --pending (with --of ID for another's)", Exit.USAGE)
        if message_id is None:
            whose = of or queries.identity
            raws = await newest_first(queries, "thread.pending", {"identity": whose}, "pending", limit=limit)
            for raw in reversed(raws):
                show_envelope(out, raw, as_json=json)
            return Exit.OK
        asked = {"root_id": message_id, "from": sender, "resolve": not below, "max_depth": depth}
        answer = await queries.ask("thread.get", {**asked, "limit": min(limit, 1000)})
        raws = read(answer["thread"], list[Raw])
        for level, raw in [(0, raw) for raw in raws] if json else tree(raws):
            show_raw(out, raw) if json else show_envelope(out, raw, as_json=False, indent=level)
        if read(answer["truncated"], bool):
            say("there is more of it: see --limit and --depth, or begin further down with --below")
        return Exit.OK

    ask_api(
        "hub-thread",
        work,
        connecting=connecting,
        identity=identity,
        connect_timeout=connect_timeout,
        as_json=json,
        verbose=verbose,
    )


class _Node(msgspec.Struct):
    raw: Raw
    below: list["_Node"]


def tree(raws: list[Raw]) -> list[tuple[int, Raw]]:
    """A thread, level by level, as its tree: each with its depth, replies below what they reply to. Pure."""
    if not raws:
        return []
    by_id: dict[str, _Node] = {}
    root: _Node | None = None
    for raw in raws:
        record = read(raw, Record)
        node = _Node(raw, [])
        if root is None:
            root = node
        else:
            by_id.get(record.reply_to or "", root).below.append(node)
        by_id.setdefault(record.id, node)
    shown: list[tuple[int, Raw]] = []
    waiting = [(0, root)] if root is not None else []
    while waiting:
        level, node = waiting.pop()
        shown.append((level, node.raw))
        waiting += [(level + 1, reply) for reply in reversed(node.below)]
    return shown


def hub_thread() -> None:
    """Run the console script `hub-thread`."""
    console_script("hub-thread", thread, HELP)
