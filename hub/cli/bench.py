"""The command `python -m hub bench`: measures the hub against its comparators on this machine."""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Annotated

import msgspec
import structlog
import typer
import uvloop
from rich.console import Console

from hub.bench import table
from hub.bench.catalogue import CASES
from hub.bench.children import ChildFailed
from hub.bench.figures import QUICK_MESSAGES, Load, Report
from hub.bench.load import LoadError
from hub.bench.nats_server import NoServerBinary, ServerEnded
from hub.bench.rounds import Case, run
from hub.bench.stage import Stuck
from hub.service import logs
from hub.service.exits import Exit

_DEFAULT = Load()

Messages = Annotated[int, typer.Option("--messages", min=100, help="Messages measured in one round.")]
Size = Annotated[int, typer.Option("--size", min=1, max=1_000_000, help="Bytes of an envelope.")]
Rate = Annotated[float, typer.Option("--rate", min=1.0, help="Messages a second while latency is measured.")]
Window = Annotated[int, typer.Option("--window", min=1, help="Publishes in flight of a sender.")]
Rounds = Annotated[int, typer.Option("--rounds", min=1, help="How often every contender is measured, in turn.")]
Quick = Annotated[bool, typer.Option("--quick", help="A smoke run of seconds; its figures say nothing.")]
Json = Annotated[bool, typer.Option("--json", help="The reports as JSON on stdout.")]

app = typer.Typer(no_args_is_help=True, help="Measure the hub against its comparators, on a server of its own.")


def bench_command(*cases: Case) -> Callable[..., None]:
    """The command that measures these cases."""

    def run_bench(
        messages: Messages = _DEFAULT.messages,
        size: Size = _DEFAULT.size,
        rate: Rate = _DEFAULT.rate,
        window: Window = _DEFAULT.window,
        rounds: Rounds = _DEFAULT.rounds,
        quick: Quick = False,
        as_json: Json = False,
    ) -> None:
        load = Load(messages=messages, size=size, rate=rate, window=window, rounds=rounds)
        if quick:
            load = msgspec.structs.replace(load, messages=QUICK_MESSAGES, latency_messages=20, rounds=1)
        raise typer.Exit(_bench(cases, load, as_json=as_json))

    return run_bench


def _bench(cases: tuple[Case, ...], load: Load, *, as_json: bool) -> int:
    logs.configure()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))  # the table is the output
    progress = Console(stderr=True)
    reports: list[Report] = []
    try:
        with (
            progress.status("starting") as status,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            for case in cases:
                report = runner.run(run(case, load, status.update))
                reports.append(report)
                if not as_json:
                    table.show(Console(), report)
    except (ChildFailed, LoadError, NoServerBinary, ServerEnded, Stuck) as error:
        progress.print(f"cannot measure: {error}", style="red", markup=False)
        return Exit.ERROR
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(reports)).decode() + "\n")
    return Exit.OK


for _case in CASES.values():
    app.command(_case.name, help=f"{_case.title}.")(bench_command(_case))
app.command("all", help="All of them.")(bench_command(*CASES.values()))
