"""`hub-doctor`: looks at server, hub, streams, consumers and grants, and says what is wrong, one line each."""

import os
from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from hub.cli.options import CONNECT_SECS, As, Connecting, ConnectTimeout, Json, Verbose, connects
from hub.cli.output import harmless, stdout
from hub.cli.running import console_script, run_command
from hub.delivery import config as delivery_config
from hub.delivery.connection import Connection
from hub.delivery.errors import CannotConnect
from hub.delivery.probe import probe
from hub.delivery.report import Finding, Level, Report
from hub.protocol import names
from hub.service.exits import Exit

HELP: Final = """Look at everything that delivery stands on, and say what is wrong.

Looks and changes nothing: the NATS server and its version, the routers and attach responders that answer, JetStream,
the three streams and how they differ from the delivery config, the consumers with what waits and what is stalled, how
long the oldest message has waited to be routed, inboxes that are about to drop unread messages, the mirrors of
history, and whether this identity may do what an agent must.

One line each: ok, warn (works, and somebody should look) or fail (does not work). What this identity may not see is
said and is no alarm: in bound mode an agent sees its own part; run it as an operator to see all of it.

\b
Exit codes:
  0  nothing to warn of
  1  a warning or a failure, also when there is no server
  2  wrong usage: an option, a setting or the delivery config

\b
Examples:
  hub-doctor
  hub-doctor --identity bob              may bob do what an agent must?
  hub-doctor --inbox bob --inbox carol   show these inboxes, whatever their state
  hub-doctor --json | jq '.findings[] | select(.level != "ok")'
"""

_STYLES: Final[dict[Level, str]] = {"ok": "green", "warn": "yellow", "fail": "bold red"}


class Mode(StrEnum):
    """What the hub is."""

    AUTO = "auto"
    CORE = "core"
    DURABLE = "durable"


@connects
def doctor(
    *,
    connecting: Connecting,
    identity: As = None,
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode",
            metavar="auto|core|durable",
            help="What the hub is: auto finds out, core makes no JetStream request.",
        ),
    ] = Mode.AUTO,
    delivery_config_file: Annotated[
        str | None,
        typer.Option(
            "--delivery-config", metavar="FILE", help="What the streams should be, JSON [NATS_HUB_DELIVERY_CONFIG]."
        ),
    ] = None,
    inbox: Annotated[
        list[str] | None,
        typer.Option("--inbox", metavar="ID", help="Show this identity's inbox whatever its state; repeatable."),
    ] = None,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work() -> Exit:
        config = delivery_config.load(delivery_config_file, os.environ)
        settings = connecting.settings(identity)
        wanted = [names.identity(each) for each in inbox or ()]
        try:
            connection = await Connection.open(settings, name="hub-doctor", timeout_secs=connect_timeout)
        except CannotConnect as error:
            return _tell(Report("unknown", (Finding("server", "fail", str(error)),)), as_json=json)
        try:
            report = await probe(connection, config, mode=mode.value, inboxes=wanted)
        finally:
            await connection.close()
        return _tell(report, as_json=json)

    run_command("hub-doctor", work, verbose=verbose, as_json=json)


def _tell(report: Report, *, as_json: bool) -> Exit:
    out = stdout()
    if as_json:
        out.json(
            {
                "level": report.level,
                "mode": report.mode,
                "at": report.at,
                "findings": [
                    {"name": f.name, "level": f.level, "text": f.text, "data": f.data} for f in report.findings
                ],
            }
        )
    else:
        width = max(len(finding.name) for finding in report.findings)
        console = Console(highlight=False, soft_wrap=True) if out.is_terminal else None
        for finding in report.findings:
            name, text = harmless(finding.name), harmless(finding.text)
            if console is None:
                out.line(f"{finding.level:4}  {name:{width}}  {text}")
            else:
                line = Text.assemble((f"{finding.level:4}", _STYLES[finding.level]), f"  {name:{width}}  ", text)
                console.print(line)
    return Exit.OK if report.level == "ok" else Exit.ERROR


def hub_doctor() -> None:
    """Run the console script `hub-doctor`."""
    console_script("hub-doctor", doctor, HELP)
