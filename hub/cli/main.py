"""The command tree of `python -m hub`: each command is imported when it is asked for, so that none pays for all."""

import importlib
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import typer
from typer.core import TyperGroup

from hub.cli.options import CONTEXT

_ROLES: Final = {
    "server": "Every role in one process (also: hub-server).",
    "router": "A router, with the mirror of history.",
    "attach": "An attach responder.",
    "api": "The query API.",
}
# Their modules in hub.cli, in the order of the help: a function of the module's name with its HELP, or an `app`.
_COMMANDS: Final = ("publish", "watch", "delegate", "doctor", "history", "thread", "agents", "stats")
_FAMILIES: Final = ("bench", "dead", "session", "events")


def _load(name: str) -> Any:
    """The command of this name, ready to run."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    if name in _ROLES:
        server = importlib.import_module("hub.cli.server")
        roles = server.EVERY_ROLE if name == "server" else (name,)
        app.command(name, help=_ROLES[name])(server.hub_command(*roles))
        return typer.main.get_command(app)
    module = importlib.import_module(f"hub.cli.{name}")
    if name in _FAMILIES:
        app.add_typer(module.app, name=name)
        return typer.main.get_group(app).commands[name]
    summary = module.HELP.partition("\n")[0]
    app.command(name, help=module.HELP, short_help=summary, context_settings=CONTEXT)(getattr(module, name))
    return typer.main.get_command(app)


class _Commands(MutableMapping[str, Any]):
    """All commands by name, each made at the first look at it."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = dict.fromkeys((*_ROLES, *_COMMANDS, *_FAMILIES))

    def __getitem__(self, name: str) -> Any:
        if self._made[name] is None:
            self._made[name] = _load(name)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


class _LateGroup(TyperGroup):
    """A group over `_Commands`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()


app = typer.Typer(
    cls=_LateGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=CONTEXT,
)


@app.callback(help="The hub: durable messages between agents on NATS.")
def _hub() -> None:
    """Make it a group also without a command of its own."""
