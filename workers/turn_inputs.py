"""What a turn is to do, out of its row: its prompt, its time, what its session's start asked for. Pure."""

from typing import Any

import msgspec

from hub.mailbox import Session, Turn, TurnKind
from hub.protocol.results import text_of
from workers.classify import is_timeout


def prompt_of(row: Turn, payload: Any) -> str | None:
    """The turn's prompt; None for a session that only starts."""
    if row.kind is TurnKind.START:
        prompt = payload.get("prompt")
        return prompt if isinstance(prompt, str) else None
    if row.kind is TurnKind.SEND:
        return str(payload.get("message"))
    return text_of(payload) or ""


def start_member(session: Session | None, member: str) -> str | None:
    """A text of the session's start, None when there is none."""
    value = _start_payload(session).get(member)
    return value if isinstance(value, str) and value else None


def timeout_of(row: Turn, own_secs: float) -> float:
    """The handler's, or a shorter one that the session's start asked for; seconds, 0 is without end."""
    asked = _start_payload(row.session).get("timeout_secs")
    if not is_timeout(asked) or not asked:
        return own_secs
    return min(float(asked), own_secs) if own_secs else float(asked)


def _start_payload(session: Session | None) -> dict[str, Any]:
    return {} if session is None else msgspec.json.decode(session.start_payload_json, type=dict[str, Any])
