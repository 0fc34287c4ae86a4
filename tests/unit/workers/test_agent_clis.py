"""`claude` and `codex`, against a stand-in that takes their arguments and writes their formats."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.waiting import eventually
from workers import BadHandler
from workers.builtin.claude import claude
from workers.builtin.codex import codex
from workers.builtin.json_lines_cli import SESSION_KEY, JsonLines
from workers.testing import HandlerRun, StartedHandler, run_handler, start_handler

FAKE = Path(__file__).parents[2] / "support" / "fake_agent_cli.py"
HANDLERS = {"claude": claude, "codex": codex}

both = pytest.mark.parametrize("kind", ["claude", "codex"])


def begin(kind: str, prompt: str, **more: Any) -> StartedHandler:
    command = shlex.join([sys.executable, "-I", "-S", str(FAKE), kind])
    return start_handler(HANDLERS[kind], prompt, **{**more, "options": {"command": command, **more.get("options", {})}})


async def ask(kind: str, prompt: str, **more: Any) -> HandlerRun:
    return await begin(kind, prompt, **more).wait()


@both
async def test_an_agents_answer_its_messages_and_its_tools_arrive(kind: str) -> None:
    run = await ask(kind, "--resume is what I say", options={"model": "m1"})
    assert run.status == "done", run.error
    answer = json.loads(run.result)
    assert answer["said"] == ["--resume is what I say"]
    assert answer["given"]["--model"] == "m1"
    assert "let me look" in [one["message"] for one in run.progress]
    assert [one["name"] for one in run.milestones] == ["tool Bash" if kind == "claude" else "tool command"]


@both
async def test_a_sessions_next_turn_goes_on_with_the_same_conversation(kind: str, tmp_path: Path) -> None:
    first = await ask(kind, "one", context={}, workdir=tmp_path)
    assert first.context[SESSION_KEY].startswith("0199a213")
    second = await ask(kind, "two", context=first.context, workdir=tmp_path)
    assert json.loads(second.result)["said"] == ["one", "two"]
    lost = await ask(kind, "two", context={SESSION_KEY: "gone"}, workdir=tmp_path)
    assert lost.status == "error"
    assert "No conversation found with session ID: gone" in str(lost.error)


@both
@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("error", "overloaded"), ("exit", "the last words"), ("silent", "ended without a result"), (" ", "a prompt")],
)
async def test_an_agent_that_fails_is_an_error_that_says_why(kind: str, prompt: str, expected: str) -> None:
    run = await ask(kind, prompt)
    assert run.status == "error"
    assert expected in str(run.error)
    if prompt == "exit":
        assert "e" * 1900 in str(run.error)


@both
async def test_lines_that_are_no_events_do_not_end_a_turn(kind: str) -> None:
    malformed = await ask(kind, "malformed")
    assert malformed.status == "done"
    assert malformed.stdout == ["warning: this is no JSON", "[1, 2]"]
    assert (await ask(kind, "huge 300000")).status == "done"
    too_long = await ask(kind, f"huge {17 * 1024 * 1024}")
    assert too_long.status == "done"
    assert "left out" in too_long.stdout[0]


@both
async def test_a_prompt_that_no_argument_can_hold_goes_to_stdin(kind: str) -> None:
    run = await ask(kind, "- " + "x" * 200_000)
    assert json.loads(run.result)["size"] == 200_002


@both
async def test_a_cancel_ends_what_an_agent_started_too(kind: str, tmp_path: Path) -> None:
    started = begin(kind, "hang", workdir=tmp_path)
    pid_file = tmp_path / "grandchild.pid"
    await eventually(pid_file.exists)
    grandchild = int(pid_file.read_text())
    assert psutil.pid_exists(grandchild)
    assert (await started.cancel()).status == "cancelled"
    assert not psutil.pid_exists(grandchild)


@both
async def test_a_program_that_is_missing_is_told_with_what_to_install(kind: str) -> None:
    run = await run_handler(HANDLERS[kind], "hi", options={"command": f"no-{kind}-here"})
    assert run.status == "error"
    assert f"cannot start no-{kind}-here" in str(run.error)
    assert "npm install -g" in str(run.error)
    with pytest.raises(BadHandler, match="shell words"):
        await run_handler(HANDLERS[kind], "hi", options={"args": "'"})


def test_lines_are_whole_however_the_stream_is_cut() -> None:
    stream = b'{"a": 1}\n\nnoise\n{"b": "\xc3\xa9"}\n' + b"x" * 50 + b'\n{"c": 3}'
    for size in range(1, len(stream)):
        others: list[str] = []
        lines = JsonLines(others.append, line_most_bytes=40)
        found = [one for at in range(0, len(stream), size) for one in lines.take(stream[at : at + size])]
        assert found + lines.end() == [{"a": 1}, {"b": "é"}, {"c": 3}]
        assert (lines.left_out, others[0]) == (2, "noise")
