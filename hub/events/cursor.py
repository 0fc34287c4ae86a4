"""Cursors: signed positions in one run, readable by nobody but the source that made them.

`<body>.<signature>`, both strict unpadded base64url. The body holds version, key id, sequence, a digest of the event's
id and the backend's place. What binds a cursor to its reader (adapter, stream, ownership, session, run) is signed but
not in it, so nothing of an owner can be read from a cursor, and another owner's simply does not verify.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping

import msgspec

from hub.events.errors import InvalidCursorError, InvalidInputError
from hub.events.records import RunKey

VERSION = 1
MIN_SECRET_BYTES = 32
_ALPHABET = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_MAX_PLACE = 2**63 - 1

_WHAT = "a cursor is text that this source returned"
CursorSecret = bytes | str | Iterable[bytes | str] | Mapping[str, bytes | str]


class Position(msgspec.Struct, frozen=True):
    """A point in a run: behind the event numbered `sequence`.

    Attributes:
        sequence: 0 is the beginning.
        place: where the backend keeps that event (its own number), 0 where it does not matter.
        event: digest of the event's id, empty at the beginning; tells when a log was made anew under old cursors.
    """

    sequence: int = 0
    place: int = 0
    event: bytes = b""


START = Position()


def event_digest(event_id: str) -> bytes:
    """What a position remembers of an event's id (96 bits: enough to notice another one)."""
    return hashlib.sha256(event_id.encode()).digest()[:12]


class CursorCodec:
    """Makes and checks cursors.

    Args:
        secret: one secret, several (the first signs, all verify), or a mapping of key id to secret (likewise). Each of
            at least 32 bytes; replicas that share cursors share secrets.
        adapter: the adapter's name; signed.
        stream: the stream's name; signed.
        max_bytes: longer ones are refused unseen.

    Raises:
        InvalidInputError: no secret, or one that is too short.
    """

    def __init__(self, secret: CursorSecret, *, adapter: str, stream: str, max_bytes: int) -> None:
        self._keys = _keys(secret)
        self._where = (adapter, stream)
        self._max_bytes = max_bytes

    def encode(self, run: RunKey, position: Position) -> str:
        """The cursor of a position in a run."""
        kid, secret = self._keys[0]
        body = _b64(msgspec.json.encode([VERSION, kid, position.sequence, _b64(position.event), position.place]))
        return f"{body}.{_b64(self._sign(secret, body, run))}"

    def decode(self, run: RunKey, cursor: object) -> Position:
        """The position that a cursor names.

        Raises:
            InvalidCursorError: it is anything but a cursor of this source, stream, owner, session and run.
        """
        if not isinstance(cursor, str):
            raise InvalidCursorError(f"{_WHAT}, not {type(cursor).__name__}")
        if len(cursor) > self._max_bytes or _ALPHABET.fullmatch(cursor) is None:
            raise InvalidCursorError(f"{_WHAT}; this one has another form")
        body, _, signature = cursor.partition(".")
        given = _unb64(signature)
        # All keys are tried, whatever the body says: a body is not to be believed before its signature is checked.
        if given is None or not any(hmac.compare_digest(self._sign(s, body, run), given) for _, s in self._keys):
            raise InvalidCursorError("the cursor does not belong to this run, owner and source, or it was changed")
        return _parse(body)

    def _sign(self, secret: bytes, body: str, run: RunKey) -> bytes:
        owner = run.ownership
        scope = (*self._where, owner.tenant_id, owner.account_id, owner.user_id, run.session_id, run.run_id)
        return hmac.digest(secret, msgspec.json.encode((*scope, body)), "sha256")


def _parse(body: str) -> Position:
    """The position in a body whose signature is right; still checked, since an older version may have signed it."""
    raw = _unb64(body)
    try:
        version, _, sequence, event, place = msgspec.json.decode(raw or b"", type=tuple[int, str, int, str, int])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidCursorError("the cursor is of another version of this source") from None
    known = _unb64(event)
    if version != VERSION or not 0 <= sequence <= _MAX_PLACE or not 0 <= place <= _MAX_PLACE or known is None:
        raise InvalidCursorError("the cursor is of another version of this source")
    return Position(sequence, place, known)


def _keys(secret: object) -> list[tuple[str, bytes]]:
    if isinstance(secret, (bytes, str)):
        pairs: list[tuple[object, object]] = [("", secret)]
    elif isinstance(secret, Mapping):
        pairs = list(secret.items())
    elif isinstance(secret, Iterable):
        pairs = [("", one) for one in secret]
    else:
        raise InvalidInputError(f"cursor_secret must be bytes or text, or several of them, not {type(secret).__name__}")
    keys = []
    for kid, one in pairs:
        if not isinstance(one, (bytes, str)):
            raise InvalidInputError(f"cursor_secret must be bytes or text, not {type(one).__name__}")
        raw = one.encode() if isinstance(one, str) else one
        if len(raw) < MIN_SECRET_BYTES:
            raise InvalidInputError(f"cursor_secret must be at least {MIN_SECRET_BYTES} bytes, not {len(raw)}")
        if not isinstance(kid, str) or len(kid) > 32:
            raise InvalidInputError("a key id (kid) of cursor_secret must be text of at most 32 characters")
        keys.append((kid or hashlib.sha256(b"kid" + raw).hexdigest()[:8], raw))
    if not keys:
        raise InvalidInputError("cursor_secret is empty: give at least one secret")
    return keys


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unb64(text: str) -> bytes | None:
    """Strict: None unless `text` is the one way to write some bytes."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    return data if _b64(data) == text else None
