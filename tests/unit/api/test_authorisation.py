"""The rules as pure code: exhaustively over operations, callers and whom they ask about."""

import re
from pathlib import Path

import pytest

from hub.api.authorisation import RULES, Caller, Rule, caller_of, require_about, require_allowed, require_owner
from hub.api.errors import Forbidden
from hub.api.operations import OPERATIONS
from hub.protocol import BadName
from tests.support.documents import DOCS

ALICE = Caller("alice")
ADMIN = Caller("ops", is_admin=True)
NOBODYS = Caller("carol")


def is_refused(check: object, *arguments: object) -> bool:
    try:
        check(*arguments)  # type: ignore[operator]
    except Forbidden:
        return True
    return False


def test_every_operation_has_a_rule_and_every_rule_an_operation() -> None:
    assert set(RULES) == set(OPERATIONS)
    assert all(name == operation.name for name, operation in OPERATIONS.items())


def test_the_contract_lists_the_operations_that_there_are() -> None:
    page = Path(DOCS / "protocol.md").read_text()
    table = page.partition("### 10.1 Operations")[2].partition("### 10.2")[0]
    listed = {
        name for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for name in re.findall(r"`([a-z_.]+)`", row)
    }
    assert listed == set(RULES)


@pytest.mark.parametrize("op", RULES)
def test_only_admins_pass_what_is_for_admins(op: str) -> None:
    assert is_refused(require_allowed, op, ALICE) == (RULES[op] is Rule.ADMIN)
    assert not is_refused(require_allowed, op, ADMIN)


@pytest.mark.parametrize("op", RULES)
def test_only_admins_ask_about_others_where_one_may_ask_about_oneself(op: str) -> None:
    assert is_refused(require_about, op, NOBODYS, "alice") == (RULES[op] is Rule.SELF)
    assert not is_refused(require_about, op, ALICE, "alice")
    assert not is_refused(require_about, op, ADMIN, "alice")


@pytest.mark.parametrize("op", RULES)
def test_only_owners_and_admins_act_where_owning_is_asked_for(op: str) -> None:
    assert is_refused(require_owner, op, NOBODYS, "alice", "wave w") == (RULES[op] is Rule.OWNER)
    assert not is_refused(require_owner, op, ALICE, "alice", "wave w")
    assert not is_refused(require_owner, op, ADMIN, "alice", "wave w")


def test_operations_that_change_something_are_audited_and_those_that_read_are_not() -> None:
    changing = {
        "session.create", "session.update_status", "session.set_backend_ctx",
        "wave.create", "wave.spawn", "wave.cancel", "task.cancel", "dead.replay",
    }  # fmt: skip
    assert {name for name, operation in OPERATIONS.items() if operation.audited is not None} == changing


def test_storage_filters_for_everybody_but_admins() -> None:
    assert (ALICE.sees, ADMIN.sees) == ("alice", None)


def test_an_owner_is_the_caller_whatever_is_named_unless_an_admin_names_another() -> None:
    assert [ALICE.owner(None), ALICE.owner("bob"), ADMIN.owner(None), ADMIN.owner("bob")] == [
        "alice", "alice", "ops", "bob",
    ]  # fmt: skip


@pytest.mark.parametrize("identity", ["", "a b", "*", ">", "a" * 65, "é", "a.b"])
def test_what_is_no_identity_is_no_caller(identity: str) -> None:
    with pytest.raises(BadName):
        caller_of(identity, frozenset())


def test_the_hubs_own_voice_is_no_caller_not_even_as_an_admin() -> None:
    with pytest.raises(Forbidden):
        caller_of("hub-orchestrator", frozenset({"hub-orchestrator"}))
