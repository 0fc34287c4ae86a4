"""Every setting of a stream that does not fit is named."""

import pytest

from hub.events.jetstream.provisioning import problems, stream_config
from hub.events.jetstream.subjects import Subjects
from hub.events.limits import Limits

SUBJECTS = Subjects("p")
FITS = stream_config("s", SUBJECTS)


def check(changes: dict[str, object], *, max_payload: int = 8_000_000, cleanup: bool = True) -> list[str]:
    return problems({"config": {**FITS, **changes}}, SUBJECTS, Limits(), max_payload=max_payload, cleanup=cleanup)


def test_the_config_that_ensure_stream_makes_fits() -> None:
    assert check({}) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"subjects": ["q.>"]}, "subjects"),
        ({"subjects": ["p.*"]}, "subjects"),
        ({"subjects": None}, "subjects"),
        ({"retention": "workqueue"}, "retention"),
        ({"retention": "interest"}, "retention"),
        ({"deny_delete": True}, "deny_delete"),
        ({"max_msg_size": 60_000}, "max_msg_size"),
        ({"duplicate_window": int(5e9)}, "duplicate_window"),
        ({"duplicate_window": 0}, "duplicate_window"),
        ({"max_msgs": 1000, "discard": "old"}, "max_msgs"),
        ({"max_bytes": 1000, "discard": "old"}, "max_bytes"),
        ({"sealed": True}, "sealed"),
        ({"no_ack": True}, "no_ack"),
        ({"mirror": {"name": "x"}}, "mirror"),
        ({"subject_transform": {"src": "p.>", "dest": "q.>"}}, "subject_transform"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, object], named: str) -> None:
    (problem,) = check(changes)
    assert problem.startswith(named)


def test_all_problems_are_named_at_once() -> None:
    assert len(check({"retention": "interest", "subjects": ["q"], "deny_delete": True}, max_payload=1000)) == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"subjects": ["x", "p.>"]},
        {"subjects": [">"]},
        {"max_msgs": 1000, "discard": "new"},
        {"max_msgs_per_subject": 10, "discard": "old"},
        {"max_age": int(1e9)},
        {"storage": "memory", "num_replicas": 3, "allow_direct": False},
    ],
)
def test_what_is_the_hosts_choice_is_accepted(changes: dict[str, object]) -> None:
    assert check(changes) == []


def test_deletes_are_only_needed_for_cleanup() -> None:
    assert check({"deny_delete": True}, cleanup=False) == []
