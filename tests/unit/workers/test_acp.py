"""`acp`, against a stand-in agent that speaks the protocol."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.waiting import eventually
from workers.builtin.acp import acp
from workers.builtin.json_lines_cli import SESSION_KEY
from workers.testing import HandlerRun, StartedHandler, run_handler, start_handler

FAKE = Path(__file__).parents[2] / "support" / "fake_acp_agent.py"


def begin(prompt: str, *arguments: str, **more: Any) -> StartedHandler:
    command = shlex.join([sys.executable, "-I", "-S", str(FAKE), *arguments])
    return start_handler(acp, prompt, **{**more, "options": {"command": command, **more.get("options", {})}})


async def ask(prompt: str, *arguments: str, **more: Any) -> HandlerRun:
    return await begin(prompt, *arguments, **more).wait()


def asked(folder: Path) -> list[str]:
    """The methods that the agent was called with, since the last time."""
    path = folder / "asked.jsonl"
    lines = path.read_text().splitlines()
    path.unlink()
    return [json.loads(line)["method"] for line in lines]


async def test_a_session_is_loaded_where_the_agent_can_and_begun_anew_where_not(tmp_path: Path) -> None:
    first = await ask("--one", context={}, workdir=tmp_path, options={"mode": "code"})
    assert (first.status, first.result) == ("done", "you said --one"), first.error
    assert first.context == {SESSION_KEY: "sess_abc123"}
    assert asked(tmp_path) == ["initialize", "session/new", "session/set_mode", "session/prompt"]
    second = await ask("two", context=first.context, workdir=tmp_path)
    assert second.result == "you said two"
    assert asked(tmp_path) == ["initialize", "session/load", "session/prompt"]
    third = await ask("three", "--no-load", context=first.context, workdir=tmp_path)
    assert third.result == "you said three"
    assert asked(tmp_path) == ["initialize", "session/new", "session/prompt"]
    assert [one["name"] for one in third.milestones] == ["new conversation"]


@pytest.mark.parametrize(("permission", "answer"), [(None, "no"), ("allow", "yes")])
async def test_a_permission_is_answered_by_the_setting_and_rejected_without_one(
    permission: str | None, answer: str
) -> None:
    run = await ask("ask", options={} if permission is None else {"permission": permission})
    assert run.result == answer
    assert [one["name"] for one in run.milestones] == ["tool Delete it all", "permission Delete it all"]


@pytest.mark.parametrize(
    ("prompt", "arguments", "expected"),
    [
        ("die", (), "the last words"),
        ("refuse", (), "refusal"),
        ("hi", ("--no-login",), "log in with its own program"),
        (" ", (), "a prompt"),
    ],
)
async def test_an_agent_that_fails_is_an_error_that_says_why(
    prompt: str, arguments: tuple[str, ...], expected: str
) -> None:
    run = await ask(prompt, *arguments)
    assert run.status == "error"
    assert expected in str(run.error)


async def test_lines_of_no_json_and_huge_ones_do_not_end_a_turn() -> None:
    run = await ask("noise")
    assert run.stdout == ["a line of no JSON", "5"]
    assert run.result == "x" * 300_000 + "you said noise"


async def test_a_cancel_reaches_the_agent_and_ends_what_it_started(tmp_path: Path) -> None:
    started = begin("hang", workdir=tmp_path)
    pid_file = tmp_path / "grandchild.pid"
    await eventually(pid_file.exists)
    grandchild = int(pid_file.read_text())
    assert psutil.pid_exists(grandchild)
    assert (await started.cancel()).status == "cancelled"
    assert not psutil.pid_exists(grandchild)
    assert asked(tmp_path)[-1] == "session/cancel"


async def test_a_program_that_is_missing_is_told() -> None:
    run = await run_handler(acp, "hi", options={"command": "no-agent-here --acp"})
    assert run.status == "error"
    assert "cannot start no-agent-here" in str(run.error)


async def test_a_library_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "workers.builtin.acp_conversation", raising=False)
    monkeypatch.setitem(sys.modules, "acp", None)
    assert "pip install 'nats-hub[acp]'" in str((await ask("hi")).error)
