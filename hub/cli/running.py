"""The runner of commands: one loop, one text for each error, the exit codes of people's commands (contract §11)."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

import typer
import uvloop

from hub.cli.options import CONTEXT
from hub.cli.output import Output, say
from hub.client import ClientError, QueryRefused, SendUnconfirmed, TaskTimedOut
from hub.delivery.connection import Connection
from hub.delivery.errors import CannotConnect, DeliveryError, RequestTimedOut
from hub.protocol import ProtocolError, TooLarge
from hub.service import logs
from hub.service.exits import Exit
from hub.service.standard_streams import occupy_standard_descriptors

_LOOK_SECS: Final = 0.25  # a loss that is over sooner concerns nobody
_USAGE_CODES: Final = frozenset({"bad_request", "config", "no_input"})


class CommandError(Exception):
    """A command cannot do what it was asked.

    Attributes:
        exit: the code that it ends with.
    """

    def __init__(self, text: str, exit_code: Exit = Exit.ERROR) -> None:
        self.exit = exit_code
        super().__init__(text)


def exit_of(error: Exception) -> Exit:
    """The exit code of an error: whose fault is it, and is trying again worth while?"""
    if isinstance(error, CommandError):
        return error.exit
    if isinstance(error, RequestTimedOut | SendUnconfirmed | TaskTimedOut):
        return Exit.TIMED_OUT
    if isinstance(error, TooLarge | CannotConnect):
        return Exit.ERROR
    if isinstance(error, DeliveryError | ProtocolError | QueryRefused) and error.code in _USAGE_CODES:
        return Exit.USAGE
    return Exit.ERROR


def run_command(
    name: str,
    work: Callable[[], Coroutine[Any, Any, Exit]],
    *,
    verbose: bool,
    as_json: bool = False,
) -> None:
    """Run a command to its end and leave the process with its exit code.

    Args:
        name: the command's, before each error.
        work: what it does; SIGINT and SIGTERM cancel it, unless it handles them itself.
        verbose: log lines on stderr too. Without it there are none: what matters of them is said in the command's
            own words, once, and a server that is away would fill the screen.
        as_json: an error also goes to stderr as JSON, `{"error", "code"}`.

    Raises:
        typer.Exit: always.
    """
    occupy_standard_descriptors()
    logs.configure(verbose=verbose, least=logging.CRITICAL, for_people=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            code = runner.run(_until_stopped(work()))
        except (CommandError, ClientError, DeliveryError, ProtocolError) as error:
            code = exit_of(error)
            if as_json:
                word = getattr(error, "code", "error")
                Output(sys.stderr).json({"error": str(error), "code": word})
            else:
                say(f"{name}: {error}")
    raise typer.Exit(int(code))


async def _until_stopped(work: Coroutine[Any, Any, Exit]) -> Exit:
    """Run `work`; the first SIGINT or SIGTERM cancels it, and that is the end of the command: interrupted."""
    task = asyncio.ensure_future(work)
    is_stopped = False

    def stop() -> None:
        nonlocal is_stopped
        is_stopped = True
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if is_stopped:
            return Exit.INTERRUPTED
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@contextlib.asynccontextmanager
async def connection_watched(connection: Connection) -> AsyncIterator[None]:
    """While inside, say when the connection is lost and when it is back."""

    async def watch() -> None:
        was_connected = True
        while True:
            await asyncio.sleep(_LOOK_SECS)
            if connection.is_connected != was_connected:
                was_connected = not was_connected
                where = connection.settings.shown_servers
                say(f"connected again to {where}" if was_connected else f"lost the connection to {where}; trying again")

    watching = connection.own(watch(), name="connection-watch")
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait({watching})


def console_script(name: str, command: Callable[..., None], help_text: str) -> None:
    """Run a command as a program of its own."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(help=help_text, context_settings=CONTEXT)(command)
    app(prog_name=name)
