"""The diagnosis: what the answers of JetStream's API mean. Pure; the probe asks, this judges."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from hub.delivery import blueprints
from hub.delivery.inspector import StreamFinding
from hub.delivery.report import Finding, Level, counted, shown_secs

STALL_SECS: Final = 3.0
"""A consumer is at its limit of un-acked messages under load too; one that got no ack for so long meanwhile hangs."""

INGRESS_SLOW_SECS: Final = 10.0  # a router takes milliseconds; what waits longer waits for a router, or for its retry
NEARLY: Final = 0.9  # of a limit: time to look before it is reached


class ConsumerState(msgspec.Struct, frozen=True, kw_only=True):
    """A durable consumer at one moment.

    Attributes:
        name: its name.
        waiting: messages that it has not delivered yet.
        unacked: delivered and not acked.
        most_unacked: the limit of that; 0 or less is none.
        pulls: requests that wait for a message: 0 means that nobody reads.
        floor_seq: everything up to this sequence is acked, or gone.
        delivered_seq: the newest sequence that was delivered.
        idle_secs: since the last ack, or since it was made when there was none.
        quiet_secs: since the last delivery, or since it was made.
        redelivered: messages that are not acked and were delivered more than once.
        oldest_seq: sequence of the oldest message that is not acked; None when it was not looked up.
        oldest_secs: that message's age.
    """

    name: str
    waiting: int
    unacked: int
    most_unacked: int
    pulls: int
    floor_seq: int
    delivered_seq: int
    idle_secs: float
    quiet_secs: float
    redelivered: int
    oldest_seq: int | None = None
    oldest_secs: float | None = None

    @property
    def unread(self) -> int:
        """Messages that are not acked, delivered or not."""
        return self.waiting + self.unacked

    @property
    def is_stalled(self) -> bool:
        """At its limit, and no ack comes: looks like an empty inbox to its reader, and is not.

        A reader that has just taken a full window has no ack behind it either; but its last delivery is fresh.
        """
        is_at_limit = 0 < self.most_unacked <= self.unacked
        is_old = self.quiet_secs >= STALL_SECS or self.redelivered > 0
        return is_at_limit and is_old and self.idle_secs >= STALL_SECS

    @property
    def is_unattended(self) -> bool:
        """Messages wait, and nobody asks for them or has any in hand."""
        return bool(self.waiting) and not self.pulls and not self.unacked


def moment(text: str | None) -> datetime | None:
    """A time as JetStream writes it (nanoseconds, `Z`); None for none, and for its zero time."""
    if not text or text.startswith("0001-"):
        return None
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def age_secs(then: str | None, now: datetime) -> float | None:
    """How old a time of JetStream's is by the same server's clock."""
    found = moment(then)
    return None if found is None else max(0.0, (now - found).total_seconds())


def consumer_state(info: Mapping[str, Any], now: datetime) -> ConsumerState:
    """A consumer's state out of its info."""
    floor = info.get("ack_floor") or {}
    delivered = info.get("delivered") or {}
    created = info.get("created")
    return ConsumerState(
        name=str(info.get("name", "")),
        waiting=int(info.get("num_pending") or 0),
        unacked=int(info.get("num_ack_pending") or 0),
        most_unacked=int((info.get("config") or {}).get("max_ack_pending") or 0),
        pulls=int(info.get("num_waiting") or 0),
        floor_seq=int(floor.get("stream_seq") or 0),
        delivered_seq=int(delivered.get("stream_seq") or 0),
        idle_secs=age_secs(floor.get("last_active") or created, now) or 0.0,
        quiet_secs=age_secs(delivered.get("last_active") or created, now) or 0.0,
        redelivered=int(info.get("num_redelivered") or 0),
    )


def judge_stream(found: StreamFinding, info: Mapping[str, Any] | None) -> Finding:
    """A stream, or the router's consumer: is it there, as configured, and with room left?

    Args:
        found: what the inspector says.
        info: the stream's info; None when it was not asked for or is not there.
    """
    name = f"consumer {found.consumer}" if found.consumer else f"stream {found.stream}"
    if found.is_missing:
        return Finding(name, "fail", "is not there: start a router (`python -m hub router --durable`), it makes it")
    if found.drift:
        unsafe = [field for field in found.drift if found.consumer or field.field not in blueprints.LIMITS]
        fields = "; ".join(map(str, found.drift))
        advice = "restart a router with this delivery config, or give this command the hub's (--delivery-config)"
        drift = {"drift": [{"field": d.field, "found": d.found, "wanted": d.wanted} for d in found.drift]}
        return Finding(name, "fail" if unsafe else "warn", f"is not as configured: {fields}; {advice}", drift)
    if info is None:
        return Finding(name, "ok", "as configured")
    state, config = info["state"], info["config"]
    data = {
        "role": found.role,
        "messages": state["messages"],
        "bytes": state["bytes"],
        "first_seq": state["first_seq"],
        "last_seq": state["last_seq"],
    }
    text = f"as configured, {counted(state['messages'], 'message')}, {state['bytes']} bytes"
    for held, limit, unit in (
        (state["bytes"], config.get("max_bytes", -1), "bytes"),
        (state["messages"], config.get("max_msgs", -1), "messages"),
    ):
        if 0 < limit * NEARLY <= held:
            loss = "refuses new messages" if config.get("discard") == "new" else "drops its oldest messages"
            return Finding(name, "warn", f"{held} of {limit} {unit}: a full one {loss}", data)
    return Finding(name, "ok", text, data)


def judge_router(state: ConsumerState) -> Finding:
    """The consumer that all routers share."""
    name = f"consumer {state.name}"
    data = _data(state)
    if state.is_stalled:
        return Finding(name, "warn", _stalled(state), data)
    if state.is_unattended:
        text = f"{counted(state.waiting, 'message')} wait and nobody pulls: no router runs"
        return Finding(name, "fail", f"{text}; start one (`python -m hub router --durable`)", data)
    pulls = counted(state.pulls, "pull")
    return Finding(name, "ok", f"{state.waiting} waiting, {state.unacked} in flight, {pulls} open", data)


def judge_ingress_age(info: Mapping[str, Any], now: datetime) -> Finding:
    """How long the oldest message has waited for a router, by the server's clock."""
    state = info["state"]
    waiting = int(state["messages"])
    oldest_secs = (age_secs(state.get("first_ts"), now) or 0.0) if waiting else 0.0
    data = {"waiting": waiting, "oldest_secs": round(oldest_secs, 3)}
    if not waiting:
        return Finding("ingress", "ok", "nothing waits to be routed", data)
    text = f"{counted(waiting, 'message')} to be routed, the oldest waits {shown_secs(oldest_secs)}"
    return Finding("ingress", "ok" if oldest_secs < INGRESS_SLOW_SECS else "warn", text, data)


def judge_inbox(identity: str, state: ConsumerState, *, limit: int, max_age_secs: float) -> Finding:
    """One identity's inbox.

    Args:
        identity: whose.
        state: its consumer's.
        limit: how many messages of one inbox the stream keeps; 0 or less is all.
        max_age_secs: how long it keeps them; 0 or less is for ever.
    """
    name, data = f"inbox {identity}", _data(state)
    if 0 < limit <= state.unread:
        text = f"full: {state.unread} unread is the limit, each new message drops the oldest unread one"
        return Finding(name, "warn", text, {**data, "limit": limit, "evicting": True})
    if state.is_stalled:
        return Finding(name, "warn", _stalled(state), data)
    if 0 < limit * NEARLY <= state.unread:
        text = f"{state.unread} unread of at most {limit}: soon each new message drops the oldest unread one"
        return Finding(name, "warn", text, {**data, "limit": limit})
    if 0 < max_age_secs * NEARLY <= (state.oldest_secs or 0.0):
        left = max(0.0, max_age_secs - (state.oldest_secs or 0.0))
        text = f"{state.unread} unread, the oldest is dropped in {shown_secs(left)} (kept {shown_secs(max_age_secs)})"
        return Finding(name, "warn", text, data)
    oldest = "" if state.oldest_secs is None else f", the oldest waits {shown_secs(state.oldest_secs)}"
    reader = "read now" if state.pulls else "nobody reads now"
    text = f"{state.unread} unread{oldest}, {reader}" if state.unread else f"nothing unread, {reader}"
    return Finding(name, "ok", text, data)


def judge_unattached(counts: Mapping[str, int], limit: int) -> list[Finding]:
    """Inboxes that hold mail and have no consumer: their owners never attached, or their consumer expired."""
    if not counts:
        return []
    full = sorted(identity for identity, count in counts.items() if 0 < limit <= count)
    shown = ", ".join(f"{identity} ({counts[identity]})" for identity in sorted(counts)[:10])
    more = f" and {len(counts) - 10} more" if len(counts) > 10 else ""
    owners = counted(len(counts), "inbox holds mail and was not attached yet", "inboxes hold mail, not attached yet")
    text = f"{owners}: {shown}{more}"
    data = {"messages": dict(sorted(counts.items())[:100]), "inboxes": len(counts)}
    findings = [Finding("unattached", "ok", text, data)]
    if full:
        names = ", ".join(full[:10])
        drops = f"full, each new message drops the oldest of at most {limit}: {names}"
        findings.append(Finding("unattached", "warn", drops, {"identities": full[:100], "evicting": True}))
    return findings


def judge_mirror(stream: str, state: ConsumerState) -> Finding:
    """A consumer by which history is mirrored into a storage."""
    name, data = f"mirror {stream}", {**_data(state), "lag": state.unread}
    if state.is_stalled or (state.unread and not state.pulls and state.idle_secs >= STALL_SECS):
        text = f"{state.name}: history lacks {counted(state.unread, 'message')}, storage takes none"
        return Finding(name, "warn", f"{text} since {shown_secs(state.idle_secs)}", data)
    return Finding(name, "ok", f"{state.name}: history lacks {counted(state.unread, 'message')}", data)


def summary_of_inboxes(states: Sequence[ConsumerState], total: int, limit: int) -> Finding:
    """All inboxes in one line; `limit` as in `judge_inbox`."""
    unread = sum(state.unread for state in states)
    full = sum(0 < limit <= state.unread for state in states)
    stalled = sum(state.is_stalled for state in states)
    seen = "" if len(states) >= total else f" (the first {len(states)} of {total} were looked at)"
    text = f"{counted(total, 'inbox', 'inboxes')}{seen}, {counted(unread, 'unread message')}, {stalled} stalled"
    text += f", {full} full" if full else ""
    data = {"inboxes": total, "seen": len(states), "unread": unread, "stalled": stalled, "full": full}
    return Finding("inboxes", "ok", text, data)


def worst(findings: Sequence[Finding], most: int) -> tuple[list[Finding], int]:
    """The findings that are not ok, failures first, at most so many; and how many were left out."""
    order: dict[Level, int] = {"fail": 0, "warn": 1, "ok": 2}
    bad = sorted((finding for finding in findings if finding.level != "ok"), key=lambda f: order[f.level])
    return bad[:most], max(0, len(bad) - most)


def _stalled(state: ConsumerState) -> str:
    oldest = "" if state.oldest_secs is None else f", oldest {shown_secs(state.oldest_secs)}"
    return (
        f"stalled: {state.unacked} un-acked{oldest}, no ack for {shown_secs(state.idle_secs)}, {state.waiting} behind"
    )


def _data(state: ConsumerState) -> dict[str, Any]:
    return {
        "consumer": state.name,
        "waiting": state.waiting,
        "unacked": state.unacked,
        "max_ack_pending": state.most_unacked,
        "pulls": state.pulls,
        "stalled": state.is_stalled,
        "since_ack_secs": round(state.idle_secs, 3),
        "delivered_seq": state.delivered_seq,
        "oldest_seq": state.oldest_seq,
        "oldest_secs": None if state.oldest_secs is None else round(state.oldest_secs, 3),
    }
