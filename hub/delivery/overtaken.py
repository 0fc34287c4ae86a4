"""The second look: what to do when another process acted between our look and our request."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random

from hub.delivery.errors import DeliveryError

_TRIES: Final = 5  # each try lost means that another process's succeeded; five in a row is no race
_WAIT_MOST_SECS: Final = 0.1  # random, so that two processes that race do not race again

T = TypeVar("T")


class Overtaken(DeliveryError):
    """Another process changed it between our look and our request, again and again."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: another process keeps changing it; run one delivery config everywhere")


async def look_and_act(step: Callable[[], Awaitable[T]]) -> T:
    """Run a step that looks and then acts; again when it raises `Overtaken`, a few times."""
    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type(Overtaken),
        stop=stop_after_attempt(_TRIES),
        wait=wait_random(0, _WAIT_MOST_SECS),
        reraise=True,
    ):
        with attempt:
            return await step()
    raise AssertionError("unreachable: the last try returns or raises")
