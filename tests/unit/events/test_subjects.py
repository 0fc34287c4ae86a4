"""Subjects: safe and injective."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.events.errors import InvalidInputError
from hub.events.jetstream.provisioning import covers
from hub.events.jetstream.subjects import Subjects, check_stream_name, message_id, token
from hub.events.records import Ownership, RunKey

ids = st.text("aA0.-_~=*> é\U0001f600\n", min_size=1, max_size=12) | st.sampled_from(
    ["=YQ", "YQ", "a", "a.b", "a~b", "*", ">", "$JS"]
)
owners = st.builds(Ownership, tenant_id=ids, account_id=st.none() | ids, user_id=st.none() | ids)
runs = st.builds(RunKey, owners, ids, ids)


@given(ids)
def test_a_token_is_safe_in_a_subject(text: str) -> None:
    assert re.fullmatch(r"=?[A-Za-z0-9_-]+", token(text))


@given(ids, ids)
def test_two_ids_never_share_a_token(one: str, other: str) -> None:
    assert (token(one) == token(other)) == (one == other)


@given(runs, runs)
def test_two_runs_never_share_a_subject_or_a_message_id(one: RunKey, other: RunKey) -> None:
    subjects = Subjects("p.q")
    assert (subjects.run(one) == subjects.run(other)) == (one == other)
    assert (message_id(one, "e") == message_id(other, "e")) == (one == other)
    assert covers(subjects.all, subjects.run(one))
    assert covers(subjects.tenant(one.ownership), subjects.run(one))


@given(runs)
def test_a_subject_has_four_parts_behind_the_prefix_less_one(run: RunKey) -> None:
    assert len(Subjects("p.q").run(run).split(".")) == 5


@pytest.mark.parametrize("prefix", ["", ".", "a.", ".a", "a..b", "a b", "a.*", ">", "é", "x" * 257, None])
def test_a_prefix_that_is_no_plain_subject_is_refused(prefix: object) -> None:
    with pytest.raises(InvalidInputError, match="prefix"):
        Subjects(prefix)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", "x" * 256, "a\r\nPUB evil 0\r\n", None])
def test_a_stream_name_that_is_unsafe_in_api_subjects_is_refused(name: object) -> None:
    with pytest.raises(InvalidInputError, match="stream"):
        check_stream_name(name)


@pytest.mark.parametrize(
    ("pattern", "subject", "wanted"),
    [
        ("p.>", "p.>", True),
        (">", "p.q.>", True),
        ("p.>", "p.q.>", True),
        ("*.q.>", "p.q.>", True),
        ("p.q.*", "p.q.>", False),
        ("p.q.*.*.*", "p.q.>", False),
        ("p.q", "p.q.>", False),
        ("p.q.r.>", "p.q.>", False),
        ("x.>", "p.q.>", False),
        ("p.q.*.*", "p.q.a.b", True),
        ("p.q.*", "p.q.a.b", False),
        ("p.q.>", "p.q", False),
    ],
)
def test_covers(pattern: str, subject: str, wanted: bool) -> None:
    assert covers(pattern, subject) is wanted
