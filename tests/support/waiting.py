"""Waiting for a condition with a deadline: the only way that tests wait."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(
    condition: Callable[[], T | Awaitable[T]], *, within: float = 10.0, poll: float = 0.02, what: str = ""
) -> T:
    """Return the first truthy value of `condition` (plain or async); after `within` seconds fail and say what for."""
    deadline = asyncio.get_running_loop().time() + within
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if asyncio.get_running_loop().time() >= deadline:
            raise AssertionError(
                f"not within {within} s: {what or inspect.getsource(condition).strip()} (last: {value!r})"
            )
        await asyncio.sleep(poll)
