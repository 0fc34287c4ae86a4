"""hub-publish, as a process: it says what became of the message, and its exit code says it again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hub.protocol import parse
from tests.support.bus import connect
from tests.support.hub_process import HubProcess
from tests.support.nats_server import NatsServer, free_port
from tests.support.waiting import eventually
from tests.system.cli.conftest import Run


@pytest.mark.hub
async def test_a_message_says_whether_it_is_stored_or_heard_live(
    run: Run, server: NatsServer, hub: HubProcess, hub_mode: str
) -> None:
    listener = await connect(server.url)
    heard: list[bytes] = []

    async def note(message: object) -> None:
        heard.append(message.data)  # type: ignore[attr-defined]

    await listener.subscribe("channel.inbox.bob", note)
    await listener.flush()
    sent = await run(
        "publish", "--from", "alice", "--to", "bob", "--id", "m-1", "--reply-to", "m-0", "-", fresh=True, stdin=b"hi\n"
    )
    assert sent.code == 0, sent.err
    assert sent.err == ""
    expected = "heard live, not stored: message m-1\n" if hub_mode == "core" else ", message m-1\n"
    assert sent.out.endswith(expected)
    assert hub_mode == "core" or sent.out.startswith("stored: HUB_INGRESS ")
    await eventually(lambda: heard)
    await listener.close()
    envelope = parse(heard[0])
    assert (envelope.meta.sender, envelope.meta.to, envelope.meta.reply_to) == ("alice", "bob", "m-0")
    assert envelope.payload == {"text": "hi\n"}


@pytest.mark.hub
async def test_json_output_and_json_payload(run: Run, hub: HubProcess, hub_mode: str) -> None:
    sent = await run(
        *("publish", "--from", "ci", "--channel", "builds", "--kind", "event", "--json", "--payload", '{"n": 1.50}')
    )
    assert sent.code == 0, sent.err
    told = json.loads(sent.out)
    assert told["stored"] is (hub_mode != "core")
    assert (told["stream"] == "HUB_INGRESS") is (hub_mode != "core")


async def test_without_a_hub_it_says_not_sent(run: Run, nats_server: NatsServer) -> None:
    sent = await run("publish", "--from", "alice", "--to", "bob", "hi", url=nats_server.url)
    assert (sent.code, sent.out, sent.err) == (1, "", "hub-publish: no hub; not sent\n")


async def test_without_a_server_it_says_where_it_looked(run: Run) -> None:
    port = free_port()
    url = f"nats://127.0.0.1:{port}"
    sent = await run("publish", "--from", "alice", "--to", "bob", "hi", "--connect-timeout", "1", url=url)
    assert sent.code == 1
    assert sent.out == ""
    assert sent.err.startswith(f"hub-publish: cannot connect to NATS at {url} (from ")
    assert sent.err.count("\n") == 1


async def test_wrong_usage_ends_with_2_and_one_line(run: Run) -> None:
    sent = await run("publish", "--from", "a b", "--to", "bob", "hi")
    assert (sent.code, sent.out) == (2, "")
    assert sent.err == "hub-publish: bad identity 'a b': expected 1 to 64 characters of A-Z a-z 0-9 _ -\n"


async def test_the_reader_of_the_output_may_leave(start: Run, hub: HubProcess) -> None:
    sent = await start("publish", "--from", "alice", "--channel", "room", "hi")
    sent.close_stdout()
    assert await sent.ended() == 0
    assert sent.err == ""


def test_closed_standard_streams_end_no_command_in_a_crash(tmp_path: Path) -> None:
    """libuv aborts a process that closes a socket numbered 0 to 2."""
    script = Path(sys.executable).parent / "hub-publish"
    url = f"nats://127.0.0.1:{free_port()}"
    line = f'"{script}" --from alice --to bob --url {url} --connect-timeout 0.5 hi'
    for closed, said in (("<&- >&-", "cannot connect to NATS"), ("<&- >&- 2>&-", "")):
        ended = subprocess.run(
            ["sh", "-c", f"{line} {closed}"], check=False, capture_output=True, text=True, cwd=tmp_path, timeout=60
        )
        assert ended.returncode == 1, ended.stderr
        assert said in ended.stderr
