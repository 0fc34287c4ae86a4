"""`hub-agents`: who is there, and what they can do."""

from typing import Annotated, Final

import msgspec
import typer

from hub.api.records import Agent
from hub.cli.asking import LIMIT, Limit, ask_api, newest_first, read, show_raw
from hub.cli.moments import shown, span_of
from hub.cli.options import CONNECT_SECS, As, Connecting, ConnectTimeout, Json, Verbose, connects
from hub.cli.output import stdout
from hub.cli.running import CommandError, console_script
from hub.cli.tables import show_members, show_table
from hub.client import Queries
from hub.service.exits import Exit

HELP: Final = """Show the agents that the hub has heard of, the newest registration first, or one of them.

An agent announces itself every 30 s; `alive` means that it was heard within 90 s.

\b
Exit codes:
  0    done
  1    no such agent, no server, no query API, or no permission
  2    wrong usage
  3    no answer in time
  130  ended by Ctrl-C

\b
Examples:
  hub-agents --identity bob
  hub-agents -i bob --alive 90s --capability python --capability review
  hub-agents -i bob alice
"""


@connects
def agents(
    *,
    connecting: Connecting,
    name: Annotated[str | None, typer.Argument(metavar="[ID]", help="Show this agent.")] = None,
    identity: As = None,
    capability: Annotated[
        list[str] | None, typer.Option("--capability", metavar="TEXT", help="That can do this; repeatable, all hold.")
    ] = None,
    alive: Annotated[
        str | None, typer.Option("--alive", metavar="SPAN", help="Heard within this time, as 90s or 10m.")
    ] = None,
    limit: Limit = LIMIT,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work(queries: Queries) -> Exit:
        out = stdout()
        if name is not None:
            if capability or alive:
                raise CommandError("an ID names one agent: give no filter besides", Exit.USAGE)
            raw = (await queries.ask("agent.get", {"identity": name}))["agent"]
            if json:
                show_raw(out, raw)
            else:
                _show_whole(read(raw, Agent))
            return Exit.OK
        within = None if alive is None else span_of(alive, "--alive")
        asked = {"capabilities": capability or None, "alive_within_secs": within}
        raws = await newest_first(queries, "agent.find", asked, "agents", limit=limit)
        if json:
            for raw in raws:
                show_raw(out, raw)
            return Exit.OK
        found = [read(raw, Agent) for raw in raws]
        rows = [
            (a.identity, "alive" if a.alive else "away", shown(a.last_seen), ", ".join(a.capabilities)) for a in found
        ]
        show_table(out, ("agent", "state", "last seen", "capabilities"), rows)
        return Exit.OK

    ask_api(
        "hub-agents",
        work,
        connecting=connecting,
        identity=identity,
        connect_timeout=connect_timeout,
        as_json=json,
        verbose=verbose,
    )


def _show_whole(agent: Agent) -> None:
    show_members(
        stdout(),
        [
            ("agent", agent.identity),
            ("state", "alive" if agent.alive else "away"),
            ("last seen", shown(agent.last_seen)),
            ("registered", shown(agent.registered_at)),
            ("capabilities", ", ".join(agent.capabilities)),
            ("metadata", msgspec.json.encode(agent.metadata).decode()),
        ],
    )


def hub_agents() -> None:
    """Run the console script `hub-agents`."""
    console_script("hub-agents", agents, HELP)
