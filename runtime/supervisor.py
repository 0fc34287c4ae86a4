"""The supervisor: composes the parts of `up`, starts and stops everything in order, and applies what changes."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from runtime import notify, shim
from runtime.bell import FOREVER
from runtime.embedded import EmbeddedServer
from runtime.errors import Refused, SupervisorError
from runtime.exits import Exit
from runtime.group import Group
from runtime.locks import lock_as_up, try_lock
from runtime.logs.console import Console
from runtime.logs.events import EventLog
from runtime.logs.pump import LogPump
from runtime.plan import SERVER_NAME, Plan, ProcessPlan, hide_password
from runtime.settings import MAX_REPLICAS
from runtime.shutdown import stop_all
from runtime.slot import Slot, State
from runtime.stopped import StoppedByOperator
from runtime.surroundings import Surroundings

_LEFTOVER_SECS: Final = 10.0  # what a killed `up` left is gone within 5 s
_LEFTOVER_POLL_SECS: Final = 0.1
_HURRIED_STOP_SECS: Final = 3.0


class LeftoversRemain(SupervisorError):
    """Processes of an earlier `up` are still there."""

    code = "unavailable"


class Supervisor:
    """One `up`.

    Args:
        plan: what to run.
        resolve: makes the plan anew, for a re-read.
        console_fd: where lines are shown.
        is_terminal: for people, or JSON.
        colours: colour prefixes.
    """

    def __init__(
        self,
        plan: Plan,
        resolve: Callable[[], Plan],
        *,
        console_fd: int = 1,
        is_terminal: bool = False,
        colours: bool = True,
    ) -> None:
        self.plan = plan
        self._resolve = resolve
        width = max((len(process.name) + 2 for process in plan.processes), default=0)
        console = Console(console_fd, is_terminal=is_terminal, width=max(width, len(SERVER_NAME) + 2), colours=colours)
        plan.state_dir.make()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.pump = LogPump(plan.state_dir.logs, plan.logs, console, on_death=self._pump_died)
        self.log = EventLog(self.pump)
        self.groups: dict[str, Group] = {}
        self.server: EmbeddedServer | None = None
        self.exit = Exit.OK
        self.started_at = 0.0
        self.ready_after_secs: float | None = None
        self.is_stopping = False
        self._around: Surroundings | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._is_asked = False
        self._stop_by: float | None = None
        self._forgets = False
        self._stopped = StoppedByOperator(plan.state_dir.stopped_file)
        self._locks: list[int] = []
        self._failure: BaseException | None = None
        self._refusal: SupervisorError | None = None
        self._reloading = asyncio.Lock()

    # Lifecycle

    def lock(self) -> None:
        """Become the one `up` of this state directory.

        Raises:
            AlreadyRuns: there is one.
        """
        self._locks.append(lock_as_up(self.plan.state_dir.lock_file))

    async def live(self, serve: Callable[["Supervisor"], Awaitable[Callable[[], Awaitable[None]]]]) -> Exit:
        """Run everything until it is asked to stop; all is down when this returns.

        Args:
            serve: starts what answers commands; returns what ends it.
        """
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._loop_failed)
        self.started_at = self._loop.time()
        shim.become_subreaper()
        self.pump.start()
        try:
            held = await self._lock_children()
            if held is None:
                return self.exit
            self._around = Surroundings(
                pump=self.pump,
                log=self.log,
                state_dir=self.plan.state_dir,
                held_fds=(held,),
                is_ready=lambda name: name in self.groups and self.groups[name].is_ready,
                on_give_up=self._gave_up,
            )
            self._around.reaper.start()
            end_serving = await serve(self)
            try:
                async with asyncio.TaskGroup() as self._tasks:
                    await self._run(self._around)
            finally:
                await end_serving()
                self._around.reaper.stop()
        finally:
            if self.server is not None:
                self.server.release()
            self.log.info("down", exit_code=int(self.exit))
            await asyncio.to_thread(self.pump.stop)
            for fd in self._locks:
                os.close(fd)
        if self._refusal is not None:
            raise self._refusal
        if self._failure is not None:
            raise SupervisorError(f"a part of the supervisor failed: {self._failure!r}") from self._failure
        return self.exit

    def ask_to_stop(self, why: str, *, hurried: bool = False, forget: bool = False) -> None:
        """Stop everything in order; `hurried` within 3 s. Asking twice is fine.

        Args:
            why: for the log.
            forget: what the operator stopped is started again at the next `up`.
        """
        self._forgets = self._forgets or forget
        if not self._is_asked:
            self.log.info("stopping", why=why)
        self._is_asked = True
        if hurried and self._around is not None:
            by = self._around.bell.now() + _HURRIED_STOP_SECS
            self._stop_by = min(self._stop_by or by, by)
        if self._around is not None:
            self._around.bell.ring()

    async def _run(self, around: Surroundings) -> None:
        """The whole life; a part that dies of an error cancels this, and the shims end what runs."""
        try:
            await self._start_all(around)
        except SupervisorError as error:
            self._refusal = error
        self.is_stopping = True
        notify.tell("STOPPING=1")
        self._stopped.write(self.groups, forget=self._forgets)
        await stop_all(self.groups, around, lambda: self._stop_by)

    async def _start_all(self, around: Surroundings) -> None:
        """Start everything, and return when it is asked to stop."""
        bell = around.bell
        self.log.info(
            "up",
            pid=os.getpid(),
            state_dir=str(self.plan.state_dir.root),
            processes=[process.name for process in self.plan.processes],
            nats_url=hide_password(self.plan.nats_url),
        )
        stopped = self._stopped.read()
        if stopped:
            self.log.info("stopped by the operator, and left so; `start` starts them", processes=sorted(stopped))
        if self.plan.state_dir.is_makeshift:
            self.log.warning("no home directory: the state is kept in the current one; set NATS_HUB_STATE_DIR")
        if self.plan.nats_url is None and not self._is_asked:
            await self._start_server(around)
        for process in self.plan.processes:
            if self._is_asked:
                break
            self._open(process, around).open(up=process.name not in stopped)
        # Ready is what is to be up: parked and stopped ones hold nobody back.
        await bell.until(lambda: self._is_asked or self._all_settled(), bell.now() + FOREVER)
        if not self._is_asked:
            self.ready_after_secs = bell.now() - self.started_at
            self.log.info("everything is up", after_secs=round(self.ready_after_secs, 2))
            notify.tell("READY=1")
        await bell.until(lambda: self._is_asked, bell.now() + FOREVER)

    async def _start_server(self, around: Surroundings) -> None:
        environ = dict(self.plan.processes[0].environ)
        server = self.server = EmbeddedServer(self.plan.state_dir, self.plan.nats, environ)
        plan = await server.prepare()
        around.environ["NATS_URL"] = server.url
        self.log.info("no NATS_URL is set: starting our own nats-server", url=server.url)
        group = self._open(
            plan,
            around,
            make=lambda plan, index: Slot(plan, index, around, probe=server.probe, held_fds=(server.lock_fd,)),
        )
        group.open(up=True)
        # The others connect again and again by themselves, but quiet logs and a quick start are worth this wait.
        deadline = around.bell.now() + plan.settings.ready_timeout_secs
        await around.bell.until(
            lambda: group.is_ready or self._is_asked or group.slots[0].state is State.FAILED, deadline
        )

    def _open(
        self, plan: ProcessPlan, around: Surroundings, make: Callable[[ProcessPlan, int], Slot] | None = None
    ) -> Group:
        assert self._tasks is not None
        tasks = self._tasks

        def launch(slot: Slot) -> None:
            tasks.create_task(slot.run(), name=slot.label)

        group = self.groups[plan.name] = Group(plan, around, launch, make)
        return group

    def _all_settled(self) -> bool:
        slots = [slot for group in self.groups.values() for slot in group.slots]
        return all(slot.is_up or slot.state in {State.STOPPED, State.FINISHED, State.FAILED} for slot in slots)

    async def _lock_children(self) -> int | None:
        """Wait until nothing of a killed `up` is left; every shim gets the lock. None: told to stop meanwhile."""
        assert self._loop is not None
        deadline = self._loop.time() + _LEFTOVER_SECS
        is_told = False
        while (fd := try_lock(self.plan.state_dir.children_lock_file)) is None:
            if not is_told:
                self.log.warning("processes of an earlier `up` are still ending; waiting for them")
                is_told = True
            if self._is_asked:
                return None
            if self._loop.time() >= deadline:
                raise LeftoversRemain(
                    f"processes of an earlier `up` still hold {self.plan.state_dir.children_lock_file} after "
                    f"{_LEFTOVER_SECS:g} s; find them with `fuser` or `lsof` on that file and end them"
                )
            await asyncio.sleep(_LEFTOVER_POLL_SECS)
        self._locks.append(fd)
        return fd

    # What may go wrong in it

    def _gave_up(self, label: str, why: str) -> None:
        self.exit = Exit.GAVE_UP
        self.ask_to_stop(f"{label} was given up: {why}")

    def _pump_died(self, error: BaseException) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._fail, error)

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        loop.default_exception_handler(context)
        if isinstance(error, BaseException) and not isinstance(error, OSError):
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        sys.stderr.write(f"runtime: a part of the supervisor failed: {error!r}\n")
        self.ask_to_stop("a part of the supervisor failed", hurried=True)

    # What the operator asks

    def named(self, name: str) -> Group:
        """A process by its name.

        Raises:
            Refused: there is none, or all is stopping.
        """
        if self.is_stopping:
            raise Refused("everything is stopping")
        group = self.groups.get(name)
        if group is None:
            raise Refused(f"no process {name!r}; there are {', '.join(self.groups)}")
        return group

    async def scale(self, name: str, replicas: int, drain_secs: float | None) -> list[str]:
        """See `Group.scale`.

        Raises:
            Refused: no such process, or not so many.
        """
        if name == SERVER_NAME:
            raise Refused(f"{SERVER_NAME} runs once: its store is one process's")
        if not 0 <= replicas <= MAX_REPLICAS:
            raise Refused(f"expected 0 to {MAX_REPLICAS} replicas, found {replicas}")
        return await self.named(name).scale(replicas, drain_secs)

    async def reload(self) -> list[str]:
        """Read the configuration again and apply the difference; what did not change is not touched.

        Returns:
            One line for each change.

        Raises:
            BadConfig: it has mistakes; nothing was changed.
            Refused: what cannot be changed while it runs.
        """
        async with self._reloading:
            return await self._reload()

    async def _reload(self) -> list[str]:
        assert self._around is not None
        plan = self._resolve()
        if plan.state_dir.root != self.plan.state_dir.root or (plan.nats_url is None) != (self.plan.nats_url is None):
            raise Refused("the state directory, and whose nats-server it is, change only with a new `up`")
        changes = []
        wanted = {process.name: process for process in plan.processes}
        for name in [name for name in self.groups if name not in wanted and name != SERVER_NAME]:
            group = self.groups[name]
            group.stop()
            await group.close()
            del self.groups[name]
            changes.append(f"{name}: removed")
        for name, process in wanted.items():
            if name not in self.groups:
                self._open(process, self._around).open(up=True)
                changes.append(f"{name}: added")
                continue
            group = self.groups[name]
            before, group.plan = group.plan, process
            if _without_replicas(before) != _without_replicas(process):
                changes.append(f"{name}: changed")
                if group.is_stopped:
                    for slot in group.slots:
                        slot.plan = process
                else:
                    try:
                        await group.restart(process)
                    except Refused as error:
                        changes.append(str(error))
            if before.settings.replicas != process.settings.replicas:
                changes.append(f"{name}: {process.settings.replicas} replicas")
                changes += await group.scale(process.settings.replicas)
        self.plan = plan
        return changes

    def note_stopped(self) -> None:
        """Remember what the operator stopped, until `down`: also when `up` is killed."""
        if not self.is_stopping:
            self._stopped.write(self.groups)


def _without_replicas(plan: ProcessPlan) -> ProcessPlan:
    settings = msgspec.structs.replace(plan.settings, replicas=1)
    # Where things stand and come from is not what runs.
    return msgspec.structs.replace(plan, settings=settings, line=0, sources={})
