"""What `status` says: numbers, not adjectives."""

import os

import msgspec

from runtime.logs.files import timestamp
from runtime.logs.rendering import as_text, event_text
from runtime.meter import Meter, own_memory_bytes
from runtime.plan import hide_password
from runtime.restart import describe
from runtime.slot import Slot, State
from runtime.supervisor import Supervisor


class ReplicaReport(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One replica.

    Attributes:
        process, index, label: which.
        state, why: see `State`.
        pid: of the leader.
        uptime_secs: since its start.
        ready_secs: since it is ready.
        starts: of this replica by this `up`.
        restarts_in_window, restart_limit: how near it is to being given up.
        next_start_in_secs: in backoff.
        last_exit, last_exit_ago_secs: how its last run ended.
        memory_bytes, cpu_percent, processes: of all that came from it.
        reports, figures: what it says itself (STATUS=…, X_NAME=…).
        tail: its last lines.
    """

    process: str
    index: int
    label: str
    state: str
    why: str = ""
    pid: int | None = None
    uptime_secs: float | None = None
    ready_secs: float | None = None
    starts: int = 0
    restarts_in_window: int = 0
    restart_limit: int = 0
    next_start_in_secs: float | None = None
    last_exit: str | None = None
    last_exit_ago_secs: float | None = None
    memory_bytes: int | None = None
    cpu_percent: float | None = None
    processes: int | None = None
    reports: str = ""
    figures: dict[str, str] = {}
    tail: list[str] = []


class StatusReport(msgspec.Struct, kw_only=True):
    """All of it.

    Attributes:
        pid, uptime_secs, memory_bytes: of the supervisor.
        state: `starting`, `up` or `stopping`.
        ready_after_secs: how long it took until everything was up.
        state_dir, nats_url, files: what it runs by.
        replicas: in the order of start.
    """

    pid: int
    state: str
    uptime_secs: float
    ready_after_secs: float | None
    memory_bytes: int
    state_dir: str
    nats_url: str | None
    nats_source: str
    files: dict[str, str]
    replicas: list[ReplicaReport]


class Reporter:
    """Makes reports of a supervisor.

    Args:
        supervisor: of which.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._meter = Meter()

    def status(self, now: float, *, lines: int = 0, name: str | None = None) -> StatusReport:
        """The state of everything.

        Args:
            now: the clock of the deadlines.
            lines: how many last lines of each replica; a failed one shows them all.
            name: this process only.
        """
        supervisor = self._supervisor
        slots = [
            slot
            for group in supervisor.groups.values()
            if name is None or group.plan.name == name
            for slot in group.everyone
        ]
        usages = self._meter.measure([slot.child for slot in slots if slot.child is not None], now)
        reports = []
        for slot in slots:
            report = self._replica(slot, now, lines)
            if slot.child is not None and (usage := usages.get(slot.child.shim_pid)) is not None:
                report.memory_bytes, report.cpu_percent, report.processes = (
                    usage.memory_bytes,
                    usage.cpu_percent,
                    usage.processes,
                )
            reports.append(report)
        server = supervisor.server
        return StatusReport(
            pid=os.getpid(),
            state="stopping" if supervisor.is_stopping else "starting" if supervisor.ready_after_secs is None else "up",
            uptime_secs=round(now - supervisor.started_at, 1),
            ready_after_secs=supervisor.ready_after_secs and round(supervisor.ready_after_secs, 2),
            memory_bytes=own_memory_bytes(),
            state_dir=str(supervisor.plan.state_dir.root),
            nats_url=server.url if server is not None else hide_password(supervisor.plan.nats_url),
            nats_source="our own nats-server" if server is not None else supervisor.plan.nats_source,
            files=supervisor.plan.files,
            replicas=reports,
        )

    def _replica(self, slot: Slot, now: float, lines: int) -> ReplicaReport:
        settings = slot.plan.settings
        child = slot.child
        window = [at for at in slot.history.restarts if now - at < settings.restart_window_secs]
        shown = lines or (20 if slot.state is State.FAILED else 0)
        return ReplicaReport(
            process=slot.plan.name,
            index=slot.index,
            label=slot.label,
            state=str(slot.state),
            why=slot.why,
            pid=child.pid or None if child else None,
            uptime_secs=round(now - child.started_at, 1) if child else None,
            ready_secs=round(now - child.ready_at, 1)
            if child and child.is_ready and child.ready_at is not None
            else None,
            starts=slot.starts,
            restarts_in_window=len(window),
            restart_limit=settings.restart_limit,
            next_start_in_secs=round(max(0.0, slot.next_start_at - now), 1) if slot.next_start_at is not None else None,
            last_exit=describe(slot.last) if slot.last is not None else None,
            last_exit_ago_secs=round(now - slot.last_at, 1) if slot.last_at is not None else None,
            reports=child.status if child else "",
            figures=child.figures if child else {},
            tail=[
                f"{timestamp(at)} {stream} {event_text(line) if stream == 'event' else as_text(line)}"
                for at, stream, line in self._supervisor.pump.tail(slot.label)[-shown:]
            ]
            if shown
            else [],
        )
