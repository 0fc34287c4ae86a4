"""The API server on a real NATS server: whom it answers and where, what it bounds, and that nobody starves."""

import asyncio
import json
from typing import Any

import pytest

from hub.api import server as server_module
from hub.api.authorisation import Caller
from hub.api.operation import Answer, Context, Operation
from hub.api.operations import OPERATIONS
from hub.api.params import NoParams
from hub.protocol import subjects
from hub.storage import StorageUnavailable
from hub.storage.conformance.harness import envelope
from tests.support.api import ADMIN, ApiWorld
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually


@pytest.fixture
def slow_op(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """`ping` waits until the event is set, for everybody but the caller `quick`."""
    gate = asyncio.Event()

    async def ping(_context: Context, caller: Caller, _params: NoParams) -> Answer:
        if caller.identity != "quick":
            await gate.wait()
        return {}

    changed = {**OPERATIONS, "ping": Operation("ping", NoParams, ping, needs_storage=False, deadline_secs=5)}
    monkeypatch.setattr(server_module, "OPERATIONS", changed)
    return gate


async def test_one_caller_with_eight_in_flight_is_refused_more_and_holds_up_nobody(
    nats_server: NatsServer, slow_op: asyncio.Event
) -> None:
    async with ApiWorld(nats_server.url, None) as world:
        await world.connection("greedy")
        asked = [asyncio.create_task(world.ask("greedy", "ping")) for _ in range(20)]
        await eventually(lambda: sum(each.done() for each in asked) == 12, what="twelve are refused at once")
        refused = [each.result() for each in asked if each.done()]
        assert {reply["code"] for reply in refused} == {"unavailable"}
        assert "greedy has 8 requests under way" in refused[0]["error"]
        assert (await world.ask("quick", "ping"))["ok"]
        slow_op.set()
        assert [reply["ok"] for reply in await asyncio.gather(*asked)].count(True) == 8
        assert (await world.ask("greedy", "ping"))["ok"]


async def test_a_slow_operation_ends_with_its_deadline(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ping(*_: object) -> Answer:
        await asyncio.Event().wait()
        return {}

    changed = {"ping": Operation("ping", NoParams, ping, needs_storage=False, deadline_secs=0.2)}
    monkeypatch.setattr(server_module, "OPERATIONS", changed)
    async with ApiWorld(nats_server.url, None) as world:
        reply = await world.ask("alice", "ping")
        assert (reply["code"], reply["error"]) == ("unavailable", "no answer within 0.2 s: ask again")


async def test_a_bug_of_ours_is_internal_tells_nothing_and_ends_nothing(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ping(*_: object) -> Answer:
        raise KeyError("secret")

    monkeypatch.setattr(server_module, "OPERATIONS", {"ping": Operation("ping", NoParams, ping, needs_storage=False)})
    async with ApiWorld(nats_server.url, None) as world:
        for _ in range(2):
            reply = await world.ask("alice", "ping")
            assert reply == {"ok": False, "code": "internal", "error": "internal error; the hub's log tells more"}


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("history.qery", "did you mean history.query?"),
        ("nope", "there is no operation 'nope'"),
        ("history", "there is no operation 'history'"),
        ("x" * 500, "there is no operation"),
        ("é", "there is no operation"),
    ],
)
async def test_an_unknown_operation_is_refused_by_name(nats_server: NatsServer, op: str, words: str) -> None:
    async with ApiWorld(nats_server.url, None) as world:
        reply = await world.ask("alice", op)
        assert reply["code"] == "bad_request"
        assert words in reply["error"]


async def test_answers_go_to_the_askers_own_inbox_and_nowhere_else(nats_server: NatsServer) -> None:
    async with ApiWorld(nats_server.url, None) as world:
        mallory = await world.connection("mallory")
        heard: list[str] = []

        async def hear(message: Any) -> None:
            if not message.subject.startswith(("hub.api.", "$SYS")):
                heard.append(message.subject)

        await mallory.subscribe(">", hear)
        for reply in (
            "hub.pub.alice.room",
            "hub.api.alice.ping",
            "channel.inbox.alice",
            "_INBOX_alice.x",
            "_INBOX_mallor.x",
            "_INBOX.*",
            "$JS.API.STREAM.DELETE.HUB_TASKS",
            "",
        ):
            await mallory.publish(subjects.api("mallory", "ping"), b"", reply=reply)
        await mallory.flush()
        assert (await world.ask("mallory", "ping"))["ok"]
        assert all(subject.startswith("_INBOX_mallory.") for subject in heard), heard


@pytest.mark.parametrize(
    ("info", "is_answered"),
    [
        ('{"acc":"A_alice"}', True),
        ('{"acc":"OPS"}', True),
        ('{"acc":"A_mallory"}', False),
        ("{", False),
        ("", False),
    ],
)
async def test_a_request_whose_account_is_another_identitys_is_not_answered(
    nats_server: NatsServer, info: str, is_answered: bool
) -> None:
    async with ApiWorld(nats_server.url, None) as world:
        alice = await world.connection("alice")
        asking = alice.request(subjects.api("alice", "ping"), b"", timeout_secs=5, headers={"Nats-Request-Info": info})
        answer = asyncio.create_task(asking)
        if is_answered:
            assert json.loads((await answer).data)["ok"]
            return
        await eventually(
            lambda: world.registry.get_sample_value("hub_api_requests_total", {"op": "ping", "code": "bad_reply"}),
            what="it is counted as not to be answered",
        )
        assert not answer.done()
        answer.cancel()


async def test_storage_that_fails_in_the_middle_is_unavailable_and_comes_back(
    nats_server: NatsServer, storage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ApiWorld(nats_server.url, storage_url) as world:
        assert world.storage is not None

        async def fail(*_: object, **__: object) -> None:
            raise StorageUnavailable("the disk is on fire")

        with monkeypatch.context() as broken:
            broken.setattr(world.storage.envelopes, "query", fail)
            broken.setattr(world.storage, "check_health", fail)
            reply = await world.ask("alice", "history.query")
            assert (reply["code"], "on fire" in reply["error"]) == ("unavailable", True)
            assert (await world.data("alice", "ping"))["storage"] == "unavailable"
        assert (await world.data("alice", "history.query")) == {"envelopes": []}
        assert (await world.data("alice", "ping"))["storage"] == "ok"


async def test_storage_that_does_not_open_at_the_start_is_waited_for(nats_server: NatsServer, storage_url: str) -> None:
    world = ApiWorld(nats_server.url, storage_url)
    assert world.storage is not None
    opened, tries = world.storage.open, 0

    async def open_at_the_third_try() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise StorageUnavailable("still starting")
        await opened()

    world.storage.open = open_at_the_third_try  # type: ignore[method-assign]
    async with world:
        assert tries == 3
        assert (await world.data("alice", "ping"))["storage"] == "ok"


async def test_a_request_larger_than_its_operation_takes_is_too_large(
    nats_server: NatsServer, storage_url: str
) -> None:
    async with ApiWorld(nats_server.url, storage_url) as world:
        body = b'{"params":{"channel":"%b"}}' % (b"x" * 70_000)
        reply = await world.raw("alice", "history.query", body)
        assert (reply["code"], "expected at most 65536" in reply["error"]) == ("too_large", True)


async def test_pages_end_before_the_usable_size_and_a_record_that_never_fits_is_stepped_over(
    start_nats: Any, storage_url: str
) -> None:
    """A megabyte at most a message; escapes make these records six times as large as what is stored."""
    nats = await start_nats()
    async with ApiWorld(nats.url, storage_url) as world:
        assert world.hub is not None
        usable = world.hub.usable_size
        sizes = {"small": 10, "half": usable // 2, "large": usable - 400, "huge": usable + 10_000, "last": 20}
        await world.store(
            *(
                envelope(name, after_secs=second, payload=b'"%b"' % (b"x" * size))
                for second, (name, size) in enumerate(sizes.items())
            ),
            *(envelope(f"m{n}", after_secs=10 + n, payload=b'"%b"' % (b"y" * 300_000)) for n in range(6)),
        )
        alice = await world.connection("alice")
        seen: list[str] = []
        refused: list[str] = []
        cursor: str | None = None
        for _ in range(30):
            params = {} if cursor is None else {"cursor": cursor}
            message = await alice.request(
                subjects.api("alice", "history.query"), json.dumps({"params": params}).encode(), timeout_secs=20
            )
            reply = json.loads(message.data)
            if reply["ok"]:
                ids = [each["id"] for each in reply["data"]["envelopes"]]
                assert len(message.data) <= usable or len(ids) == 1
                seen += ids
                cursor = reply["data"].get("next_cursor")
            else:
                assert reply["code"] == "too_large"
                refused.append(reply["error"])
                cursor = reply.get("next_cursor")
            if cursor is None:
                break
        assert seen == ["m5", "m4", "m3", "m2", "m1", "m0", "last", "large", "half", "small"]
        assert len(refused) == 1
        assert await world.code("alice", "envelope.get", id="huge") == "too_large"
        assert await world.code("alice", "thread.get", root_id="huge") == "too_large"
        assert await world.code("alice", "envelope.get", id="large") == "ok"


async def test_every_write_leaves_an_audit_line(
    nats_server: NatsServer, storage_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ApiWorld(nats_server.url, storage_url) as world:
        await world.data("olga", "session.create", session_id="s1", worker="wanda")
        await world.code("alice", "dead.replay", dead_id="d1")
        await world.data("olga", "session.get", session_id="s1")
        await world.raw(ADMIN, "task.cancel", b"{")
    lines = [line for line in capsys.readouterr().err.splitlines() if "audit" in line]
    assert len(lines) == 3
    assert all(word in lines[0] for word in ("session.create", "olga", "s1", "wanda", "ok"))
    assert all(word in lines[1] for word in ("dead.replay", "alice", "forbidden"))
    assert all(word in lines[2] for word in ("task.cancel", ADMIN, "bad_request"))


async def test_stopping_answers_what_came_and_then_nobody(nats_server: NatsServer, slow_op: asyncio.Event) -> None:
    async with ApiWorld(nats_server.url, None) as world:
        assert world.service is not None
        asked = asyncio.create_task(world.ask("alice", "ping"))
        await eventually(lambda: world.service and world.service.describe()["under_way"], what="it is under way")
        stopping = asyncio.create_task(world.service.stop())
        await asyncio.sleep(0)
        slow_op.set()
        await stopping
        assert (await asked)["ok"]
        await world.service.stop()
