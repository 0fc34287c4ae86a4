"""The health watch of a hub process: a light probe every few seconds, kept for readiness, `$SRV` and metrics."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog

from hub.delivery.config import DeliveryConfig
from hub.delivery.connection import Connection
from hub.delivery.probe import probe
from hub.delivery.report import Level, Report

log = structlog.get_logger(__name__)

EVERY_SECS: Final = 15.0  # as often as Prometheus scrapes: a request for status never makes one to JetStream
_MOST_SAID: Final = 20


class HealthWatch:
    """Looks, keeps the last report, and says in the log when a thing changes.

    Args:
        connection: the hub's.
        config: what the streams should be; None is core mode, in which no JetStream request is made.
        every_secs: from the end of one look to the next.
        on_report: called with each report; must not raise.
    """

    def __init__(
        self,
        connection: Connection,
        config: DeliveryConfig | None,
        *,
        every_secs: float = EVERY_SECS,
        on_report: Callable[[Report], None] | None = None,
    ) -> None:
        self.report: Report | None = None
        self._connection = connection
        self._config = config
        self._every_secs = every_secs
        self._on_report = on_report
        self._levels: dict[str, Level] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the first look is now. Starting twice is fine."""
        if self._task is None:
            self._task = self._connection.own(self._watch(), name="health-watch")

    async def stop(self) -> None:
        """Look no more. Stopping twice is fine."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def look(self) -> Report:
        """Look once, now."""
        config, mode = self._config or DeliveryConfig(), "core" if self._config is None else "durable"
        report = await probe(self._connection, config, mode=mode, is_light=True)  # type: ignore[arg-type]
        self._say_changes(report)
        self.report = report
        if self._on_report is not None:
            self._on_report(report)
        return report

    def failures(self) -> list[str]:
        """What did not work at the last look, a line each."""
        return [] if self.report is None else [f"{f.name}: {f.text}" for f in self.report.of("fail")]

    def warnings(self) -> list[str]:
        """What somebody should look at, a line each."""
        return [] if self.report is None else [f"{f.name}: {f.text}" for f in self.report.of("warn")]

    def describe(self) -> dict[str, Any]:
        """The last look, for status."""
        if self.report is None:
            return {"level": "unknown"}
        said = [*self.failures(), *self.warnings()]
        return {"level": self.report.level, "at": self.report.at, "findings": said[:_MOST_SAID]}

    async def _watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self._every_secs)

    def _say_changes(self, report: Report) -> None:
        """A line when something begins or ends, not one every 15 s."""
        levels: dict[str, Level] = {}
        for finding in report.findings:
            levels[finding.name] = finding.level
            if finding.level != self._levels.get(finding.name, "ok"):
                say = log.info if finding.level == "ok" else log.warning
                say("health", about=finding.name, level=finding.level, text=finding.text)
        for name, level in self._levels.items():
            if level != "ok" and name not in levels and report.at is not None:
                log.info("health", about=name, level="ok", text="over")
        self._levels = levels
