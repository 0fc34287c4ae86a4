"""The commands that run a hub: `hub-server`, and `python -m hub router|attach|api` for one role each."""

from collections.abc import Callable
from typing import Annotated, Final

import typer

from hub.cli.options import Connecting, connects
from hub.delivery.settings import DEFAULT_JS_PREFIX
from hub.process import HubOptions, Role, run

Durable = Annotated[bool, typer.Option("--durable", help="Durable delivery over JetStream; without it plain NATS.")]
DeliveryConfigFile = Annotated[
    str | None,
    typer.Option("--delivery-config", metavar="FILE", help="Streams and limits, JSON [NATS_HUB_DELIVERY_CONFIG]."),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL",
        help="Where history is kept: sqlite:///path, postgresql://…, none [NATS_HUB_DB; default in the state folder].",
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option("--metrics", metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz there."),
]
Bound = Annotated[bool, typer.Option("--bound", help="Refuse a server that lets the hub be anonymous.")]
ApiAdmin = Annotated[
    list[str] | None,
    typer.Option(
        "--api-admin", metavar="ID", help="May do everything in the query API; repeatable [NATS_HUB_API_ADMINS]."
    ),
]
AgentJsPrefix = Annotated[
    str,
    typer.Option("--agent-js-prefix", metavar="PREFIX", help="Where agents find JetStream's API; the attach says it."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Debug lines too.")]

EVERY_ROLE: Final[tuple[Role, ...]] = ("router", "attach", "api")


def hub_command(*roles: Role) -> Callable[..., None]:
    """The command that runs a hub process with these roles; each takes the same options."""

    @connects
    def run_hub(
        *,
        connecting: Connecting,
        durable: Durable = False,
        delivery_config: DeliveryConfigFile = None,
        db: Database = None,
        metrics: Metrics = None,
        bound: Bound = False,
        api_admin: ApiAdmin = None,
        agent_js_prefix: AgentJsPrefix = DEFAULT_JS_PREFIX,
        verbose: Verbose = False,
    ) -> None:
        options = HubOptions(
            roles=roles,
            durable=durable,
            delivery_config=delivery_config,
            db=db,
            metrics=metrics,
            bound=bound,
            api_admins=tuple(api_admin or ()),
            agent_js_prefix=agent_js_prefix,
            verbose=verbose,
            connection=connecting.given(),
        )
        raise typer.Exit(run(options))

    return run_hub


def hub_server() -> None:
    """Run the console script `hub-server`: every role in one process."""
    app = typer.Typer(add_completion=False)
    app.command(help="Run a hub: router, attach responder, query API and history in one process.")(
        hub_command(*EVERY_ROLE)
    )
    app(prog_name="hub-server")
