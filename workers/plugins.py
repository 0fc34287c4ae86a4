"""The finder of handlers: by entry point, or by `package.module:name`."""

import importlib
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import msgspec

from workers.handlers import BadHandler, HandlerSpec, spec_of

GROUP: Final = "nats_hub.handlers"


class HandlerNotFound(Exception):
    """No handler of that name; the text says which there are."""


class Found(msgspec.Struct, frozen=True):
    """What is installed under a name.

    Attributes:
        name: the entry point's name.
        target: `package.module:attribute`.
        origin: the distribution that brings it.
        spec: its declaration; None when it could not be loaded.
        error: why not.
    """

    name: str
    target: str
    origin: str
    spec: HandlerSpec | None = None
    error: str | None = None


def installed() -> list[Found]:
    """Everything under the entry point group, what fails to import included, with the reason."""
    return [_look(point) for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)]


def find(name: str) -> HandlerSpec:
    """The handler of an entry point's name, or of `package.module:attribute`.

    Raises:
        HandlerNotFound: there is none, or it cannot be imported.
        BadHandler: what is there is no handler.
    """
    if ":" in name:
        return load(name)
    points = list(entry_points(group=GROUP, name=name))
    if not points:
        known = ", ".join(sorted(point.name for point in entry_points(group=GROUP))) or "none"
        raise HandlerNotFound(f"no handler {name!r}; installed are {known}; or name one as package.module:function")
    return load(points[0].value)


def read_options(spec: HandlerSpec, given: dict[str, str]) -> Any:
    """The handler's own settings from `--option key=value`; None when it has none.

    Raises:
        BadHandler: an unknown key, a wrong value, one that is missing, or settings for a handler that has none.
    """
    if spec.options is None:
        if given:
            raise BadHandler(f"handler {spec.name} has no options, got {', '.join(sorted(given))}")
        return None
    known = spec.options.__struct_fields__
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise BadHandler(f"handler {spec.name} has no option {unknown[0]!r}; it has {', '.join(known)}")
    try:
        return msgspec.convert(given, spec.options, strict=False)
    except msgspec.ValidationError as error:
        raise BadHandler(f"options of handler {spec.name}: {error}; it has {', '.join(known)}") from None


def _look(point: EntryPoint) -> Found:
    origin = point.dist.name if point.dist is not None else "?"
    try:
        return Found(point.name, point.value, origin, spec=load(point.value))
    except (HandlerNotFound, BadHandler) as error:
        return Found(point.name, point.value, origin, error=str(error))


def load(target: str) -> HandlerSpec:
    """Import `package.module:attribute`.

    Raises:
        HandlerNotFound: it cannot be imported, or is not there.
        BadHandler: it is no handler.
    """
    return msgspec.structs.replace(spec_of(import_target(target)), target=target)


def import_target(target: str) -> Any:
    """What stands at `package.module:attribute`.

    Raises:
        HandlerNotFound: it cannot be imported, or is not there.
    """
    module_name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        # Somebody else's module may raise anything while it is imported; which one and what is all that helps.
        raise HandlerNotFound(f"cannot import {module_name}: {type(error).__name__}: {error}") from error
    candidate: Any = module
    for part in attribute.split("."):
        candidate = getattr(candidate, part, None)
    if candidate is None:
        raise HandlerNotFound(f"{module_name} has no {attribute!r}")
    return candidate
