"""A hub in the test's own process: a router and, when durable, an attach responder, on a connection of their own."""

import contextlib

from prometheus_client import CollectorRegistry

from hub.delivery.attach import AttachResponder
from hub.delivery.config import DeliveryConfig
from hub.delivery.connection import Connection
from hub.router.metrics import RouterMetrics
from hub.router.service import RouterService
from tests.support.bus import connect

QUICK = DeliveryConfig(ack_wait_secs=1)


class LiveHub:
    """Starts and stops as often as the test likes; what is stored stays at the server.

    Args:
        url: the nats-server.
        mode: `core`, or `durable` (a bound hub is a durable one).
    """

    def __init__(self, url: str, mode: str, *, config: DeliveryConfig = QUICK) -> None:
        self.url = url
        self.is_durable = mode != "core"
        self.config = config
        self.connection: Connection | None = None
        self.router: RouterService | None = None
        self.attach: AttachResponder | None = None

    async def start(self, *, router: bool = True, attach: bool = True) -> "LiveHub":
        self.connection = await connect(self.url)
        if router:
            config = self.config if self.is_durable else None
            metrics = RouterMetrics(CollectorRegistry())
            self.router = RouterService(self.connection, config=config, storage=None, metrics=metrics)
            await self.router.start()
        if attach and self.is_durable:
            self.attach = AttachResponder(self.connection, self.config)
            await self.attach.start()
        return self

    async def stop(self) -> None:
        """In order; stopping what does not run is fine."""
        if self.attach is not None:
            await self.attach.stop()
        if self.router is not None:
            await self.router.stop()
        await self.vanish()

    async def vanish(self) -> None:
        """Be gone from one moment to the next: whatever is in flight stays unanswered."""
        connection, self.connection = self.connection, None
        self.router = self.attach = None
        if connection is not None:
            with contextlib.suppress(ConnectionError):
                await connection.close()
