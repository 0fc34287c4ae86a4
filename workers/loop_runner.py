"""The runner of async handlers in the worker's own loop."""

import asyncio
from typing import Any

import structlog

from hub.protocol import TooLarge
from workers.attempt import HandlerFailed, Returned, encode, named
from workers.handlers import HandlerSpec, Reject, Retry
from workers.turn import Turn

log = structlog.get_logger(__name__)


class LoopRunner:
    """Calls an async handler.

    Args:
        spec: the handler.
        options: its settings, None when it has none.
    """

    def __init__(self, spec: HandlerSpec, options: Any) -> None:
        self._spec = spec
        self._options = options

    async def run(self, turn: Turn) -> Returned:
        """See `Runner.run`."""
        return await call(self._spec, turn, self._options)


async def call(spec: HandlerSpec, turn: Turn, options: Any) -> Returned:
    """Call an async handler with a turn.

    Raises:
        as `Runner.run`.
    """
    try:
        arguments = (turn,) if spec.options is None else (turn, options)
        result = await spec.function(*arguments)
    except (asyncio.CancelledError, GeneratorExit, Retry, Reject, TooLarge):
        raise
    except BaseException as error:
        # Somebody else's code may raise anything; a SystemExit of theirs is not the worker's end.
        raise failed(error, turn) from error
    return encode(result, turn)


def failed(error: BaseException, turn: Turn) -> HandlerFailed:
    """What a handler raised, logged here with its traceback; its text goes to the sender."""
    log.warning("the handler failed", task_id=turn.task_id, error=named(error), exc_info=error)
    return HandlerFailed(named(error))
