"""Envelopes: what is made is parsed again, what is no envelope is refused by name, and nothing crashes the codec."""

import json
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hub.protocol import BadEnvelope, BadName, BadPayload, Envelope, Meta, format_time, make, names, parse, stamp
from tests.unit.protocol import reference
from tests.unit.protocol.json_texts import envelope_texts, mutations

# Generated texts are slow to draw, and the machine may be busy; neither is a finding.
thorough = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

HEAD = {
    "id": '"m-1"',
    "from": '"alice"',
    "channel": '"chat"',
    "timestamp": '"2026-11-30T19:25:20Z"',
    "kind": '"message"',
}


def text_of(members: dict[str, str] | list[tuple[str, str]]) -> str:
    pairs = members.items() if isinstance(members, dict) else members
    return "{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}"


def envelope_text(payload: str | None = "1", *, outer: str = "", inner: str = "", **head: str | None) -> bytes:
    """An envelope; `head` replaces members of `meta` (None: left out), `outer` and `inner` are added as texts."""
    meta = {name: value for name, value in {**HEAD, **head}.items() if value is not None}
    meta_text = text_of(meta)[:-1] + inner + "}"
    return f'{{"meta":{meta_text}{"" if payload is None else f",{chr(34)}payload{chr(34)}:{payload}"}{outer}}}'.encode()


def refusal(body: bytes) -> BadEnvelope:
    with pytest.raises(BadEnvelope) as caught:
        parse(body)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()
    return caught.value


# --- agreement with the reference


def check_against_reference(body: bytes) -> None:
    try:
        expected = reference.parse(body)
    except reference.Undecodable:
        with pytest.raises(BadEnvelope):
            parse(body)
        return
    found = parse(body)
    assert found.body == body
    assert found.payload_json == expected.payload_json
    meta = found.meta
    assert meta.id == expected.id
    # A lone surrogate in a name stands as U+FFFD.
    assert meta.sender == reference.as_compared(expected.sender)
    assert meta.channel == reference.as_compared(expected.channel)
    assert meta.to == (None if expected.to is None else reference.as_compared(expected.to))
    assert meta.reply_to == (None if expected.reply_to is None else reference.as_compared(expected.reply_to))
    assert meta.kind == expected.kind
    assert meta.timestamp == expected.timestamp
    assert meta.timestamp.utcoffset() == expected.timestamp.utcoffset()
    stamped = stamp(found, "mallory", "task.x")
    assert stamped.body == reference.stamp(expected, "mallory", "task.x")
    assert stamped.payload_json == expected.payload_json
    again = parse(stamped.body)
    assert (again.meta, again.payload_json) == (stamped.meta, stamped.payload_json)


@thorough
@given(envelope_texts())
def test_parse_and_stamp_agree_with_the_reference_on_any_spelling(body: bytes) -> None:
    check_against_reference(body)


@thorough
@given(envelope_texts(broken=False))
def test_any_spelling_of_a_right_envelope_is_read_as_the_reference_reads_it(body: bytes) -> None:
    check_against_reference(body)


@settings(thorough, max_examples=300)
@given(mutations())
def test_parse_agrees_with_the_reference_on_damaged_envelopes(body: bytes) -> None:
    check_against_reference(body)


@settings(thorough, max_examples=120)
@given(
    st.binary(max_size=60)
    | st.text(alphabet='{}[]",:\\ut0aé\ud800 ', max_size=40).map(lambda t: t.encode(errors="surrogatepass"))
)
@example(b"")
@example(b"\xff\xfe{\x00}\x00")
@example('{"meta":1}'.encode("utf-16"))
@example(b"[" * 100_000)
@example(b'{"meta":' * 100_000)
@example(b'{"meta":"' + b'\\"' * 100_000)
def test_no_bytes_crash_parse(body: bytes) -> None:
    check_against_reference(body)


@pytest.mark.soak
@settings(thorough, max_examples=3_000)
@given(envelope_texts() | mutations())
def test_parse_and_stamp_agree_with_the_reference_at_length(body: bytes) -> None:
    check_against_reference(body)


# --- round trip

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4).filter(str.isprintable), inner, max_size=4)
    ),
    max_leaves=10,
)
tokens = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
ids = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=128)


@thorough
@given(
    sender=tokens,
    channel=tokens.filter(lambda token: token not in {"task", "session", "wave", "inbox"}),
    payload=json_values,
    to=st.none() | tokens,
    kind=st.sampled_from(["message", "control", "human", "status", "event"]),
    reply_to=st.none() | ids,
    id=ids,
    timestamp=st.datetimes(
        min_value=datetime(1, 1, 3),  # noqa: DTZ001 - Hypothesis wants it so
        max_value=datetime(9999, 12, 29),  # noqa: DTZ001
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))]),
    ),
)
def test_what_is_made_is_parsed_again(**fields: Any) -> None:
    made = make(**fields)
    parsed = parse(made.body)
    assert parsed == made
    assert parsed.payload == fields["payload"]
    for name in ("sender", "channel", "to", "kind", "reply_to", "id", "timestamp"):
        assert getattr(parsed.meta, name) == fields[name]
    wire = json.loads(made.body)
    assert list(wire) == ["meta", "payload"]
    assert list(wire["meta"]) == ["id", "from", "channel", "to", "timestamp", "kind", "reply_to"]
    assert wire["meta"]["timestamp"] == format_time(fields["timestamp"])
    assert stamp(made, fields["sender"], fields["channel"]) is made


def test_what_is_not_given_is_written_as_the_contract_says() -> None:
    before = datetime.now(UTC)
    meta = json.loads(make(sender="a", channel="c").body)["meta"]
    assert meta["to"] is None
    assert meta["reply_to"] is None
    assert meta["kind"] == "message"
    assert before <= datetime.fromisoformat(meta["timestamp"]) <= datetime.now(UTC)
    assert len(meta["id"]) == 36
    assert json.loads(make(sender="a", channel="c").body)["payload"] is None


def test_a_head_is_never_changed_and_knows_absence_only_as_none() -> None:
    parsed = parse(envelope_text())
    assert parsed.meta.to is None
    assert parsed.meta.reply_to is None
    assert Meta("i", "a", "c", datetime.now(UTC), "message").to is None
    with pytest.raises(AttributeError):
        parsed.meta.sender = "mallory"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        parsed.body = b""  # type: ignore[misc]


# --- the head


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        *[({name: None}, "$.meta") for name in HEAD],
        *[({name: bad}, f"$.meta.{name}") for name in HEAD for bad in ("null", "5", "[]", "{}", "true")],
        *[({name: bad}, f"$.meta.{name}") for name in ("to", "reply_to") for bad in ("5", "[]", "{}", "false")],
        *[({"kind": f'"{bad}"'}, "$.meta.kind") for bad in ("", "Message", "messages", "task", "\\u0000", "é")],
        ({"kind": '"x - at `$.payload`"'}, "$.meta.kind"),
        ({"kind": '"a\\nforged log line"'}, "$.meta.kind"),
        ({"kind": f'"{"x" * 1_000_000}"'}, "$.meta.kind"),
        ({"timestamp": f'"{"9" * 1_000_000}"'}, "$.meta.timestamp"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_head_is_refused_with_the_path(changes: dict[str, str | None], path: str) -> None:
    assert refusal(envelope_text(**changes)).path == path


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"", "$"),
        (b" ", "$"),
        (b"null", "$"),
        (b"[]", "$"),
        (b'"x"', "$"),
        (b"{}", "$"),
        (b'{"meta":null}', "$.meta"),
        (b'{"meta":[]}', "$.meta"),
        (b'{"payload":1}', "$"),
        (envelope_text() + b"x", "$"),
        (envelope_text() + b"\x00", "$"),
        (envelope_text() + envelope_text(), "$"),
        (b"\xef\xbb\xbf" + envelope_text(), "$"),
        (envelope_text().decode().encode("utf-16"), "$"),
        (envelope_text().decode().encode("utf-32"), "$"),
        (b"\x0b" + envelope_text(), "$"),
        (b"\xa0" + envelope_text(), "$"),
        (envelope_text()[:-1], "$"),
        (envelope_text('"\xff"').replace("ÿ".encode(), b"\xff"), "$"),  # not UTF-8, inside the payload
        (envelope_text('"?"').replace(b"?", b"\xed\xa0\x80"), "$"),  # a surrogate in UTF-8
        (envelope_text('"?"').replace(b"?", b"\xc0\x80"), "$"),  # an overlong NUL
        (envelope_text(outer=',"x":"?"').replace(b"?", b"\xff"), "$"),
        (envelope_text(inner=',"x":"?"').replace(b"?", b"\xff"), "$"),
        (envelope_text('{"?":1}').replace(b"?", b"\xff"), "$"),
        *[(envelope_text(bad), "$") for bad in ("NaN", "Infinity", "-Infinity", "nan", "[1,]", '{"a":1,}', "01", "1.")],
        *[(envelope_text(bad), "$") for bad in ("'a'", "+1", ".5", "-", "0x1", "1e", "tru", "trueX", "undefined", "")],
        *[(envelope_text(f'"{bad}"'), "$") for bad in ("\\x", "\\u12", "\\uzzzz", "\\u-123", "\n", "\x00", "\t")],
        *[(envelope_text(f'"{bad}"'), "$") for bad in ("\\ud800\\u12", "\\udc00\\x", "\\ud800\n")],
        (envelope_text("/* c */ 1"), "$"),
        (envelope_text("[" * 100_000 + "]" * 100_000), "$"),
        (envelope_text(outer=',"x":' + "[" * 100_000 + "]" * 100_000), "$"),
        (envelope_text(inner=',"x":' + '{"a":' * 100_000 + "1" + "}" * 100_000), "$"),
    ],
    ids=lambda value: str(value)[-60:],
)
def test_what_is_no_envelope_is_refused(body: bytes, path: str) -> None:
    assert refusal(body).path == path
    with pytest.raises(reference.Undecodable):
        reference.parse(body)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-11-30T19:25:20Z", "2026-11-30T19:25:20.000000Z"),
        ("2026-11-30T19:25:20z", "2026-11-30T19:25:20.000000Z"),
        ("2026-11-30t19:25:20Z", "2026-11-30T19:25:20.000000Z"),
        ("2026-11-30 19:25:20Z", "2026-11-30T19:25:20.000000Z"),
        ("2026-11-30T19:25:20-00:00", "2026-11-30T19:25:20.000000Z"),
        ("2026-11-30T19:25:20+02:00", "2026-11-30T17:25:20.000000Z"),
        ("2026-11-30T19:25:20+0200", "2026-11-30T17:25:20.000000Z"),
        ("2026-12-31T23:59:59-23:59", "2027-01-01T23:58:59.000000Z"),
        ("2026-11-30T19:25:20.1Z", "2026-11-30T19:25:20.100000Z"),
        ("2026-11-30T19:25:20.123456Z", "2026-11-30T19:25:20.123456Z"),
        ("2026-11-30T19:25:20.123456789Z", "2026-11-30T19:25:20.123457Z"),
        ("2026-12-31T23:59:59.9999999Z", "2027-01-01T00:00:00.000000Z"),
        (f"2026-11-30T19:25:20.{'1' * 5000}Z", "2026-11-30T19:25:20.111111Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
        ("0001-01-01T00:00:00-01:00", "0001-01-01T01:00:00.000000Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00.000000Z"),
    ],
    ids=lambda value: value[:40],
)
def test_a_timestamp_is_read_with_any_offset_and_written_in_utc(text: str, utc: str) -> None:
    moment = parse(envelope_text(timestamp=f'"{text}"')).meta.timestamp
    assert moment.tzinfo is not None
    assert format_time(moment) == utc
    assert reference.read_time(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        *("2026-11-30T19:25:20", "2026-11-30", "2026-11-30T19:25Z", "20261130T192520Z", "2026-11-30T19:25:20+02", ""),
        *("2016-12-31T23:59:60Z", "2026-11-30T24:00:00Z", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z"),
        *("0000-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "12026-01-01T00:00:00Z"),
        *("9999-12-31T23:59:59.9999999Z", "2026-11-30T19:25:20,5Z", "2026-11-30T19:25:20.Z", "1796066720"),
        *(
            "2026-11-30T19:25:20+24:00",
            "2026-11-30T19:25:20+02:60",
            "2026-11-30T19:25:20 Z",
            "2026-11-30T19:25:20+2:00",
        ),
        *("\uff12026-11-30T19:25:20Z", "2026-11-30T19:25:20Z ", " 2026-11-30T19:25:20Z", "-001-01-01T00:00:00Z", "now"),
    ],
)
def test_what_is_no_instant_with_an_offset_is_refused(text: str) -> None:
    assert refusal(envelope_text(timestamp=f'"{text}"')).path == "$.meta.timestamp"
    with pytest.raises(reference.Undecodable):
        reference.read_time(text)


def test_times_in_text_sort_as_times() -> None:
    moments = [
        datetime(2026, 1, 1, 0, 0, 1, tzinfo=timezone(timedelta(hours=5))),
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(999, 1, 1, tzinfo=UTC),
    ]
    texts = [format_time(moment) for moment in moments]
    assert {len(text) for text in texts} == {27}
    assert sorted(texts) == [format_time(moment) for moment in sorted(moments)]


@pytest.mark.parametrize(
    "moment",
    [datetime.fromisoformat("2026-01-01T00:00:00"), datetime.fromisoformat("9999-12-31T23:59:59-01:00")],
)
def test_a_time_that_is_no_instant_is_never_written(moment: datetime) -> None:
    with pytest.raises(BadEnvelope):
        format_time(moment)
    with pytest.raises(BadEnvelope):
        make(sender="a", channel="c", timestamp=moment)


@pytest.mark.parametrize(
    ("value", "is_id"),
    [
        ("x", True),
        ("!" * 128, True),
        ('a\\"b\\\\', True),
        ("hub-router:a:b:c", True),  # well-formed; a router refuses it by another rule
        ("", False),
        ("x" * 129, False),
        ("é", False),
        ("a b", False),
        (" a", False),
        ("a\\n", False),
        ("a\\r\\nNats-Msg-Id: b", False),
        ("\\u0000", False),
        ("\x7f", False),
        ("\\ud800", False),
        ("x" * 1_000_000, False),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_message_id_is_up_to_128_printable_bytes(value: str, is_id: bool) -> None:
    body = envelope_text(id=f'"{value}"')
    if is_id:
        assert parse(body).meta.id == json.loads(f'"{value}"')
    else:
        assert refusal(body).path == "$.meta.id"


# --- who stands there twice


REPEATS = [
    ({"outer": ',"meta":{}'}, "$.meta"),
    ({"outer": f',"meta":{text_of(HEAD)}'}, "$.meta"),
    ({"outer": f',"\\u006deta":{text_of(HEAD)}'}, "$.meta"),
    ({"outer": ',"payload":2'}, "$.payload"),
    ({"outer": ',"pa\\u0079load":1'}, "$.payload"),
    ({"outer": ',"x":1,"x":1'}, "$.x"),
    ({"outer": ',"x":1,"\\u0078":"1"'}, "$.x"),
    ({"outer": ',"":1,"":2'}, "$."),
    ({"outer": ',"\\"":1,"\\u0022":2'}, '$."'),
    ({"inner": ',"x":[],"x":{}'}, "$.meta.x"),
    *[({"inner": f',"{name}":{value}'}, f"$.meta.{name}") for name, value in HEAD.items()],
    *[({"inner": f',"to":{a},"to":{b}'}, "$.meta.to") for a in ("null", '"b"') for b in ("null", '"c"')],
    *[
        ({"inner": f',"reply_to":{a},"reply_to":{b}'}, "$.meta.reply_to")
        for a in ("null", '"b"')
        for b in ("null", '"c"')
    ],
    # What an absent `to` would have taken in the count of marks is offered by something else.
    ({"inner": ',"to":"b","t\\u006f":null', "reply_to": "null"}, "$.meta.to"),
    ({"inner": ',"kind":"event"', "payload": None}, "$.meta.kind"),
    ({"outer": ',"payload":"x"', "payload": "0"}, "$.payload"),
    ({"outer": ',"payload":0', "payload": '"\\"\\"\\"\\""'}, "$.payload"),
    ({"outer": ',"payload":{"a":"\\"","b":"\\"\\""}', "payload": "0"}, "$.payload"),
    # The same with the slow look already on for another reason.
    ({"outer": ',"payload":"\\ud800"', "payload": "0"}, "$.payload"),
    ({"outer": ',"x":1', "inner": ',"to":null,"to":"b"'}, "$.meta.to"),
]


@pytest.mark.parametrize(("parts", "path"), REPEATS, ids=lambda value: str(value)[:60])
def test_a_member_that_stands_there_twice_is_refused_by_name(parts: dict[str, Any], path: str) -> None:
    body = envelope_text(**{"payload": "1", **parts})
    error = refusal(body)
    if error.path != "$.meta":  # an incomplete second `meta` is refused for what it lacks
        assert error.path == path
        assert "twice" in error.detail or "times" in error.detail
    with pytest.raises(reference.Undecodable):
        reference.parse(body)


@pytest.mark.parametrize(
    "parts",
    [
        {"payload": '{"a":1,"a":2}'},  # the payload is free-form
        {"payload": '{"meta":{},"payload":{},"to":null,"to":null}'},
        {"outer": ',"x":{"a":1,"a":2}'},
        {"inner": ',"x":[{"a":1,"a":2}]'},
        {"outer": ',"to":"x","kind":1,"id":null'},  # not of `meta`
        {"inner": ',"payload":1,"meta":{}'},
        {"outer": ',"X":1,"x":2,"x ":3'},
        {"outer": ',"\\"":1,"\'":2,"\\\\\\"":3'},  # escaped marks in names upset the quick count only
        {"outer": ',"é":1,"e\\u0301":2'},  # composed and decomposed are two names
    ],
    ids=str,
)
def test_what_only_looks_repeated_is_let_through_unchanged(parts: dict[str, Any]) -> None:
    body = envelope_text(**parts)
    assert parse(body).body == body
    check_against_reference(body)


@settings(thorough, max_examples=120)
@given(
    to=st.lists(st.sampled_from(["null", '"x"', '"\\""']), max_size=2),
    reply_to=st.lists(st.sampled_from(["null", '"x"', '"\\"\\""']), max_size=2),
    payload=st.lists(st.sampled_from(["1", '"x"', '"\\"\\""', '{"to":"x"}']), max_size=2),
    extra=st.lists(
        st.tuples(st.sampled_from(["x", "y", "kind", '\\"']), st.sampled_from(["1", '"event"'])), max_size=2
    ),
    outside=st.lists(st.tuples(st.sampled_from(["x", '\\"', "meta"]), st.sampled_from(["1", '"\\""'])), max_size=2),
)
def test_no_combination_of_members_fools_the_count_of_quotation_marks(
    to: list[str],
    reply_to: list[str],
    payload: list[str],
    extra: list[tuple[str, str]],
    outside: list[tuple[str, str]],
) -> None:
    members = [*HEAD.items(), *(("to", v) for v in to), *(("reply_to", v) for v in reply_to), *extra]
    outer = [("meta", text_of(members)), *(("payload", value) for value in payload), *outside]
    check_against_reference(text_of(outer).encode())


# --- what goes through unchanged


def test_unknown_members_and_the_payload_survive_the_stamp_byte_for_byte() -> None:
    body = (
        b' {\n"trace" : "\xc3\xa9\\u00e9" ,\t"payload": {"a" : 1.50, "a":[ ], "n": 1e400, "s": "\\ud800"} ,'
        b' "m\\u0065ta":{"x":"\\udc00", "chann\\u0065l" : "\\u0061b" ,"kind":"event","from":"al\\u0069ce", "id":"1",'
        b'"timestamp":"2026-11-30T19:25:20+01:00", "y":{"from":"z"}}, "from":"b"}\r\n'
    )
    parsed = parse(body)
    assert parsed.meta.sender == "alice"
    assert parsed.meta.channel == "ab"
    assert parsed.payload_json == b'{"a" : 1.50, "a":[ ], "n": 1e400, "s": "\\ud800"}'
    assert parsed.body is body
    stamped = stamp(parsed, "mallory", "chat.x")
    assert stamped.body == body.replace(b'"al\\u0069ce"', b'"mallory"').replace(b'"\\u0061b"', b'"chat.x"')
    assert stamped.payload_json == parsed.payload_json
    assert stamped.meta.sender == "mallory"
    assert stamped.meta.channel == "chat.x"
    assert stamped.meta.timestamp == parsed.meta.timestamp
    assert stamp(stamped, "mallory", "chat.x") is stamped


@pytest.mark.parametrize("field", ["sender", "channel"])
def test_one_false_name_is_enough_to_be_stamped(field: str) -> None:
    honest = make(sender="alice", channel="chat", payload={"from": "alice"})
    stamped = stamp(honest, **{"sender": "alice", "channel": "chat", field: "other"})
    wire = json.loads(stamped.body)
    assert wire["meta"]["from" if field == "sender" else field] == "other"
    assert getattr(stamped.meta, field) == "other"
    assert wire["payload"] == {"from": "alice"}


def test_a_payload_that_receivers_refuse_is_passed_on_and_refused_on_reading() -> None:
    for payload in ("1e400", "9" * 5000, '"\\ud800"', "[" * 129 + "]" * 129, "18446744073709551616"):
        parsed = parse(envelope_text(payload))
        assert parsed.payload_json == payload.encode()
        with pytest.raises(BadPayload):
            _ = parsed.payload


@pytest.mark.parametrize("depth", [127, 128, 129, 130, 500])
def test_the_router_does_not_judge_the_depth_of_a_payload(depth: int) -> None:
    payload = "[" * depth + "]" * depth
    assert parse(envelope_text(payload)).payload_json == payload.encode()


def test_at_no_depth_does_parse_or_stamp_raise_anything_else() -> None:
    """The decoder's limit depends on the stack, so what just parses may not be stamped from one call further down."""
    outcomes = set()
    for depth in range(900, sys.getrecursionlimit() + 5):
        for outer in ("", ',"x":1'):
            body = envelope_text("[" * depth + "]" * depth, outer=outer)
            try:
                stamp(parse(body), "mallory", "chat")
            except BadEnvelope as error:
                outcomes.add(error.detail)
    assert outcomes <= {"nested too deeply to parse"}


def test_an_absent_payload_is_null() -> None:
    parsed = parse(envelope_text(None))
    assert parsed.payload is None
    assert parsed.payload_json == b"null"
    assert b"payload" not in stamp(parsed, "b", "c").body


def test_to_is_not_judged_by_parse() -> None:
    assert parse(envelope_text(to='"a b*"')).meta.to == "a b*"
    assert parse(envelope_text(to='""')).meta.to == ""
    assert parse(envelope_text(to='"\\ud800"')).meta.to == "\ufffd"
    assert not names.is_token("\ufffd")


# --- cost


def test_the_cost_of_a_hostile_envelope_grows_with_its_size_only() -> None:
    """Ten times the members may not cost a hundred times the time; a quadratic look would."""

    def seconds(count: int, **place: str) -> float:
        many = "".join(f',"{index}":1' for index in range(count))
        body = envelope_text(**{name: many + last for name, last in place.items()})
        started = time.process_time()
        with pytest.raises(BadEnvelope, match="got 2 times"):
            parse(body)
        return time.process_time() - started

    for place in ({"outer": ',"7":1'}, {"inner": ',"7":1'}):
        small = min(seconds(4_000, **place) for _ in range(3))
        large = min(seconds(40_000, **place) for _ in range(3))  # the least: what a garbage collection did not hit
        assert large < 40 * small + 0.05


def test_a_megabyte_of_lone_surrogates_is_parsed_in_time() -> None:
    payload = '"' + "\\ud800" * 170_000 + '"'
    started = time.process_time()
    assert parse(envelope_text(payload)).payload_json == payload.encode()
    assert time.process_time() - started < 5


# --- what is not made


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"sender": "a b"}, BadName),
        ({"sender": ""}, BadName),
        ({"channel": "inbox.a"}, BadName),
        ({"channel": "task"}, BadName),
        ({"to": "a.b"}, BadName),
        ({"to": ""}, BadName),
        ({"id": ""}, BadName),
        ({"reply_to": "a b"}, BadName),
        ({"kind": "task"}, BadEnvelope),
        ({"kind": None}, BadEnvelope),
        ({"kind": ["message"]}, BadEnvelope),
        ({"payload": {1}}, BadPayload),
        ({"payload": float("nan")}, BadPayload),
    ],
    ids=str,
)
def test_a_wrong_envelope_is_not_made(fields: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        make(**{"sender": "a", "channel": "c", **fields})


def test_an_envelope_compares_by_what_it_holds() -> None:
    body = make(sender="a", channel="c", payload=[1]).body
    assert parse(body) == parse(bytes(body))
    assert isinstance(parse(body), Envelope)
