"""docs/protocol.md says what the code does."""

import json
import re
from typing import get_args

import pytest

from hub.protocol import make, names, parse, payload, results, subjects
from hub.protocol.envelope import KINDS
from hub.service.exits import Exit
from tests.support.documents import section, table, words

PAGE = "protocol.md"


def json_blocks(heading: str) -> list[object]:
    return [json.loads(block) for block in re.findall(r"```json\n(.*?)```", section(PAGE, heading), re.DOTALL)]


def test_the_example_is_what_the_library_makes() -> None:
    [example] = json_blocks("1. Envelope")
    found = parse(json.dumps(example).encode())
    meta = found.meta
    made = make(
        sender=meta.sender,
        channel=meta.channel,
        to=meta.to,
        id=meta.id,
        timestamp=meta.timestamp,
        payload=results.task_payload("say hello", meta.id),
    )
    assert json.loads(made.body) == example


def test_the_members_of_meta_are_those_that_are_written() -> None:
    rows = table(PAGE, "1. Envelope")
    listed = [words(row[0])[0] for row in rows]
    written = json.loads(make(sender="a", channel="c").body)
    assert sorted(listed) == sorted([*(f"meta.{name}" for name in written["meta"]), "payload"])


def test_the_kinds_are_those_of_the_code() -> None:
    assert tuple(words(section(PAGE, "Kinds"))) == KINDS


def test_the_result_codes_and_statuses_are_those_of_the_code() -> None:
    assert [words(row[0])[0] for row in table(PAGE, "Result codes")] == list(get_args(results.ErrorCode))
    by_member = {words(row[0])[0]: row[1] for row in table(PAGE, "Result")}
    assert set(words(by_member["status"])) == results.TERMINAL_STATUSES
    status_line = next(line for line in section(PAGE, "Progress").split("\n- ") if line.startswith("kind `status`"))
    assert set(words(status_line)) - {"status", '{"status": s}'} == results.PROGRESS_STATUSES
    assert tuple(words(section(PAGE, "Delegate").partition("text may stand")[2]))[:4] == results.TEXT_MEMBERS


def test_the_exit_codes_are_those_of_the_code() -> None:
    assert [int(row[0]) for row in table(PAGE, "11. Exit codes")] == sorted(Exit)


def test_the_subjects_are_those_that_are_built() -> None:
    listed = {word for row in table(PAGE, "2. Subjects") for word in words(row[1])}
    built = {
        subjects.publish("<id>", "<channel>"),
        subjects.register("<id>"),
        subjects.presence("<id>"),
        subjects.api("<id>", "<op>"),
        subjects.attach("<id>"),
        subjects.inbox("<id>"),
        subjects.channel("task.<id>"),
        subjects.channel("session.<id>"),
        subjects.TASKS_ALL[2],
        subjects.channel("<name>"),
    }
    assert listed == built


def test_the_streams_capture_what_the_code_calls_stored() -> None:
    captured = {words(row[0])[0]: tuple(words(row[1])) for row in table(PAGE, "4. Streams")}
    assert captured == {
        "HUB_INGRESS": (subjects.INGRESS_ALL,),
        "HUB_INBOX": (subjects.INBOX_ALL,),
        "HUB_TASKS": subjects.TASKS_ALL,
    }


def test_the_stream_table_and_the_configuration_agree() -> None:
    [config] = json_blocks("Delivery configuration")
    assert isinstance(config, dict)
    by_name = {part["name"]: part for part in (config["ingress"], config["inbox"], config["tasks"])}
    for name, _subjects, _retention, age, per_subject in table(PAGE, "4. Streams"):
        part = by_name[words(name)[0]]
        assert part["max_age_secs"] == int(age)
        assert part.get("max_msgs_per_subject", "unlimited") == (
            int(per_subject) if per_subject.isdigit() else per_subject
        )


def test_the_channel_forms_and_limits_are_those_of_the_code() -> None:
    forms = words(section(PAGE, "Names").partition("captures it:")[2].partition("Any other")[0])
    assert forms == ["task.<id>", "session.<id>", "wave.<wave_id>", "wave.<wave_id>.task.<task_id>"]
    for form in forms:
        names.channel(re.sub(r"<\w+>", "x", form))
    page = " ".join(section(PAGE, "1. Envelope").split())
    assert f"1 to {names.MAX_CHANNEL_TOKENS} tokens" in page
    assert f"1 to {names.MAX_MESSAGE_ID_BYTES} of the characters" in page
    assert f"more than {payload.MAX_DEPTH} levels" in page
    assert f"more than {payload.MOST_VALUES:_} values".replace("_", " ") in page
    assert names.HUB_IDENTITY in page


@pytest.mark.parametrize("heading", [f"{number}. " for number in range(1, 14)])
def test_each_section_that_the_code_refers_to_is_there(heading: str) -> None:
    assert section(PAGE, heading).strip()
