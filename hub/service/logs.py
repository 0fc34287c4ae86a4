"""Structured logs: readable at a terminal, one JSON object a line otherwise."""

import logging
import sys

import structlog


def configure(*, verbose: bool = False, least: int = logging.INFO, for_people: bool = False) -> None:
    """Set up structlog for this process; logs go to stderr, so that stdout stays for results.

    Args:
        verbose: also show debug lines.
        least: the least level that is shown otherwise.
        for_people: readable lines also when stderr is no terminal; for commands, whose errors are texts.
    """
    level = logging.DEBUG if verbose else least
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if is_terminal or for_people:
        final: list[structlog.typing.Processor] = [structlog.dev.ConsoleRenderer(colors=is_terminal)]
    else:
        final = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, *final],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # nats-py logs through the standard library; what matters of it reaches us through its callbacks.
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")


def keep_stdout_clean() -> None:
    """In a program that set up no structlog of its own, send logs to stderr: its stdout is its own.

    structlog's default prints to stdout. Whoever configures structlog, before or afterwards, has the last word.
    """
    if not structlog.is_configured():
        # Looked up at each use: a host, or a test runner, may exchange sys.stderr.
        structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
