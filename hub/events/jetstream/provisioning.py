"""Provisioning: which streams can carry agent events, and a config that can."""

from typing import Any

from hub.events.jetstream.subjects import Subjects
from hub.events.limits import Limits

# Beside the record: the sequence that the source adds, and the headers of a publish.
MESSAGE_ROOM_BYTES = 1024
DUPLICATE_WINDOW_SECS = 120.0


def problems(info: dict[str, Any], subjects: Subjects, limits: Limits, *, max_payload: int, cleanup: bool) -> list[str]:
    """Everything about a stream that does not fit, one line each: what it is, what is needed, why. Pure.

    Args:
        info: the server's STREAM.INFO.
        subjects: what the source publishes to.
        limits: of the source.
        max_payload: the server's, in bytes.
        cleanup: `cleanup()` will be used.
    """
    config = info["config"]
    found = [*_shape(config, subjects), *_sizes(config, limits, max_payload), *_eviction(config)]
    window_secs = config.get("duplicate_window", 0) / 1e9
    if window_secs < limits.append_timeout_secs:
        found.append(
            f"duplicate_window is {window_secs:g} s; it must be at least append_timeout_secs "
            f"({limits.append_timeout_secs:g} s), so that a repeated publish is recognised"
        )
    if cleanup and config.get("deny_delete"):
        found.append("deny_delete is true; cleanup needs to delete messages")
    return found


def _shape(config: dict[str, Any], subjects: Subjects) -> list[str]:
    found = []
    captured = config.get("subjects") or []
    if not any(covers(pattern, subjects.all) for pattern in captured):
        found.append(f"subjects are {', '.join(captured) or 'none'}; they must cover {subjects.all}")
    if config.get("retention", "limits") != "limits":
        found.append(f"retention is {config['retention']}; it must be limits, or reading would delete")
    for flag, why in (
        ("sealed", "nothing can be appended"),
        ("no_ack", "appends would never be answered"),
        ("mirror", "nothing can be appended"),
        ("subject_transform", "events would be stored under other subjects"),
    ):
        if config.get(flag):
            found.append(f"{flag} is set; {why}")
    return found


def _sizes(config: dict[str, Any], limits: Limits, max_payload: int) -> list[str]:
    needed = limits.max_event_bytes + MESSAGE_ROOM_BYTES
    most = config.get("max_msg_size", -1)
    found = []
    if 0 <= most < needed:
        found.append(f"max_msg_size is {most}; max_event_bytes needs at least {needed}")
    if max_payload < needed:
        found.append(f"the server's max_payload is {max_payload}; at least {needed} is needed for max_event_bytes")
    return found


def _eviction(config: dict[str, Any]) -> list[str]:
    """Limits that make room by dropping old messages would drop a quiet run's counter for a busy one's events."""
    if config.get("discard", "old") == "new":
        return []
    return [
        f"{limit} is {config[limit]} with discard old: a full stream would drop other runs' events; set discard to new"
        for limit in ("max_msgs", "max_bytes")
        if config.get(limit, -1) > 0
    ]


def covers(pattern: str, subject: str) -> bool:
    """Does a subject pattern capture everything that another pattern can match? (Both with NATS wildcards.)"""
    wanted = subject.split(".")
    tokens = pattern.split(".")
    for index, token in enumerate(tokens):
        if token == ">":
            return len(wanted) > index
        if index >= len(wanted) or wanted[index] == ">":
            return False
        if token not in ("*", wanted[index]):
            return False
    return len(tokens) == len(wanted)


def stream_config(
    stream: str, subjects: Subjects, *, storage: str = "file", replicas: int = 1, max_age_secs: float = 0
) -> dict[str, Any]:
    """The config of a stream that fits.

    Args:
        stream: its name.
        subjects: what it captures.
        storage: `file` or `memory`.
        replicas: 1, 3 or 5.
        max_age_secs: how long events are kept, in seconds; 0: until cleanup. A run whose last event expires starts
            over at 1, and its readers are told (`RETENTION`).
    """
    return {
        "name": stream,
        "subjects": [subjects.all],
        "retention": "limits",
        "discard": "new",
        "storage": storage,
        "num_replicas": replicas,
        "max_age": int(max_age_secs * 1e9),
        "duplicate_window": int(DUPLICATE_WINDOW_SECS * 1e9),
        "allow_direct": True,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
    }
