"""The stopper: ends parts that do not need each other at once, and lets none of them hold up the others."""

import asyncio
from collections.abc import Awaitable, Callable


async def stop_at_once(*stops: Callable[[], Awaitable[object]]) -> None:
    """Call all and return when each has ended: together they take as long as the slowest, not the sum.

    Raises:
        ExceptionGroup: what those that failed raised; the others were stopped all the same.
    """
    outcomes = await asyncio.gather(*(stop() for stop in stops), return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if errors:
        raise BaseExceptionGroup("not everything stopped as it should", errors)
