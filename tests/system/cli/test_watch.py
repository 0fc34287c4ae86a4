"""hub-watch, as a process: live, harmless, and still there after a restart of the server."""

import json

from hub.protocol import make, subjects
from tests.support.bus import connect
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually
from tests.system.cli.conftest import Run

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202eevil\r\n"


async def say(server: NatsServer, *envelopes: tuple[str, bytes]) -> None:
    """Publish as a router does."""
    connection = await connect(server.url)
    for subject, body in envelopes:
        await connection.publish(subject, body)
    await connection.flush()
    await connection.close()


def direct(payload: object, *, to: str = "bob", sender: str = "alice") -> tuple[str, bytes]:
    return subjects.inbox(to), make(sender=sender, channel="room", to=to, payload=payload).body


async def test_lines_are_readable_and_no_text_reaches_the_terminal_raw(start: Run, server: NatsServer) -> None:
    watch = await start("watch", "all", "--count", "3", fresh=True)
    await watch.says("watching channel.>")
    await say(server, direct({"text": "hello"}), direct({"text": HOSTILE}), ("channel.room", b"\x1b[2Jno json"))
    assert await watch.ended() == 0
    first, second, third = watch.out.splitlines()
    assert "alice → bob  room  message  hello  id=" in first
    assert "\\x1b[2J\\x1b]0;owned\\x07\\u202eevil\\x0d\\n" in second
    assert "channel.room  no envelope" in third
    assert watch.out.replace("\n", "").isprintable()


async def test_json_lines_hold_the_envelope_as_it_came(start: Run, server: NatsServer) -> None:
    watch = await start("watch", "agent", "bob", "--json", "--count", "2")
    await watch.says("watching")
    body = make(sender="alice", channel="room", to="bob", payload=HOSTILE).body
    unknown = body.replace(b'{"meta"', b'{ "extra" : 1.50,\n"meta"')
    await say(server, direct(1, to="carol"), (subjects.inbox("bob"), unknown), direct(2, to="carol", sender="bob"))
    assert await watch.ended() == 0
    first, second = (json.loads(line) for line in watch.out.splitlines())
    assert (first["subject"], first["envelope"]["payload"]) == ("channel.inbox.bob", HOSTILE)
    assert '"extra":1.50' in watch.out
    assert (second["envelope"]["meta"]["from"], second["envelope"]["meta"]["to"]) == ("bob", "carol")
    assert watch.out.replace("\n", "").isprintable()


async def test_a_wave_shows_its_events_and_its_tasks_and_no_other_wave(start: Run, server: NatsServer) -> None:
    watch = await start("watch", "wave", "w1", "--count", "2")
    await watch.says("watching channel.wave.w1, channel.wave.w1.>")
    channels = ["wave.w2", "wave.w1", "wave.w1.task.t1"]
    await say(server, *[(f"channel.{name}", make(sender="w", channel=name).body) for name in channels])
    assert await watch.ended() == 0
    assert [line.split("  ")[2] for line in watch.out.splitlines()] == ["wave.w1", "wave.w1.task.t1"]


async def test_it_goes_on_after_a_restart_of_the_server_and_says_that_there_is_a_gap(
    start: Run, nats_server: NatsServer
) -> None:
    watch = await start("watch", "channel", "room", "--count", "2", url=nats_server.url)
    await watch.says("watching channel.room")
    await say(nats_server, ("channel.room", make(sender="alice", channel="room", payload="before").body))
    await eventually(lambda: b"before" in watch.stdout)
    await nats_server.kill()
    await watch.says("lost the connection to")
    await nats_server.start()
    await watch.says("reconnected; what went by meanwhile is missing here")
    await say(nats_server, ("channel.room", make(sender="alice", channel="room", payload="after").body))
    assert await watch.ended() == 0
    assert "after" in watch.out


async def test_ctrl_c_ends_it_with_130(start: Run, server: NatsServer) -> None:
    watch = await start("watch", "session", "s1")
    await watch.says("watching channel.session.s1")
    watch.interrupt()
    assert await watch.ended() == 130


async def test_a_reader_that_has_gone_ends_it_quietly(start: Run, server: NatsServer) -> None:
    watch = await start("watch", "channel", "room")
    await watch.says("watching")
    watch.close_stdout()
    body = make(sender="alice", channel="room").body

    async def ended() -> bool:
        await say(server, ("channel.room", body.replace(b'"room"', b'"room" ')))
        return watch.code is not None

    await eventually(ended, within=10, poll=0.2)
    assert watch.code == 0
    assert b"Traceback" not in watch.stderr
    assert b"BrokenPipe" not in watch.stderr


async def test_what_an_agent_may_not_see_is_said(start: Run, start_nats: object) -> None:
    users = """authorization { users: [ {user: bob, password: bob, permissions: {
        subscribe: {allow: ["_INBOX_bob.>", "channel.inbox.bob", "channel.task.>"]} } } ] }"""
    server = await start_nats(config=users)  # type: ignore[operator]
    login = {"NATS_USER": "bob", "NATS_PASSWORD": "bob", "NATS_HUB_IDENTITY": "bob"}
    partly = await start("watch", "agent", "bob", url=server.url, environ=login)
    denied = await start("watch", "channel", "room", url=server.url, environ=login)
    await partly.says("not all of it: bob may not subscribe channel.>")
    await partly.says("watching channel.inbox.bob, channel.task.>")
    assert await denied.ended() == 1
    assert "identity bob may not subscribe on channel.room" in denied.err
    partly.interrupt()
    assert await partly.ended() == 130
