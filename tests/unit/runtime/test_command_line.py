"""What of a command runs directly, and that it means what a shell would make of it."""

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime import command_line
from runtime.command_line import UnsetVariable

ENVIRON = {"NAME": "a b", "PROCESS_INDEX": "3", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("python -m hub router", ["python", "-m", "hub", "router"]),
        ("w --identity echo-$PROCESS_INDEX", ["w", "--identity", "echo-3"]),
        ("w ${PROCESS_INDEX}x '$NAME' \"$NAME\"", ["w", "3x", "$NAME", "a b"]),
        ("w $NAME", ["w", "a b"]),  # unlike a shell: a value is one word
        (r"w a\ b \$NAME \"q", ["w", "a b", "$NAME", '"q']),
        ("w \"\" ''", ["w", "", ""]),
        (r'w "a\"b\\c\d"', ["w", r'a"b\c\d']),
        ("w a=b --x=1", ["w", "a=b", "--x=1"]),
        ("w a#b a~b", ["w", "a#b", "a~b"]),
        ("w 'a'\"b\"c", ["w", "abc"]),
        ("test -e x", ["test", "-e", "x"]),
    ],
)
def test_plain_words_run_directly(text: str, argv: list[str]) -> None:
    command = command_line.parse(text)
    assert command.is_direct
    assert command.argv(ENVIRON) == argv


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a | b", "character |"),
        ("a & b", "character &"),
        ("a > f", "character >"),
        ("a; b", "character ;"),
        ("echo *.py", "character *"),
        ("echo {a,b}", "character {"),
        ("echo $(date)", "expansion $("),
        ("echo `date`", "character `"),
        ('echo "`date`"', "character `"),
        ("echo ${A:-b}", "expansion ${"),
        ("echo $1 $$", "expansion $1"),
        ("A=1 b", "assignment A="),
        ("cd x", "shell word cd"),
        ("exec x", "shell word exec"),
        ("~/bin/x", "character ~"),
        ("x # comment", "character #"),
        ("x $READY_FD", "$READY_FD, which only the child is given"),
    ],
)
def test_what_needs_a_shell_gets_one(text: str, why: str) -> None:
    command = command_line.parse(text)
    assert not command.is_direct
    assert command.why_shell == why
    assert command.argv({}) == ["/bin/sh", "-c", text]


@pytest.mark.parametrize("text", ["a 'b", 'a "b', "a \\"])
def test_an_unfinished_command_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a "):
        command_line.parse(text)


def test_a_variable_that_is_not_set_is_a_mistake() -> None:
    with pytest.raises(UnsetVariable, match=r"\$PORT is not set"):
        command_line.parse("w --port $PORT").argv({})


@given(
    st.lists(st.text(st.characters(exclude_characters="\0\n\r", exclude_categories=("Cs",)), max_size=10), min_size=1)
)
def test_quoted_words_come_out_as_they_went_in(words: list[str]) -> None:
    command = command_line.parse("w " + shlex.join(words))
    assert command.argv({}) == ["w", *words]


@settings(max_examples=40, deadline=None)
@given(st.text("ab '\"\\$N{}_|&;#~=*", min_size=1, max_size=12))
def test_what_runs_directly_means_what_a_shell_makes_of_it(text: str) -> None:
    line = f"printf '<%s>' {text}"
    try:
        command = command_line.parse(line)
    except ValueError:
        return
    environ = {"N": "n", "PATH": "/usr/bin:/bin"}
    environ |= dict.fromkeys(["a", "b", "aa", "ab", "ba", "bb", "Na", "Nb", "NN", "aN", "bN", "NNN"], "n")
    if not command.is_direct:
        return
    try:
        argv = command.argv(environ)
    except UnsetVariable:
        return
    shell = subprocess.run(["/bin/sh", "-c", line], capture_output=True, env=environ, check=False)
    if shell.returncode == 0 and "_" not in text:  # $_ is the shell's own
        direct = "".join(f"<{word}>" for word in argv[2:]) or "<>"
        assert shell.stdout.decode() == direct
