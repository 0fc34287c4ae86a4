"""The event source's benchmark: each figure beside a bare client that does the same, in turn, in one run.

python -m hub.bench.events [--quick] [--json] [--postgres URL]
"""

import secrets
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final, Literal

import msgspec
import nats
import typer
import uvloop
from nats.aio.client import Client
from rich.console import Console
from rich.table import Table

from hub.bench.event_measures import LATENCY_RATE, STREAM, Load, Measured, measure_jetstream, measure_postgres, store
from hub.bench.figures import Spread
from hub.bench.machine import machine_line
from hub.bench.nats_server import NatsServer
from hub.events import JetStreamEventSource, PostgresEventSource

Quantity = Literal["rate", "ms"]


QUICK: Final = Load(appends=50, pages=3, latencies=10, replay=2_000, rounds=1)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the table.

    Attributes:
        name: what was measured.
        unit: `events/s` or `ms`.
        measured: the event source.
        bare: the bare client doing the same; None where there is none.
        ratio: measured to bare, round by round.
        asked: the ratio or figure that is asked for, for people.
        is_met: does the median meet it? None where nothing is asked.
    """

    name: str
    unit: str
    measured: Spread
    bare: Spread | None
    ratio: Spread | None
    asked: str
    is_met: bool | None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The whole table."""

    machine: str
    load: Load
    lines: tuple[Line, ...]


# name, unit, the bare contender's name, what is asked, and how to tell whether a line meets it
_ASKED: Final[tuple[tuple[str, str, str, str, Callable[[float, float], bool] | None], ...]] = (
    ("append, one producer", "events/s", "bare publish", "ratio at least 0.5", lambda _, ratio: ratio >= 0.5),
    ("page of 100", "ms", "bare fetch of 100", "under 10 ms", lambda value, _: value < 10),
    ("append to subscriber, p50", "ms", "bare to consumer, p50", "under 3 ms", lambda value, _: value < 3),
    ("append to subscriber, p99", "ms", "bare to consumer, p99", "", None),
    ("replay", "events/s", "bare replay", "at least 20 000/s", lambda value, _: value >= 20_000),
    ("PostgreSQL append, one producer", "events/s", "", "", None),
    ("PostgreSQL page of 100", "ms", "", "under 10 ms", lambda value, _: value < 10),
    ("PostgreSQL append to subscriber, p50", "ms", "", "under 10 ms", lambda value, _: value < 10),
)


async def run(load: Load, *, postgres: str | None = None, say: Callable[[str], None] = lambda _: None) -> Figures:
    """Measure everything on a server of its own, round by round.

    Args:
        load: how much.
        postgres: address of a PostgreSQL database to measure too; a schema of its own is made there and dropped.
        say: told what is being measured.
    """
    rounds: list[Measured] = []
    async with _jetstream() as (connection, source), _postgres(postgres) as database:
        say(f"storing the {load.replay} events that are replayed")
        await store(connection, "replay", load.replay)
        for number in range(1, load.rounds + 1):
            say(f"round {number} of {load.rounds}")
            measured = await measure_jetstream(connection, source, load)
            if database is not None:
                measured |= await measure_postgres(database, load)
            rounds.append(measured)
    return Figures(machine=machine_line(), load=load, lines=_lines(rounds))


def _lines(rounds: list[Measured]) -> tuple[Line, ...]:
    lines = []
    for name, unit, bare, asked, is_met in _ASKED:
        if name not in rounds[0]:
            continue
        measured = Spread.of([one[name] for one in rounds])
        ratio = Spread.of([one[name] / one[bare] for one in rounds]) if bare else None
        lines.append(
            Line(
                name=name,
                unit=unit,
                measured=measured,
                bare=Spread.of([one[bare] for one in rounds]) if bare else None,
                ratio=ratio,
                asked=asked,
                is_met=None if is_met is None else is_met(measured.median, ratio.median if ratio else 0.0),
            )
        )
    return tuple(lines)


@asynccontextmanager
async def _jetstream() -> AsyncIterator[tuple[Client, JetStreamEventSource]]:
    with TemporaryDirectory(prefix="hub-bench-") as home:
        server = NatsServer(Path(home) / "nats")
        await server.start()
        try:
            connection = await nats.connect(server.url)
            source = JetStreamEventSource(connection, stream=STREAM, cursor_secret=secrets.token_bytes(32))
            await source.ensure_stream()
            yield connection, source
            await source.close()
            await connection.close()
        finally:
            await server.kill()


@asynccontextmanager
async def _postgres(url: str | None) -> AsyncIterator[PostgresEventSource | None]:
    if url is None:
        yield None
        return
    import asyncpg  # noqa: PLC0415 - only where it is measured

    schema = f"bench_{uuid.uuid4().hex[:12]}"
    async with (
        asyncpg.create_pool(url, min_size=2, max_size=4) as pool,
        PostgresEventSource(pool, schema=schema, cursor_secret=secrets.token_bytes(32), listen=url) as source,
    ):
        try:
            await source.migrate()
            yield source
        finally:
            await pool.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


def show(console: Console, figures: Figures) -> None:
    """Print the table."""
    load = figures.load
    console.print("\n[bold]events[/bold]: the event source beside a bare client")
    console.print(
        f"{load.rounds} rounds in turn; {load.appends} appends, a run of {load.replay} events, latency at "
        f"{LATENCY_RATE:g}/s. Medians (range)."
    )
    console.print(figures.machine, style="dim")
    table = Table("", "", "event source", "bare", "ratio", "asked", show_lines=True)
    for line in figures.lines:
        form = ".0f" if line.unit == "events/s" else ".2f"
        verdict = "" if line.is_met is None else ": [green]met[/green]" if line.is_met else ": [red]missed[/red]"
        cells = [_cell(line.measured, form), _cell(line.bare, form), _cell(line.ratio, ".2f")]
        table.add_row(line.name, line.unit, *cells, line.asked + verdict)
    console.print(table)


def _cell(spread: Spread | None, form: str) -> str:
    return "" if spread is None else f"{spread.median:{form}}\n({spread.least:{form}}..{spread.most:{form}})"


def main(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run of seconds; its figures say nothing.")] = False,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often everything is measured.")] = 5,
    postgres: Annotated[str | None, typer.Option("--postgres", metavar="URL", help="Measure PostgreSQL too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON on stdout.")] = False,
) -> None:
    """Measure the event source beside a bare client."""
    load = QUICK if quick else Load(rounds=rounds)
    console = Console()
    with Console(stderr=True).status("starting") as status:
        figures = uvloop.run(run(load, postgres=postgres, say=status.update))
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(figures)).decode() + "\n")
    else:
        show(console, figures)


if __name__ == "__main__":
    typer.run(main)
