"""Cases about cursors and trimmed history."""

import base64

from hub.events.conformance.world import SECRET, Case, World, refused
from hub.events.errors import RetentionExceededError

OLD, CUT, NEW = "2020-01-01T00:00:00.000Z", "2021-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z"


async def every_single_bit_flip_of_a_cursor_is_refused(world: World) -> None:
    run = world.run()
    await run.fill(2)
    cursor = (await run.page()).events[0].cursor
    assert len((await run.page(cursor)).events) == 1
    raw = cursor.encode()
    for index in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[index] ^= 1 << bit
            async with refused("CURSOR"):
                await run.page(changed.decode("latin-1"))


async def what_is_not_a_cursor_is_refused(world: World) -> None:
    run = world.run()
    await run.fill(1)
    cursor = (await run.page()).events[0].cursor
    body, signature = cursor.split(".")
    for wrong in (
        "",
        ".",
        body,
        f"{body}.",
        f".{signature}",
        f"{body}.{body}",
        f"{cursor}=",
        f" {cursor}",
        f"{cursor}\n",
        f"{cursor}.{signature}",
        "x" * 100_000,
        f"{signature}.{body}",
        7,
        b"x",
        cursor.encode(),
    ):
        async with refused("CURSOR"):
            await run.page(wrong)  # type: ignore[arg-type]


async def a_cursor_of_another_run_or_secret_is_refused(world: World) -> None:
    source = world.source()
    owner = world.owner()
    run = world.run(source, owner)
    await run.fill(2)
    cursor = (await run.page()).events[0].cursor
    for other in (world.run(source, owner, run_id="other"), world.run(source, owner, session_id="other")):
        async with refused("CURSOR"):
            await other.page(cursor)
    async with refused("CURSOR"):
        await run.on(world.source(cursor_secret=b"y" * 32)).page(cursor)


async def secrets_rotate_without_breaking_cursors(world: World) -> None:
    new = b"another secret of 32 bytes......"
    run = world.run(world.source(cursor_secret={"2025": SECRET}))
    await run.fill(3)
    old_cursor = (await run.page()).events[0].cursor
    rotated = run.on(world.source(cursor_secret={"2026": new, "2025": SECRET}))
    page = await rotated.page(old_cursor)
    assert [record.id for record in page.records] == ["e2", "e3"]
    assert len((await run.on(world.source(cursor_secret=[new])).page(page.events[0].cursor)).events) == 1
    async with refused("CURSOR"):
        await run.page(page.events[0].cursor)


async def nothing_of_an_owner_can_be_read_from_a_cursor(world: World) -> None:
    owner = world.owner("account-of-somebody", "user-of-somebody")
    run = world.run(None, owner, session_id="session-of-somebody")
    await run.fill(1)
    for part in (await run.page()).events[0].cursor.split("."):
        raw = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        for secret in (owner.tenant_id, "of-somebody"):
            assert secret.encode() not in raw


async def a_cursor_outlives_the_record_that_it_names(world: World) -> None:
    run = world.run()
    await run.fill(3, timestamp=OLD)
    await run.fill(3, start=4, timestamp=NEW)
    cursors = [envelope.cursor for envelope in (await run.page()).events]
    await run.source.cleanup(ownership=run.ownership, before=CUT)
    page = await run.page()
    assert [record.id for record in page.records] == ["e4", "e5", "e6"]
    assert page.first_sequence == 4
    assert page.truncated
    assert [record.id for record in (await run.page(cursors[2])).records] == ["e4", "e5", "e6"]
    assert (await run.page(cursors[3])).truncated
    assert [envelope.record.id for envelope in await run.take(3, cursors[2])] == ["e4", "e5", "e6"]


async def an_event_that_is_gone_before_it_was_delivered_is_told(world: World) -> None:
    run = world.run()
    await run.fill(3, timestamp=OLD)
    await run.fill(2, start=4, timestamp=NEW)
    cursor = (await run.page()).events[0].cursor
    async with run.source.subscribe(run.read(cursor)) as slow:
        await run.source.cleanup(ownership=run.ownership, before=CUT)
        async with refused("RETENTION"):
            await anext(slow)
    for attempt in (run.page(cursor), run.take(1, cursor)):
        async with refused("RETENTION") as refusal:
            await attempt
        assert isinstance(refusal.error, RetentionExceededError)
        assert refusal.error.earliest_cursor is not None
        page = await run.page(refusal.error.earliest_cursor)
        assert [record.id for record in page.records] == ["e4", "e5"]


CASES: tuple[Case, ...] = (
    every_single_bit_flip_of_a_cursor_is_refused,
    what_is_not_a_cursor_is_refused,
    a_cursor_of_another_run_or_secret_is_refused,
    secrets_rotate_without_breaking_cursors,
    nothing_of_an_owner_can_be_read_from_a_cursor,
    a_cursor_outlives_the_record_that_it_names,
    an_event_that_is_gone_before_it_was_delivered_is_told,
)
