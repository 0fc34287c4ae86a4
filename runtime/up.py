"""The composition of the `up` process: configuration, lock, signals, control, supervisor."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from runtime.control import ControlServer
from runtime.errors import AlreadyRuns, BadConfig, NoServerBinary, SupervisorError
from runtime.exits import Exit
from runtime.plan import ConfigFiles, resolve
from runtime.stop_signals import EarlySignals
from runtime.supervisor import Supervisor

Companion = Callable[[Supervisor], Coroutine[Any, Any, None]]
"""Runs beside the supervisor until it is cancelled (`dev` watches files)."""


def run(
    files: ConfigFiles,
    environ: Mapping[str, str],
    early: EarlySignals,
    *,
    colours: bool | None = None,
    companion: Companion | None = None,
) -> Exit:
    """Run `up` until it is asked to stop.

    Args:
        files: what the command line said.
        environ: the environment.
        early: the signals that were noted so far.
        colours: None: at a terminal, unless NO_COLOR is set.
        companion: see there.

    Returns:
        Its exit code (contract §11).
    """
    fill_standard_descriptors()
    try:
        plan = resolve(files, environ)
    except BadConfig as error:
        return _refuse(error, Exit.CONFIG)
    if early.noted:
        return Exit.OK  # told to stop before anything was started
    is_terminal = os.isatty(1)
    colours = is_terminal and not environ.get("NO_COLOR") if colours is None else colours
    supervisor = Supervisor(
        plan, lambda: resolve(files, environ), console_fd=1, is_terminal=is_terminal, colours=bool(colours)
    )
    try:
        supervisor.lock()
        return asyncio.run(_live(supervisor, early, companion))
    except AlreadyRuns as error:
        return _refuse(error, Exit.ALREADY_RUNS)
    except NoServerBinary as error:
        return _refuse(error, Exit.CONFIG)
    except SupervisorError as error:
        return _refuse(error, Exit.ERROR)


def fill_standard_descriptors() -> None:
    """Where 0, 1 or 2 is closed (`>&-`), open the null device: else the next file that is opened would get that number,
    and our console would write into a lock or a log."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - for as long as the process lives


async def _live(supervisor: Supervisor, early: EarlySignals, companion: Companion | None) -> Exit:
    interrupts = 0
    reloads: set[asyncio.Task[None]] = set()

    def on_signal(number: signal.Signals) -> None:
        nonlocal interrupts
        if number is signal.SIGHUP:
            reloads.add(asyncio.create_task(_reload(supervisor), name="reload"))
            return
        interrupts += number is signal.SIGINT
        supervisor.ask_to_stop(number.name, hurried=interrupts > 1)

    async def serve(supervisor: Supervisor) -> Callable[[], Awaitable[None]]:
        control = ControlServer(supervisor)
        await control.start()
        return control.stop

    end_signals = early.hand_over(on_signal)
    beside: asyncio.Task[None] | None = None
    if companion is not None:
        beside = asyncio.create_task(companion(supervisor), name="companion")
        beside.add_done_callback(lambda task: _companion_ended(supervisor, task))
    try:
        return await supervisor.live(serve)
    finally:
        for task in (beside, *reloads):
            if task is not None:
                task.cancel()
        end_signals()


async def _reload(supervisor: Supervisor) -> None:
    try:
        changes = await supervisor.reload()
    except SupervisorError as error:
        supervisor.log.error("the configuration was read again and refused; all goes on as before", error=str(error))  # noqa: TRY400
    else:
        supervisor.log.info("the configuration was read again", changes=changes)


def _companion_ended(supervisor: Supervisor, task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        supervisor.ask_to_stop(f"watching files failed: {error}")
        supervisor.exit = Exit.ERROR


def _refuse(error: SupervisorError, code: Exit) -> Exit:
    sys.stderr.write(f"runtime: {error}\n")
    return code
