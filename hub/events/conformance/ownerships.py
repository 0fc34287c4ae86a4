"""Cases about owners."""

from itertools import permutations

from hub.events.base import EventRead
from hub.events.conformance.world import Case, Run, World, refused
from hub.events.records import Ownership


def _owners(world: World) -> list[Ownership]:
    """Owners that differ in one thing, among them the same texts in other places."""
    one, two = world.owner().tenant_id, world.owner().tenant_id
    return [
        Ownership(tenant_id=one),
        Ownership(tenant_id=two),
        Ownership(tenant_id=one, account_id="a"),
        Ownership(tenant_id=one, user_id="a"),
        Ownership(tenant_id=one, account_id="a", user_id="a"),
        Ownership(tenant_id=one, account_id="b"),
        Ownership(tenant_id=one, account_id="A"),
    ]


async def owners_that_use_the_same_ids_stay_apart(world: World) -> None:
    source = world.source()
    runs = [world.run(source, owner) for owner in _owners(world)]
    for number, run in enumerate(runs):
        stored = await run.append("same", metadata={"of": number})
        assert stored.sequence == 1, "counters are not shared"
    for number, run in enumerate(runs):
        assert [record.metadata for record in await run.records()] == [{"of": number}]


async def a_foreign_read_finds_nothing(world: World) -> None:
    source = world.source()
    mine, *others = _owners(world)
    await world.run(source, mine).fill(2)
    for other in others:
        foreign = world.run(source, other)
        assert (await foreign.page()).events == ()
        async with source.subscribe(foreign.read()) as events:
            del events  # entering is enough: it neither fails nor says that there is anything


async def a_foreign_cursor_is_refused_without_naming_anybody(world: World) -> None:
    source = world.source()
    runs = [world.run(source, owner) for owner in _owners(world)]
    cursors = []
    for run in runs:
        await run.fill(1)
        cursors.append((await run.page()).events[0].cursor)
    for (mine, _), (other, cursor) in permutations(zip(runs, cursors, strict=True), 2):
        async with refused("CURSOR") as refusal:
            await mine.page(cursor)
        assert other.ownership.tenant_id not in str(refusal.error)
        async with refused("CURSOR"):
            await mine.take(1, cursor)


async def ids_that_look_alike_to_a_backend_stay_apart(world: World) -> None:
    source = world.source()
    tenant = world.owner().tenant_id
    odd = [
        "a",
        "A",
        "a.b",
        "a b",
        "a*",
        "*",
        ">",
        "a/b",
        "é",
        "e\u0301",
        "=YQ",
        "YQ",
        "a~b",
        "%61",
        "a\nb",
        "$JS",
        "'",
        "x" * 256,
    ]
    runs: list[Run] = []
    for name in odd:
        runs.append(world.run(source, Ownership(tenant_id=tenant), session_id=name))
        runs.append(world.run(source, Ownership(tenant_id=tenant), run_id=name))
        runs.append(world.run(source, Ownership(tenant_id=f"{tenant}{name}"[:256])))
    runs.append(world.run(source, Ownership(tenant_id=tenant), session_id="a.b", run_id="c"))
    runs.append(world.run(source, Ownership(tenant_id=tenant), session_id="a", run_id="b.c"))
    for number, run in enumerate(runs):
        assert (await run.append(f"id {number} é")).sequence == 1
    for number, run in enumerate(runs):
        assert await run.ids() == [f"id {number} é"]


async def a_read_that_names_no_run_is_refused(world: World) -> None:
    source = world.source()
    for changes in ({"session_id": ""}, {"run_id": "a\0"}, {"ownership": Ownership(tenant_id="")}, {"run_id": None}):
        members = {"ownership": world.owner(), "session_id": "s", "run_id": "r", **changes}
        async with refused("INPUT"):
            await source.page(EventRead(**members))  # type: ignore[arg-type]


CASES: tuple[Case, ...] = (
    owners_that_use_the_same_ids_stay_apart,
    a_foreign_read_finds_nothing,
    a_foreign_cursor_is_refused_without_naming_anybody,
    ids_that_look_alike_to_a_backend_stay_apart,
    a_read_that_names_no_run_is_refused,
)
