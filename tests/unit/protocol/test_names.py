"""Names and subjects: a hostile name is refused, never repaired, and no valid one reaches further than itself."""

import enum
import random
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hub.protocol import BadName, make, names, subjects

HOSTILE = [
    *("", " ", ".", "..", ".a", "a.", "a..b", "billing.v2", "a b", " a", "a ", "a\t", "a\n", "a\r\n", "\na", "a\x00b"),
    *("*", ">", "a*", "a>", "a.*", "a.>", "*.a", "$JS.API.STREAM.DELETE.X", "$SYS.x", "$JS", "_INBOX.>", "_INBOX.a"),
    *(
        "x 0\r\n\r\nPUB evil 2\r\nhi\r\n",
        "a\r\nNats-Msg-Id: b",
        "a/b",
        "../a",
        "a\\b",
        "C:a",
        "a:b",
        "a;b",
        "a=b",
        "a%2e",
    ),
    *(
        "é",
        "\uff41",
        "\u0430",
        "a\u200b",
        "a\u0301",
        "😀",
        "\ud800",
        "\x7f",
        "a,b",
        "a@b",
        "a#b",
        '"',
        "'",
        "`",
        "{a}",
        "~a",
        "+",
    ),
    *("x" * 65, "x" * 300, "x" * 1_000_000),
]
NO_TEXT = [None, 5, True, 1.5, b"a", ["a"], ("a",), {"a": 1}, object()]
TOKENS = ["a", "Bob", "bob", "A-Z_09", "-", "_", "--help", "0", "x" * 64, "hub-router", "CON", "null"]
# What a message id may hold and a token may not.
ONLY_IN_IDS = {
    *(
        ".",
        "..",
        ".a",
        "a.",
        "a..b",
        "billing.v2",
        "*",
        ">",
        "a*",
        "a>",
        "a.*",
        "a.>",
        "*.a",
        "$JS.API.STREAM.DELETE.X",
    ),
    *("$SYS.x", "$JS", "_INBOX.>", "_INBOX.a", "a/b", "../a", "a\\b", "C:a", "a:b", "a;b", "a=b", "a%2e", "a,b", "a@b"),
    *("a#b", '"', "'", "`", "{a}", "~a", "+", "x" * 65),
}
# What a channel may hold and a token may not.
ONLY_IN_CHANNELS = {"billing.v2", "_INBOX.a"}


def shown(value: Any) -> str:
    return ascii(value)[:30]


TOKEN_VALIDATORS: list[Callable[[Any], str]] = [
    names.token,
    names.identity,
    names.agent_identity,
    lambda value: make(sender=value, channel="c").meta.sender,
    lambda value: make(sender="a", channel="c", to=value).meta.to or "",
    lambda value: names.channel(f"task.{value}") and value,
    lambda value: names.channel(f"session.{value}") and value,
    lambda value: names.channel(f"wave.{value}") and value,
]


@pytest.mark.parametrize("validate", TOKEN_VALIDATORS)
@pytest.mark.parametrize("value", HOSTILE, ids=shown)
def test_a_hostile_name_is_refused_by_every_validator_of_tokens(validate: Callable[[Any], str], value: str) -> None:
    with pytest.raises(BadName) as caught:
        validate(value)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "validate", [names.token, names.identity, names.agent_identity, names.channel, names.message_id]
)
@pytest.mark.parametrize("value", NO_TEXT, ids=lambda value: type(value).__name__)
def test_what_is_no_text_is_refused_as_a_name(validate: Callable[[Any], str], value: Any) -> None:
    with pytest.raises(BadName):
        validate(value)
    assert not names.is_token(value)
    assert not names.is_message_id(value)


@pytest.mark.parametrize("validate", TOKEN_VALIDATORS)
@pytest.mark.parametrize("value", TOKENS, ids=shown)
def test_a_token_is_returned_as_it_came(validate: Callable[[Any], str], value: str) -> None:
    assert validate(value) == value
    assert names.is_token(value)


def test_names_differ_by_case() -> None:
    assert names.identity("Bob") != names.identity("bob")


def test_the_hub_speaks_as_itself_and_no_agent_does() -> None:
    assert names.identity(names.HUB_IDENTITY) == "hub-orchestrator"
    with pytest.raises(BadName, match="the hub's own voice"):
        names.agent_identity("hub-orchestrator")


@pytest.mark.parametrize("value", [*HOSTILE, "x" * 129], ids=shown)
def test_a_message_id_is_printable_ascii_without_a_space(value: str) -> None:
    checks: list[Callable[[], Any]] = [
        lambda: names.message_id(value),
        lambda: make(sender="a", channel="c", id=value),
        lambda: make(sender="a", channel="c", reply_to=value),
    ]
    assert names.is_message_id(value) == (value in ONLY_IN_IDS)
    for check in checks:
        if value in ONLY_IN_IDS:
            check()
        else:
            with pytest.raises(BadName):
                check()


class Team(str, enum.Enum):  # noqa: UP042 - formats as `Team.ALICE`
    ALICE = "alice"


class Liar(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "mallory"

    def __format__(self, _spec: str) -> str:
        return "mallory.>"


@pytest.mark.parametrize("value", [Team.ALICE, Liar("alice")])
@pytest.mark.parametrize(
    "validate", [names.token, names.identity, names.agent_identity, names.channel, names.message_id]
)
def test_what_a_validator_returns_formats_as_what_was_checked(validate: Callable[[Any], str], value: str) -> None:
    assert type(validate(value)) is str
    assert f"{validate(value)}" == "alice"
    assert make(sender=value, channel=value).body.count(b'"alice"') == 2


# --- channels


@pytest.mark.parametrize(
    "channel",
    [
        *("chat", "a.b", "billing.v2", ".".join(["x" * 64] * 16), "tasks.a.b", "Task.a.b", "INBOX.a", "waves", "-._"),
        *("a.task", "a.inbox.b", "hub.pub.a", "channel.inbox.a", "register", "presence", "task-1.x.y", "_INBOX.a"),
        *("task.a", "session.a", "wave.w", "wave.w.task.t", "wave.task.task.task", "task.inbox", "wave.inbox"),
    ],
)
def test_a_channel_may_be_published_to(channel: str) -> None:
    assert names.channel(channel) == channel
    assert make(sender="a", channel=channel).meta.channel == channel


@pytest.mark.parametrize(
    "channel",
    [
        *("task", "session", "wave", "task.a.b", "session.a.b", "wave.w.t", "wave.w.task", "wave.w.tasks.t"),
        *("wave.w.task.t.x", "wave.w.Task.t", "inbox", "inbox.a", "inbox.a.b", "task.", "wave..task.t"),
        *(".".join(["x"] * 17), ".".join(["x"] * 1_000_000), "a." + "x" * 65, "a.b c", "a.*", "a.>", "a\n", "a.b\n"),
        *(value for value in HOSTILE if value not in ONLY_IN_CHANNELS),
    ],
    ids=shown,
)
def test_a_channel_of_another_form_is_refused(channel: str) -> None:
    with pytest.raises(BadName) as caught:
        names.channel(channel)
    assert len(str(caught.value)) < 400


def matches(pattern: str, subject: str) -> bool:
    """Does a subscription to `pattern` get what is published to `subject`?"""
    wanted, found = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(found) > index
        if index >= len(found) or token not in {"*", found[index]}:
            return False
    return len(wanted) == len(found)


any_token = st.sampled_from(["inbox", "task", "session", "wave", "a", "", "*", "x" * 64]) | st.text(max_size=3)


@settings(deadline=None)
@given(st.lists(any_token, min_size=1, max_size=5).map(".".join) | st.text(max_size=12))
@example("task.a")
@example("wave.w.task.t")
def test_a_valid_channel_is_stored_exactly_when_a_stream_captures_it(channel: str) -> None:
    try:
        names.channel(channel)
    except BadName:
        return
    subject = subjects.channel(channel)
    captured = [pattern for pattern in subjects.TASKS_ALL if matches(pattern, subject)]
    assert len(captured) == names.is_stored_channel(channel)
    assert not matches(subjects.INBOX_ALL, subject)
    assert subjects.channel_of(subject) == channel
    assert subjects.split_publish(subjects.publish("alice", channel)) == ("alice", channel)


# --- subjects

BUILDERS: list[tuple[Callable[[str], str], str]] = [
    (lambda name: subjects.publish(name, "chat"), subjects.INGRESS_ALL),
    (subjects.register, subjects.REGISTER_ALL),
    (subjects.presence, subjects.PRESENCE_ALL),
    (subjects.attach, subjects.ATTACH_ALL),
    (lambda name: subjects.api(name, "wave.get"), subjects.API_ALL),
    (subjects.inbox, subjects.INBOX_ALL),
    (lambda name: subjects.channel(f"task.{name}"), subjects.TASKS_ALL[0]),
    (lambda name: subjects.channel(f"session.{name}"), subjects.TASKS_ALL[1]),
    (lambda name: subjects.channel(f"wave.{name}"), subjects.TASKS_ALL[2]),
    (subjects.inbox_consumer, "*"),
    (subjects.private_inbox, "*"),
]


@pytest.mark.parametrize(("build", "pattern"), BUILDERS)
@pytest.mark.parametrize("name", TOKENS, ids=shown)
def test_each_subject_is_of_its_kind_and_of_its_name_alone(
    build: Callable[[str], str], pattern: str, name: str
) -> None:
    subject = build(name)
    assert matches(pattern, subject)
    assert sum(matches(other, subject) for _, other in BUILDERS) == (2 if pattern == "*" else 1)
    assert build(f"{name[:-1]}Q") != subject


@pytest.mark.parametrize("build", [build for build, _ in BUILDERS])
@settings(deadline=None, max_examples=30)
@given(value=st.text("aZ09-_.*> \r\n\0é", max_size=70))
@example(value="a.>")
@example(value="a\r\nPUB x 0\r\n")
def test_no_text_that_passes_as_an_identity_changes_the_shape_of_a_subject(
    build: Callable[[str], str], value: str
) -> None:
    try:
        name = names.identity(value)
    except BadName:
        return
    subject = build(name)
    assert subject.count(".") == build("a").count(".")
    assert not set(subject) & set("*> \t\r\n")
    assert subject.isascii()


@pytest.mark.parametrize(
    ("subject", "parts"),
    [
        ("hub.pub.alice.chat", ("alice", "chat")),
        ("hub.pub.alice.task.a", ("alice", "task.a")),
        ("hub.pub.alice.>", ("alice", ">")),
        ("hub.pub..chat", ("", "chat")),
        ("hub.pub.alice.", ("alice", "")),
        ("hub.pub.alice", None),
        ("hub.pub.", None),
        ("hub.pub", None),
        ("hub.publish.alice.chat", None),
        ("x.hub.pub.alice.chat", None),
        ("HUB.pub.alice.chat", None),
        ("", None),
    ],
)
def test_an_ingress_subject_is_split_and_no_other_is(subject: str, parts: tuple[str, str] | None) -> None:
    assert subjects.split_publish(subject) == parts


def test_what_is_no_channel_subject_has_no_channel() -> None:
    for subject in ("channels.a", "hub.pub.a.c", "channel", ""):
        assert subjects.channel_of(subject) is None


# --- ids


@pytest.mark.parametrize(
    ("envelope_id", "channel"),
    [
        ("0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d", "task.0a1b2c3d"),
        ("x", "task.x"),
        ("12345678", "task.12345678"),
        ("12345678.9", "task.12345678"),
        ("_-_-_-_-é"[:8], "task._-_-_-_-"),
    ],
)
def test_the_task_channel_follows_from_the_id(envelope_id: str, channel: str) -> None:
    assert names.task_channel(envelope_id) == channel
    assert names.channel(channel) == channel


@pytest.mark.parametrize(
    "envelope_id", ["", "a.b", "abcdefg.", "*", ">", "a b", "é", "a\n", "x" * 129, None, "1234567:"]
)
def test_no_task_channel_follows_from_an_id_that_does_not_begin_with_a_token(envelope_id: Any) -> None:
    with pytest.raises(BadName):
        names.task_channel(envelope_id)


FORKING = """
import os, random, sys
from hub.protocol import make, names
names.new_message_id(), names.new_publish_id(), make(sender="a", channel="c")
for _ in range(8):
    if os.fork() == 0:
        random.seed(0)
        ids = [new() for _ in range(500) for new in (names.new_message_id, names.new_publish_id)]
        with open(f"{sys.argv[1]}/{os.getpid()}", "w") as file:
            file.write("\\n".join([*ids, make(sender="a", channel="c").meta.id]))
        os._exit(0)
for _ in range(8):
    os.wait()
"""


def test_ids_are_unique_over_forked_processes_that_seed_the_same(tmp_path: Path) -> None:
    state = random.getstate()
    subprocess.run([sys.executable, "-c", FORKING, str(tmp_path)], timeout=60, check=True)
    ids = [each for file in tmp_path.iterdir() for each in file.read_text().split()]
    assert len(ids) == 8 * 1001
    assert len(set(ids)) == len(ids)
    assert all(names.is_message_id(each) for each in ids)
    names.new_message_id()
    assert random.getstate() == state


def test_a_fresh_message_id_is_the_text_of_a_uuid_4() -> None:
    made = [names.new_message_id() for _ in range(200)]
    assert [str(uuid.UUID(text)) for text in made] == made
    assert {(uuid.UUID(text).version, uuid.UUID(text).variant) for text in made} == {(4, uuid.RFC_4122)}
    assert {text[19] for text in made} == set("89ab")
    assert len(set(made)) == len(made)
