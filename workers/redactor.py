"""The redactor: takes secrets out of what a turn tells the event source."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from workers.plugins import HandlerNotFound, import_target

Redact = Callable[[dict[str, Any]], dict[str, Any]]

MASK: Final = "[redacted]"
SHORTEST_SECRET: Final = 8  # a shorter value of the environment stands in ordinary text by chance

_SECRET_NAMES: Final = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|PRIVATE_?KEY|SEED", re.IGNORECASE)
_SECRET_TEXTS: Final = re.compile(
    r"""
      -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY-----[\s\S]*?(?:-----END\ [A-Z\ ]*PRIVATE\ KEY-----|\Z)
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}   # JSON web tokens
    | \b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}                              # keys of AI services
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,} | \bglpat-[A-Za-z0-9_-]{16,}
    | \bxox[abprs]-[A-Za-z0-9-]{10,}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bS[UAOCN][A-Z2-7]{56}\b                                       # nkey seeds
    """,
    re.VERBOSE,
)
_AFTER_A_NAME: Final = re.compile(
    r"""(?P<kept>(?:\b(?:bearer|basic)\s+
        | ["']?\b[\w-]*(?:password|passwd|secret|token|api[_-]?key)["']?\s*[:=]\s*["']?
        | \b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,100}:))(?P<secret>[^\s"',;@]{4,})""",
    re.IGNORECASE | re.VERBOSE,
)


class SecretRedactor:
    """The default: values of the environment's secret variables, and texts that look like credentials.

    A text that hides a secret in a way of its own goes through; whoever has such secrets gives a redactor.

    Args:
        environ: where secret values are looked for, by the names of their variables.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        values = {
            value for name, value in environ.items() if _SECRET_NAMES.search(name) and len(value) >= SHORTEST_SECRET
        }
        longest_first = sorted(values, key=len, reverse=True)  # of two that begin alike the whole one goes
        self._values = re.compile("|".join(map(re.escape, longest_first))) if values else None

    def __call__(self, members: dict[str, Any]) -> dict[str, Any]:
        """The members without secrets; a member whose name says that it is one loses its value."""
        redacted: dict[str, Any] = self._any(members)
        return redacted

    def _any(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {
                self._text(str(name)): MASK
                if isinstance(each, str) and _SECRET_NAMES.search(str(name))
                else self._any(each)
                for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._any(each) for each in value]
        return value

    def _text(self, text: str) -> str:
        if self._values is not None:
            text = self._values.sub(MASK, text)
        text = _SECRET_TEXTS.sub(MASK, text)
        return _AFTER_A_NAME.sub(rf"\g<kept>{MASK}", text)


def find_redactor(target: str | None, environ: Mapping[str, str]) -> Redact:
    """The redactor of a worker.

    Args:
        target: `package.module:name` of a callable that gets an event's members and returns them without secrets; None
            is the default one.
        environ: for the default one.

    Raises:
        HandlerNotFound: it is not there, or is nothing to call.
    """
    if target is None:
        return SecretRedactor(environ)
    found = import_target(target)
    if not callable(found):
        raise HandlerNotFound(
            f"--redactor {target}: expected a function of an event's members, got {type(found).__name__}"
        )
    redact: Redact = found
    return redact
