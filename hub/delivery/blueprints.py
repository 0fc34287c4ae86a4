"""Blueprints: the full configs of the streams and consumers, and how what is there differs. Pure.

Every request to JetStream carries a whole blueprint, because a field that is left out of an update is reset.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from hub.delivery.config import UNLIMITED, DeliveryConfig, StreamSettings
from hub.delivery.refusals import FieldDrift
from hub.protocol import subjects

StreamRole = Literal["ingress", "inbox", "tasks"]
ROLES: Final[tuple[StreamRole, ...]] = ("ingress", "inbox", "tasks")

_NANOS: Final = 1_000_000_000

LIMITS: Final = frozenset(
    {
        "discard",
        "discard_new_per_subject",
        "duplicate_window",
        "max_age",
        "max_bytes",
        "max_msg_size",
        "max_msgs",
        "max_msgs_per_subject",
        "num_replicas",
        "storage",
    }
)
"""Fields that the delivery config decides. All others are the same for every hub: a difference there is a danger."""

_STREAM_SUBJECTS: Final[dict[StreamRole, tuple[str, ...]]] = {
    "ingress": (subjects.INGRESS_ALL,),
    "inbox": (subjects.INBOX_ALL,),
    "tasks": subjects.TASKS_ALL,
}

# Headers and options by which an agent's message would delete, hide or delay others', or have the server publish as
# somebody else (permissions: "What the hub does besides"). `no_ack` would let a sender believe that it is stored, and
# `persist_mode: async` acks before the write.
_OFF: Final[dict[str, Any]] = {
    "allow_atomic": False,
    "allow_batched": False,
    "allow_msg_counter": False,
    "allow_msg_schedules": False,
    "allow_msg_ttl": False,
    "allow_rollup_hdrs": False,
    "deny_delete": False,
    "deny_purge": False,
    "mirror_direct": False,
    "no_ack": False,
    "sealed": False,
}

# An operator's to set, and no danger: an update must not reset where a stream is placed, and a difference is no drift.
_STREAM_KEPT: Final = frozenset({"compression", "description", "first_seq", "metadata", "placement"})
_CONSUMER_KEPT: Final = frozenset({"description", "max_waiting", "metadata", "pause_until"})
_SERVER_METADATA: Final = "_nats."  # the server writes these itself


def stream_blueprint(role: StreamRole, config: DeliveryConfig) -> dict[str, Any]:
    """The full config of one of the three streams, as JetStream's API takes it (contract §4)."""
    settings: StreamSettings = getattr(config, role)
    has_quota = settings.max_msgs_per_subject != UNLIMITED
    return {
        "name": settings.name,
        "subjects": list(_STREAM_SUBJECTS[role]),
        "retention": "workqueue" if role == "ingress" else "limits",
        # The ingress refuses what it cannot hold (its sender keeps it); the others let their oldest go.
        "discard": "new" if role == "ingress" else "old",
        # Without it the server would drop the oldest, already acked message of a subject that is at its quota.
        "discard_new_per_subject": role == "ingress" and has_quota,
        "max_age": _nanos(settings.max_age_secs),
        "max_msgs_per_subject": settings.max_msgs_per_subject,
        "max_bytes": settings.max_bytes,
        "max_msgs": settings.max_msgs,
        "max_msg_size": settings.max_msg_size,
        "max_consumers": UNLIMITED,
        "num_replicas": settings.replicas,
        "storage": settings.storage,
        "duplicate_window": _nanos(config.duplicate_window_secs),
        "allow_direct": role == "tasks",  # agents read stored channels back; of the others they must not read a message
        **_OFF,
    }


def router_blueprint(config: DeliveryConfig) -> dict[str, Any]:
    """The full config of the consumer on the ingress that all routers share.

    `max_deliver` is always unlimited: the router itself counts to `router_max_deliver`, since JetStream would leave a
    message above its limit in the stream, skipped and silent (contract §3.3).
    """
    return {
        "name": config.router_consumer,
        "durable_name": config.router_consumer,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": _nanos(config.ack_wait_secs),
        "max_deliver": UNLIMITED,
        "max_ack_pending": config.router_max_ack_pending,
        "replay_policy": "instant",
        "num_replicas": 0,  # as the stream
        "mem_storage": False,
    }


def inbox_blueprint(identity: str, config: DeliveryConfig, *, start_seq: int | None = None) -> dict[str, Any]:
    """The full config of the consumer that reads one identity's inbox (contract §5).

    Args:
        identity: whose, validated.
        config: the delivery config.
        start_seq: the first stream sequence to deliver; None is all that is retained.
    """
    name = subjects.inbox_consumer(identity)
    start = (
        {"deliver_policy": "all"}
        if start_seq is None
        else {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": start_seq,
        }
    )
    return {
        **start,
        "name": name,
        "durable_name": name,
        "filter_subject": subjects.inbox(identity),
        "ack_policy": "explicit",
        "ack_wait": _nanos(config.ack_wait_secs),
        "max_deliver": UNLIMITED,
        "max_ack_pending": config.inbox_max_ack_pending,
        "inactive_threshold": _nanos(config.inbox_inactive_secs),
        "replay_policy": "instant",
        "num_replicas": 0,
        "mem_storage": False,
    }


def stream_drift(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[FieldDrift]:
    """How a stream's config differs from its blueprint; a field that the blueprint does not know must be unset."""
    return _drift(found, wanted, _STREAM_KEPT)


def consumer_drift(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[FieldDrift]:
    """How a consumer's config differs from its blueprint."""
    return _drift(found, wanted, _CONSUMER_KEPT)


def stream_update(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The full config for an update: the blueprint, and what is an operator's as it is."""
    return {**_kept(found, _STREAM_KEPT), **wanted}


def consumer_update(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The full config for an update of a consumer."""
    return {**_kept(found, _CONSUMER_KEPT), **wanted}


def keep_start(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The blueprint with the start of the consumer that is there: where it began cannot be changed any more."""
    start = found.get("deliver_policy")
    rest = {field: value for field, value in wanted.items() if field not in {"deliver_policy", "opt_start_seq"}}
    if start == "by_start_sequence":
        return {**rest, "deliver_policy": start, "opt_start_seq": found.get("opt_start_seq")}
    return {**rest, "deliver_policy": "all"}


def shrunk(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[FieldDrift]:
    """The limits that an update makes smaller: JetStream deletes what is above them at once."""
    smaller = []
    for field in ("max_age", "max_bytes", "max_msgs", "max_msgs_per_subject"):
        before, after = found.get(field) or 0, wanted.get(field) or 0
        if after > 0 and (before <= 0 or after < before):
            smaller.append(FieldDrift(field, before, after))
    return smaller


def _kept(found: Mapping[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    kept = {field: found[field] for field in fields if found.get(field)}
    metadata = kept.get("metadata")
    if isinstance(metadata, Mapping):
        kept["metadata"] = {key: value for key, value in metadata.items() if not key.startswith(_SERVER_METADATA)}
    return kept


def _drift(found: Mapping[str, Any], wanted: Mapping[str, Any], ignored: frozenset[str]) -> list[FieldDrift]:
    drift = []
    for field in sorted((found.keys() | wanted.keys()) - ignored):
        is_value, asked_value = _plain(found.get(field)), _plain(wanted.get(field))
        if is_value != asked_value:
            drift.append(FieldDrift(field, found.get(field), wanted.get(field)))
    return drift


def _plain(value: Any) -> Any:
    """A field's value to compare: what counts as unset is one thing, and the order of subjects says nothing."""
    if isinstance(value, list):
        return sorted(value, key=repr) or None
    return value or None


def _nanos(secs: int) -> int:
    """Seconds as JetStream counts them; -1 (unlimited) is its 0."""
    return 0 if secs == UNLIMITED else secs * _NANOS
