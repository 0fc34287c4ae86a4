"""Payloads: what the wire can carry arrives as it was; what it cannot is refused with the place."""

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import time
import types
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from hub.protocol import BadPayload, decode_payload, encode_payload
from tests.unit.protocol import reference
from tests.unit.protocol.json_texts import values

thorough = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def kept(value: Any) -> Any:
    """A value with its types and the signs of its zeros, so that 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return {key: kept(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [kept(inner) for inner in value]
    return (type(value).__name__, repr(value))


def nested(depth: int, inner: Any = None) -> Any:
    """`inner` inside `depth` lists."""
    for _ in range(depth):
        inner = [inner] if inner is not None else []
    return inner


# --- what arrives


@thorough
@given(values.map(str.encode))
@example(b"{}")
@example(b'{"":{"":[]}}')
def test_decoding_agrees_with_the_reference(text: bytes) -> None:
    try:
        expected = reference.decode_payload(text)
    except reference.Repeated:
        assume(False)
    except reference.Undecodable:
        with pytest.raises(BadPayload) as caught:
            decode_payload(text)
        assert caught.value.path.startswith("$.payload")
        assert str(caught.value).isprintable()
        return
    assert kept(decode_payload(text)) == kept(expected)
    assert kept(decode_payload(encode_payload(expected))) == kept(expected)
    assert kept(json.loads(encode_payload(expected))) == kept(expected)


@settings(thorough, max_examples=200)
@given(st.binary(max_size=40) | st.text('{}[]",:\\u0ad8-+e.1tn ', max_size=40).map(str.encode))
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b'"' + b'\\"' * 120_000)
@example(b"[1,--5]")
@example(b"\xff")
def test_no_bytes_crash_the_decoder(text: bytes) -> None:
    try:
        decode_payload(text)
    except BadPayload as error:
        assert error.path.startswith("$.payload")  # noqa: PT017 - most texts are refused, some not


python_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=2)
    | st.text(st.characters(), max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(st.integers(), max_size=1)
        | st.dictionaries(st.text(max_size=2) | st.text(st.characters(), max_size=1) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@thorough
@given(python_values)
def test_what_is_encoded_is_decoded_to_the_same_and_all_else_is_refused(value: Any) -> None:
    try:
        encoded = encode_payload(value)
    except BadPayload:
        return
    assert kept(decode_payload(encoded)) == kept(value)


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Listing(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter(["a lie"])

    def __len__(self) -> int:
        return 7


class Table(dict):  # type: ignore[type-arg]
    def values(self) -> Any:
        return [{"a lie"}]


class Colour(enum.StrEnum):
    RED = "red"


class MixedColour(str, enum.Enum):  # noqa: UP042 - the other kind
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        *[(value, value) for value in (None, True, False, 0, -0.0, 3, 1.5, "", "x", [], {}, [[]], {"": None})],
        *[(value, value) for value in (2**64 - 1, -(2**63), 2**53 + 1, 1e308, 5e-324, 0.1 + 0.2, 1e16, 1e22)],
        ("\x00\x7f\u2028\ufffd😀", "\x00\x7f\u2028\ufffd😀"),
        ("\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), "😀"),
        ((1, (2,)), [1, [2]]),
        (Text("x"), "x"),
        ({Text("k"): Text("v")}, {"k": "v"}),
        (Number(3), 3),
        (Real(1.5), 1.5),
        (Listing([1, [2]]), [1, [2]]),
        (Table(a=1), {"a": 1}),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (collections.defaultdict(list, a=[1]), {"a": [1]}),
        (collections.Counter("aa"), {"a": 2}),
        (Point(1, 2), [1, 2]),
        (Colour.RED, "red"),
        (MixedColour.RED, "red"),
        ({MixedColour.RED: MixedColour.RED}, {"red": "red"}),
        (Level.HIGH, 3),
        (nested(128), nested(128)),
        (nested(128, {"a": 1}["a"]), nested(128, 1)),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_json_values_arrive_as_they_were(value: Any, arrives: Any) -> None:
    assert kept(decode_payload(encode_payload(value))) == kept(arrives)


# --- what is refused


@dataclasses.dataclass
class Job:
    name: str = "x"


def cycle() -> Any:
    value: dict[str, Any] = {}
    value["again"] = [value]
    return value


def wide_cycle() -> Any:
    value: list[Any] = []
    value += [value] * 1000
    return value


def shared(levels: int) -> Any:
    """1000**levels values in `levels` lists."""
    value: Any = 0
    for _ in range(levels):
        value = [value] * 1000
    return value


@pytest.mark.parametrize(
    ("value", "path", "told"),
    [
        (float("nan"), "$.payload", "finite number, got nan"),
        ([1, float("inf")], "$.payload[1]", "finite number, got inf"),
        ({"a": {"b c": [0, -float("inf")]}}, "$.payload.a['b c'][1]", "finite number, got -inf"),
        (Real("nan"), "$.payload", "finite number, got nan"),
        (2**64, "$.payload", "int64 or uint64"),
        ({"n": -(2**63) - 1}, "$.payload.n", "int64 or uint64"),
        (Number(2**64), "$.payload", "int64 or uint64"),
        (10**5000, "$.payload", "int64 or uint64"),
        ("\ud800", "$.payload", "lone surrogate"),
        ({"a": ["\udfff"]}, "$.payload.a[0]", "lone surrogate"),
        ({"a": {"\ud800": 1}}, "$.payload.a", "lone surrogate"),
        ([Text("\ud800")], "$.payload[0]", "lone surrogate"),
        (b"x", "$.payload", "builtins.bytes"),
        (bytearray(b"x"), "$.payload", "builtins.bytearray"),
        ({"a": {1, 2}}, "$.payload.a", "builtins.set"),
        ([frozenset()], "$.payload[0]", "builtins.frozenset"),
        (datetime.datetime.now(datetime.UTC), "$.payload", "datetime.datetime"),
        ([[datetime.date(2026, 1, 1)]], "$.payload[0][0]", "datetime.date"),
        (Job(), "$.payload", "Job"),
        (uuid.uuid4(), "$.payload", "uuid.UUID"),
        (decimal.Decimal(1), "$.payload", "decimal.Decimal"),
        (1j, "$.payload", "builtins.complex"),
        (object(), "$.payload", "builtins.object"),
        (types.MappingProxyType({}), "$.payload", "mappingproxy"),
        (collections.deque(), "$.payload", "collections.deque"),
        (iter([]), "$.payload", "list_iterator"),
        (enum.Enum("E", "A").A, "$.payload", "E"),  # type: ignore[attr-defined]
        ({1: 2}, "$.payload", "text as the name of a member, got int"),
        ([{None: 1}], "$.payload[0]", "text as the name of a member, got NoneType"),
        ({b"a": 1}, "$.payload", "text as the name of a member, got bytes"),
        ({"a": 1, True: 2}, "$.payload", "text as the name of a member, got bool"),
        ((1, {"x"}), "$.payload[1]", "builtins.set"),
        (Point(1, {"x"}), "$.payload[1]", "builtins.set"),
        (Listing([0, {1}]), "$.payload[1]", "builtins.set"),
        (Table(a=b""), "$.payload.a", "builtins.bytes"),
        ([Table(a=1), Listing([1, 2]), {"z": b""}], "$.payload[2].z", "builtins.bytes"),
        (nested(129), "$.payload[0][0][0][0][0][0][0][0]…", "at most 128 levels"),
        (nested(128, {}), "$.payload[0][0][0][0][0][0][0][0]…", "at most 128 levels"),
        (nested(128, ()), "$.payload[0][0][0][0][0][0][0][0]…", "at most 128 levels"),
        (nested(10_000), "$.payload[0][0][0][0][0][0][0][0]…", "at most 128 levels"),
        (cycle(), "$.payload.again[0].again[0].again[0].again[0]…", "at most 128 levels"),
        (wide_cycle(), "$.payload", "does it hold itself?"),
        (shared(60), "$.payload", "does it hold itself?"),
        ([None] * 8_388_608, "$.payload", "at most 8388608 values"),
        ({"x" * 10_000: {1}}, "$.payload." + "x" * 190 + "…", "builtins.set"),
        ({"a\nb'\x1b[0m": {1}}, '$.payload["a\\nb\'\\x1b[0m"]', "builtins.set"),
    ],
    ids=lambda value: str(type(value))[:30] if not isinstance(value, str) else value[:30],
)
def test_what_would_not_arrive_is_refused_with_its_place(value: Any, path: str, told: str) -> None:
    with pytest.raises(BadPayload) as caught:
        encode_payload(value)
    assert caught.value.path == path
    assert told in caught.value.detail
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "path", "told"),
    [
        (b"", "$.payload", "JSON"),
        (b"{", "$.payload", "JSON"),
        (b'{"a":NaN}', "$.payload", "JSON"),
        (b"\xef\xbb\xbf1", "$.payload", "JSON"),
        (b'"\xff"', "$.payload", "JSON"),
        (b'["\xed\xa0\x80"]', "$.payload", "JSON"),
        (b'{"a":[1,1e400]}', "$.payload.a[1]", "1e400"),
        (b'[{},{"x":0,"b":-1e999}]', "$.payload[1].b", "-1e999"),
        (b"1.7976931348623159e308", "$.payload", "in range"),
        (b'{"n":18446744073709551616}', "$.payload.n", "int64 or uint64"),
        (b'{"n":[0,-9223372036854775809]}', "$.payload.n[1]", "int64 or uint64"),
        (b'{"n":' + b"9" * 5000 + b"}", "$.payload.n", "999999"),
        (rb'{"a":["x","\ud800"]}', "$.payload.a[1]", "lone surrogate"),
        (rb'{"a":"\ud800\u0041"}', "$.payload.a", "lone surrogate"),
        (rb'{"a":"\udc00\ud800"}', "$.payload.a", "lone surrogate"),
        (rb'{"a":1,"\ud800":1}', "$.payload", "lone surrogate"),
        (rb'{"b":{"\ud800":1}}', "$.payload.b", "lone surrogate"),
        (b"[" * 129 + b"]" * 129, "$.payload[0][0][0][0][0][0][0][0]…", "at most 128 levels"),
        (b'{"a":' * 128 + b"[]" + b"}" * 128, "$.payload.a.a.a.a.a.a.a.a…", "at most 128 levels"),
        (b"[" * 130 + b"]" * 130, "$.payload[0][0][0][0][0][0][0][0]…", "at most 128 levels"),
        (b"[1," * 100_000 + b"1" + b"]" * 100_000, "$.payload[1][1][1][1][1][1][1][1]…", "at most 128 levels"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_no_receiver_should_act_on_is_refused_with_its_place(text: bytes, path: str, told: str) -> None:
    with pytest.raises(BadPayload) as caught:
        decode_payload(text)
    assert caught.value.path == path
    assert told in caught.value.detail
    with pytest.raises(reference.Undecodable):
        reference.decode_payload(text)


@pytest.mark.parametrize("depth", [127, 128])
@pytest.mark.parametrize(("opening", "inner", "closing"), [(b"[", b"1", b"]"), (b'{"a":', b"null", b"}")])
def test_128_levels_are_fine(depth: int, opening: bytes, inner: bytes, closing: bytes) -> None:
    text = opening * depth + inner + closing * depth
    assert kept(decode_payload(text)) == kept(json.loads(text))
    assert encode_payload(decode_payload(text)) == text


def test_of_repeated_members_the_last_one_counts() -> None:
    assert decode_payload(b'{"a":1,"\\u0061":2}') == {"a": 2}


def test_a_number_too_small_for_a_double_is_zero() -> None:
    assert decode_payload(b"[1e-400,-1e-400]") == [0.0, -0.0]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(lambda: [0] * 8_000_000, id="8 million numbers"),
        pytest.param(lambda: [0] * 2_000_000 + [{1}], id="refused at the end"),
        pytest.param(lambda: [[]] * 1_000_000 + [[[{1}]]], id="refused below the end"),
        pytest.param(wide_cycle, id="a wide cycle"),
    ],
)
def test_the_look_at_a_huge_value_is_bounded_in_time(value: Any) -> None:
    huge = value()
    started = time.process_time()
    try:
        encode_payload(huge)
    except BadPayload as error:
        assert len(str(error)) < 400  # noqa: PT017
    assert time.process_time() - started < 10


def test_a_long_text_that_is_broken_is_refused_in_time() -> None:
    started = time.process_time()
    for text in (
        b'["' + b'\\"' * 1_000_000,
        b"[" + b"[]," * 300_000 + b"1e999]",
        b'{"a":"' * 200_000,
        b"[" * 127 + b"1," * 120_000 + b"1e999",
    ):
        with pytest.raises(BadPayload):
            decode_payload(text)
    assert time.process_time() - started < 10
