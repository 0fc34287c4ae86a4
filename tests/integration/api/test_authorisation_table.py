"""Every operation by every kind of caller: nobody sees or changes what contract §10 does not grant."""

import asyncio
from collections.abc import Callable
from typing import Any

from hub.api.authorisation import RULES
from hub.storage.conformance.harness import START, envelope, task, wave
from hub.storage.records import NewDeadLetter, Session, Sighting
from tests.support.api import ADMIN, ApiWorld
from tests.support.nats_server import NatsServer

ALICE, BOB, CAROL, OLGA, WANDA = "alice", "bob", "carol", "olga", "wanda"
CALLERS = (ALICE, BOB, CAROL, OLGA, WANDA, ADMIN)
Params = Callable[[str], dict[str, Any]]


def every(code: str, **but: str) -> dict[str, str]:
    """The same code for all callers but those named; `ops` gets `ok` unless it is named."""
    return dict.fromkeys(CALLERS, code) | {ADMIN: "ok"} | but


def members(*callers: str, other: str = "not_found") -> dict[str, str]:
    return every(other) | dict.fromkeys(callers, "ok")


def fixed(**params: Any) -> Params:
    return lambda _caller: params


# One row: the operation, its parameters for a caller, the code that each caller gets.
TABLE: list[tuple[str, Params, dict[str, str]]] = [
    ("ping", fixed(), every("ok")),
    ("agent.find", fixed(), every("ok")),
    ("agent.get", fixed(identity=ALICE), every("ok")),
    ("history.query", fixed(), every("ok")),
    ("envelope.get", fixed(id="m1"), members(ALICE, BOB)),
    ("envelope.get", fixed(id="b1"), every("ok")),
    ("thread.get", fixed(root_id="m1"), members(ALICE, BOB)),
    ("thread.get", fixed(root_id="r1", resolve=True), members(ALICE, BOB)),
    ("thread.pending", fixed(identity=BOB), members(BOB, other="forbidden")),
    ("thread.pending", lambda caller: {"identity": caller}, every("ok")),
    ("session.create", lambda caller: {"session_id": "new", "worker": WANDA}, every("ok")),
    ("session.create", lambda caller: {"session_id": f"s-{caller}", "worker": CAROL}, every("ok", olga="conflict")),
    ("session.get", lambda caller: {"session_id": f"s-{caller}", "orchestrator": OLGA}, members(OLGA, WANDA)),
    ("session.list", fixed(), every("ok")),
    (
        "session.set_backend_ctx",
        lambda caller: {"session_id": f"s-{caller}", "orchestrator": OLGA, "backend_ctx": {"by": caller}},
        members(OLGA, WANDA),
    ),
    (
        "session.update_status",
        lambda caller: {"session_id": f"s-{caller}", "orchestrator": OLGA, "status": "closed"},
        members(OLGA, WANDA),
    ),
    (
        "wave.create",
        lambda caller: {
            "wave": {"wave_id": f"n-{caller}", "goal": "g"},
            "tasks": [{"task_id": "t", "worker": WANDA, "goal": "g"}],
        },
        every("ok"),
    ),
    # Nothing runs waves here: who may spawn is told so, who may not never gets that far.
    ("wave.spawn", fixed(wave_id="w1"), every("not_found", olga="unavailable", wanda="forbidden", ops="unavailable")),
    ("wave.cancel", fixed(wave_id="w1"), every("not_found", olga="unavailable", wanda="forbidden", ops="unavailable")),
    ("wave.status", fixed(wave_id="w1"), members(OLGA, WANDA)),
    ("wave.get", fixed(wave_id="w1"), members(OLGA, WANDA)),
    ("wave.list", fixed(), every("ok")),
    ("wave.list_tasks", fixed(wave_id="w1"), members(OLGA, WANDA)),
    ("wave.get_task", fixed(wave_id="w1", task_id="t1"), members(OLGA, WANDA)),
    ("stats.message_rate", fixed(), every("ok")),
    ("stats.error_rate", fixed(), every("ok")),
    ("stats.latency", fixed(), every("ok")),
    ("stats.channel_hotspots", fixed(), every("ok")),
    ("stats.agent_activity", fixed(identity=BOB), members(BOB, other="forbidden")),
    ("dead.list", fixed(), every("forbidden")),
    ("dead.get", fixed(dead_id="d1"), every("forbidden")),
    # In core mode without a router nothing takes what the hub sends.
    ("dead.replay", fixed(dead_id="d1"), every("forbidden", ops="unavailable")),
    ("task.cancel", fixed(worker=WANDA, task_id="x", from_=ALICE), every("forbidden", ops="unavailable")),
]

# What lists hold for each caller: the operation, the list, what is looked at, and what is seen.
SEEN: list[tuple[str, str, str, dict[str, set[str]]]] = [
    (
        "history.query",
        "envelopes",
        "id",
        {ALICE: {"m1", "r1", "b1"}, BOB: {"m1", "r1", "b1"}, CAROL: {"b1"}, ADMIN: {"m1", "r1", "b1"}},
    ),
    (
        "session.list",
        "sessions",
        "session_id",
        {
            ALICE: set(),
            CAROL: set(),
            OLGA: {f"s-{caller}" for caller in CALLERS},
            WANDA: {f"s-{caller}" for caller in CALLERS},
            ADMIN: {f"s-{caller}" for caller in CALLERS},
        },
    ),
    ("wave.list", "waves", "wave_id", {ALICE: set(), OLGA: {"w1"}, WANDA: {"w1"}, ADMIN: {"w1"}}),
]


async def fill(world: ApiWorld) -> None:
    await world.store(
        envelope("m1"),
        envelope("r1", after_secs=1, sender=BOB, to=ALICE, destination="channel.inbox.alice", reply_to="m1"),
        envelope("b1", after_secs=2, to=None),
    )
    world.clock.advance(10)
    await world.see(Sighting(identity=ALICE, seen_at=START))
    for caller in CALLERS:
        await world.hold(
            Session(session_id=f"s-{caller}", orchestrator=OLGA, worker=WANDA, created_at=START, updated_at=START)
        )
    await world.plan(wave("w1"), [task("t1")])
    await world.bury(
        NewDeadLetter(reason="undecodable", detail="no JSON", subject="hub.pub.alice.room", data=b"{", dead_id="d0"),
        NewDeadLetter(
            reason="expired",
            detail="too old",
            subject="hub.pub.alice.room",
            sender=ALICE,
            data=b'{"meta":{"id":"x","from":"alice","channel":"room","timestamp":"2030-01-01T00:00:00Z",'
            b'"kind":"message"},"payload":1}',
            dead_id="d1",
        ),
    )


def test_the_table_has_a_row_for_every_operation() -> None:
    assert {op for op, _, _ in TABLE} == set(RULES)


async def test_nobody_gets_more_than_the_contract_grants(nats_server: NatsServer, storage_url: str) -> None:
    async with ApiWorld(nats_server.url, storage_url) as world:
        await fill(world)
        wrong = []
        for op, items, member, seen in SEEN:
            for caller, expected in seen.items():
                found = {item[member] for item in (await world.data(caller, op))[items]}
                if found != expected:
                    wrong.append((op, caller, expected, found))
        for op, params, expected_codes in TABLE:
            codes = await asyncio.gather(*(world.code(caller, op, **params(caller)) for caller in CALLERS))
            wrong += [
                (op, caller, expected_codes[caller], code)
                for caller, code in zip(CALLERS, codes, strict=True)
                if code != expected_codes[caller]
            ]
        assert not wrong


async def test_without_storage_every_operation_but_ping_is_unavailable_for_everybody(nats_server: NatsServer) -> None:
    async with ApiWorld(nats_server.url, None) as world:
        assert (await world.data(CAROL, "ping"))["storage"] == "none"
        answers = {
            (op, caller): await world.code(caller, op, **params(caller))
            for op, params, _ in TABLE
            if op != "ping"
            for caller in (CAROL, ADMIN)
        }
        assert set(answers.values()) == {"unavailable"}


async def test_a_refused_write_changes_nothing(nats_server: NatsServer, storage_url: str) -> None:
    async with ApiWorld(nats_server.url, storage_url) as world:
        await fill(world)
        before = await world.data(ADMIN, "session.get", session_id="s-olga")
        for caller in (ALICE, CAROL):
            await world.code(caller, "session.update_status", session_id="s-olga", status="failed", orchestrator=OLGA)
            await world.code(caller, "session.set_backend_ctx", session_id="s-olga", backend_ctx={"evil": True})
        assert await world.data(ADMIN, "session.get", session_id="s-olga") == before


async def test_owner_fields_are_the_callers_unless_an_admin_names_another(
    nats_server: NatsServer, storage_url: str
) -> None:
    tasks = [{"task_id": "t", "worker": WANDA, "goal": "g"}]
    async with ApiWorld(nats_server.url, storage_url) as world:
        for caller, owner in ((CAROL, CAROL), (ADMIN, OLGA)):
            made = await world.data(
                caller, "session.create", session_id="s", worker=WANDA, orchestrator=OLGA, status="failed",
                created_at="never",
            )  # fmt: skip
            assert (made["session"]["orchestrator"], made["session"]["status"]) == (owner, "active")
            made = await world.data(
                caller, "wave.create", wave={"goal": "g", "orchestrator": OLGA, "status": "completed"}, tasks=tasks
            )
            assert (made["wave"]["orchestrator"], made["wave"]["status"]) == (owner, "pending")


async def test_a_strangers_session_of_the_same_id_is_never_taken_for_ones_own(
    nats_server: NatsServer, storage_url: str
) -> None:
    async with ApiWorld(nats_server.url, storage_url) as world:
        await world.data(OLGA, "session.create", session_id="s1", worker=WANDA)
        world.clock.advance(1)
        await world.data("mallory", "session.create", session_id="s1", worker=OLGA)
        assert (await world.data(OLGA, "session.get", session_id="s1"))["session"]["worker"] == WANDA
        await world.data(OLGA, "session.update_status", session_id="s1", status="closed")
        assert (await world.data("mallory", "session.get", session_id="s1"))["session"]["status"] == "active"
        assert (await world.data(WANDA, "session.get", session_id="s1"))["session"]["orchestrator"] == OLGA


async def test_the_hubs_own_voice_calls_nothing(nats_server: NatsServer) -> None:
    async with ApiWorld(nats_server.url, None) as world:
        assert await world.code("hub-orchestrator", "ping") == "forbidden"
