"""The delivery config: any subset, nothing unknown, and errors that name the key (contract §4)."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub.delivery.config import DeliveryConfig, StreamSettings, load, parse
from hub.delivery.refusals import BadConfig, ConfigNotReadable

# The example of the contract, which is also what holds without any file.
CONTRACT = {
    "ingress": {"name": "HUB_INGRESS", "max_age_secs": 86400},
    "inbox": {
        "name": "HUB_INBOX",
        "max_age_secs": 604800,
        "max_msgs_per_subject": 10000,
        "max_bytes": -1,
        "max_msgs": -1,
        "max_msg_size": -1,
        "replicas": 1,
        "storage": "file",
    },
    "tasks": {"name": "HUB_TASKS", "max_age_secs": 86400, "max_msgs_per_subject": 10000},
    "duplicate_window_secs": 120,
    "router_consumer": "router",
    "ack_wait_secs": 30,
    "router_max_deliver": -1,
    "router_max_ack_pending": 1000,
    "inbox_max_ack_pending": 256,
    "inbox_inactive_secs": 604800,
}


def parsed(value: Any) -> DeliveryConfig:
    return parse(json.dumps(value).encode(), "test.json")


def test_the_defaults_are_the_contracts() -> None:
    assert parsed(CONTRACT) == DeliveryConfig() == parsed({})
    assert DeliveryConfig().ingress.max_msgs_per_subject == -1


def test_a_subset_leaves_the_rest_as_it_is() -> None:
    config = parsed({"inbox": {"max_bytes": 5}, "ack_wait_secs": 1})
    assert config.inbox == StreamSettings(
        name="HUB_INBOX", max_age_secs=604800, max_msgs_per_subject=10000, max_bytes=5
    )
    assert config.ack_wait_secs == 1
    assert config.tasks == DeliveryConfig().tasks


@settings(max_examples=30)
@given(
    st.fixed_dictionaries({}, optional={key: st.just(value) for key, value in CONTRACT.items()}),
)
def test_every_subset_of_the_contracts_example_is_the_default(subset: dict[str, Any]) -> None:
    assert parsed(subset) == DeliveryConfig()


def test_every_stream_takes_every_field() -> None:
    fields = {**CONTRACT["inbox"], "replicas": 3, "storage": "memory"}  # type: ignore[dict-item]
    for stream in ("ingress", "inbox", "tasks"):
        config = parsed({stream: {**fields, "name": f"X_{stream}"}})
        assert msgspec.structs.asdict(getattr(config, stream)) == {**fields, "name": f"X_{stream}"}


UNKNOWN = [
    ({"inbx": {}}, "inbx", "did you mean inbox?"),
    ({"ackWaitSecs": 3}, "ackWaitSecs", "did you mean ack_wait_secs?"),
    ({"inbox": {"max_age": 1}}, "inbox.max_age", "did you mean max_age_secs?"),
    ({"tasks": {"zzz": 1}}, "tasks.zzz", "the known ones are name, max_age_secs"),
    ({"": 1}, "''", "the known ones are"),
    ({"a\u001b[2J": 1}, "'a\\x1b[2J'", "unknown key"),
]


@pytest.mark.parametrize(("value", "path", "advice"), UNKNOWN)
def test_an_unknown_key_is_refused_by_name_with_the_closest_known_one(value: Any, path: str, advice: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parsed(value)
    assert caught.value.path == path
    assert advice in str(caught.value)
    assert "test.json" in str(caught.value)
    assert caught.value.code == "config"


WRONG = [
    ({"inbox": 3}, "inbox", "a JSON object, got 3"),
    ({"inbox": None}, "inbox", "a JSON object, got null"),
    ({"inbox": []}, "inbox", "a JSON object, got []"),
    ({"inbox": {"name": 3}}, "inbox.name", "got 3"),
    ({"inbox": {"name": "a.b"}}, "inbox.name", 'got "a.b"'),
    ({"inbox": {"name": "a b"}}, "inbox.name", "1 to 64 characters"),
    ({"inbox": {"name": "x" * 65}}, "inbox.name", "1 to 64 characters"),
    ({"inbox": {"name": ""}}, "inbox.name", "1 to 64 characters"),
    ({"router_consumer": "*"}, "router_consumer", "1 to 64 characters"),
    ({"ingress": {"replicas": 0}}, "ingress.replicas", "from 1 to 5 (JetStream keeps at most 5 copies), got 0"),
    ({"ingress": {"replicas": 6}}, "ingress.replicas", "got 6"),
    ({"ingress": {"replicas": -1}}, "ingress.replicas", "got -1"),
    ({"ingress": {"replicas": True}}, "ingress.replicas", "got true"),
    ({"ingress": {"replicas": 1.0}}, "ingress.replicas", "got 1.0"),
    ({"ingress": {"replicas": "1"}}, "ingress.replicas", 'got "1"'),
    ({"tasks": {"storage": "disk"}}, "tasks.storage", 'expected "file" or "memory", got "disk"'),
    ({"tasks": {"storage": ["file"]}}, "tasks.storage", 'got ["file"]'),
    ({"tasks": {"max_age_secs": 0}}, "tasks.max_age_secs", "or -1 (unlimited)"),
    ({"tasks": {"max_age_secs": -2}}, "tasks.max_age_secs", "got -2"),
    ({"tasks": {"max_age_secs": 10**10}}, "tasks.max_age_secs", "nanoseconds"),
    ({"tasks": {"max_bytes": 0}}, "tasks.max_bytes", "got 0"),
    ({"tasks": {"max_bytes": 2**63}}, "tasks.max_bytes", "64 bits"),
    ({"tasks": {"max_msg_size": 2**31}}, "tasks.max_msg_size", "32 bits"),
    ({"tasks": {"max_msgs": None}}, "tasks.max_msgs", "got null"),
    ({"duplicate_window_secs": -1}, "duplicate_window_secs", "stored twice"),
    ({"duplicate_window_secs": 0}, "duplicate_window_secs", "got 0"),
    ({"ack_wait_secs": -1}, "ack_wait_secs", "come again"),
    ({"ack_wait_secs": 0.5}, "ack_wait_secs", "got 0.5"),
    ({"router_max_deliver": 0}, "router_max_deliver", "got 0"),
    ({"router_max_ack_pending": 0}, "router_max_ack_pending", "got 0"),
    ({"inbox_max_ack_pending": {}}, "inbox_max_ack_pending", "got {}"),
    ({"inbox_inactive_secs": 0}, "inbox_inactive_secs", "got 0"),
    ({"tasks": {"name": "HUB_INBOX"}}, "inbox.name", "different names"),
    ({"tasks": {"name": "hub_ingress"}}, "tasks.name", "ignoring case"),
    ({"tasks": {"max_age_secs": 60}}, "duplicate_window_secs", "at most the smallest max_age_secs, 60"),
    ([], "", "expected a JSON object, got []"),
    ("x", "", "expected a JSON object"),
]


@pytest.mark.parametrize(("value", "path", "detail"), WRONG)
def test_a_wrong_value_is_refused_with_the_path_of_its_key(value: Any, path: str, detail: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parsed(value)
    assert caught.value.path == path
    assert detail in str(caught.value)
    assert str(caught.value).startswith("delivery config test.json: ")


NOT_JSON = [
    (b"", "expected JSON"),
    (b"{", "line 1 column 2"),
    (b'{"ack_wait_secs": 1,}', "expected JSON"),
    (b"\xff\xfe", "expected UTF-8 text, got other bytes at offset 0"),
    (b"[" * 200_000, "expected JSON, got what cannot be parsed"),
    (b'{"ack_wait_secs": ' + b"1" * 5000 + b"}", "expected JSON, got what cannot be parsed"),
    (b'{"ack_wait_secs": NaN}', "got NaN"),
]


@pytest.mark.parametrize(("text", "detail"), NOT_JSON)
def test_what_is_no_json_is_refused(text: bytes, detail: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parse(text, "test.json")
    assert detail in str(caught.value)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b'{"ack_wait_secs": 1, "ack_wait_secs": 1}', "ack_wait_secs"),
        (b'{"inbox": {"replicas": 1, "replic\\u0061s": 3}}', "inbox.replicas"),
        (b'{"inbox": {}, "inbox": {"replicas": 3}}', "inbox"),
    ],
)
def test_a_key_that_stands_there_twice_is_refused(text: bytes, path: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parse(text, "test.json")
    assert caught.value.path == path
    assert "more than once" in str(caught.value)


def test_a_byte_order_mark_is_no_error() -> None:
    assert parse(b"\xef\xbb\xbf{}", "test.json") == DeliveryConfig()


def test_an_unlimited_age_goes_with_any_duplicate_window() -> None:
    streams = {name: {"max_age_secs": -1} for name in ("ingress", "inbox", "tasks")}
    assert parsed({**streams, "duplicate_window_secs": 10**9}).duplicate_window_secs == 10**9


def test_a_config_made_in_code_is_judged_too() -> None:
    with pytest.raises(BadConfig):
        StreamSettings(name="X", max_age_secs=0)
    with pytest.raises(BadConfig):
        DeliveryConfig(ack_wait_secs=0)


def test_the_flag_beats_the_environment_and_that_beats_the_defaults(tmp_path: Path) -> None:
    by_flag, by_environment = tmp_path / "flag.json", tmp_path / "environment.json"
    by_flag.write_text('{"ack_wait_secs": 1}')
    by_environment.write_text('{"ack_wait_secs": 2}')
    environ = {"NATS_HUB_DELIVERY_CONFIG": str(by_environment)}
    assert load(str(by_flag), environ).ack_wait_secs == 1
    assert load(None, environ).ack_wait_secs == 2
    assert load(None, {}).ack_wait_secs == 30
    assert load(None, {"NATS_HUB_DELIVERY_CONFIG": ""}).ack_wait_secs == 30


@pytest.mark.parametrize("name", ["missing.json", ".", "a\0b", ""])
def test_a_file_that_cannot_be_read_is_no_input(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigNotReadable) as caught:
        load(name, {})
    assert caught.value.code == "no_input"
    assert "cannot read the file" in str(caught.value)


def test_a_file_that_is_something_else_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "huge.json"
    with file.open("wb") as opened:
        opened.truncate(2**40)
    with pytest.raises(BadConfig, match="got a larger file"):
        load(str(file), {})


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*CONTRACT, "name", "replicas", "x"]), inner),
    max_leaves=6,
)


@settings(max_examples=40)
@given(JSON_VALUES)
def test_any_json_is_a_config_or_one_clear_error(value: Any) -> None:
    try:
        parsed(value)
    except BadConfig as error:
        said = str(error)
    else:
        said = "expected"
    assert "expected" in said or "unknown key" in said
