"""The same requests get the same answers from every backend: hostile names, equal times, cursors during inserts."""

import json
from typing import Any

from hub.api.operations import OPERATIONS
from hub.storage.conformance.harness import START, envelope, task, wave
from hub.storage.records import NewDeadLetter, Sighting
from tests.support.api import ADMIN, ApiWorld
from tests.support.nats_server import NatsServer

HOSTILE_TEXTS = [
    "", " ", "\0", "a\0b", "é", "😀", "a b", "a.b", "*", ">", "x" * 65, "x" * 5000, "'; DROP TABLE envelopes; --", "%",
    "_", "\r\nPUB x 1\r\n", "hub-orchestrator", "-1", "null", "\u202e", "1.1", "9" * 30 + ".1", "-" * 18 + ".1",
    "999999999999999999.999999999999999999", "\ufffd",
]  # fmt: skip
HOSTILE_VALUES: list[Any] = [
    None, True, 0, -1, 1001, 2**63, 2**64, 10**40, 1.5, -0.0, 1e300, [], [[]], {}, {"a": {}}, ["x"],
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999-14:00", "2030-01-02T03:04:05.678901234Z", "2030-01-02", *HOSTILE_TEXTS,
]  # fmt: skip

# What makes each operation's request complete, so that the one hostile member is what decides.
GOOD: dict[str, dict[str, Any]] = {
    "agent.get": {"identity": "alice"},
    "envelope.get": {"id": "m0"},
    "thread.get": {"root_id": "m0"},
    "thread.pending": {"identity": "bob"},
    "session.get": {"session_id": "s1"},
    "session.update_status": {"session_id": "none", "status": "closed"},
    "session.set_backend_ctx": {"session_id": "none", "backend_ctx": {}},
    "wave.spawn": {"wave_id": "w1"},
    "wave.cancel": {"wave_id": "w1"},
    "wave.status": {"wave_id": "w1"},
    "wave.get": {"wave_id": "w1"},
    "wave.list_tasks": {"wave_id": "w1"},
    "wave.get_task": {"wave_id": "w1", "task_id": "t1"},
    "stats.agent_activity": {"identity": "bob"},
    "dead.get": {"dead_id": "d0"},
    "dead.replay": {"dead_id": "none"},
    "task.cancel": {"worker": "w", "task_id": "t", "from": "a"},
}
CHANGING = {"session.create", "wave.create"}  # one request of each is in the script below


async def fill(world: ApiWorld) -> None:
    equal_times = [
        envelope(f"m{n}", payload=json.dumps({"text": f"\0😀{n}"}, ensure_ascii=n % 2 == 0).encode()) for n in range(7)
    ]
    await world.store(*equal_times)
    await world.store(
        envelope("r1", after_secs=1, sender="bob", to="alice", destination="channel.inbox.alice", reply_to="m0"),
        envelope("r2", after_secs=2, reply_to="r1", kind="human"),
        envelope("loop", after_secs=3, reply_to="loop", kind="event", to=None),
        envelope("nul", after_secs=4, reply_to="a\0b", to=None, payload=b'"\\u0000"'),
        envelope("failed", after_secs=5, to=None, destination="channel.task.m0", channel="task.m0",
                 payload=b'{"status":"error","task_id":"m0","for":"alice"}'),
    )  # fmt: skip
    world.clock.advance(20)
    await world.see(
        Sighting(identity="alice", seen_at=START, capabilities=["a", "é\0"], metadata={"n": "\0"}),
        Sighting(identity="bob", seen_at=START),
    )
    await world.plan(wave("w1", metadata={"k": "\0"}), [task("t1"), task("t0", dependencies=["t1"], goal="g\0")])
    await world.bury(
        *(
            NewDeadLetter(
                reason="undecodable", detail="d\0", subject="hub.pub.é", headers=[("a", "\0")], data=bytes([0, 255, n]),
                dead_id=f"d{n}", received_at=START,
            )
            for n in range(3)
        )
    )  # fmt: skip


async def script(world: ApiWorld) -> list[Any]:
    """Requests, and all that they answer but what is random by design."""
    answers: list[Any] = []

    async def note(caller: str, op: str, **params: Any) -> dict[str, Any]:
        reply = await world.ask(caller, op, **params)
        reply.get("data", {}).pop("uptime_secs", None)
        answers.append((caller, op, params, reply))
        return reply

    for caller in ("bob", "carol", ADMIN):
        for limit in (1, 3, 1000):
            cursor: dict[str, str] = {}
            for page in range(20):
                reply = await note(caller, "history.query", limit=limit, **cursor)
                if caller == ADMIN and limit == 3 and page == 0:
                    await world.store(envelope("late", after_secs=30, to=None))
                if "next_cursor" not in reply["data"]:
                    break
                cursor = {"cursor": reply["data"]["next_cursor"]}
        for root, resolve in (("m0", False), ("r2", True), ("loop", True), ("nul", False)):
            await note(caller, "thread.get", root_id=root, resolve=resolve)
    await note("olga", "session.create", session_id="s1", worker="wanda", metadata={"t": "\0😀"}, cwd="/\0")
    await note("olga", "session.set_backend_ctx", session_id="s1", backend_ctx={"deep": [[["\0"]]]})
    await note("wanda", "session.update_status", session_id="s1", status="failed")
    await note("olga", "session.update_status", session_id="s1", status="failed")
    await note("olga", "session.update_status", session_id="s1", status="active")
    tasks = [{"task_id": f"t{n}", "worker": "wanda", "goal": "g", "write_scope": [f"./{n}/"]} for n in range(5)]
    for goal in ("g\0", "g\0", "another"):
        await note(
            "olga", "wave.create", wave={"wave_id": "w2", "goal": goal, "metadata": {"b": 1, "a": 2}}, tasks=tasks
        )
    await note("olga", "wave.create", wave={"wave_id": "w2", "goal": "g\0", "metadata": {"a": 2, "b": 1}}, tasks=tasks)
    await note(
        "mallory", "wave.create", wave={"wave_id": "w2", "goal": "g\0", "metadata": {"b": 1, "a": 2}}, tasks=tasks
    )
    await note("olga", "wave.create", wave={"wave_id": "w3", "goal": "g"}, tasks=[*tasks, tasks[0]])
    await note("olga", "wave.get", wave_id="w3")
    turn = 0
    for op in OPERATIONS:
        if op not in CHANGING:
            await note(ADMIN, op, **GOOD.get(op, {}))
            for member in OPERATIONS[op].params.__struct_encode_fields__:
                turn += 1  # each member meets a fifth of them, each of them a fifth of the members
                for value in HOSTILE_VALUES[turn % 5 :: 5]:
                    await note(ADMIN, op, **{**GOOD.get(op, {}), member: value})
    return answers


async def answers_of(nats: NatsServer, storage_url: str) -> list[Any]:
    async with ApiWorld(nats.url, storage_url) as world:
        await fill(world)
        return await script(world)


async def test_both_backends_answer_alike_and_never_with_an_internal_error(
    nats_server: NatsServer, sqlite_url: str, empty_postgres_url: str
) -> None:
    answers = await answers_of(nats_server, sqlite_url)
    assert [answer for answer in answers if answer[3].get("code") == "internal"] == []
    others = await answers_of(nats_server, empty_postgres_url)
    assert [pair for pair in zip(answers, others, strict=True) if pair[0] != pair[1]] == []
