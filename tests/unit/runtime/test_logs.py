"""Lines, files and their rendering: what goes in comes out."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import log_view
from runtime.logs import rendering
from runtime.logs.files import LineReader, LogFile, files_of, render
from runtime.logs.lines import Batch, LineCutter
from runtime.notify import Notice, parse

BYTES = st.binary(max_size=40) | st.sampled_from([b"\n", b"a\nb", b"\n\n", b"\r\n", b"\xff"])


@given(st.lists(BYTES, max_size=20))
def test_lines_do_not_depend_on_how_they_were_cut_into_chunks(chunks: list[bytes]) -> None:
    cutter = LineCutter()
    lines = [line for chunk in chunks for line in cutter.feed(chunk)[0]] + cutter.end()
    whole = b"".join(chunks).split(b"\n")
    assert lines == (whole[:-1] if not whole[-1] else whole)


def test_a_line_that_never_ends_comes_in_pieces() -> None:
    cutter = LineCutter(max_line_bytes=8)
    assert cutter.feed(b"1234") == ([], False)
    assert cutter.feed(b"56789") == ([b"123456789"], True)
    assert cutter.feed(b"rest\nnext") == ([b"rest"], False)
    assert cutter.end() == [b"next"]
    assert cutter.end() == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["stdout", "stderr"]),
            st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), min_size=1, max_size=5),
            st.booleans(),
        ),
        max_size=8,
    ),
    st.integers(1, 50),
)
def test_a_log_file_gives_back_the_bytes_that_were_written(
    written: list[tuple[str, list[bytes], bool]], size: int
) -> None:
    data, wanted, pieces = b"", [], {"stdout": b"", "stderr": b""}
    for stream, lines, is_cut in written:
        data += render(Batch("w.0", 1, stream, 1.5, lines, is_cut))
        for number, line in enumerate(lines):
            pieces[stream] += line
            if not (is_cut and number == len(lines) - 1):
                wanted.append((stream, pieces[stream]))
                pieces[stream] = b""
    reader = LineReader()
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    found = [(line.stream, line.text) for chunk in chunks for line in reader.feed(chunk)]
    assert found == wanted


def test_files_are_turned_over_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "w.0.log"
    file = LogFile(path, max_bytes=100, keep=2)
    for number in range(10):
        file.write(b"%d" % number * 40 + b"\n")
    file.close()
    assert files_of(path) == [tmp_path / "w.0.log.2", tmp_path / "w.0.log.1", path]
    assert [chr(other.read_bytes()[0]) for other in files_of(path)] == ["4", "6", "8"]
    LogFile(path, max_bytes=100, keep=2).write(b"more")
    assert path.read_bytes().endswith(b"more")  # a new start appends


def test_logs_of_several_processes_come_in_the_order_of_time(tmp_path: Path) -> None:
    for label, times in (("a.0", (1.0, 3.0)), ("b.0", (2.0, 4.0))):
        text = b"".join(render(Batch(label, 1, "stdout", at, [f"{label} {at}".encode()])) for at in times)
        (tmp_path / f"{label}.log").write_bytes(text)
    shown = log_view.LogView(tmp_path, None).history(3)
    assert [line.text for line in shown] == ["b.0 2.0", "a.0 3.0", "b.0 4.0"]
    assert [path.name for path in log_view.logs_of(tmp_path, "a")] == ["a.0.log"]


def test_following_goes_on_over_a_turned_file(tmp_path: Path) -> None:
    path = tmp_path / "a.0.log"
    file = LogFile(path, max_bytes=60, keep=3)

    def write(text: str) -> None:
        file.write(render(Batch("a.0", 1, "stdout", 1.0, [text.encode()])))

    write("before")
    write("just before")  # turns it over
    reader = log_view.LogReader(path)
    assert [line.text for line in reader.history(0)] == ["before", "just before"]
    write("one")
    seen = [line.text for line in reader.new_lines()]
    write("two")
    seen += [line.text for line in reader.new_lines()]
    assert seen == ["one", "two"]


def test_a_terminal_gets_no_control_characters_but_colours() -> None:
    hostile = b"bell \x07 \x1b]0;title\x07 \x1b[2Jgone \x1b[31mred \xff \xe2\x80\xae end\r"
    shown = rendering.as_terminal(Batch("w.0", 1, "stdout", 0.0, [hostile]), 5, colours=False).decode()
    assert shown[9:] == ("w.0   | bell \\x07 \\x1b]0;title\\x07 \\x1b[2Jgone \x1b[31mred \\xff \\u202e end\x1b[0m\n")


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5), st.booleans())
def test_every_line_is_one_json_object_whatever_its_bytes(lines: list[bytes], is_cut: bool) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    shown = rendering.as_json(Batch("w.0", 7, "stderr", 0.0, lines, is_cut)).decode()
    decoded = [json.loads(line) for line in shown.split("\n")[:-1]]
    assert [line["line"] for line in decoded] == [rendering.as_text(line) for line in lines]
    assert {(line["process"], line["pid"], line["stream"]) for line in decoded} == {("w.0", 7, "stderr")}
    assert [line.get("cut", False) for line in decoded] == [False] * (len(lines) - 1) + [is_cut]


@pytest.mark.parametrize(
    ("datagram", "notice"),
    [
        (b"READY=1", Notice(is_ready=True)),
        (b"READY=1\nSTATUS=fine = good\n", Notice(is_ready=True, status="fine = good")),
        (b"READY=0\nSTOPPING=1", Notice(is_stopping=True)),
        (b"WATCHDOG=1", Notice(is_beat=True)),
        (b"WATCHDOG=trigger", Notice(is_hung=True)),
        (b"STATUS=", Notice(status="")),
        (b"X_IN_FLIGHT=3\nX_=1\nMAINPID=1\nnonsense", Notice(figures={"in_flight": "3"})),
        (b"STATUS=\xff", Notice(status="\ufffd")),
        (b"", Notice()),
    ],
)
def test_what_a_datagram_says(datagram: bytes, notice: Notice) -> None:
    assert parse(datagram) == notice


@given(st.binary(max_size=200))
def test_any_datagram_is_read(datagram: bytes) -> None:
    notice = parse(datagram)
    assert notice.status is None or len(notice.status) <= 1000
