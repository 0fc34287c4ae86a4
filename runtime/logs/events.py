"""The supervisor's own events: one JSON line each, through the same pump as the children's, so that order is kept.

Not structlog: the lines share a console and its rules with those of the children, and an idle supervisor stays small.
"""

import time
from typing import Any, Final

import msgspec

from runtime.logs.files import timestamp
from runtime.logs.lines import Batch
from runtime.logs.pump import LogPump

NAME: Final = "runtime"


class EventLog:
    """Says what happens, with ids.

    Args:
        pump: where lines go.
    """

    def __init__(self, pump: LogPump) -> None:
        self._pump = pump

    def info(self, event: str, **fields: Any) -> None:
        """A state change."""
        self._say("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something that the operator may want to mend."""
        self._say("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something that does not work."""
        self._say("error", event, fields)

    def _say(self, level: str, event: str, fields: dict[str, Any]) -> None:
        at = time.time()
        known = {key: value for key, value in fields.items() if value is not None}
        line = msgspec.json.encode({"time": timestamp(at), "level": level, "event": event, **known}, enc_hook=str)
        self._pump.post(Batch(NAME, 0, "event", at, [line]))
