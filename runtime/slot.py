"""One replica: the actor that keeps it as its operator and its settings want it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final

from runtime.bell import FOREVER
from runtime.child import Child, ChildSpec
from runtime.plan import ProcessPlan
from runtime.restart import Ending, Finished, GiveUp, History, Restart, decide, describe
from runtime.surroundings import Surroundings

_PROBE_POLL_SECS: Final = 0.05  # while it starts
_PROBE_SECS: Final = 2.0  # once it is ready
_PROBE_AGAIN_SECS: Final = 0.5  # after a failure
_PROBE_FAILURES: Final = 3  # one slow answer is no death

Probe = Callable[[], Awaitable[str]]
"""A health check: returns what is wrong, empty when nothing is."""


class State(StrEnum):
    """Of a replica: what it means; ways out."""

    STOPPED = "stopped"  # the operator or the end of `up` wants it down; → waiting
    WAITING = "waiting"  # for the readiness of another process; → starting, backoff, stopped
    STARTING = "starting"  # executed, not ready yet; → ready, stopping, backoff, failed
    READY = "ready"  # does its work; → stopping, draining, backoff, failed, finished
    DRAINING = "draining"  # takes nothing new, works off what it has; → stopped, stopping
    STOPPING = "stopping"  # got SIGTERM; → stopped
    BACKOFF = "backoff"  # waits before its next start; → waiting, stopped
    FINISHED = "finished"  # ended as it should and is not restarted; → waiting
    FAILED = "failed"  # given up, parked; → waiting, by the operator


RESTING: Final = frozenset({State.STOPPED, State.FINISHED, State.FAILED})


class Slot:
    """One replica.

    Args:
        plan: what it runs.
        index: which replica.
        around: what it shares with the others.
        probe: a health check, for a process that does not speak sd_notify.
        held_fds: more locks for its shim.
    """

    def __init__(
        self,
        plan: ProcessPlan,
        index: int,
        around: Surroundings,
        *,
        probe: Probe | None = None,
        held_fds: tuple[int, ...] = (),
    ) -> None:
        self.plan = plan
        self.index = index
        self.label = f"{plan.name}.{index}"
        self.state = State.STOPPED
        self.child: Child | None = None
        self.history = History()
        self.last: Ending | None = None
        self.last_at: float | None = None
        self.why = ""  # of its state, for people
        self.starts = 0
        self.next_start_at: float | None = None
        self._around = around
        self._bell = around.bell
        self._probe = probe
        self._held_fds = held_fds
        self._wants_up = False
        self._is_retired = False
        self._stop_by = 0.0
        self._drains = False

    # What the operator and the supervisor ask; each only notes, the actor acts.

    def want_up(self) -> None:
        """Start it, as new: what it did before is forgiven. One that is up stays up."""
        if not self._wants_up or self.state in RESTING:
            self.history = History()
            self._wants_up = True
            if self.state in RESTING:
                self._become(State.WAITING, "")
        if self._drains:
            # It is stopped like any other, and started anew.
            self._drains = False
            self._stop_by = self._bell.now() + self.plan.settings.stop_timeout_secs
        self._bell.ring()

    def want_down(self, stop_by: float, *, drains: bool = False) -> None:
        """Stop it; it is killed at `stop_by`. Of two deadlines the earlier one holds; a stop ends a drain."""
        if not self._wants_up and self._drains == drains:
            stop_by = min(stop_by, self._stop_by)
        self._wants_up = False
        self._drains = drains
        self._stop_by = stop_by
        self._bell.ring()

    def retire(self) -> None:
        """End the actor once the replica is down."""
        self._is_retired = True
        self._bell.ring()

    @property
    def is_down(self) -> bool:
        """Is nothing of it running?"""
        return self.child is None and self.state in RESTING

    @property
    def is_up(self) -> bool:
        """Does it do its work?"""
        return self.state is State.READY and self.child is not None and self.child.is_ready

    async def run(self) -> None:
        """The actor: returns when it is retired and down."""
        while True:
            if self._wants_up and self.state not in RESTING:
                await self._run_once()
            elif self.state not in RESTING:
                self._become(State.STOPPED, "")
            elif self._is_retired:
                return
            else:
                await self._bell.until(
                    lambda: self._is_retired or self.state not in RESTING, self._bell.now() + FOREVER
                )

    async def _run_once(self) -> None:
        """From waiting to the end of one run, and what follows from it."""
        if not await self._wait_for_others():
            return
        if self._is_wanted_down():
            return
        ending = await self._run_child()
        self.last, self.last_at = ending, self._bell.now()
        if self.state not in {State.STOPPING, State.DRAINING}:
            await self._after(ending)
            return
        self._around.log.info("stopped", process=self.label, how=describe(ending))
        # Asked for again while it stopped: as new.
        self._become(State.WAITING if self._wants_up else State.STOPPED, "")

    async def _wait_for_others(self) -> bool:
        settings = self.plan.settings

        def missing() -> list[str]:
            return [name for name in settings.after if not self._around.is_ready(name)]

        if not missing():
            return True
        self._become(State.WAITING, f"for {', '.join(missing())}")
        deadline = self._bell.now() + settings.after_timeout_secs
        if await self._bell.until(lambda: not self._wants_up or not missing(), deadline):
            return True
        await self._after(Ending(cause=f"{', '.join(missing())} not ready within {settings.after_timeout_secs:g} s"))
        return False

    async def _run_child(self) -> Ending:
        self._around.starts += 1
        self.starts += 1
        child = Child(self._spec(), self._around.pump, self._around.reaper, self._bell)
        self.child = child
        self._become(State.STARTING, "")
        child.start()
        self._around.log.info("started", process=self.label, pid=child.pid or None, starts=self.starts)
        watching = (
            asyncio.create_task(self._watch_health(child), name=f"health of {self.label}") if self._probe else None
        )
        try:
            while child.is_running:
                if not self._wants_up:
                    await self._bring_down(child)
                    break
                if self.state is State.STARTING:
                    await self._come_up(child)
                else:
                    await self._bell.until(
                        lambda: not child.is_running or not self._wants_up, self._bell.now() + FOREVER
                    )
            await self._bell.until(lambda: not child.is_running, self._bell.now() + FOREVER)
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait({watching})
            self.child = None
        assert child.ending is not None
        return child.ending

    def _spec(self) -> ChildSpec:
        # The environment wins over what the supervisor adds: an address that is set is the one that holds.
        environ = self._around.environ | self.plan.environ_of(self.index)
        return ChildSpec(
            label=self.label,
            argv=self.plan.command.argv(environ),
            to_group=not self.plan.command.is_direct,
            cwd=self.plan.cwd,
            environ=environ,
            readiness=None if self._probe else self.plan.settings.readiness,
            watchdog_secs=self.plan.settings.watchdog_secs,
            notify_path=self._around.state_dir.notify_sockets / f"{self.label}.{self._around.starts}",
            held_fds=(*self._around.held_fds, *self._held_fds),
        )

    async def _come_up(self, child: Child) -> None:
        timeout = self.plan.settings.ready_timeout_secs
        is_decided = await self._bell.until(
            lambda: child.is_ready or not child.is_running or not self._wants_up, child.started_at + timeout
        )
        if not is_decided:
            child.kill(f"not ready within {timeout:g} s")
            await self._bell.until(lambda: not child.is_running, self._bell.now() + FOREVER)
        elif child.is_ready and self._wants_up:
            self._become(State.READY, "")
            self._around.log.info("ready", process=self.label, pid=child.pid, after_secs=round(self._age(child), 3))

    async def _bring_down(self, child: Child) -> None:
        """SIGUSR1 for a drain; SIGTERM; SIGKILL at the deadline, which may move while it waits."""
        if self._is_draining():
            self._become(State.DRAINING, "")
            child.send("u" if child.catches_sigusr1 else "t")
            while child.is_running and self._is_draining() and self._bell.now() < self._stop_by:
                await self._bell.until(lambda: not child.is_running or not self._drains, self._stop_by)
            if not child.is_running:
                return
            if self._is_draining():
                self._around.log.warning(
                    "not drained at the deadline; stopping it",
                    process=self.label,
                    reports=child.status or None,
                    figures=child.figures or None,
                )
                self._stop_by = self._bell.now() + self.plan.settings.stop_timeout_secs
        self._become(State.STOPPING, "")
        child.send("t")
        while child.is_running and self._bell.now() < self._stop_by:
            by = self._stop_by
            await self._bell.until(lambda: not child.is_running or self._stop_by != by, by)  # noqa: B023 - asked here only
        if child.is_running:
            self._around.log.warning("did not stop in time; killing it", process=self.label, pid=child.pid)
            child.kill("did not stop in time")

    async def _watch_health(self, child: Child) -> None:
        assert self._probe is not None
        failures = 0
        while child.is_running and not child.is_stopping:
            wrong = await self._probe()
            if not wrong:
                failures = 0
                child.mark_ready()
            elif child.is_ready:
                failures += 1
                self._around.log.warning("health check failed", process=self.label, wrong=wrong, failures=failures)
                if failures >= _PROBE_FAILURES:
                    child.kill(f"health check: {wrong}")
            wait_secs = _PROBE_AGAIN_SECS if failures else _PROBE_SECS
            await asyncio.sleep(wait_secs if child.is_ready else _PROBE_POLL_SECS)

    async def _after(self, ending: Ending) -> None:
        """Nobody asked for this end: restart, rest or give up."""
        decision = decide(
            self.plan.settings,
            self.history,
            ending,
            now=self._bell.now(),
            random=random.random(),  # noqa: S311 - jitter
        )
        self.history = decision.history
        if isinstance(decision, Restart):
            self.next_start_at = self._bell.now() + decision.delay_secs
            self._become(State.BACKOFF, describe(ending))
            self._around.log.warning(
                "ended; starting it again",
                process=self.label,
                how=describe(ending),
                in_secs=round(decision.delay_secs, 2),
            )
            await self._bell.until(lambda: not self._wants_up, self.next_start_at)
            self.next_start_at = None
        elif isinstance(decision, Finished):
            self._wants_up = False
            self._become(State.FINISHED, describe(ending))
            self._around.log.info("finished", process=self.label, how=describe(ending))
        else:
            self._give_up(decision)

    def _give_up(self, decision: GiveUp) -> None:
        self._wants_up = False
        self._become(State.FAILED, decision.why)
        self._around.log.error("given up", process=self.label, why=decision.why)
        if self.plan.settings.on_give_up == "stop_all":
            self._around.on_give_up(self.label, decision.why)

    # Methods, so that nobody takes what was asked before an await for what holds after it.

    def _is_wanted_down(self) -> bool:
        return not self._wants_up

    def _is_draining(self) -> bool:
        return self._drains

    def _become(self, state: State, why: str) -> None:
        self.state, self.why = state, why
        self._bell.ring()

    def _age(self, child: Child) -> float:
        return self._bell.now() - child.started_at
