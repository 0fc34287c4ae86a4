"""Opening: one process an identity, one file an identity, and no file that is not sound."""

import os
import sqlite3
import stat
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.mailbox import (
    ForeignFile,
    IdentityInUse,
    MailboxBusy,
    MailboxDamaged,
    MailboxTooNew,
    MailboxUnavailable,
    Task,
    Verdict,
    opener,
    schema,
)
from hub.mailbox.file_names import database_file, file_stem
from hub.mailbox.opener import set_aside_files
from hub.protocol import BadName
from tests.support.mailboxes import WORKER, Mailboxes, dm

identities = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=64)


@given(identities, identities)
def test_two_identities_never_share_a_file_on_a_disk_that_ignores_case(one: str, other: str) -> None:
    assert (file_stem(one).casefold() == file_stem(other).casefold()) == (one == other)


@given(identities)
def test_an_identity_s_file_name_is_plain_and_short(identity: str) -> None:
    assert len(file_stem(identity)) < 150
    assert set(file_stem(identity)) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-+")


@pytest.mark.parametrize("identity", ["", "a/b", "..", "a b", "billing.v2", "a*", ">", "é", "x" * 65, "a\0"])
async def test_what_is_no_identity_names_no_file(mailboxes: Mailboxes, identity: str) -> None:
    with pytest.raises(BadName, match="expected 1 to 64 characters"):
        await mailboxes.open(identity)
    assert not mailboxes.folder.exists()


async def test_bob_and_capital_bob_have_a_mailbox_each(mailboxes: Mailboxes) -> None:
    small, capital = await mailboxes.open("bob"), await mailboxes.open("Bob")
    await small.accept(dm(id="t1"), Task())
    assert await capital.turns.claim() == []
    assert {path.name for path in mailboxes.folder.glob("*.db")} == {"mailbox-bob.db", "mailbox-+bob.db"}


async def test_a_mailbox_is_readable_by_its_owner_only(mailboxes: Mailboxes) -> None:
    await mailboxes.open()
    assert stat.S_IMODE(mailboxes.folder.stat().st_mode) == 0o700
    for path in mailboxes.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


async def test_a_second_opening_is_refused_naming_the_first_one_s_pid(mailboxes: Mailboxes) -> None:
    first = await mailboxes.open()
    with pytest.raises(IdentityInUse, match=f"process {os.getpid()} on this machine") as caught:
        await mailboxes.open()
    assert caught.value.pid == os.getpid()
    await first.close()
    await mailboxes.open()


async def test_a_newer_file_is_refused_and_left_alone(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.close()
    with sqlite3.connect(mailbox.path) as db:
        db.execute("PRAGMA user_version = 99")
    before = mailbox.path.read_bytes()
    with pytest.raises(MailboxTooNew, match=f"schema version 99, this program knows versions up to {schema.VERSION}"):
        await mailboxes.open()
    with pytest.raises(MailboxTooNew):
        await mailboxes.open(fresh=True)
    assert mailbox.path.read_bytes() == before


async def test_a_foreign_sqlite_file_is_refused_and_left_alone(mailboxes: Mailboxes) -> None:
    mailboxes.folder.mkdir()
    path = database_file(mailboxes.folder, WORKER)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (value)")
    with pytest.raises(ForeignFile):
        await mailboxes.open(fresh=True)
    assert path.exists()


def garbage(path: Path) -> None:
    path.write_bytes(b"this was a mailbox once. " * 400)


def cut_to_nothing(path: Path) -> None:
    path.write_bytes(b"")


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def scribble(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(path.stat().st_size - 8192))


@pytest.mark.parametrize("damage", [garbage, cut_to_nothing, cut_in_half, scribble])
async def test_a_damaged_file_is_set_aside_and_the_mailbox_waits_for_the_word(
    mailboxes: Mailboxes, damage: object, capsys: pytest.CaptureFixture[str]
) -> None:
    mailbox = await mailboxes.open()
    for number in range(100):
        await mailbox.accept(dm(id=f"t{number}"), Task())
    await mailbox.close()
    damage(mailbox.path)  # type: ignore[operator]
    content = mailbox.path.read_bytes()

    with pytest.raises(MailboxDamaged, match="start once with a fresh mailbox") as caught:
        await mailboxes.open()
    kept = caught.value.set_aside
    assert kept is not None
    assert kept.read_bytes() == content
    assert kept.name.startswith("mailbox-worker-1.damaged-2")
    assert str(kept) in str(caught.value)
    assert "mailbox_set_aside" in capsys.readouterr().out

    # Also at the next start, when there is nothing to be seen of the damage any more.
    with pytest.raises(MailboxDamaged) as caught:
        await mailboxes.open()
    assert caught.value.set_aside == kept
    mailbox = await mailboxes.open(fresh=True)
    assert (await mailbox.accept(dm(id="t1"), Task())).verdict is Verdict.NEW
    await mailbox.close()
    # The word is needed once, and never costs a sound mailbox.
    mailbox = await mailboxes.open()
    mailbox = await mailboxes.restart(mailbox, fresh=True)
    assert (await mailbox.accept(dm(id="t1"), Task())).verdict is Verdict.REPEAT
    assert set_aside_files(mailbox.path) == [kept]
    assert kept.read_bytes() == content


async def test_a_log_without_its_file_is_a_damaged_mailbox_and_kept(mailboxes: Mailboxes) -> None:
    mailboxes.folder.mkdir()
    log = database_file(mailboxes.folder, WORKER).with_name("mailbox-worker-1.db-wal")
    log.write_bytes(b"frames")
    for _ in range(2):
        with pytest.raises(MailboxDamaged):
            await mailboxes.open()
    await mailboxes.open(fresh=True)
    (kept,) = mailboxes.folder.glob("mailbox-worker-1.damaged-*.db-wal")
    assert kept.read_bytes() == b"frames"


async def test_a_start_that_died_while_it_made_the_file_leaves_nothing_in_the_way(mailboxes: Mailboxes) -> None:
    mailboxes.folder.mkdir()
    for ending in (".db.new", ".db.new-journal"):
        (mailboxes.folder / f"mailbox-worker-1{ending}").write_bytes(b"half")
    await mailboxes.open()
    assert not list(mailboxes.folder.glob("*.new*"))


async def test_damage_that_is_met_at_work_ends_the_mailbox_and_is_set_aside_at_the_close(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.accept(dm(), Task())

    def meet_damage(_tx: object) -> None:
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    with pytest.raises(MailboxDamaged):
        await mailbox._writer.submit(meet_damage)
    with pytest.raises(MailboxDamaged):
        await mailbox.failed
    with pytest.raises(MailboxDamaged):
        await mailbox.accept(dm(), Task())
    await mailbox.close()
    assert len(set_aside_files(mailbox.path)) == 1
    with pytest.raises(MailboxDamaged):
        await mailboxes.open()


async def test_a_place_where_no_folder_can_be_is_reported_as_unavailable(mailboxes: Mailboxes) -> None:
    mailboxes.folder.write_text("a file")
    with pytest.raises(MailboxUnavailable, match="cannot be opened now"):
        await mailboxes.open()
    mailboxes.folder.unlink()
    await mailboxes.open()


async def test_a_file_that_is_locked_at_the_opening_is_reported_and_opens_later(
    mailboxes: Mailboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "BUSY_TIMEOUT_MS", 50)
    mailbox = await mailboxes.open()
    await mailbox.close()
    shell = sqlite3.connect(mailbox.path, isolation_level=None)
    shell.execute("PRAGMA locking_mode = EXCLUSIVE")
    shell.execute("BEGIN EXCLUSIVE")
    with pytest.raises(MailboxBusy):
        await mailboxes.open()
    shell.close()
    await mailboxes.open()


def test_each_migration_is_applied_with_its_number_or_not_at_all() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    steps = ("CREATE TABLE one (x);", "CREATE TABLE two (x); INSERT INTO two VALUES (1);")
    assert schema.migrate(db, steps) == [1, 2]
    with pytest.raises(sqlite3.OperationalError):
        schema.migrate(db, (*steps, "CREATE TABLE three (x); CREATE TABLE one (x);"))
    assert schema.version_of(db) == 2
    assert schema.migrate(db, (*steps, "CREATE TABLE three (x);")) == [3]
    assert schema.migrate(db, (*steps, "CREATE TABLE three (x);")) == []
    db.close()


async def test_closing_twice_is_fine_and_frees_the_identity(mailboxes: Mailboxes) -> None:
    mailbox = await mailboxes.open()
    await mailbox.close()
    await mailbox.close()
    await mailboxes.open()
