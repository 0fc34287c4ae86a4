"""The commands that run a hub: `hub-server`, and `python -m hub router|attach` for one role each."""

from typing import Annotated

import typer

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
    typer.Option("--api-admin", metavar="ID", help="An identity that may do everything in the query API; repeatable."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Debug lines too.")]


def _run(
    roles: tuple[Role, ...],
    durable: bool,
    delivery_config: str | None,
    db: str | None,
    metrics: str | None,
    bound: bool,
    verbose: bool,
) -> None:
    options = HubOptions(
        roles=roles,
        durable=durable,
        delivery_config=delivery_config,
        db=db,
        metrics=metrics,
        bound=bound,
        verbose=verbose,
    )
    raise typer.Exit(run(options))
