"""docs/cli.md and the commands say the same: every option, its value, its meaning, every exit code."""

import re
from typing import Any

import pytest
import typer

from hub.cli import agents, dead, delegate, doctor, history, publish, session, stats, thread, watch
from hub.cli.main import app
from tests.support.documents import DOCS, section

GROUP: Any = typer.main.get_command(app)
HELPS = {
    "doctor": doctor.HELP,
    "publish": publish.HELP,
    "watch": watch.HELP,
    "delegate": delegate.HELP,
    "history": history.HELP,
    "thread": thread.HELP,
    "agents": agents.HELP,
    "stats": stats.HELP,
}
FAMILIES = {
    "dead": (dead.HELP, ("list", "show")),  # `replay` takes what `show` takes
    "session": (session.HELP, ("list", "show", "create", "close")),
}
HUBS = ("server", "router", "attach", "api")


def rows_of(name: str, command: str | None = None) -> list[str]:
    """The rows of the table that a command's section must hold, by looking at the command (one of a family's)."""
    rows = []
    found = GROUP.commands[name] if command is None else GROUP.commands[name].commands[command]
    for param in found.params:
        is_argument = param.param_type_name == "argument"
        value = "" if is_argument or param.is_flag else f" {param.metavar}"
        names = [param.metavar or param.name] if is_argument else [f"{flag}{value}" for flag in param.opts]
        cell = ", ".join(f"`{each}`" for each in names).replace("|", r"\|")
        default = "" if param.default in (None, False) or param.required else f" Default: {_plain(param.default)}."
        rows.append(f"| {cell} | {param.help}{default}{' Required.' if param.required and not is_argument else ''} |")
    return rows


def _plain(default: Any) -> str:
    value = getattr(default, "value", default)
    return f"{value:g}" if isinstance(value, float) else str(value)


def documented_rows(heading: str) -> list[str]:
    """The rows of its tables that begin with an option (`--x`) or an argument (`X`, `[X]`)."""
    lines = section("cli.md", heading).splitlines()
    return [line for line in lines if re.match(r"\| `(--|\[?[A-Z])", line)]


@pytest.mark.parametrize("name", HELPS)
def test_the_options_of_each_command_are_documented_as_they_are(name: str) -> None:
    assert documented_rows(f"hub-{name}") == rows_of(name)


def test_the_commands_that_run_a_hub_take_the_same_documented_options() -> None:
    for name in HUBS:
        assert documented_rows("hub-server") == rows_of(name)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_options_of_each_command_of_a_family_are_documented_as_they_are(name: str) -> None:
    _, commands = FAMILIES[name]
    assert documented_rows(f"hub-{name}") == [row for command in commands for row in rows_of(name, command)]


def test_a_replay_takes_what_showing_a_dead_letter_takes() -> None:
    assert rows_of("dead", "replay") == rows_of("dead", "show")


@pytest.mark.parametrize("name", [*HELPS, *FAMILIES])
def test_the_exit_codes_in_help_and_document_are_the_same(name: str) -> None:
    help_text = HELPS[name] if name in HELPS else FAMILIES[name][0]
    told = re.findall(r"^  (\d+)  +(.+)$", help_text, re.MULTILINE)
    documented = re.findall(r"^\| (\d+) \| (.+) \|$", section("cli.md", f"hub-{name}"), re.MULTILINE)
    assert told
    assert documented == told


def test_every_command_is_documented() -> None:
    text = (DOCS / "cli.md").read_text()
    for name in GROUP.commands:
        assert f"hub-{name}" in text or f"python -m hub {name}" in text, name


@pytest.mark.parametrize("name", HELPS)
def test_every_example_in_the_help_names_options_that_exist(name: str) -> None:
    examples = HELPS[name].partition("Examples:")[2]
    known = {flag for each in HELPS for param in GROUP.commands[each].params for flag in param.opts}
    for flag in re.findall(r"(?<![\w-])--[a-z-]+", examples):
        assert flag in known, flag
