"""Records: what an agent did, checked before it is stored, and written as compact JSON."""

import hashlib
import math
import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from hub.events.errors import InvalidInputError
from hub.events.limits import check_number

MAX_ID_BYTES = 256
MAX_DEPTH = 128  # deeper JSON is refused by the wire contract (§1) too
INT64_MIN, INT64_MAX, UINT64_MAX = (
    -(2**63),
    2**63 - 1,
    2**64 - 1,
)  # whole numbers beyond lose digits in other languages (contract §1)

# A producer may emit `run_limit_exceeded` and then `error`: after one of these only these are accepted.
TERMINAL_TYPES = frozenset({"agent_finished", "agent_denied", "run_limit_exceeded", "error"})

_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """Whose events: the three compare exactly, an absent one only with an absent one."""

    tenant_id: str
    account_id: str | None = None
    user_id: str | None = None


class AgentEventRecord(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"session_id": "sessionId", "run_id": "runId", "tenant_id": "tenantId"},
):
    """One event of one run.

    Attributes:
        id: names the event within (owner, session, run); appending it again changes nothing.
        session_id: the session that the run belongs to.
        run_id: the run.
        type: the event's type; the same as `event["type"]`.
        timestamp: the producer's clock, exactly `YYYY-MM-DDTHH:MM:SS.mmmZ`.
        event: the event as JSON; carries `type`, `sessionId` and `runId` itself.
        redacted: True: secrets are taken out. The source refuses everything else and never redacts.
        tenant_id: the owner's tenant.
        account_id: the owner's account, where there is one.
        user_id: the owner's user, where there is one.
        entry_id: the session entry that the event belongs to, where there is one.
        metadata: anything else, as JSON.
        sequence: the event's number in its run, from 1. The source sets it; a given one is an expectation.
    """

    id: str
    session_id: str
    run_id: str
    type: str
    timestamp: str
    event: dict[str, Any]
    redacted: bool
    tenant_id: str
    account_id: str | None = None
    user_id: str | None = None
    entry_id: str | None = None
    metadata: dict[str, Any] | None = None
    # Last on purpose: the stored form is the checked bytes with the sequence spliced in before the closing brace.
    sequence: int | None = None

    @property
    def ownership(self) -> Ownership:
        return Ownership(tenant_id=self.tenant_id, account_id=self.account_id, user_id=self.user_id)

    @property
    def terminal(self) -> bool:
        """Does this event close its run?"""
        return self.type in TERMINAL_TYPES


class RunKey(msgspec.Struct, frozen=True):
    """One run of one owner: what a counter belongs to."""

    ownership: Ownership
    session_id: str
    run_id: str


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A checked record on its way into a log.

    Attributes:
        record: without a sequence.
        run: where it goes.
        body: its compact JSON, without a sequence.
        expected: the sequence that the producer expects, if any.
    """

    record: AgentEventRecord
    run: RunKey
    body: bytes
    expected: int | None


def draft(record: AgentEventRecord, *, max_event_bytes: int) -> Draft:
    """Check a record and encode it.

    Args:
        record: what a producer wants appended.
        max_event_bytes: longest compact JSON, in bytes.

    Raises:
        InvalidInputError: naming the member, what was expected and what came (never a whole event).
    """
    if not isinstance(record, AgentEventRecord):
        raise InvalidInputError(f"expected an AgentEventRecord, not {type(record).__name__}")
    run = run_key(record.ownership, record.session_id, record.run_id)
    check_id("id", record.id)
    check_id("type", record.type)
    if record.entry_id is not None:
        check_id("entry_id", record.entry_id)
    check_timestamp("timestamp", record.timestamp)
    if record.redacted is not True:
        raise InvalidInputError("redacted must be True: take the secrets out of the event first, then mark it")
    expected = record.sequence
    if expected is not None:
        check_number("sequence", expected, 1, INT64_MAX)
    check_json("event", record.event)
    for member, wanted in (("type", record.type), ("sessionId", record.session_id), ("runId", record.run_id)):
        if record.event.get(member) != wanted:
            raise InvalidInputError(f"event.{member} must be the same as the record's, {wanted!r}")
    if record.metadata is not None:
        check_json("metadata", record.metadata)
    bare = record if expected is None else msgspec.structs.replace(record, sequence=None)
    body = encode(bare)
    if len(body) > max_event_bytes:
        raise InvalidInputError(f"the record is {len(body)} bytes of JSON; max_event_bytes is {max_event_bytes}")
    return Draft(record=bare, run=run, body=body, expected=expected)


def run_key(ownership: Ownership, session_id: str, run_id: str) -> RunKey:
    """A checked run.

    Raises:
        InvalidInputError: an id is not one.
    """
    check_ownership(ownership)
    check_id("session_id", session_id)
    check_id("run_id", run_id)
    return RunKey(ownership, session_id, run_id)


def check_ownership(ownership: Ownership) -> None:
    """Refuse what names no owner."""
    if not isinstance(ownership, Ownership):
        raise InvalidInputError(f"ownership must be an Ownership, not {type(ownership).__name__}")
    check_id("tenant_id", ownership.tenant_id)
    if ownership.account_id is not None:
        check_id("account_id", ownership.account_id)
    if ownership.user_id is not None:
        check_id("user_id", ownership.user_id)


def check_id(name: str, value: object) -> None:
    """Refuse what is not text of 1 to 256 bytes of UTF-8 without NUL."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} must be text, not {type(value).__name__}")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInputError(f"{name} holds a lone surrogate: it is not text that UTF-8 can write") from None
    if not 1 <= size <= MAX_ID_BYTES:
        raise InvalidInputError(f"{name} must be 1 to {MAX_ID_BYTES} bytes of text, not {size}")
    if "\0" in value:
        raise InvalidInputError(f"{name} must not hold NUL")


def check_timestamp(name: str, value: object) -> None:
    """Refuse what is not exactly `YYYY-MM-DDTHH:MM:SS.mmmZ` and a real instant."""
    if not isinstance(value, str) or _TIMESTAMP.fullmatch(value) is None:
        shown = repr(value[:64]) if isinstance(value, str) else type(value).__name__
        raise InvalidInputError(f"{name} must be written as YYYY-MM-DDTHH:MM:SS.mmmZ, not {shown}")
    try:
        datetime.fromisoformat(value)
    except ValueError as error:
        raise InvalidInputError(f"{name} {value!r} is no instant: {error}") from None


def instant(value: str | datetime, name: str = "before") -> str:
    """A point in time as a timestamp of this log: fixed width and UTC, so that text order is time order.

    Raises:
        InvalidInputError: a text in another form, or a datetime without an offset.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidInputError(f"{name} has no time zone: use an aware datetime")
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    check_timestamp(name, value)
    return value


def check_json(name: str, value: object) -> None:
    """Refuse what is not a JSON object that every reader understands alike (contract §1)."""
    if type(value) is not dict:
        raise InvalidInputError(f"{name} must be a JSON object (a dict), not {type(value).__name__}")
    _check_value(name, value, 1)


def _check_value(path: str, value: object, depth: int) -> None:
    if depth > MAX_DEPTH and isinstance(value, (dict, list)):
        raise InvalidInputError(f"{path[:200]} is nested deeper than {MAX_DEPTH}")
    if type(value) is dict:
        for key, member in value.items():
            if not isinstance(key, str):
                raise InvalidInputError(f"{path} has a member name that is {type(key).__name__}, not text")
            _check_text(path, key)
            _check_value(f"{path}.{key}", member, depth + 1)
    elif type(value) is list:
        for index, member in enumerate(value):
            _check_value(f"{path}[{index}]", member, depth + 1)
    else:
        _check_scalar(path, value)


def _check_scalar(path: str, value: object) -> None:
    if value is None or value is True or value is False:
        return
    if isinstance(value, str):
        _check_text(path, value)
    elif isinstance(value, int):
        if not INT64_MIN <= value <= UINT64_MAX:
            raise InvalidInputError(f"{path} is a whole number beyond 64 bits; write it as text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInputError(f"{path} is {value}, which JSON cannot write")
    else:
        raise InvalidInputError(f"{path} is a {type(value).__name__}, which JSON cannot write")


def _check_text(path: str, value: str) -> None:
    if value.isascii():
        return
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{path} holds a lone surrogate: it is not text that UTF-8 can write") from None


_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(AgentEventRecord)


def encode(record: AgentEventRecord) -> bytes:
    """Compact JSON of a record."""
    return _encoder.encode(record)


def with_sequence(body: bytes, sequence: int) -> bytes:
    """The stored form: a record's compact JSON with its sequence as the last member."""
    return b'%b,"sequence":%d}' % (body[:-1], sequence)


def decode(data: bytes) -> AgentEventRecord | None:
    """A stored record, or None where the bytes are not one (a broken record is skipped, never raised)."""
    try:
        record = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return record if record.sequence is not None and record.sequence >= 1 else None


def same_content(one: AgentEventRecord, other: AgentEventRecord) -> bool:
    """Do two records say the same, their sequences aside? (Canonical JSON: member order does not matter.)"""
    return canonical(one) == canonical(other)


def canonical(record: AgentEventRecord) -> bytes:
    """JSON with sorted members and without the sequence."""
    return _canonical.encode(msgspec.structs.replace(record, sequence=None))


def digest(*parts: str | None) -> bytes:
    """SHA-256 over a list of texts, written so that no two lists collide."""
    return hashlib.sha256(_encoder.encode(parts)).digest()


def now_timestamp(moment: datetime | None = None) -> str:
    """A moment (default: now) in the form that records carry."""
    return instant(moment or datetime.now(UTC))
