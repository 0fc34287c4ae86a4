"""The commands of `python -m workers`."""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from hub.mailbox.opener import Durability
from hub.service.exits import Exit
from workers import plugins
from workers.loop_watchdog import BLOCKED_SECS
from workers.options import GRACE_SECS, INBOX_AGE_SECS, WorkerOptions
from workers.service import run

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Workers: handlers behind a durable queue on disk.",
)

PIPE_WIDTH: Final = 400

RUN_HELP: Final = """Run a worker: take direct messages as tasks, run the handler, answer each with one result.

What it has taken is on its disk, in the state folder; it survives every restart. SIGTERM lets running turns finish
within --grace, a second one does not. SIGUSR1 drains: nothing more is taken in, what is queued runs to its end.

\b
Exit codes:
  0   told to stop, everything settled
  1   internal error (start it again)
  2   wrong usage
  69  no NATS server (start it again)
  75  the mailbox cannot be opened now (start it again)
  78  configuration: bad option, unknown handler, identity in use, damaged mailbox

\b
Examples:
  python -m workers run echo --identity echo-1
  python -m workers run shell --identity builder --option command='make -C {prompt}' --workdir-root ~/src
  python -m workers run --handler mypackage.handlers:summarise --identity summariser-1
"""


def _pairs(given: list[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"expected key=value, got {text!r}", param_hint="--option")
        if key in pairs:
            raise typer.BadParameter(f"{key} is given twice", param_hint="--option")
        pairs[key] = value
    return pairs


@app.command("run", help=RUN_HELP)
def run_worker(
    name: Annotated[str | None, typer.Argument(help="An installed handler; see `list`.", metavar="[NAME]")] = None,
    identity: Annotated[str | None, typer.Option(metavar="ID", help="Who it is [NATS_HUB_IDENTITY].")] = None,
    handler: Annotated[
        str | None, typer.Option(metavar="PACKAGE.MODULE:NAME", help="A handler that is not installed.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, metavar="N", help="Turns at once.")] = None,
    accept_from: Annotated[
        list[str] | None, typer.Option(metavar="ID,…", help="Take work from these only; repeatable.")
    ] = None,
    allow_verify: Annotated[
        bool, typer.Option("--allow-verify", help="Let session starts bring a verify_cmd, a shell command.")
    ] = False,
    workdir_root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where turns work; a session's cwd must be inside.")
    ] = None,
    grace: Annotated[float, typer.Option(min=0, metavar="SECS", help="For running turns after SIGTERM.")] = GRACE_SECS,
    takeover: Annotated[
        bool, typer.Option("--takeover", help="Replace an instance of this identity on another machine.")
    ] = False,
    fresh_mailbox: Annotated[
        bool,
        typer.Option("--fresh-mailbox", help="After a damaged mailbox: begin anew. Retained messages can run again."),
    ] = False,
    durability: Annotated[
        str, typer.Option(metavar="full|normal", help="normal: faster, a power cut can cost the last moments.")
    ] = "full",
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of the handler; repeatable.")
    ] = None,
    inbox_age: Annotated[
        float, typer.Option(min=1, metavar="SECS", help="How long the inbox stream keeps messages.")
    ] = INBOX_AGE_SECS,
    blocked_limit: Annotated[
        float, typer.Option(min=0, metavar="SECS", help="End the process when a handler blocks its loop; 0: never.")
    ] = BLOCKED_SECS,
    event_source: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Keep each turn's life as a run there: NATS or PostgreSQL; see docs/events.md."
        ),
    ] = None,
    tenant: Annotated[str | None, typer.Option(metavar="T", help="Whose runs they are.")] = None,
    event_stream: Annotated[
        str | None, typer.Option(metavar="NAME", help="The JetStream stream of events, or the PostgreSQL schema.")
    ] = None,
    redactor: Annotated[
        str | None, typer.Option(metavar="PACKAGE.MODULE:NAME", help="What takes secrets out of events.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Debug lines too.")] = False,
) -> None:
    if (name is None) == (handler is None):
        raise typer.BadParameter("expected either NAME or --handler package.module:name", param_hint="NAME")
    options = WorkerOptions(
        handler=str(name or handler),
        identity=identity,
        concurrency=concurrency,
        accept_from=tuple(each for text in accept_from or [] for each in text.replace(",", " ").split()),
        allow_verify=allow_verify,
        workdir_root=workdir_root.absolute() if workdir_root is not None else None,
        grace_secs=grace,
        takeover=takeover,
        fresh_mailbox=fresh_mailbox,
        durability=_durability(durability),
        options=_pairs(option),
        inbox_age_secs=inbox_age,
        blocked_secs=blocked_limit,
        event_source=event_source,
        tenant=tenant,
        event_stream=event_stream,
        redactor=redactor,
        verbose=verbose,
    )
    raise typer.Exit(run(options))


def _durability(text: str) -> Durability:
    words: dict[str, Any] = {"full": "FULL", "normal": "NORMAL"}
    if text.lower() not in words:
        raise typer.BadParameter(f"expected full or normal, got {text!r}", param_hint="--durability")
    return words[text.lower()]  # type: ignore[no-any-return]


@app.command("list", help="Show the handlers that are installed, from where, and what failed to import and why.")
def list_handlers() -> None:
    table = Table("handler", "from", "target", "runs in", "at once", "timeout", "state", box=None, pad_edge=False)
    found = plugins.installed()
    for each in found:
        spec = each.spec
        if spec is None:
            table.add_row(each.name, each.origin, each.target, "", "", "", f"broken: {each.error}")
        else:
            timeout = f"{spec.timeout_secs:g} s" if spec.timeout_secs else "none"
            table.add_row(each.name, each.origin, each.target, spec.isolation, str(spec.concurrency), timeout, "ok")
    # A pipe has no width: what is cut there cannot be found.
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    Console(markup=False, emoji=False, highlight=False, soft_wrap=True, width=width).print(table)
    raise typer.Exit(Exit.ERROR if any(each.spec is None for each in found) else Exit.OK)
