"""Blueprints: full configs, safe flags, and differences as data."""

from typing import Any

import pytest

from hub.delivery import blueprints
from hub.delivery.blueprints import ROLES, StreamRole, consumer_drift, stream_blueprint, stream_drift
from hub.delivery.config import DeliveryConfig, parse
from hub.delivery.refusals import FieldDrift

CONFIG = DeliveryConfig()

# What permissions.md wants off on all three streams.
DANGEROUS = (
    "allow_rollup_hdrs",
    "allow_msg_ttl",
    "allow_msg_schedules",
    "allow_atomic",
    "allow_batched",
    "allow_msg_counter",
)


@pytest.mark.parametrize("role", ROLES)
def test_what_an_agents_header_could_use_against_others_is_off(role: StreamRole) -> None:
    blueprint = stream_blueprint(role, CONFIG)
    assert [blueprint[flag] for flag in DANGEROUS] == [False] * len(DANGEROUS)
    assert blueprint["allow_direct"] is (role == "tasks")
    assert not {"republish", "mirror", "sources", "subject_transform"} & blueprint.keys()


def test_the_three_streams_are_the_contracts() -> None:
    ingress, inbox, tasks = (stream_blueprint(role, CONFIG) for role in ROLES)
    assert (ingress["name"], ingress["subjects"], ingress["retention"]) == ("HUB_INGRESS", ["hub.pub.>"], "workqueue")
    assert (inbox["name"], inbox["subjects"], inbox["retention"]) == ("HUB_INBOX", ["channel.inbox.>"], "limits")
    assert (tasks["name"], tasks["retention"]) == ("HUB_TASKS", "limits")
    assert tasks["subjects"] == ["channel.task.>", "channel.session.>", "channel.wave.>"]
    assert [stream["discard"] for stream in (ingress, inbox, tasks)] == ["new", "old", "old"]
    day = 86_400 * 10**9
    assert [stream["max_age"] for stream in (ingress, inbox, tasks)] == [day, 7 * day, day]
    assert [stream["max_msgs_per_subject"] for stream in (ingress, inbox, tasks)] == [-1, 10_000, 10_000]
    for stream in (ingress, inbox, tasks):
        assert (stream["storage"], stream["num_replicas"], stream["duplicate_window"]) == ("file", 1, 120 * 10**9)


def test_an_ingress_with_a_quota_refuses_the_new_and_keeps_the_old_of_each_subject() -> None:
    quota = parse(b'{"ingress": {"max_msgs_per_subject": 5}}', "test")
    assert stream_blueprint("ingress", quota)["discard_new_per_subject"] is True
    assert stream_blueprint("ingress", CONFIG)["discard_new_per_subject"] is False
    assert stream_blueprint("inbox", CONFIG)["discard_new_per_subject"] is False


def test_no_consumer_of_ours_has_a_delivery_limit() -> None:
    config = parse(b'{"router_max_deliver": 5}', "test")
    assert blueprints.router_blueprint(config)["max_deliver"] == -1
    assert blueprints.inbox_blueprint("alice", config)["max_deliver"] == -1


def test_an_inbox_consumer_is_a_pull_consumer_with_a_fixed_filter() -> None:
    blueprint = blueprints.inbox_blueprint("alice", CONFIG)
    assert blueprint["filter_subject"] == "channel.inbox.alice"
    assert blueprint["name"] == blueprint["durable_name"] == "inbox-alice"
    assert blueprint["ack_policy"] == "explicit"
    assert blueprint["deliver_policy"] == "all"
    assert "deliver_subject" not in blueprint
    assert blueprint["inactive_threshold"] == 604_800 * 10**9


def test_unlimited_is_what_jetstream_calls_so() -> None:
    config = parse(b'{"inbox": {"max_age_secs": -1}, "inbox_inactive_secs": -1}', "test")
    assert stream_blueprint("inbox", config)["max_age"] == 0
    assert blueprints.inbox_blueprint("alice", config)["inactive_threshold"] == 0


DRIFTS: list[tuple[dict[str, Any], list[FieldDrift]]] = [
    ({}, []),
    ({"description": "mine", "placement": {"tags": ["ssd"]}, "compression": "s2", "metadata": {"a": "b"}}, []),
    ({"consumer_limits": {}, "mirror": None, "sources": [], "template_owner": ""}, []),
    ({"max_age": 5}, [FieldDrift("max_age", 5, 604_800 * 10**9)]),
    ({"allow_rollup_hdrs": True}, [FieldDrift("allow_rollup_hdrs", True, False)]),
    ({"republish": {"src": ">", "dest": "x"}}, [FieldDrift("republish", {"src": ">", "dest": "x"}, None)]),
    ({"a_flag_of_the_future": True}, [FieldDrift("a_flag_of_the_future", True, None)]),
    ({"retention": "interest"}, [FieldDrift("retention", "interest", "limits")]),
]


@pytest.mark.parametrize(("changed", "expected"), DRIFTS)
def test_drift_is_what_differs_and_nothing_else(changed: dict[str, Any], expected: list[FieldDrift]) -> None:
    wanted = stream_blueprint("inbox", CONFIG)
    assert stream_drift({**wanted, **changed}, wanted) == expected


@pytest.mark.parametrize("field", sorted(stream_blueprint("tasks", CONFIG)))
def test_every_field_of_a_blueprint_is_watched(field: str) -> None:
    wanted = stream_blueprint("tasks", CONFIG)
    assert [drift.field for drift in stream_drift({**wanted, field: "other"}, wanted)] == [field]


def test_the_order_of_subjects_is_no_drift() -> None:
    wanted = stream_blueprint("tasks", CONFIG)
    assert stream_drift({**wanted, "subjects": wanted["subjects"][::-1]}, wanted) == []


def test_an_update_keeps_what_is_an_operators_and_resets_the_rest() -> None:
    wanted = stream_blueprint("inbox", CONFIG)
    found = {
        **wanted,
        "description": "mine",
        "placement": {"tags": ["ssd"]},
        "metadata": {"_nats.ver": "2.15.1", "team": "a"},
        "republish": {"src": ">", "dest": "x"},
    }
    assert blueprints.stream_update(found, wanted) == {
        **wanted,
        "description": "mine",
        "placement": {"tags": ["ssd"]},
        "metadata": {"team": "a"},
    }


def test_a_consumer_keeps_its_start() -> None:
    wanted = blueprints.inbox_blueprint("alice", CONFIG)
    found = {**wanted, "deliver_policy": "by_start_sequence", "opt_start_seq": 7, "max_waiting": 512}
    kept = blueprints.keep_start(found, wanted)
    assert (kept["deliver_policy"], kept["opt_start_seq"]) == ("by_start_sequence", 7)
    assert consumer_drift(found, kept) == []
    new = {**wanted, "deliver_policy": "new"}
    assert consumer_drift(new, blueprints.keep_start(new, wanted)) == [FieldDrift("deliver_policy", "new", "all")]


SHRUNK = [
    ({"max_msgs": -1}, {"max_msgs": 5}, ["max_msgs"]),
    ({"max_msgs": 9}, {"max_msgs": 5}, ["max_msgs"]),
    ({"max_msgs": 5}, {"max_msgs": 9}, []),
    ({"max_msgs": 5}, {"max_msgs": -1}, []),
    ({"max_age": 0}, {"max_age": 10}, ["max_age"]),
    ({"max_age": 10}, {"max_age": 0}, []),
    ({}, {"max_msgs_per_subject": 3, "max_bytes": 4}, ["max_bytes", "max_msgs_per_subject"]),
]


@pytest.mark.parametrize(("found", "wanted", "fields"), SHRUNK)
def test_a_limit_that_gets_smaller_is_seen(found: dict[str, Any], wanted: dict[str, Any], fields: list[str]) -> None:
    assert [drift.field for drift in blueprints.shrunk(found, wanted)] == fields


def test_a_drift_reads_as_a_sentence() -> None:
    assert str(FieldDrift("retention", "limits", "workqueue")) == 'retention is "limits", asked was "workqueue"'
    assert str(FieldDrift("republish", {"dest": "x"}, None)) == 'republish is {"dest":"x"}, asked was none'
