"""Importing the event source connects to nothing and loads no driver."""

import subprocess
import sys

import hub.events


def test_importing_loads_neither_nats_nor_asyncpg() -> None:
    script = (
        "import sys, hub.events, hub.events.conformance\n"
        "drivers = {'nats', 'asyncpg', 'sqlalchemy', 'aiosqlite'}\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & drivers))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in hub.events.__all__:
        assert getattr(hub.events, name) is not None
