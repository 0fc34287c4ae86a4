"""`hub-events` on real servers: readable and as JSON, with exit codes that say whose fault it is."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner, Result

from hub.cli.events import app
from hub.events.conformance.world import SECRET, Run
from hub.events.opening import open_event_source
from hub.events.records import Ownership
from tests.support.nats_server import NatsServer
from tests.support.postgres import Postgres

OWNER = ["--tenant", "t", "--account", "a"]
Hub = Callable[..., Result]


@pytest.fixture(autouse=True)
def no_log_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands run in this process here; loggers that they bind to the runner's stderr would outlive it."""
    monkeypatch.setattr("hub.cli.running.logs.configure", lambda **_: None)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture(params=["jetstream", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "postgres":
        cluster: Postgres = request.getfixturevalue("postgres_cluster")
        return cluster.url(asyncio.run(cluster.create_database()))
    server: NatsServer = request.getfixturevalue("nats_server")
    return server.url


@pytest.fixture
def hub(url: str, tmp_path: Path) -> Hub:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET + b"\n")

    def run(*arguments: str) -> Result:
        command = arguments[0]
        extra = ["--cursor-secret-file", str(secret)] if command in ("page", "tail") else []
        return CliRunner().invoke(app, [*arguments, "--url", url, *extra])

    return run


def fill(url: str, count: int, *, end: bool = True, **changes: object) -> None:
    async def append() -> None:
        async with open_event_source(url, cursor_secret=SECRET) as source:
            run = Run(source, Ownership(tenant_id="t", account_id="a"), "s", "r")
            await run.fill(count, **changes)
            if end:
                await run.append("end", "agent_finished")

    asyncio.run(append())


def test_a_place_is_checked_made_and_checked(hub: Hub, url: str) -> None:
    missing = hub("verify")
    assert missing.exit_code in (1, 2)
    assert "prism_agent_events" in missing.stderr
    made = hub("verify", "--create")
    assert (made.exit_code, made.stdout) == (0, "prism_agent_events: fits\n")
    assert json.loads(hub("verify", "--json").stdout) == {"ok": True, "stream": "prism_agent_events"}


def test_a_run_is_paged_and_followed(hub: Hub, url: str) -> None:
    hub("verify", "--create")
    fill(url, 5)
    first = json.loads(hub("page", "s", "r", *OWNER, "--limit", "4", "--json").stdout)
    assert [event["record"]["sequence"] for event in first["events"]] == [1, 2, 3, 4]
    assert (first["terminal"], first["first_sequence"], first["truncated"]) == (False, 1, False)
    second = hub("page", "s", "r", *OWNER, "--after", first["next_cursor"])
    assert second.exit_code == 0
    lines = second.stdout.splitlines()
    assert lines[0].split()[:3] == ["5", "2026-01-01T00:00:00.000Z", "message_delta"]
    assert lines[-1] == "(the run has ended)"
    followed = hub("tail", "s", "r", *OWNER, "--after", first["next_cursor"], "--json")
    assert [json.loads(line)["record"]["id"] for line in followed.stdout.splitlines()] == ["e5", "end"]
    assert len(hub("tail", "s", "r", *OWNER).stdout.splitlines()) == 6
    assert hub("page", "s", "r", "--tenant", "t").stdout == "", "another owner's"


def test_old_records_are_cleaned_up(hub: Hub, url: str) -> None:
    hub("verify", "--create")
    fill(url, 7, timestamp="2020-01-01T00:00:00.000Z")
    before = ["--before", "2021-01-01T00:00:00.000Z"]
    one = json.loads(hub("cleanup", *OWNER, *before, "--limit", "2", "--json").stdout)
    assert (one["deleted"], one["done"]) == (2, False)
    rest = hub("cleanup", *OWNER, *before, "--limit", "2", "--all")
    assert rest.stdout.startswith("deleted 5 of ")
    assert (
        hub("page", "s", "r", *OWNER).stdout.splitlines()[1]
        == "(earlier events were trimmed; the oldest retained is 8)"
    )


def test_errors_are_one_line_with_a_code(hub: Hub, url: str) -> None:
    hub("verify", "--create")
    wrong = hub("page", "s", "r", *OWNER, "--limit", "0", "--json")
    assert wrong.exit_code == 2
    assert json.loads(wrong.stderr)["code"] == "INPUT"
    cursor = hub("page", "s", "r", *OWNER, "--after", "x.y")
    assert cursor.exit_code == 2
    assert len(cursor.stderr.splitlines()) == 1


def test_what_an_event_holds_steers_no_terminal(hub: Hub, url: str) -> None:
    hub("verify", "--create")
    event = {"type": "message_delta", "sessionId": "s", "runId": "r", "text": "\x1b[2J\u202e\x9b"}
    fill(url, 1, event=event)
    shown = hub("page", "s", "r", *OWNER).stdout
    assert all(sign.isprintable() or sign == "\n" for sign in shown)


def test_a_tail_that_waits_ends_with_130_when_interrupted(nats_server: NatsServer) -> None:
    def make() -> None:
        CliRunner().invoke(app, ["verify", "--create", "--url", nats_server.url])
        fill(nats_server.url, 2, end=False)

    make()
    command = [sys.executable, "-m", "hub.cli.events", "tail", "s", "r", *OWNER, "--url", nats_server.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)) as tail:
        assert tail.stdout is not None
        try:
            assert [tail.stdout.readline().split()[0] for _ in range(2)] == [b"1", b"2"]
            tail.send_signal(signal.SIGINT)
            _, said = tail.communicate(timeout=20)
        finally:
            tail.kill()  # else a tail that goes on is waited for
    assert tail.returncode == 130, said
