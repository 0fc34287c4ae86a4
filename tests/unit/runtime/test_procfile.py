"""The Procfile parser: what people really write, and every mistake with its line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import procfile
from runtime.errors import BadConfig

PLAIN = b"# two\nweb: python web.py\n\nworker:  python w.py --n 1 # not a comment \n"


@pytest.mark.parametrize(
    "data",
    [
        PLAIN,
        PLAIN.replace(b"\n", b"\r\n"),
        PLAIN.replace(b"\n", b"\r"),
        b"\xef\xbb\xbf" + PLAIN,
        PLAIN.rstrip(),
        PLAIN.replace(b": ", b":\t"),
        PLAIN.replace(b"web:", b"  web :"),
    ],
    ids=["LF", "CRLF", "CR", "BOM", "no final newline", "tabs", "blanks"],
)
def test_the_same_file_however_it_was_saved(data: bytes) -> None:
    lines = procfile.parse(data)
    assert [(line.name, line.command, line.line) for line in lines] == [
        ("web", "python web.py", 2),
        ("worker", "python w.py --n 1 # not a comment", 4),
    ]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "Procfile: expected at least one line `name: command`, found none"),
        (b"# only\n", "Procfile: expected at least one line"),
        (b"a: x\nno colon here\n", "Procfile:2: expected `name: command`, found 'no colon here' without a colon"),
        (b"bad.name: x", "Procfile:1: expected a name of 1 to 64 characters of A-Z a-z 0-9 _ -, found 'bad.name'"),
        (b": x", "Procfile:1: expected a name"),
        (b"a" * 65 + b": x", "Procfile:1: expected a name"),
        (b"a:   ", "Procfile:1: expected a command behind `a:`, found none"),
        (b"a: x\n\na: y", "Procfile:3: expected each name once, but line 1 has the same name as 'a'; rename one"),
        (b"Web: x\nweb: y", "Procfile:2: expected each name once, but line 1 has 'Web', the same but for upper"),
        (b"nats-server: x", "Procfile:1: expected another name than 'nats-server'"),
        (b"a: x\nb: \xff", "Procfile:2: expected UTF-8 text, found other bytes"),
        (b"a: x\nb: \0", "Procfile:2: expected text, found a NUL byte"),
    ],
)
def test_a_mistake_is_told_with_its_line(data: bytes, said: str) -> None:
    with pytest.raises(BadConfig) as refused:
        procfile.parse(data)
    assert said in str(refused.value)


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(BadConfig) as refused:
        procfile.parse(b"ok: x\none\ntwo\n\xff\nok: y\n")
    assert [problem.line for problem in refused.value.problems] == [2, 3, 4, 5]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        lines = procfile.parse(data)
    except BadConfig:
        return
    assert lines
    assert all(procfile.NAME.fullmatch(line.name) and line.command for line in lines)
