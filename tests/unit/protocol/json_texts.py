"""Strategies of JSON texts: every spelling that the grammar allows, and much that it does not."""

import json

from hypothesis import strategies as st

spaces = st.sampled_from(["", "", "", "", " ", "\n", "\t ", "\r\n"])

_FRAGMENTS = [
    "a",
    "B7",
    "_-.",
    "meta",
    "payload",
    "to",
    " ",
    "é",
    "€",
    "😀",
    "\u2028",
    "\x7f",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "/",
    r"\"",
    r"\\",
    r"\/",
    r"\n",
    r"\b",
    r"\u0000",
    r"\u0022",
    r"\u005C",
    r"\u00e9",
    r"\uFFFD",
    r"\ud83d\ude00",
    r"\uD800",
    r"\udfff",
    r"\ud800\u0041",
    r"\udc00\ud800",
]
_NUMBERS = [
    *("0", "-0", "1", "-1", "1.5", "0.1", "1e5", "1E+2", "1e-400", "123456789.123456789e-20", "5e-324"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"),
    *("18446744073709551615", "18446744073709551616", "1e308", "1e309", "-1e400", "1.7976931348623159e308"),
    *("9" * 40, "1." + "3" * 60, "9" * 5000),
]

strings = st.lists(st.sampled_from(_FRAGMENTS), max_size=4).map(lambda parts: f'"{"".join(parts)}"')
numbers = st.sampled_from(_NUMBERS) | st.integers(-(2**70), 2**70).map(str) | st.floats().map(json.dumps)
scalars = st.sampled_from(["null", "true", "false"]) | numbers | strings


def _array(items: list[str], space: str) -> str:
    return f"[{space}{f'{space},'.join(items)}{space}]"


def _object(members: list[tuple[str, str]], space: str) -> str:
    return f"{{{space}{f'{space},{space}'.join(f'{name}{space}:{space}{value}' for name, value in members)}{space}}}"


values = st.recursive(
    scalars,
    lambda inner: (
        st.builds(_array, st.lists(inner, max_size=4), spaces)
        | st.builds(_object, st.lists(st.tuples(strings, inner), max_size=4), spaces)
    ),
    max_leaves=8,
)
"""Texts of JSON values; some hold NaN or Infinity, which is none."""


@st.composite
def spelt(draw: st.DrawFn, name: str) -> str:
    """A JSON string that means `name`, some of its letters escaped."""
    escape = draw(st.sampled_from([0, 0, 0, 0, 1, 2]))
    chosen = draw(st.sets(st.integers(0, max(len(name) - 1, 0)), max_size=3)) if escape else set()
    style = "{:04x}" if escape == 1 else "{:04X}"
    return '"' + "".join(rf"\u{style.format(ord(c))}" if i in chosen else c for i, c in enumerate(name)) + '"'


times = st.sampled_from(
    [
        *("2026-11-30T19:25:20Z", "2026-11-30t19:25:20.123456z", "2026-11-30 19:25:20.5+02:00"),
        *("2026-11-30T19:25:20.123456789Z", "2026-11-30T19:25:20.9999999-0530", "2024-02-29T23:59:59+23:59"),
    ]
)
bad_times = st.sampled_from(
    ["2026-11-30T19:25:20", "2016-12-31T23:59:60Z", "2026-11-30", "0001-01-01T00:00:00+01:00", "2026-02-29T00:00:00Z"]
)


@st.composite
def envelope_texts(draw: st.DrawFn, *, broken: bool = True) -> bytes:
    """Texts of envelopes in any order and spelling, with unknown members; with `broken`, many are none."""

    def odd(one_in: int) -> bool:
        return broken and draw(st.integers(1, one_in)) == 1

    optional = st.none() | st.just("null") | spelt("bob") | strings
    head: dict[str, str | None] = {
        "id": draw(strings if odd(8) else spelt("m-1")),
        "from": draw(strings | spelt("alice")),
        "channel": draw(strings | spelt("task.m-1")),
        "timestamp": draw((bad_times if odd(10) else times).flatmap(spelt)),
        "kind": draw(strings if odd(20) else st.sampled_from(["message", "event", "human"]).flatmap(spelt)),
        "to": draw(optional),
        "reply_to": draw(optional),
    }
    if odd(12):
        head[draw(st.sampled_from(sorted(head)))] = draw(st.none() | values)
    unknown = st.tuples(strings, values)
    meta = [(draw(spelt(name)), value) for name, value in head.items() if value is not None]
    meta += draw(st.lists(unknown, max_size=2))
    if odd(6):
        meta.append(draw(st.sampled_from(meta)) if draw(st.booleans()) else (draw(spelt("to")), draw(scalars)))
    meta = draw(st.permutations(meta))
    outer = [(draw(spelt("meta")), _object(meta, draw(spaces)))]
    if draw(st.integers(0, 5)):
        outer.append((draw(spelt("payload")), draw(values)))
    outer += draw(st.lists(unknown, max_size=2))
    if odd(6):
        outer.append((draw(spelt(draw(st.sampled_from(["meta", "payload"])))), draw(scalars)))
    outer = draw(st.permutations(outer))
    return f"{draw(spaces)}{_object(outer, draw(spaces))}{draw(spaces)}".encode()


_SAMPLES = [
    (
        b'{"meta":{"id":"m","from":"alice","channel":"chat","to":null,"timestamp":"2026-11-30T19:25:20.5Z",'
        b'"kind":"message","reply_to":null},"payload":{"prompt":"a \\"b\\" c","n":[1,2.5,-3e2,null,true]}}'
    ),
    (
        b' {"payload" : "\\ud83d\\ude00 \xc3\xa9", "trace":{"a":"b"},"meta":{"kind":"event","to":"bob","x":[{}],'
        b'"id":"1","timestamp":"2026-11-30 19:25:20+0200","channel":"task.m","from":"\\u0061"}}\n'
    ),
    b'{"meta":{"reply_to":"r","id":"~","from":"","channel":"","timestamp":"2026-11-30T19:25:20z","kind":"human"}}',
    (
        b'{"meta":{"id":"m","from":"a","channel":"c","timestamp":"2026-11-30T19:25:20Z","kind":"status","to":"x"},'
        b'"\\"":"\\\\","payload":"\\ud800"}'
    ),
]
_PATCHES = [
    *(b'"', b"\\", b'\\"', b",", b":", b"{", b"}", b"[", b"]", b" ", b"\n", b"\x00", b"0", b"-", b"e9", b"\xff", b""),
    *(b'"to":null,', b'"kind":"event",', b'"payload":1,', b'"x":"', b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3", b"NaN"),
    *(b"\\ud800", b"\\udc00", b"\\u0022", b"\\u00", b'"meta":{},', b"null", b'"":""', b"1e999"),
]


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """An envelope's text with a few of its bytes changed, doubled, moved or lost."""
    body = draw(st.sampled_from(_SAMPLES))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(body)))
        end = min(len(body), start + draw(st.integers(0, 16)))
        patch = draw(st.sampled_from(_PATCHES) | st.just(body[start:end] * 2))
        body = body[:start] + patch + body[end:]
    return body
