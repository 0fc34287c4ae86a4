"""The handler API: how a team tells the runtime what its worker does."""

import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypeVar

import msgspec

from hub.protocol import names

DEFAULT_TIMEOUT_SECS: Final = 900.0  # long enough for an agent's turn, short enough that a hung one is noticed
DEFAULT_MAX_ATTEMPTS: Final = 3

Isolation = Literal["loop", "process"]
Function = Callable[..., Awaitable[Any] | Any]
F = TypeVar("F", bound=Function)

_ATTRIBUTE: Final = "__hub_handler__"


class Retry(Exception):
    """Raise it to have the turn run again after a while; it counts as an attempt and survives a restart.

    Attributes:
        delay_secs: how long to wait, 0 to 30 days.
        reason: for the log, and for the error when there is no attempt left.
    """

    def __init__(self, delay: float = 0.0, reason: str = "") -> None:
        """`delay` in seconds."""
        self.delay_secs = float(delay)
        self.reason = reason
        super().__init__(reason or f"again in {self.delay_secs:g} s")


class Reject(Exception):
    """Raise it to refuse the task: its sender is told `rejected` and why."""


class BadHandler(Exception):
    """A handler is declared in a way that cannot be run."""


class HandlerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A handler as it was declared.

    Attributes:
        name: what `python -m workers run` calls it.
        function: takes a `Turn`, and `options` by that name when it declares settings.
        concurrency: turns at once, unless the operator says otherwise.
        timeout_secs: for one attempt; 0 is without end.
        idempotent: an attempt that was cut off may be run again.
        max_attempts: starts at most, for `Retry` and for what was cut off.
        isolation: `loop` (in the worker's own event loop) or `process` (a child that a cancel can kill).
        options: a msgspec Struct with the handler's own settings, filled from `--option key=value`.
        runs_commands: it runs commands from the wire anyway, so a `verify_cmd` is no new power.
        target: `package.module:attribute`, from where it is imported again in a child process.
    """

    name: str
    function: Function
    concurrency: int = 1
    timeout_secs: float = DEFAULT_TIMEOUT_SECS
    idempotent: bool = False
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    isolation: Isolation = "loop"
    options: type[msgspec.Struct] | None = None
    runs_commands: bool = False
    target: str = ""

    @property
    def is_async(self) -> bool:
        """Is it an async function?"""
        return inspect.iscoroutinefunction(self.function)


def handler(
    name: str,
    *,
    concurrency: int = 1,
    timeout: float = DEFAULT_TIMEOUT_SECS,
    idempotent: bool = False,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    isolation: Isolation | None = None,
    options: type[msgspec.Struct] | None = None,
    runs_commands: bool = False,
) -> Callable[[F], F]:
    """Declare a function as a handler.

    Args:
        name: what it is called; one token.
        concurrency: turns at once.
        timeout: seconds for one attempt; 0 is without end.
        idempotent: True lets an attempt that was cut off by a crash be run again.
        max_attempts: starts at most.
        isolation: `loop` or `process`; None: `loop` for async functions, `process` for plain ones, which would
            otherwise block every other turn and could not be cancelled.
        options: a msgspec Struct with settings of its own.
        runs_commands: see `HandlerSpec`.

    Raises:
        BadHandler: a value cannot be meant; says which and what was expected.
    """
    if concurrency < 1 or max_attempts < 1 or not 0 <= timeout < math.inf:
        raise BadHandler(
            f"handler {name}: expected concurrency and max_attempts of at least 1 and a timeout in seconds (0: without "
            f"end), got {concurrency}, {max_attempts}, {timeout}"
        )
    if not names.is_token(name):
        raise BadHandler(f"handler {name!r}: expected a name of {names.TOKEN_RULE}")

    def declare(function: F) -> F:
        is_async = inspect.iscoroutinefunction(function)
        chosen: Isolation = isolation or ("loop" if is_async else "process")
        if chosen == "loop" and not is_async:
            raise BadHandler(
                f"handler {name}: a plain function cannot run in the loop; make it async or leave isolation out"
            )
        spec = HandlerSpec(
            name=name,
            function=function,
            concurrency=concurrency,
            timeout_secs=timeout,
            idempotent=idempotent,
            max_attempts=max_attempts,
            isolation=chosen,
            options=options,
            runs_commands=runs_commands,
            target=f"{function.__module__}:{function.__qualname__}",
        )
        setattr(function, _ATTRIBUTE, spec)
        return function

    return declare


def spec_of(candidate: object) -> HandlerSpec:
    """The declaration of a function that `handler` decorated.

    Raises:
        BadHandler: it is none.
    """
    spec = getattr(candidate, _ATTRIBUTE, None)
    if not isinstance(spec, HandlerSpec):
        raise BadHandler(f'{candidate!r} is no handler: decorate it with @handler("name")')
    return spec
