"""A NATS micro service (ADR-32): our processes answer `$SRV.PING`, `INFO` and `STATS`, so that `nats micro` sees them.

nats-py's own `nats.micro` answers on whatever reply subject it is given and shows figures per endpoint only; here
replies are checked as everywhere, and STATS carries what the process says of itself.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from hub.delivery.connection import Connection
from hub.delivery.nats_client import Incoming

_VERBS: Final = ("PING", "INFO", "STATS")
_REPLIES: Final = ("_INBOX.", "_INBOX_", "_R_.")


class MicroService:
    """One instance of a service.

    Args:
        connection: the hub's connection.
        name: `hub-router`, `hub-attach`, …
        version: semantic version.
        description: for people.
        endpoints: name → (subject, queue group) of what it answers or takes.
        stats: called at each STATS; its mapping goes out as each endpoint's `data`.
        metadata: what every answer says of the instance, as `{"mode": "durable"}`.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        name: str,
        version: str,
        description: str,
        endpoints: Mapping[str, tuple[str, str]],
        stats: Callable[[], Mapping[str, Any]],
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._connection = connection
        self._description = description
        self._endpoints = dict(endpoints)
        self._stats = stats
        self._started = datetime.now(UTC)
        self._identity: dict[str, Any] = {
            "name": name,
            "id": secrets.token_hex(11),
            "version": version,
            "metadata": dict(metadata or {}),
        }
        self._sids: list[int] = []

    async def start(self) -> None:
        """Begin to answer. Starting twice is fine."""
        if self._sids:
            return
        name, instance = self._identity["name"], self._identity["id"]
        for verb in _VERBS:
            for subject in (f"$SRV.{verb}", f"$SRV.{verb}.{name}", f"$SRV.{verb}.{name}.{instance}"):
                self._sids.append(await self._connection.client.subscribe_direct(subject, self._on_request))

    async def stop(self) -> None:
        """Answer no more. Stopping twice is fine."""
        sids, self._sids = self._sids, []
        await asyncio.gather(*map(self._connection.client.unsubscribe_direct, sids))

    def _on_request(self, message: Incoming) -> None:
        if not message.reply.startswith(_REPLIES) or any(sign in message.reply for sign in "*> "):
            return
        verb = message.subject.split(".")[1]
        answer: dict[str, Any] = {"type": f"io.nats.micro.v1.{verb.lower()}_response", **self._identity}
        if verb == "INFO":
            answer |= {
                "description": self._description,
                "endpoints": [
                    {"name": name, "subject": subject, "queue_group": queue, "metadata": {}}
                    for name, (subject, queue) in self._endpoints.items()
                ],
            }
        elif verb == "STATS":
            figures = dict(self._stats())
            answer |= {
                "started": self._started.isoformat().replace("+00:00", "Z"),
                "endpoints": [
                    {
                        "name": name,
                        "subject": subject,
                        "queue_group": queue,
                        "num_requests": int(figures.get("requests", 0)),
                        "num_errors": int(figures.get("errors", 0)),
                        "last_error": "",
                        "processing_time": 0,
                        "average_processing_time": 0,
                        "data": figures,
                    }
                    for name, (subject, queue) in self._endpoints.items()
                ],
            }
        body = msgspec.json.encode(answer)
        self._connection.client.send(b"PUB %b %d\r\n%b\r\n" % (message.reply.encode(), len(body), body))
