"""A real nats-server on loopback for one test: private store, free port, killed and restarted at will."""

import shutil
import signal

from hub.bench import nats_server
from hub.bench.nats_server import free_port, server_binary

__all__ = ["NatsServer", "free_port", "server_binary"]


class NatsServer(nats_server.NatsServer):
    """The bench's nats-server, and what only tests do to one."""

    async def start(self) -> "NatsServer":
        await super().start()
        return self

    def reload(self) -> None:
        """SIGHUP: read the config again."""
        self.write_config()
        self.signal(signal.SIGHUP)

    async def restart(self, *, graceful: bool = False, lose_store: bool = False) -> None:
        """End it and start it again on the same port; `lose_store` deletes what JetStream stored in between."""
        await (self.stop() if graceful else self.kill())
        if lose_store:
            shutil.rmtree(self.store, ignore_errors=True)
        await self.start()
