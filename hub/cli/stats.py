"""`hub-stats`: how much goes over the hub, how quickly it is answered, and where."""

import asyncio
from typing import Annotated, Any, Final

import msgspec
import typer
from msgspec import Raw

from hub.api.records import Bucket
from hub.cli.asking import ask_api, read
from hub.cli.moments import span_of
from hub.cli.options import CONNECT_SECS, As, Connecting, ConnectTimeout, Json, Verbose, connects
from hub.cli.output import Output, stdout
from hub.cli.running import console_script
from hub.cli.tables import show_members, show_table
from hub.client import Queries
from hub.service.exits import Exit
from hub.storage.records import Activity, Hotspot, Latency

HELP: Final = """Show figures of the last hour, or of --window: messages and errors, how long a message waits for its
first reply, and the channels with the most messages. They are computed from history, so they hold for all routers
together.

With --agent it also shows what one identity sent and was sent, and what it has not answered; your own, or as an API
admin anybody's.

\b
Exit codes:
  0    done
  1    no server, no query API, or no permission
  2    wrong usage
  3    no answer in time
  130  ended by Ctrl-C

\b
Examples:
  hub-stats --identity bob
  hub-stats -i bob --window 7d --agent bob
  hub-stats -i ops --window 10m --follow
  hub-stats -i ops --json | jq .latency.p99_ms
"""

HOUR: Final = "1h"
FOLLOW_SECS: Final = 5.0
_MOST_MINUTES_SECS: Final = 86_400.0  # a day by the minute; more is asked by the day, which is fewer numbers


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All figures together."""

    window_secs: float
    messages: int
    errors: int
    latency: Latency
    hotspots: list[Hotspot]
    agent: Activity | None


@connects
def stats(
    *,
    connecting: Connecting,
    identity: As = None,
    window: Annotated[str, typer.Option("--window", "-w", metavar="SPAN", help="How far back: 10m, 1h, 7d.")] = HOUR,
    channel: Annotated[
        str | None, typer.Option("--channel", "-c", metavar="NAME", help="Replies to messages of this channel only.")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", "-a", metavar="ID", help="Show this identity too.")] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, max=1000, help="How many channels.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Again every 5 s, until Ctrl-C.")] = False,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work(queries: Queries) -> Exit:
        out = stdout()
        secs = span_of(window, "--window")
        while True:
            overview = await look(queries, secs=secs, channel=channel, agent=agent, top=top)
            if json:
                out.json(overview)
            else:
                _show(out, overview, window=window, agent=agent)
            if not follow or out.is_broken:
                return Exit.OK
            await asyncio.sleep(FOLLOW_SECS)
            if not json:
                out.line("")

    ask_api(
        "hub-stats",
        work,
        connecting=connecting,
        identity=identity,
        connect_timeout=connect_timeout,
        as_json=json,
        verbose=verbose,
    )


async def look(queries: Queries, *, secs: float, channel: str | None, agent: str | None, top: int) -> Overview:
    """Ask for all figures."""
    asked = {"secs": secs}
    rate = {**asked, "interval": "minute" if secs <= _MOST_MINUTES_SECS else "day"}
    latency = await queries.ask("stats.latency", {**asked, "channel": channel})
    hotspots = await queries.ask("stats.channel_hotspots", {**asked, "limit": top})
    activity = None
    if agent is not None:
        answer = await queries.ask("stats.agent_activity", {**asked, "identity": agent})
        activity = _whole(answer, Activity)
    return Overview(
        window_secs=secs,
        messages=_total(await queries.ask("stats.message_rate", rate)),
        errors=_total(await queries.ask("stats.error_rate", rate)),
        latency=_whole(latency, Latency),
        hotspots=read(hotspots["hotspots"], list[Hotspot]),
        agent=activity,
    )


def _total(answer: dict[str, Raw]) -> int:
    return sum(bucket.count for bucket in read(answer["data"], list[Bucket]))


def _whole(answer: dict[str, Raw], kind: type[Any]) -> Any:
    return read(Raw(msgspec.json.encode(answer)), kind)


def _show(out: Output, overview: Overview, *, window: str, agent: str | None) -> None:
    waits = overview.latency
    members: list[tuple[str, object]] = [
        ("window", window),
        ("messages", overview.messages),
        ("errors", overview.errors),
        ("replies", waits.samples),
        ("first reply p50", _ms(waits.p50_ms)),
        ("first reply p99", _ms(waits.p99_ms)),
        ("first reply most", _ms(waits.max_ms)),
    ]
    if overview.agent is not None:
        members += [
            (f"{agent} sent", overview.agent.sent),
            (f"{agent} was sent", overview.agent.received_dm),
            (f"{agent} events", overview.agent.events),
            (f"{agent} has to answer", overview.agent.pending),
        ]
    show_members(out, members)
    if overview.hotspots:
        out.line("")
        show_table(out, ("channel", "messages"), [(spot.channel, spot.messages) for spot in overview.hotspots])


def _ms(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f} ms" if value < 1000 else f"{value / 1000:.1f} s"


def hub_stats() -> None:
    """Run the console script `hub-stats`."""
    console_script("hub-stats", stats, HELP)
