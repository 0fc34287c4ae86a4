"""The command tree of `python -m hub`."""

import typer

from hub.cli import agents, bench, dead, delegate, doctor, events, history, publish, session, stats, thread, watch
from hub.cli.running import CONTEXT
from hub.cli.server import EVERY_ROLE, hub_command

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=CONTEXT,
    help="The hub: durable messages between agents on NATS.",
)
app.command("server", help="Every role in one process (also: hub-server).")(hub_command(*EVERY_ROLE))
app.command("router", help="A router, with the mirror of history.")(hub_command("router"))
app.command("attach", help="An attach responder.")(hub_command("attach"))
app.command("api", help="The query API.")(hub_command("api"))
app.add_typer(bench.app, name="bench")
app.add_typer(dead.app, name="dead")
app.add_typer(session.app, name="session")
app.add_typer(events.app, name="events")
for name, command, text in (
    ("publish", publish.publish, publish.HELP),
    ("watch", watch.watch, watch.HELP),
    ("delegate", delegate.delegate, delegate.HELP),
    ("doctor", doctor.doctor, doctor.HELP),
    ("history", history.history, history.HELP),
    ("thread", thread.thread, thread.HELP),
    ("agents", agents.agents, agents.HELP),
    ("stats", stats.stats, stats.HELP),
):
    summary = text.partition("\n")[0]
    app.command(name, help=text, short_help=summary, context_settings=CONTEXT)(command)
