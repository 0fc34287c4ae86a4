"""Cases of waves: creation, the engine's transaction, effects, positions, and leases."""

import asyncio
from datetime import UTC, datetime, timedelta

from msgspec import Raw

from hub.storage.conformance.harness import START, Harness, every, refusal, task, wave
from hub.storage.errors import BadValue, Conflict, LeaseLost, Stale
from hub.storage.records import Effect, Lease, Position, TaskChange, TaskCount, WaveChange

POSITION = Position(stream="HUB_TASKS", created=datetime(2029, 1, 1, tzinfo=UTC), sequence=42)
ENDED = START + timedelta(seconds=60)


def _effect(meta_id: str, **members: str) -> Effect:
    usual = {"wave_id": "w1", "task_id": "t1", "kind": "dispatch", "channel": "general"}
    return Effect(meta_id=meta_id, body=b'{"meta":{}}\0', **{**usual, **members})  # type: ignore[arg-type]


async def a_wave_comes_with_all_its_tasks_or_not_at_all(harness: Harness) -> None:
    waves = harness.storage.waves
    whole = wave(goal="\0 ü 🎈", metadata={"n": [1, None]}, timeout_secs=12.5, digest="abc")
    tasks = [
        task(
            f"t{index}",
            goal="g\0",
            write_scope=["src/a", "ü"],
            dependencies=["t0"] if index else [],
            handoff_path="/h",
            verify_cmd="true\0",
            timeout_secs=0.5,
            priority=-(2**63),
            cwd="/c",
            model="m",
            provider="p",
        )
        for index in range(1201)
    ]
    await waves.create(whole, tasks)
    assert await waves.get("w1") == whole
    assert await harness.another.waves.tasks("w1") == tasks
    assert await every(lambda cursor: waves.find_tasks("w1", limit=500, cursor=cursor)) == tasks
    assert await waves.get_task("w1", "t7") == tasks[7]
    await refusal(Conflict, waves.create(wave(goal="another"), [task("x")]))
    assert await waves.get_task("w1", "x") is None
    for bad in ([task("a"), task("a")], [task("a", "w1")], [task("a.b", "w2")], [task("a", "w2", priority=2**63)]):
        await refusal(BadValue, waves.create(wave("w2"), [*bad, task("c", "w2")]))
    assert await waves.get("w2") is None


async def a_decision_is_written_whole(harness: Harness) -> None:
    waves = harness.storage.waves
    await waves.create(wave(), [task("t1"), task("t2", worker="willi"), task("t3")])
    await waves.commit(
        waves=[WaveChange(wave_id="w1", expected=("pending",), status="running", started_at=START, timeout_secs=9.0)],
        tasks=[
            TaskChange(
                wave_id="w1", task_id="t1", expected=("pending",), status="running", dispatch_ids=["d1"], attempt=1
            ),
            TaskChange(wave_id="w1", task_id="t2", expected=("pending",), status="running", dispatch_ids=["d2"]),
        ],
        effects=[_effect("e2"), _effect("e1", kind="event", channel="wave.w1")],
        position=POSITION,
    )
    found = await harness.another.waves.get("w1")
    assert found is not None
    assert (found.status, found.started_at, found.timeout_secs, found.closed_at) == ("running", START, 9.0, None)
    one, two, three = await waves.tasks("w1")
    assert (one.status, one.dispatch_ids, one.attempt) == ("running", ["d1"], 1)
    assert (two.status, two.dispatch_ids, two.attempt) == ("running", ["d2"], 0)
    assert three.status == "pending"
    assert await waves.engine_position("HUB_TASKS") == POSITION
    assert await harness.storage.envelopes.mirror_position("HUB_TASKS") is None
    assert [effect.meta_id for effect in await waves.effects()] == ["e2", "e1"]
    assert (await waves.effects(limit=1))[0] == _effect("e2")
    assert await waves.running() == ["w1"]
    result = Raw(b'{"big":"' + b"x" * 100_000 + b'"}')
    await waves.commit(
        tasks=[
            TaskChange(
                wave_id="w1",
                task_id="t1",
                expected=("running",),
                status="done",
                result=bytes(result),
                completed_at=ENDED,
                verify_result="passed",
            ),
            TaskChange(wave_id="w1", task_id="t2", expected=("running",), status="failed", error="no\0"),
        ]
    )
    done = await waves.get_task("w1", "t1")
    assert done is not None
    assert (done.status, done.completed_at, done.verify_result) == ("done", ENDED, "passed")
    assert done.result is not None
    assert bytes(done.result) == bytes(result)
    assert [item.error for item in await waves.tasks("w1")] == [None, "no\0", None]
    assert await waves.counts("w1") == [
        TaskCount("done", "passed", 1),
        TaskCount("failed", None, 1),
        TaskCount("pending", None, 1),
    ]
    light = await waves.find_tasks("w1", max_bytes=10_000)
    assert [item.task_id for item in light.items] == ["t1"]
    assert light.next_cursor is not None


async def a_decision_that_came_too_late_changes_nothing(harness: Harness) -> None:
    waves = harness.storage.waves
    await waves.create(wave(), [task("t1"), task("t2", status="done")])
    good = TaskChange(wave_id="w1", task_id="t1", expected=("pending",), status="running")
    late = TaskChange(wave_id="w1", task_id="t2", expected=("running", "pending"), status="failed")
    await refusal(Stale, waves.commit(tasks=[good, late], effects=[_effect("e")], position=POSITION))
    missing = TaskChange(wave_id="w1", task_id="none", expected=("pending",), status="failed")
    await refusal(Stale, waves.commit(tasks=[good, missing]))
    gone = WaveChange(wave_id="w9", expected=("pending",), status="running")
    await refusal(Stale, waves.commit(tasks=[good], waves=[gone]))
    await waves.commit(effects=[_effect("taken")])
    await refusal(Conflict, waves.commit(tasks=[good], effects=[_effect("new"), _effect("taken")]))
    await refusal(BadValue, waves.commit(tasks=[good, good]))
    await refusal(BadValue, waves.commit(tasks=[TaskChange(wave_id="w1", task_id="t1", expected=("pending",))]))
    assert [item.status for item in await waves.tasks("w1")] == ["pending", "done"]
    assert [effect.meta_id for effect in await waves.effects()] == ["taken"]
    assert await waves.engine_position("HUB_TASKS") is None


async def thousands_of_tasks_end_in_one_decision(harness: Harness) -> None:
    waves = harness.storage.waves
    names = [f"t{index}" for index in range(1200)]
    await waves.create(wave(status="running"), [task(name) for name in names])
    cancels = [
        TaskChange(wave_id="w1", task_id=name, expected=("pending",), status="cancelled", completed_at=ENDED)
        for name in names
    ]
    await waves.commit(tasks=cancels, effects=[_effect(f"e-{name}") for name in names])
    assert await waves.counts("w1") == [TaskCount("cancelled", None, 1200)]
    assert len(await waves.effects(limit=1000)) == 1000
    assert await waves.remove_effects([f"e-{name}" for name in names] + ["unknown"]) == 1200
    assert await waves.effects() == []


async def of_two_decisions_about_a_task_one_wins(harness: Harness) -> None:
    await harness.storage.waves.create(wave(), [task("t1")])

    def decide(which: Harness, index: int) -> object:
        storage = which.storage if index % 2 else which.another
        change = TaskChange(wave_id="w1", task_id="t1", expected=("pending",), status="running", attempt=index)
        return storage.waves.commit(tasks=[change], effects=[_effect(f"e{index}")])

    outcomes = await asyncio.gather(*(decide(harness, index) for index in range(8)), return_exceptions=True)  # type: ignore[call-overload]
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", *["Stale"] * 7]
    winner = outcomes.index(None)
    found = await harness.storage.waves.get_task("w1", "t1")
    assert found is not None
    assert found.attempt == winner
    assert [effect.meta_id for effect in await harness.storage.waves.effects()] == [f"e{winner}"]


async def waves_are_seen_by_their_orchestrator_and_workers(harness: Harness) -> None:
    waves = harness.storage.waves
    members = [("mine", "me", "x"), ("worked", "x", "me"), ("others", "x", "y")]
    for index, (wave_id, orchestrator, worker) in enumerate(members):
        created = START + timedelta(seconds=index)
        await waves.create(
            wave(wave_id, orchestrator=orchestrator, created_at=created),
            [task("t1", wave_id, worker=worker), task("t2", wave_id, worker="z", status="done")],
        )

    async def found(visible_to: str | None, status: str | None = None) -> list[str]:
        listed = await every(
            lambda cursor: waves.find(limit=1, cursor=cursor, visible_to=visible_to, status=status)  # type: ignore[arg-type]
        )
        return [item.wave_id for item in listed]

    assert await found(None) == ["others", "worked", "mine"]
    assert await found("me") == ["worked", "mine"]
    assert await found("me", "running") == []
    assert await waves.get("others", visible_to="me") is None
    assert await waves.get("worked", visible_to="me") is not None
    assert await waves.get_task("others", "t1", visible_to="me") is None
    assert await waves.get_task("worked", "t2", visible_to="me") is not None
    assert (await waves.find_tasks("others", visible_to="me")).items == []
    done = await waves.find_tasks("mine", visible_to="me", status="done")
    assert [item.task_id for item in done.items] == ["t2"]


async def a_lease_passes_on_when_it_stands_still(harness: Harness) -> None:
    mine, theirs = harness.storage.leases, harness.another.leases
    assert await mine.read("waves") is None
    first = await mine.take("waves", "one", seen=None)
    assert first == Lease(name="waves", holder="one", token=1, beat=0)
    assert await theirs.take("waves", "two", seen=None) is None
    beaten = await mine.beat(first)
    assert beaten == Lease(name="waves", holder="one", token=1, beat=1)
    assert await theirs.take("waves", "two", seen=first) is None  # it moved meanwhile
    seen = await theirs.read("waves")
    assert seen == beaten
    second = await theirs.take("waves", "two", seen=seen)
    assert second == Lease(name="waves", holder="two", token=2, beat=0)
    assert await mine.beat(beaten) is None
    assert not await mine.release(beaten)
    assert await theirs.release(second)
    assert await theirs.beat(second) is None
    free = await mine.read("waves")
    assert free == Lease(name="waves", holder=None, token=2, beat=0)
    third = await mine.take("waves", "one", seen=free)
    assert third == Lease(name="waves", holder="one", token=3, beat=0)


async def one_challenger_of_many_gets_the_lease(harness: Harness) -> None:
    takes = [
        (harness.storage if index % 2 else harness.another).leases.take("waves", f"h{index}", seen=None)
        for index in range(8)
    ]
    taken = [lease for lease in await asyncio.gather(*takes) if lease is not None]
    assert len(taken) == 1
    assert await harness.storage.leases.read("waves") == taken[0]


async def an_ex_leader_writes_nothing(harness: Harness) -> None:
    waves, leases = harness.storage.waves, harness.storage.leases
    await waves.create(wave(), [])
    old = await leases.take("waves", "one", seen=None)
    assert old is not None
    spawn = WaveChange(wave_id="w1", expected=("pending",), status="running")
    new = await harness.another.leases.take("waves", "two", seen=old)
    assert new is not None
    await refusal(LeaseLost, waves.commit(waves=[spawn], position=POSITION, fence=old))
    assert await waves.running() == []
    assert await waves.engine_position("HUB_TASKS") is None
    await harness.another.waves.commit(waves=[spawn], position=POSITION, fence=await harness.another.leases.beat(new))
    assert await waves.running() == ["w1"]
    back = Position(stream="HUB_TASKS", created=POSITION.created, sequence=1)
    await harness.another.waves.commit(position=back, fence=new)
    assert await waves.engine_position("HUB_TASKS") == back


CASES = [
    a_wave_comes_with_all_its_tasks_or_not_at_all,
    a_decision_is_written_whole,
    a_decision_that_came_too_late_changes_nothing,
    thousands_of_tasks_end_in_one_decision,
    of_two_decisions_about_a_task_one_wins,
    waves_are_seen_by_their_orchestrator_and_workers,
    a_lease_passes_on_when_it_stands_still,
    one_challenger_of_many_gets_the_lease,
    an_ex_leader_writes_nothing,
]
