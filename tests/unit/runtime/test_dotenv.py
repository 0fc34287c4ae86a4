"""The .env rules, one row each (docs/supervisor.md)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import dotenv
from runtime.errors import BadConfig


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("A=b#c", "b#c"),
        ("A=b #c", "b"),
        ("A=b\t# c", "b"),
        ('A="b # c"', "b # c"),
        ("A='b'", "b"),
        ("A=", ""),
        ("A=#c", ""),
        ("export A=1", "1"),
        (" A = 1 ", "1"),
        (r'A="x\ny"', "x\ny"),
        (r'A="\t\r\\\"\$\q"', '\t\r\\"$\\q'),
        (r"A='x\ny $B'", r"x\ny $B"),
        (r"A=x\ny", r"x\ny"),
        ("A=$B ${B}", "$B ${B}"),
        ('A="it\'s"', "it's"),
        ("A='b' # c", "b"),
        ("A=it's", "it's"),
        ("A=b=c", "b=c"),
        ("A=1\nA=2", "2"),
        ("A=1\r\n#A=2\r\n", "1"),
        ("\ufeffA=1", "1"),
        ("exportA=0\nA=1", "1"),
    ],
)
def test_what_a_line_assigns(line: str, value: str) -> None:
    assert dotenv.parse(line.encode())["A"].value == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A", ".env:1: expected NAME=value, found 'A' without `=`"),
        ("#A=1\n1A=1", ".env:2: expected a name of A-Z a-z 0-9 _ that begins with no digit, found '1A'"),
        ("A-B=1", ".env:1: expected a name"),
        ("=1", ".env:1: expected a name"),
        ('A="b', '.env:1: expected a closing " on the same line'),
        ("A='b", ".env:1: expected a closing ' on the same line"),
        ("A='b'c", ".env:1: expected nothing but a comment behind the closing '"),
        ("A='b'#c", ".env:1: expected nothing but a comment behind the closing '"),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(BadConfig) as refused:
        dotenv.parse(text.encode())
    assert said in str(refused.value)


def test_a_mistake_does_not_show_a_secret() -> None:
    with pytest.raises(BadConfig) as refused:
        dotenv.parse(b"the token is s3cr3t-s3cr3t-s3cr3t-s3cr3t")
    assert "s3cr3t-s3cr3t" not in str(refused.value)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=50))
def test_every_value_can_be_written_in_double_quotes(value: str) -> None:
    escaped = "".join(
        {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(char, char) for char in value
    )
    assert dotenv.parse(f'A="{escaped}"'.encode())["A"].value == value


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        names = list(dotenv.parse(data))
    except BadConfig:
        return
    assert all(dotenv.NAME.fullmatch(name) for name in names)
