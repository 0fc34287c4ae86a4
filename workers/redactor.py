"""The redactor: takes secrets out of what a turn tells the event source."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from workers.plugins import HandlerNotFound, import_target

Redact = Callable[[dict[str, Any]], dict[str, Any]]

MASK: Final = "[redacted]"
SHORTEST_SECRET: Final = 8  # a shorter value of the environment stands in ordinary text by chance

_WORDS: Final = r"passwords?|passwd|passphrase|pwd|secret|token|credentials?|api[_-]?key|access[_-]?key|private[_-]?key"
_SECRET_NAMES: Final = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|_PWD\Z|_PASS\Z|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|SEED|AUTHORIZATION|COOKIE",
    re.IGNORECASE,
)
# Whoever sends a task writes the text that these run over, and a search holds the interpreter's lock to its end. So no
# pattern may look far ahead from each of many places: repeats are bounded, or possessive and begun once a word.
_SECRET_TEXTS: Final = re.compile(
    r"""
      -----BEGIN\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----[\s\S]*?(?:-----END\ [A-Z0-9\ ]{0,40}-----|\Z)
    | (?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+   # JSON web tokens
    | \b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}+                            # keys of AI and payment services
    | \bgh[pousr]_[A-Za-z0-9]{20,}+ | \bgithub_pat_[A-Za-z0-9_]{20,}+ | \bglpat-[A-Za-z0-9_-]{16,}+
    | \b(?:xox[abeprs]|xapp)-[A-Za-z0-9-]{10,}+ | \bnpm_[A-Za-z0-9]{30,}+ | \bhf_[A-Za-z0-9]{20,}+
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b | \bAIza[A-Za-z0-9_-]{30,}+
    | \bS[UAOCN][A-Z2-7]{56}\b                                         # nkey seeds
    """,
    re.VERBOSE,
)
_AFTER_A_NAME: Final = re.compile(
    rf"""
    (?P<kept>
        (?:{_WORDS})\\?["']?\s{{0,4}}(?:=>|:=|[:=])\s{{0,4}}           # password=…, "api_key": "…", also escaped
      | --(?:[a-z0-9]{{1,20}}-){{0,3}}(?:{_WORDS})\s{{1,4}}(?!-)       # --password …
      | \b(?:proxy-)?authorization\\?["']?\s{{0,4}}[:=]\s{{0,4}}["']?(?:[a-z]{{1,20}}\s{{1,4}})?
      | \b(?:set-)?cookie\\?["']?\s{{0,4}}:\s{{0,4}}
      | \bbearer\s{{1,4}}(?=[\w.~+/=-]{{8}})
    )
    (?P<secret>
        "(?:[^"\\]|\\.)*+ | '(?:[^'\\]|\\.)*+ | \\"(?:[^"\\]|\\[^"])*+ | (?:[^\s"',;&\\]|\\(?!["'nrt]))++
    )
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_PASSWORD: Final = re.compile(r"://[^\s:/@]{0,100}:(?P<password>[^\s/]{1,200})@")
_IN_AN_ADDRESS: Final = re.compile(r"(?P<kept>://[^\s:/@\"']{0,100}:|://(?=[^\s:/@\"']{16}))[^\s/\"']{1,200}@")


class SecretRedactor:
    """The default: values of the environment's secret variables, and texts that look like credentials.

    A text that hides a secret in a way of its own goes through; whoever has such secrets gives a redactor.

    Args:
        environ: where secret values are looked for, by the names of their variables.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        values = {value for name, value in environ.items() if _SECRET_NAMES.search(name)}
        values |= {match["password"] for value in environ.values() if (match := _PASSWORD.search(value))}
        values = {value for value in values if len(value) >= SHORTEST_SECRET}
        values |= {json.dumps(value)[1:-1] for value in values}  # as they stand in JSON texts
        longest_first = sorted(values, key=len, reverse=True)  # of two that begin alike the whole one goes
        self._values = re.compile("|".join(map(re.escape, longest_first))) if values else None

    def __call__(self, members: dict[str, Any]) -> dict[str, Any]:
        """The members without secrets; a member whose name says that it is one loses its value."""
        redacted: dict[str, Any] = self._any(members, is_secret=False)
        return redacted

    def _any(self, value: Any, *, is_secret: bool) -> Any:
        if isinstance(value, str):
            return MASK if is_secret else self._text(value)
        if isinstance(value, Mapping):
            return {
                self._text(str(name)): self._any(each, is_secret=is_secret or bool(_SECRET_NAMES.search(str(name))))
                for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._any(each, is_secret=is_secret) for each in value]
        return value

    def _text(self, text: str) -> str:
        if self._values is not None:
            text = self._values.sub(MASK, text)
        text = _SECRET_TEXTS.sub(MASK, text)
        text = _IN_AN_ADDRESS.sub(rf"\g<kept>{MASK}@", text)
        return _AFTER_A_NAME.sub(_masked, text)


def _masked(match: re.Match[str]) -> str:
    opening = re.match(r"\\?[\"']", match["secret"])
    return f"{match['kept']}{opening[0] if opening else ''}{MASK}"


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
