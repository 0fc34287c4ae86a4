"""A worker as a service: from its options to its exit code (contract §11)."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import structlog
import uvloop

from hub.delivery.errors import BadSettings, CannotConnect
from hub.delivery.settings import ConnectSettings
from hub.mailbox import ForeignFile, IdentityInUse, MailboxDamaged, MailboxError, MailboxTooNew, MailboxUnavailable
from hub.protocol import BadName, TooLarge
from hub.service import logs
from hub.service.exits import Exit
from hub.service.paths import BadStateDir, state_dir
from hub.service.signals import stop_on_signals
from hub.service.standard_streams import occupy_standard_descriptors
from workers import plugins
from workers.event_bridge import EventBridge, open_bridge, settings_of
from workers.handlers import BadHandler
from workers.options import CannotStart, WorkerOptions, check
from workers.redactor import find_redactor
from workers.worker import OnStep, WorkerProcess

log = structlog.get_logger(__name__)


def run(options: WorkerOptions, environ: Mapping[str, str] | None = None, *, on_step: OnStep | None = None) -> int:
    """Run a worker until it is told to stop; `on_step` is for tests.

    Returns:
        Its exit code (contract §11).
    """
    occupy_standard_descriptors()
    logs.configure(verbose=options.verbose)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return int(runner.run(serve(options, os.environ if environ is None else environ, on_step=on_step)))


async def serve(options: WorkerOptions, environ: Mapping[str, str], *, on_step: OnStep | None = None) -> Exit:
    """As `run`, in the loop that is there."""
    try:
        settings = ConnectSettings.from_environ(environ, identity=options.identity)
        spec = plugins.find(options.handler)
        plugins.read_options(spec, options.options)
        check(options, settings)
        folder = state_dir(environ)
        events = _bridge(options, str(settings.identity), spec.name, folder, environ)
        worker = WorkerProcess(options, settings, spec, folder, events=events, on_step=on_step)
        with stop_on_signals(drains=True) as stop:
            return await worker.live(stop)
    except (
        BadSettings,
        BadName,
        BadHandler,
        BadStateDir,
        plugins.HandlerNotFound,
        IdentityInUse,
        MailboxDamaged,
        MailboxTooNew,
        ForeignFile,
        TooLarge,
        CannotStart,
    ) as error:
        log.error("cannot start", error=str(error))  # noqa: TRY400 - the text says it all, a traceback nothing
        return Exit.CONFIG
    except CannotConnect as error:
        log.error("cannot start", error=str(error))  # noqa: TRY400
        return Exit.CONFIG if error.is_final else Exit.UNAVAILABLE
    except MailboxUnavailable as error:
        log.error("cannot start", error=str(error))  # noqa: TRY400
        return Exit.TRY_LATER
    except MailboxError as error:
        log.error("the mailbox failed", error=str(error))  # noqa: TRY400
        return Exit.ERROR


def _bridge(
    options: WorkerOptions, identity: str, handler: str, folder: Path, environ: Mapping[str, str]
) -> EventBridge | None:
    if options.event_source is None:
        return None
    try:
        settings = settings_of(options.event_source, options.tenant, options.event_stream, environ)
    except ValueError as error:
        raise CannotStart(str(error)) from None
    redact = find_redactor(options.redactor, environ)
    return open_bridge(settings, worker=identity, handler=handler, redact=redact, state_folder=folder)
