"""The server's clock: ages of stored messages are told by the clock that stamped them."""

import time
from datetime import datetime
from typing import Final

import msgspec
import structlog

from hub.delivery.connection import Connection
from hub.delivery.errors import DeliveryError

log = structlog.get_logger(__name__)

REFRESH_SECS: Final = 60.0


class _Info(msgspec.Struct):
    ts: datetime | None = None


_decode_info = msgspec.json.Decoder(_Info).decode


class ServerClock:
    """Nanoseconds since the epoch as the server sees it, kept by the answers of a stream's info.

    Between two answers the local monotonic clock carries it, so a jump of the local wall clock changes nothing.
    """

    def __init__(self, connection: Connection, stream: str) -> None:
        self._connection = connection
        self._subject = f"{connection.settings.js_prefix}.STREAM.INFO.{stream}"
        self._server_ns = time.time_ns()  # until the first answer
        self._local_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        """The server's time now, within half a round trip."""
        return self._server_ns + time.monotonic_ns() - self._local_ns

    async def refresh(self) -> bool:
        """Ask the server; False when it did not answer (the last known offset goes on)."""
        asked_ns = time.monotonic_ns()
        try:
            answer = await self._connection.request(self._subject, b"", timeout_secs=5.0)
            told = _decode_info(answer.data).ts
        except (DeliveryError, msgspec.DecodeError) as error:
            log.info("server's clock not read", error=str(error))
            return False
        if told is None:
            return False
        answered_ns = time.monotonic_ns()
        self._server_ns = int(told.timestamp() * 1e9)
        self._local_ns = (asked_ns + answered_ns) // 2
        return True
