"""One process of the Procfile: its replicas, and what the operator does with all of them."""

import asyncio
from collections.abc import Callable

from runtime.bell import FOREVER
from runtime.errors import Refused
from runtime.plan import ProcessPlan
from runtime.slot import RESTING, Slot, State
from runtime.surroundings import Surroundings


class Group:
    """The replicas of one process.

    Args:
        plan: what it runs.
        around: shared.
        launch: starts the actor of a new replica, and owns it.
        make: makes a replica.
    """

    def __init__(
        self,
        plan: ProcessPlan,
        around: Surroundings,
        launch: Callable[[Slot], None],
        make: Callable[[ProcessPlan, int], Slot] | None = None,
    ) -> None:
        self.plan = plan
        self.slots: list[Slot] = []
        self.leaving: list[Slot] = []  # on their way out: scaled down, or being replaced
        self.is_stopped = False  # by the operator
        self.wanted = plan.settings.replicas
        self._around = around
        self.bell = around.bell
        self._launch = launch
        self._make = make or (lambda plan, index: Slot(plan, index, around))
        self._turn = asyncio.Lock()  # restarts and scalings, one after another

    @property
    def everyone(self) -> list[Slot]:
        """Every replica that may run."""
        return [*self.slots, *self.leaving]

    @property
    def is_ready(self) -> bool:
        """Is every replica ready? (None is not ready; one that finished its work is.)"""
        return bool(self.slots) and all(slot.state in {State.READY, State.FINISHED} for slot in self.slots)

    @property
    def is_down(self) -> bool:
        """Does nothing of it run?"""
        return all(slot.is_down for slot in self.everyone)

    def open(self, *, up: bool) -> None:
        """Make the replicas, and start them if `up`."""
        self.is_stopped = not up
        while len(self.slots) < self.wanted:
            self._add(up=up)

    def start(self) -> None:
        """The operator wants it up."""
        self.is_stopped = False
        self.open(up=True)
        for slot in self.slots:
            slot.want_up()

    def stop(self, secs: float | None = None) -> None:
        """The operator, or the end of `up`, wants it down: SIGTERM, and SIGKILL after `secs`."""
        self.is_stopped = True
        by = self.bell.now() + (self.plan.settings.stop_timeout_secs if secs is None else max(0.0, secs))
        for slot in self.everyone:
            slot.want_down(by)

    def drain(self, secs: float) -> None:
        """The operator wants it down once it has worked off what it has."""
        self.is_stopped = True
        for slot in self.slots:
            slot.want_down(self.bell.now() + secs, drains=True)

    async def restart(self, plan: ProcessPlan | None = None) -> None:
        """Restart every replica, one after another; with a new plan, by that.

        Raises:
            Refused: a new one did not get ready, and the rest was left alone; or it was stopped meanwhile.
        """
        async with self._turn:
            self.plan = plan or self.plan
            self.is_stopped = False
            self.open(up=True)
            for old in list(self.slots):
                if self.is_stopped:
                    raise Refused(f"{self.plan.name} was stopped while it was restarted")
                await self._replace(old)

    async def scale(self, replicas: int, drain_secs: float | None = None) -> list[str]:
        """Run this many replicas; those with the highest index are drained first.

        Returns:
            One line for each that was not drained at the deadline: what it reported last.
        """
        async with self._turn:
            self.wanted = replicas
            while len(self.slots) < replicas:
                self._add(up=not self.is_stopped)
            removed, self.slots = self.slots[replicas:], self.slots[:replicas]
            self.leaving += removed
            self.bell.ring()
            secs = self.plan.settings.drain_timeout_secs if drain_secs is None else drain_secs
            by = self.bell.now() + secs
            for slot in removed:
                slot.want_down(by, drains=True)
            await self.bell.until(lambda: all(slot.is_down for slot in removed), by)
            left = [
                f"{slot.label} was not drained within {secs:g} s and is stopped; it reports: {_report(slot)}"
                for slot in removed
                if not slot.is_down
            ]
            await self._retire(removed)
            return left

    async def close(self) -> None:
        """Wait until all is down, and end the actors."""
        await self._retire(self.everyone)
        self.slots.clear()

    async def _replace(self, old: Slot) -> None:
        stop_secs = self.plan.settings.stop_timeout_secs
        overlaps = self.plan.settings.overlap and old.is_up
        if not overlaps:
            old.want_down(self.bell.now() + stop_secs)
            await self.bell.until(lambda: old.is_down, self.bell.now() + FOREVER)
        new = self._make(self.plan, old.index)
        self._launch(new)
        if not overlaps:
            self.slots[self.slots.index(old)] = new
            await self._retire([old])
            if not self.is_stopped:
                new.want_up()
                await self._wait_ready(new)
            return
        self.leaving.append(new)  # so that a stop finds it too
        new.want_up()
        try:
            await self._wait_ready(new)
        except Refused:
            new.want_down(self.bell.now() + stop_secs)
            await self._retire([new])
            raise
        self.slots[self.slots.index(old)] = new
        self.leaving.remove(new)
        self.leaving.append(old)
        old.want_down(self.bell.now() + stop_secs)
        await self._retire([old])

    async def _wait_ready(self, slot: Slot) -> None:
        settings = self.plan.settings
        deadline = self.bell.now() + settings.after_timeout_secs + settings.ready_timeout_secs
        # One failed start is enough to stop a rolling restart: the others still run what works.
        await self.bell.until(
            lambda: slot.is_up or slot.state in RESTING or slot.state is State.BACKOFF or self.is_stopped, deadline
        )
        if not slot.is_up and slot.state is not State.FINISHED:
            raise Refused(
                f"{slot.label} did not get ready: {slot.why or slot.state}; the other replicas were left as they are"
            )

    async def _retire(self, slots: list[Slot]) -> None:
        for slot in slots:
            slot.retire()
        await self.bell.until(lambda: all(slot.is_down for slot in slots), self.bell.now() + FOREVER)
        self.leaving = [slot for slot in self.leaving if slot not in slots]

    def _add(self, *, up: bool) -> None:
        slot = self._make(self.plan, len(self.slots))
        self.slots.append(slot)
        self._launch(slot)
        if up:
            slot.want_up()


def _report(slot: Slot) -> str:
    if slot.child is None:
        return "nothing"
    figures = ", ".join(f"{name}={value}" for name, value in slot.child.figures.items())
    return "; ".join(filter(None, [slot.child.status, figures])) or "nothing"
