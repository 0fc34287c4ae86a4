"""Usage: what a command is asked is understood or refused before anything is sent, in one clear line."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from hub.cli import delegate, events, main, publish, watch
from hub.cli.delegate import progress_line
from hub.cli.inputs import json_of, text_of_file
from hub.cli.running import CommandError, exit_of
from hub.cli.watch import Target, What
from hub.client import NoHub, SendUnconfirmed, TaskTimedOut
from hub.delivery.errors import BadSettings, CannotConnect, NoResponders, PermissionDenied, RequestTimedOut
from hub.delivery.refusals import BadConfig, ConfigNotReadable
from hub.protocol import BadName, BadPayload, Progress, ProtocolError, TooLarge, make
from hub.service.exits import Exit

MESSAGE = make(sender="alice", channel="room")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CommandError("x"), Exit.ERROR),
        (CommandError("x", Exit.USAGE), Exit.USAGE),
        (BadSettings("x"), Exit.USAGE),
        (BadConfig("f", "a.b", "x"), Exit.USAGE),
        (ConfigNotReadable("f", "x"), Exit.USAGE),
        (BadName("identity", "a b", "x"), Exit.USAGE),
        (BadPayload("$.payload", "x"), Exit.USAGE),
        (TooLarge("x", 2, 1), Exit.ERROR),
        (CannotConnect("nats://x", "refused", is_final=True), Exit.ERROR),
        (PermissionDenied("publish", "x", "bob"), Exit.ERROR),
        (NoResponders("x"), Exit.ERROR),
        (NoHub(MESSAGE), Exit.ERROR),
        (RequestTimedOut("x", 1), Exit.TIMED_OUT),
        (SendUnconfirmed(MESSAGE, 1, "x"), Exit.TIMED_OUT),
        (TaskTimedOut("t", "bob", 1), Exit.TIMED_OUT),
    ],
)
def test_each_error_has_its_exit_code(error: Exception, code: Exit) -> None:
    assert exit_of(error) is code


def options_of(group: TyperGroup) -> dict[str, list[str]]:
    return {name: [str(param.opts) for param in command.params] for name, command in group.commands.items()}


def test_the_commands_of_events_are_subcommands_of_the_hub_s() -> None:
    family = typer.main.get_group(main.app).commands["events"]
    assert isinstance(family, TyperGroup)
    own = typer.main.get_group(events.app)
    assert own.commands
    assert options_of(family) == options_of(own)


@pytest.mark.parametrize(
    ("what", "name", "expected"),
    [
        (What.SESSION, "s1", Target(("channel.session.s1",))),
        (What.WAVE, "w1", Target(("channel.wave.w1", "channel.wave.w1.>"))),
        (What.TASK, "7f9c24e8-6a2b", Target(("channel.task.7f9c24e8",))),
        (What.CHANNEL, "builds.main", Target(("channel.builds.main",))),
        (What.ALL, None, Target(("channel.>",), ("channel.task.>", "channel.session.>", "channel.wave.>"))),
    ],
)
def test_what_is_watched_is_a_few_subjects(what: What, name: str | None, expected: Target) -> None:
    assert watch.target(what, name) == expected


def test_an_agent_is_watched_by_what_it_sends_and_what_it_is_sent() -> None:
    target = watch.target(What.AGENT, "bob")
    assert target.takes(make(sender="bob", channel="room"))
    assert target.takes(make(sender="alice", channel="room", to="bob"))
    assert not target.takes(make(sender="alice", channel="room", to="carol"))


@pytest.mark.parametrize(
    ("what", "name"),
    [
        (What.ALL, "x"),
        (What.CHANNEL, None),
        (What.AGENT, "a.b"),
        (What.WAVE, ">"),
        (What.CHANNEL, "*"),
        (What.TASK, ""),
    ],
)
def test_what_cannot_be_watched_is_refused(what: What, name: str | None) -> None:
    with pytest.raises((CommandError, ProtocolError)) as caught:
        watch.target(what, name)
    assert exit_of(caught.value) is Exit.USAGE


@pytest.mark.parametrize(("text", "payload"), [(None, None), ("hi", "1")])
def test_a_message_has_one_payload(text: str | None, payload: str | None) -> None:
    with pytest.raises(CommandError, match="give TEXT, - for stdin") as caught:
        publish._payload(text, payload)
    assert caught.value.exit is Exit.USAGE


def test_text_and_json_become_payloads() -> None:
    assert publish._payload("hi", None) == {"text": "hi"}
    assert publish._payload(None, '{"n": 1.5}') == {"n": 1.5}
    assert publish._payload(None, "null") is None


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "1e999", '{"a": 1} x', "nope", '"\\ud800"', "[" * 200 + "]" * 200, "\udcff"]
)
def test_bad_json_is_refused_with_the_options_name(text: str) -> None:
    with pytest.raises(CommandError, match=r"^--payload: ") as caught:
        json_of(text, "--payload")
    assert caught.value.exit is Exit.USAGE


def test_a_file_that_cannot_be_read_or_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"ok \xff")
    for path, words in ((tmp_path / "none", "cannot read the file"), (tmp_path / "binary", "other bytes at 3")):
        with pytest.raises(CommandError, match=words):
            text_of_file(str(path), "--prompt-file")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "what is to be done"),
        ({"prompt": "x", "prompt_file": "f"}, "two things"),
        ({"prompt": "  \n"}, "the prompt is empty"),
        ({"prompt": "x", "payload": "[1]"}, "expected a JSON object, got list"),
        ({"prompt": "-", "payload": "-"}, "stdin can be only one"),
        ({"resume": "t-1", "prompt": "x"}, "--resume follows a task"),
        ({"resume": "t-1", "no_wait": True}, "--resume follows a task"),
        ({"resume": "a b"}, "bad message id"),
        ({"prompt": "x", "to": "hub-orchestrator"}, "the hub's own voice"),
    ],
)
def test_a_delegation_that_cannot_be_meant_is_refused(options: dict[str, Any], words: str) -> None:
    given = {
        "to": "bob",
        "prompt": None,
        "prompt_file": None,
        "payload": None,
        "resume": None,
        "no_wait": False,
    } | options
    with pytest.raises((CommandError, ProtocolError), match=words) as caught:
        delegate._task(given.pop("to"), **given)
    assert exit_of(caught.value) is Exit.USAGE


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress(type="status", data={"status": "working"}), "working"),
        (Progress(type="stdout", data={"line": "compiling"}), "| compiling"),
        (Progress(type="progress", data={"message": "half", "phase": "build", "percent": 50}), "half (build, 50 %)"),
        (Progress(type="progress", data={"message": "half"}), "half"),
        (Progress(type="milestone", data={"name": "built", "detail": "in 3 s"}), "built: in 3 s"),
        (Progress(type="started", data={}), "started"),
        (Progress(type="other", data={"a": 1}), 'other {"a":1}'),
    ],
)
def test_progress_is_a_line_for_people(progress: Progress, line: str) -> None:
    assert progress_line(progress) == line
