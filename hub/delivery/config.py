"""The delivery config: names and limits of the three streams and their consumers (contract §4)."""

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from hub.delivery.refusals import BadConfig, ConfigNotReadable
from hub.protocol import names

ENVIRONMENT_KEY: Final = "NATS_HUB_DELIVERY_CONFIG"
UNLIMITED: Final = -1

_MOST_BYTES_OF_FILE: Final = 1_048_576  # the largest sensible config is under 2 KiB: more is some other file
_MOST_SECS: Final = 9_223_372_036  # JetStream counts durations in nanoseconds in an int64
_MOST_COUNT: Final = 2**63 - 1  # int64
_MOST_MSG_SIZE: Final = 2**31 - 1  # int32
_IN_CODE: Final = "(made in code)"

StorageKind = Literal["file", "memory"]

_Settings = TypeVar("_Settings", bound=msgspec.Struct)


def _shown(value: object) -> str:
    """A value for an error message, as JSON has it; long ones are cut."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else f"{text[:60]}…"


# What each value must be: a rule returns what was expected, or None when the value fits.
_Rule = Callable[[object], str | None]


def _whole(least: int, most: int, reason: str, *, or_unlimited: bool = False) -> _Rule:
    expected = f"expected a whole number from {least} to {most}{' or -1 (unlimited)' * or_unlimited} ({reason})"

    def judge(value: object) -> str | None:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        fits = is_whole and (least <= value <= most or (or_unlimited and value == UNLIMITED))  # type: ignore[operator]
        return None if fits else expected

    return judge


def _name(value: object) -> str | None:
    return None if names.is_token(value) else f"expected a name of {names.TOKEN_RULE}"


def _storage(value: object) -> str | None:
    return None if value in ("file", "memory") else 'expected "file" or "memory"'


_SECS_REASON: Final = "seconds; JetStream counts nanoseconds in 64 bits"
_COUNT_REASON: Final = "JetStream counts in 64 bits"
_count: Final = _whole(1, _MOST_COUNT, _COUNT_REASON, or_unlimited=True)

_STREAM_RULES: Final[Mapping[str, _Rule]] = {
    "name": _name,
    "max_age_secs": _whole(1, _MOST_SECS, _SECS_REASON, or_unlimited=True),
    "max_msgs_per_subject": _count,
    "max_bytes": _count,
    "max_msgs": _count,
    "max_msg_size": _whole(1, _MOST_MSG_SIZE, "bytes; JetStream counts them in 32 bits", or_unlimited=True),
    "replicas": _whole(1, 5, "JetStream keeps at most 5 copies"),
    "storage": _storage,
}
_RULES: Final[Mapping[str, _Rule]] = {
    "duplicate_window_secs": _whole(1, _MOST_SECS, "seconds; without a window a retry would be stored twice"),
    "router_consumer": _name,
    "ack_wait_secs": _whole(1, _MOST_SECS, "seconds; what is in flight must come again some time"),
    "router_max_deliver": _count,
    "router_max_ack_pending": _count,
    "inbox_max_ack_pending": _count,
    "inbox_inactive_secs": _whole(1, _MOST_SECS, _SECS_REASON, or_unlimited=True),
}


def _require(settings: msgspec.Struct, rules: Mapping[str, _Rule]) -> None:
    for field, rule in rules.items():
        value = getattr(settings, field)
        if expected := rule(value):
            raise BadConfig(_IN_CODE, field, f"{expected}, got {_shown(value)}")


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one stream; -1 is unlimited.

    Attributes:
        name: the stream's name, one token.
        max_age_secs: how long a message is kept.
        max_msgs_per_subject: how many messages of one subject are kept.
        max_bytes: how many bytes it may hold.
        max_msgs: how many messages it may hold.
        max_msg_size: the largest message it takes, in bytes, headers included.
        replicas: copies in a NATS cluster.
        storage: `file`, or `memory` (lost when the server restarts).

    Raises:
        BadConfig: a value is out of its range; `path` is the field.
    """

    name: str
    max_age_secs: int
    max_msgs_per_subject: int = UNLIMITED
    max_bytes: int = UNLIMITED
    max_msgs: int = UNLIMITED
    max_msg_size: int = UNLIMITED
    replicas: int = 1
    storage: StorageKind = "file"

    def __post_init__(self) -> None:
        _require(self, _STREAM_RULES)


class DeliveryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that durable delivery is configured with; the defaults are the contract's.

    Attributes:
        ingress: what agents publish, until a router took it.
        inbox: direct messages.
        tasks: task, session and wave traffic.
        duplicate_window_secs: how long each stream remembers message ids.
        router_consumer: the durable consumer on the ingress that all routers share.
        ack_wait_secs: after how long an unacked delivery comes again.
        router_max_deliver: deliveries of one ingress message before it is a dead letter; -1 is without end.
        router_max_ack_pending: ingress messages in flight, over all routers; -1 is unlimited.
        inbox_max_ack_pending: direct messages in flight for one identity; -1 is unlimited.
        inbox_inactive_secs: an inbox consumer that nobody read for so long goes away; -1 is never.

    Raises:
        BadConfig: a value is out of its range, or two do not go together.
    """

    ingress: StreamSettings = StreamSettings(name="HUB_INGRESS", max_age_secs=86_400)
    inbox: StreamSettings = StreamSettings(name="HUB_INBOX", max_age_secs=604_800, max_msgs_per_subject=10_000)
    tasks: StreamSettings = StreamSettings(name="HUB_TASKS", max_age_secs=86_400, max_msgs_per_subject=10_000)
    duplicate_window_secs: int = 120
    router_consumer: str = "router"
    ack_wait_secs: int = 30
    router_max_deliver: int = UNLIMITED
    router_max_ack_pending: int = 1000
    inbox_max_ack_pending: int = 256
    inbox_inactive_secs: int = 604_800

    def __post_init__(self) -> None:
        _require(self, _RULES)
        folded = [stream.name.casefold() for stream in self.streams]
        for place, stream in zip(("inbox", "tasks"), self.streams[1:], strict=True):
            if folded.count(stream.name.casefold()) > 1:
                # Two names that differ in case only would share a folder on a disk that ignores case.
                detail = f"expected three streams of different names (ignoring case), got {stream.name!r} twice"
                raise BadConfig(_IN_CODE, f"{place}.name", detail)
        ages = [stream.max_age_secs for stream in self.streams if stream.max_age_secs != UNLIMITED]
        if ages and self.duplicate_window_secs > min(ages):
            expected = f"expected at most the smallest max_age_secs, {min(ages)} (JetStream refuses a longer one)"
            raise BadConfig(_IN_CODE, "duplicate_window_secs", f"{expected}, got {self.duplicate_window_secs}")

    @property
    def streams(self) -> tuple[StreamSettings, StreamSettings, StreamSettings]:
        """Ingress, inbox, tasks: the order in which they are made."""
        return (self.ingress, self.inbox, self.tasks)


def load(path: str | None, environ: Mapping[str, str]) -> DeliveryConfig:
    """Read the delivery config: a flag beats `NATS_HUB_DELIVERY_CONFIG`, which beats the defaults.

    Args:
        path: the file of `--delivery-config`, or None.
        environ: the environment.

    Raises:
        ConfigNotReadable: the file is not there or cannot be read.
        BadConfig: it is not a JSON object, or a key or value in it is wrong; `path` names the key.
    """
    named = path if path is not None else environ.get(ENVIRONMENT_KEY) or None
    return DeliveryConfig() if named is None else parse(_read(named), named)


def parse(text: bytes, source: str) -> DeliveryConfig:
    """Take a delivery config from JSON text; any subset of the keys.

    Args:
        text: the JSON text, UTF-8.
        source: where it is from, for errors.

    Raises:
        BadConfig: as `load`.
    """
    given = _decode(text, source)
    defaults = DeliveryConfig()
    taken: dict[str, Any] = {}
    for key, value in _members(given, DeliveryConfig.__struct_fields__, source, ""):
        default = getattr(defaults, key)
        if isinstance(default, StreamSettings):
            section = dict(_members(value, StreamSettings.__struct_fields__, source, key))
            taken[key] = _made(default, section, source, f"{key}.")
        else:
            taken[key] = value
    return _made(defaults, taken, source, "")


def _made(default: _Settings, taken: dict[str, Any], source: str, prefix: str) -> _Settings:
    """The default with what was given in its place; what the struct refuses is told with the file and the full path."""
    try:
        return msgspec.structs.replace(default, **taken)
    except BadConfig as error:
        raise BadConfig(source, prefix + error.path, error.detail) from None


def _read(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            text = file.read(_MOST_BYTES_OF_FILE + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigNotReadable(name, f"cannot read the file: {reason}; check --delivery-config") from error
    except ValueError as error:  # a NUL in the name
        raise ConfigNotReadable(ascii(name), f"cannot read the file: {error}") from error
    if len(text) > _MOST_BYTES_OF_FILE:
        raise BadConfig(name, "", f"expected at most {_MOST_BYTES_OF_FILE} bytes, got a larger file")
    return text


class _Object(dict[str, Any]):
    """A JSON object that remembers which of its members came twice."""

    twice: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        made.twice = tuple(key for key in made if keys.count(key) > 1)
    return made


def _decode(text: bytes, source: str) -> Any:
    try:
        return json.loads(text.decode("utf-8-sig"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise BadConfig(source, "", f"expected UTF-8 text, got other bytes at offset {error.start}") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise BadConfig(source, "", f"expected JSON, got something else at {where} ({error.msg})") from error
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits; nesting without end
        raise BadConfig(source, "", f"expected JSON, got what cannot be parsed ({error})") from error


def _members(value: Any, known: Iterable[str], source: str, path: str) -> Iterable[tuple[str, Any]]:
    """The members of an object, each known and there once."""
    if not isinstance(value, _Object):
        raise BadConfig(source, path, f"expected a JSON object, got {_shown(value)}")
    for key in value:
        if key not in known:
            raise BadConfig(source, _join(path, _printable(key)), f"unknown key; {_advice(key, known)}")
    if value.twice:
        raise BadConfig(source, _join(path, value.twice[0]), "expected once, got it more than once; keep one of them")
    return value.items()


def _advice(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"the known ones are {', '.join(known)}"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _printable(key: str) -> str:
    """A key that somebody wrote, safe for a terminal."""
    return key if key.isidentifier() and key.isascii() else ascii(key)[:60]
