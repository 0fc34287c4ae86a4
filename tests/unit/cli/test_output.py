"""Output of commands: nothing that comes from the wire steers a terminal."""

import io
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.cli.output import Output, harmless, harmless_json

HOSTILE = ["\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\r", "\b", "\u202e", "\u2066", "\ud800", "\u2028", "\x7f", "\0"]


@pytest.mark.parametrize("sign", HOSTILE)
def test_what_could_steer_a_terminal_comes_out_escaped(sign: str) -> None:
    shown = harmless(f"a{sign}b")
    assert shown.isprintable()
    assert shown.startswith("a\\")
    assert shown.endswith("b")


@given(st.text(st.characters()))
def test_whatever_comes_is_printable_and_one_line(text: str) -> None:
    assert harmless(text).isprintable()
    assert "\n" not in harmless(text)
    assert all(sign.isprintable() or sign in "\n\t" for sign in harmless(text, keep="\n\t"))


def test_readable_text_is_left_alone() -> None:
    for text in ("", "plain", "größe → 3 €", "日本語", "🙂"):
        assert harmless(text) == text


@given(st.dictionaries(st.text(), st.text(), max_size=3))
def test_harmless_json_is_the_same_json(value: object) -> None:
    shown = harmless_json(json.dumps(value, ensure_ascii=False))
    assert shown.isprintable()
    assert json.loads(shown) == value


def test_a_reader_that_has_gone_ends_the_output_and_nothing_else() -> None:
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream:
        out = Output(stream)
        out.line("first")
        os.close(read)
        out.line("second")
        assert out.is_broken
        out.line("third")


def test_a_closed_stdout_takes_everything() -> None:
    out = Output(None)
    out.line("x")
    assert out.is_broken


def test_a_stream_that_cannot_encode_gets_escapes() -> None:
    buffer = io.BytesIO()
    out = Output(io.TextIOWrapper(buffer, encoding="ascii"))
    out.line("größe →")
    assert buffer.getvalue() == b"gr\\xf6\\xdfe \\u2192\n"
