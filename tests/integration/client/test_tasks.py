"""Delegated tasks: from the send to the one right result, whatever happens in between (contract §7)."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hub.client import FollowingEnded, NoHub, TaskHandle, TaskTimedOut
from hub.client import task as task_module
from hub.protocol import BadName, Envelope, Progress, make, names, subjects
from tests.integration.client.conftest import OpenClient
from tests.support.bus import connect
from tests.support.live_hub import LiveHub
from tests.support.nats_server import NatsServer
from tests.support.scripted_worker import ScriptedWorker
from tests.support.waiting import eventually


@pytest.fixture
async def worker(hub: LiveHub, open_client: OpenClient) -> AsyncIterator[ScriptedWorker]:
    worker = await ScriptedWorker(await open_client("worker")).start()
    yield worker
    await worker.stop()


@pytest.fixture
async def durable_worker(durable_hub: LiveHub, open_client: OpenClient) -> AsyncIterator[ScriptedWorker]:
    worker = await ScriptedWorker(await open_client("worker")).start()
    yield worker
    await worker.stop()


@pytest.mark.hub
async def test_a_task_is_delegated_reports_and_ends_with_its_result(
    worker: ScriptedWorker, open_client: OpenClient
) -> None:
    alice = await open_client("alice")
    handle = await alice.delegate("worker", "count", payload={"to": 3})
    reports: list[Progress] = []

    async def watch() -> None:
        async for report in handle.progress():
            reports.append(report)  # noqa: PERF401 - what came so far is looked at while it runs

    watching = asyncio.create_task(watch())
    task = await worker.task()
    assert task.payload == {"prompt": "count", "to": 3, "task_channel": handle.channel}
    await worker.say(task, "status", status="working")
    await worker.say(task, "event", event_type="progress", data={"message": "half", "phase": "counting"})
    await eventually(lambda: handle.status == "working")
    await worker.end(task, [1, 2, 3])
    result = await handle.result(10)
    assert (result.status, result.result, result.task_id) == ("done", [1, 2, 3], handle.task_id)
    await asyncio.wait_for(watching, 5)
    assert [report.type for report in reports] == ["status", "progress"]
    assert handle.is_done
    assert (await handle.result()).result == [1, 2, 3]
    assert [report.type async for report in handle.progress()] == ["status", "progress"]


@pytest.mark.hub
async def test_an_error_keeps_its_code_and_text(worker: ScriptedWorker, open_client: OpenClient) -> None:
    handle = await (await open_client("alice")).delegate("worker", "fail")
    await worker.end(await worker.task(), status="error", error="it broke", code="handler_error")
    result = await handle.result(10)
    assert (result.status, result.error, result.code) == ("error", "it broke", "handler_error")


@pytest.mark.hub
async def test_a_cancel_reaches_the_worker_and_waits_for_its_word(
    worker: ScriptedWorker, open_client: OpenClient
) -> None:
    handle = await (await open_client("alice")).delegate("worker", "sleep")
    task = await worker.task()
    cancelling = asyncio.create_task(handle.cancel(10))
    await eventually(lambda: worker.cancels == [{"action": "cancel", "task_id": handle.task_id}])
    await worker.end(task, status="cancelled", error="cancelled")
    assert (await cancelling).status == "cancelled"


@pytest.mark.hub
async def test_a_task_that_takes_longer_than_its_delegator_waits_is_not_cancelled(
    worker: ScriptedWorker, open_client: OpenClient
) -> None:
    handle = await (await open_client("alice")).delegate("worker", "sleep")
    task = await worker.task()
    with pytest.raises(TaskTimedOut, match="not cancelled") as caught:
        await handle.result(0.2)
    assert caught.value.code == "timeout"
    await worker.end(task, "late")
    assert (await handle.result(10)).result == "late"
    assert worker.cancels == []


@pytest.mark.hub
async def test_wrong_results_are_ignored(worker: ScriptedWorker, open_client: OpenClient) -> None:
    """From a third identity, for another sender, about another task, without a terminal status, of another kind."""
    mallory = await open_client("mallory")
    handle = await (await open_client("alice")).delegate("worker", "count")
    task = await worker.task()
    right = {"status": "done", "task_id": task.meta.id, "for": "alice", "result": "forged", "error": None}
    await mallory.send(handle.channel, right, reply_to=task.meta.id)
    for wrong in (
        right | {"for": "carol"},
        {name: value for name, value in right.items() if name != "for"},
        right | {"status": "finished"},
        right | {"status": "working"},
        right | {"task_id": "another"},
        "done",
        None,
    ):
        answers_other = isinstance(wrong, dict) and wrong["task_id"] == "another"
        await worker.client.send(handle.channel, wrong, reply_to="another" if answers_other else task.meta.id)
    await worker.client.send(handle.channel, right, kind="event", reply_to=task.meta.id)
    await eventually(lambda: handle.ignored == 9)
    assert not handle.is_done
    await worker.end(task, "the right one")
    assert (await handle.result(10)).result == "the right one"


@pytest.mark.hub
async def test_the_first_right_result_stays(worker: ScriptedWorker, open_client: OpenClient) -> None:
    handle = await (await open_client("alice")).delegate("worker", "count")
    task = await worker.task()
    await worker.end(task, "first")
    await worker.end(task, "second")
    assert (await handle.result(10)).result == "first"
    assert await handle.poll() == await handle.result()


async def test_a_result_that_came_while_the_delegator_was_away_is_found_by_a_resume(
    durable_worker: ScriptedWorker, open_client: OpenClient
) -> None:
    alice = await open_client("alice")
    handle = await alice.delegate("worker", "count")
    task = await durable_worker.task()
    await durable_worker.say(task, "status", status="working")
    await eventually(lambda: handle.status == "working")
    await alice.close()
    with pytest.raises(FollowingEnded, match="resume"):
        await handle.result(5)
    await durable_worker.end(task, "while you were away")
    alice = await open_client("alice")
    first, second = await asyncio.gather(
        alice.resume(task.meta.id, "worker"), (await open_client("alice")).resume(task.meta.id, "worker")
    )
    assert (await first.result(10)).result == "while you were away"
    assert (await second.result(10)).result == "while you were away"
    assert [report.data async for report in first.progress()] == [{"status": "working"}]


async def test_a_resumed_task_is_followed_live_too(durable_worker: ScriptedWorker, open_client: OpenClient) -> None:
    handle = await (await open_client("alice")).delegate("worker", "count")
    task = await durable_worker.task()
    resumed = await (await open_client("alice")).resume(handle.task_id, "worker")
    with pytest.raises(TaskTimedOut):
        await resumed.result(0.2)
    assert durable_worker.cancels == []
    await durable_worker.end(task, "now")
    assert (await resumed.result(10)).result == "now"
    assert (await handle.result(10)).result == "now"


async def test_a_result_that_has_left_the_stream_is_found_in_history(
    durable_hub: LiveHub, open_client: OpenClient
) -> None:
    """The API here is a scripted one: it answers as contract §10 says, in two pages."""
    api = durable_hub.connection
    assert api is not None
    asked: list[Any] = []
    task_id = names.new_message_id()
    record = {
        "id": "result-1",
        "from": "worker",
        "channel": names.task_channel(task_id),
        "to": None,
        "timestamp": "2026-01-01T00:00:00.000000Z",
        "kind": "message",
        "reply_to": task_id,
        "payload": {"status": "done", "task_id": task_id, "for": "alice", "result": "from long ago", "error": None},
        "stored_at": "2026-01-01T00:00:00.000000Z",
    }
    another = record | {"id": "result-0", "reply_to": "x", "payload": {"status": "done", "task_id": "x"}}

    async def answer(message: Any) -> None:
        params = json.loads(message.data)["params"]
        asked.append(params)
        is_first = "cursor" not in params
        data = {"envelopes": [another if is_first else record]} | ({"next_cursor": "c"} if is_first else {})
        await api.publish(message.reply, json.dumps({"ok": True, "data": data}).encode())

    await api.subscribe("hub.api.*.history.query", answer)
    await api.flush()
    handle = await (await open_client("alice")).resume(task_id, "worker")
    assert (await handle.result(10)).result == "from long ago"
    assert asked[0] | {"limit": 0} == {
        "channel": handle.channel,
        "from": "worker",
        "kind": "message",
        "limit": 0,
    }


async def test_a_history_that_was_away_is_asked_again(durable_hub: LiveHub, open_client: OpenClient) -> None:
    api = durable_hub.connection
    assert api is not None
    task_id = names.new_message_id()
    record = {
        "id": "result-2",
        "from": "worker",
        "channel": f"task.{task_id[:8]}",
        "timestamp": "2026-01-01T00:00:00Z",
        "kind": "message",
        "reply_to": task_id,
        "payload": {"status": "done", "task_id": task_id, "for": "alice", "result": "at last"},
    }
    asked = 0

    async def answer(message: Any) -> None:
        nonlocal asked
        asked += 1
        good = {"ok": True, "data": {"envelopes": [record]}}
        await api.publish(
            message.reply, json.dumps(good if asked > 1 else {"ok": False, "code": "unavailable"}).encode()
        )

    await api.subscribe("hub.api.*.history.query", answer)
    await api.flush()
    handle = await (await open_client("alice")).resume(task_id, "worker")
    assert (await handle.result(10)).result == "at last"
    assert asked == 2


@pytest.mark.parametrize("answer", [b"", b"nonsense", b'{"ok": false, "error": "no storage", "code": "unavailable"}'])
async def test_a_history_that_does_not_help_ends_nothing(
    durable_hub: LiveHub, durable_worker: ScriptedWorker, open_client: OpenClient, answer: bytes
) -> None:
    api = durable_hub.connection
    assert api is not None

    async def on_request(message: Any) -> None:
        await api.publish(message.reply, answer)

    await api.subscribe("hub.api.*.history.query", on_request)
    await api.flush()
    alice = await open_client("alice")
    task_id = (await alice.delegate("worker", "count")).task_id
    resumed = await alice.resume(task_id, "worker")
    await durable_worker.end(await durable_worker.task(), "in the end")
    assert (await resumed.result(10)).result == "in the end"


async def test_a_resume_by_the_wrong_name_of_the_worker_takes_nobodys_word(
    durable_worker: ScriptedWorker, open_client: OpenClient
) -> None:
    alice = await open_client("alice")
    handle = await alice.delegate("worker", "count")
    await durable_worker.end(await durable_worker.task(), "mine")
    await handle.result(10)
    resumed = await alice.resume(handle.task_id, "another")
    await eventually(lambda: resumed.ignored >= 1)
    assert await resumed.poll() is None


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The task of each look into the stored channel that is over."""
    over: list[str] = []
    read = TaskHandle._read_stored

    async def look(handle: TaskHandle) -> None:
        await read(handle)
        over.append(handle.task_id)

    monkeypatch.setattr(TaskHandle, "_read_stored", look)
    return over


async def test_a_result_that_no_live_subscription_heard_is_found_within_three_seconds(
    durable_worker: ScriptedWorker, open_client: OpenClient, looks: list[str]
) -> None:
    handle = await (await open_client("alice")).delegate("worker", "count")
    task = await durable_worker.task()
    handle._on_live = lambda _: None  # type: ignore[method-assign]
    handle._connection.client.direct[handle._sid or 0] = lambda _: None  # the blip: live messages are lost
    await eventually(lambda: handle.task_id in looks)
    began = asyncio.get_running_loop().time()
    await durable_worker.end(task, "unheard")
    assert (await handle.result(10)).result == "unheard"
    assert asyncio.get_running_loop().time() - began < 3.5


async def test_a_poll_finds_a_result_at_once(
    durable_worker: ScriptedWorker, open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, looks: list[str]
) -> None:
    monkeypatch.setattr(task_module, "READ_EVERY_SECS", 60)
    handle = await (await open_client("alice")).delegate("worker", "count")
    task = await durable_worker.task()
    handle._connection.client.direct[handle._sid or 0] = lambda _: None
    await eventually(lambda: handle.task_id in looks)
    await durable_worker.end(task, "unheard")

    async def polled() -> Any:
        return await handle.poll()

    assert (await eventually(polled)).result == "unheard"


async def test_a_result_published_during_the_delegators_blip_is_found_after_it(
    nats_server: NatsServer, durable_worker: ScriptedWorker, open_client: OpenClient
) -> None:
    handle = await (await open_client("alice")).delegate("worker", "count")
    task = await durable_worker.task()
    transport = handle._connection.client._transport
    transport._io_writer.transport.abort()  # alice's connection breaks, the others' stay
    await durable_worker.end(task, "during the blip")
    assert (await handle.result(5)).result == "during the blip"
    assert handle._connection.reconnects == 1


async def test_a_task_survives_a_killed_server_and_a_restarted_hub(
    nats_server: NatsServer, durable_hub: LiveHub, durable_worker: ScriptedWorker, open_client: OpenClient
) -> None:
    handle = await (await open_client("alice")).delegate("worker", "count")
    task = await durable_worker.task()
    await durable_hub.vanish()
    await nats_server.restart()
    ending = asyncio.create_task(durable_worker.end(task, "in spite of all"))
    await ending  # stored in the ingress, no router runs
    with pytest.raises(TaskTimedOut):
        await handle.result(0.2)
    await durable_hub.start()
    assert (await handle.result(10)).result == "in spite of all"


@pytest.mark.hub
@pytest.mark.parametrize("with_inbox", [False, True], ids=["no inbox", "open inbox"])
async def test_a_task_that_cannot_be_delivered_ends_as_an_error(
    hub: LiveHub, open_client: OpenClient, with_inbox: bool
) -> None:
    alice = await open_client("alice")
    if with_inbox:
        await (await alice.inbox().start()).wait_ready(5)
    handle = await alice.delegate("worker", "count")
    payload = {"event_type": "undelivered", "data": {"id": handle.task_id, "reason": "exhausted"}}
    mallory = await open_client("mallory")
    await mallory.send_to("alice", payload, kind="event")  # not the hub's word
    assert hub.connection is not None
    for event_id in ("another", handle.task_id):
        told = make(
            sender=names.HUB_IDENTITY,
            channel="undelivered",
            to="alice",
            kind="event",
            payload={**payload, "data": {"id": event_id, "reason": "exhausted"}},
        )
        assert not handle.is_done
        await hub.connection.publish(subjects.inbox("alice"), told.body)
    result = await handle.result(10)
    assert (result.status, result.code) == ("error", "undelivered")
    assert "exhausted" in str(result.error)


async def test_a_task_that_could_not_be_sent_leaves_nothing_behind(
    nats_server: NatsServer, open_client: OpenClient
) -> None:
    alice = await open_client("alice")
    alice._sender._no_hub_secs = 0.1
    before = len(alice.connection.client._subs)
    with pytest.raises(NoHub):
        await alice.delegate("worker", "count")
    assert len(alice.connection.client._subs) <= before + 2  # the reply mux, and the listener for undelivered ones
    with pytest.raises(BadName, match="message id"):
        await alice.delegate("worker", "count", task_id="é")
    with pytest.raises(BadName, match="task id"):
        await alice.delegate("worker", "count", task_id="a.b")
    with pytest.raises(BadName):
        await alice.resume("a.b.c", "worker")


async def test_a_finished_task_leaves_no_subscription(durable_worker: ScriptedWorker, open_client: OpenClient) -> None:
    alice = await open_client("alice")
    handles = [await alice.delegate("worker", str(number)) for number in range(5)]
    for _ in handles:
        task = await durable_worker.task()
        await durable_worker.end(task, task.payload["prompt"])
    assert [(await handle.result(10)).result for handle in handles] == ["0", "1", "2", "3", "4"]
    await eventually(lambda: all(handle.is_closed for handle in handles))
    # What stays: the reply mux, and the listener for undelivered ones.
    await eventually(lambda: len(alice.connection.client._subs) <= 2)


@pytest.mark.core_only
async def test_in_core_mode_no_stored_channel_is_asked_for(
    nats_server: NatsServer, worker: ScriptedWorker, open_client: OpenClient
) -> None:
    watcher = await connect(nats_server.url)
    asked: list[str] = []

    async def on_request(message: Any) -> None:
        asked.append(message.subject)

    await watcher.subscribe("$JS.API.DIRECT.>", on_request)
    await watcher.flush()
    handle = await (await open_client("alice")).delegate("worker", "count")
    task: Envelope = await worker.task()
    with pytest.raises(TaskTimedOut):
        await handle.result(0.3)
    await worker.end(task, "live")
    assert (await handle.result(10)).result == "live"
    assert asked == []
    await watcher.close()
