"""Subjects: one a run, injective and safe, so that no two runs or owners ever share one. Pure."""

import base64
import re

from hub.events.errors import InvalidInputError
from hub.events.records import Ownership, RunKey, digest

DEFAULT_PREFIX = "prism.agent-events"
_SAFE = re.compile(r"[A-Za-z0-9_-]+")
_PREFIX = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_STREAM = re.compile(r"[A-Za-z0-9_-]{1,255}")


class Subjects:
    """The subjects of one stream.

    Args:
        prefix: what they begin with.

    Raises:
        InvalidInputError: the prefix is no plain subject.
    """

    def __init__(self, prefix: object) -> None:
        if not isinstance(prefix, str) or len(prefix) > 256 or _PREFIX.fullmatch(prefix) is None:
            raise InvalidInputError(f"prefix must be tokens of A-Z a-z 0-9 _ - joined by dots, not {prefix!r}")
        self.prefix = prefix

    def run(self, run: RunKey) -> str:
        """`<prefix>.<tenant>.<session>.<run>`; with an account or user the session's token also names the owner."""
        owner = run.ownership
        session = token(run.session_id)
        if owner.account_id is not None or owner.user_id is not None:
            session = f"{session}~{_hash(owner.account_id, owner.user_id)}"
        return f"{self.prefix}.{token(owner.tenant_id)}.{session}.{token(run.run_id)}"

    def tenant(self, owner: Ownership) -> str:
        """All runs of a tenant."""
        return f"{self.prefix}.{token(owner.tenant_id)}.>"

    @property
    def all(self) -> str:
        return f"{self.prefix}.>"


def token(text: str) -> str:
    """A subject token for any id: itself where it is safe, else `=` and base64url, which no safe id begins with."""
    if _SAFE.fullmatch(text):
        return text
    return f"={base64.urlsafe_b64encode(text.encode()).rstrip(b'=').decode()}"


def message_id(run: RunKey, event_id: str, attempt: int = 0) -> str:
    """`Nats-Msg-Id` of an event: owners that use the same ids never drop each other's.

    Args:
        run: where it goes.
        event_id: its id.
        attempt: above 0 where the server still remembers a record under the id that is no longer stored.
    """
    owner = run.ownership
    suffix = f":{attempt}" if attempt else ""
    return _hash(owner.tenant_id, owner.account_id, owner.user_id, run.session_id, run.run_id, event_id) + suffix


def reader_name(run: RunKey, durable: str) -> str:
    """The durable consumer's name of a named reader of a run."""
    return f"agent-events-reader-{message_id(run, durable)}"


def check_stream_name(stream: object) -> str:
    """A stream's name that is safe in API subjects."""
    if not isinstance(stream, str) or _STREAM.fullmatch(stream) is None:
        raise InvalidInputError(f"stream must be 1 to 255 of A-Z a-z 0-9 _ -, not {stream!r}")
    return stream


def _hash(*parts: str | None) -> str:
    return base64.urlsafe_b64encode(digest(*parts)[:18]).decode()  # 144 bits, no padding
