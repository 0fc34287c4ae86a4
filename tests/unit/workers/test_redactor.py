"""The default redactor: what looks like a secret does not leave the worker."""

import time

import pytest

from workers.plugins import HandlerNotFound
from workers.redactor import SecretRedactor, find_redactor

redact = SecretRedactor(
    {"DEPLOY_TOKEN": "value-of-the-environment", "HOME": "/home/somebody", "PIN_SECRET": "1234"}
    | {"QUOTED_SECRET": 'quoted" words', "DATABASE_URL": "postgresql://ann:pa55word-in-a-url@host/db"}
)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("value-of-the-environment", "value-of-the-environment"),
        ("Authorization: Bearer abcdef0123456789", "abcdef0123456789"),
        ("password=hunter22", "hunter22"),
        ('{"api_key": "k-0123456789"}', "k-0123456789"),
        ("https://user:s3cretword@host.example/x", "s3cretword"),
        ("sk-abcdefghijklmnopqrstuvwxyz", "abcdefghijklm"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "abcdefghijklm"),
        ("AKIAABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
        (
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
            "dozjgNryP4J3",
        ),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----", "MIIEpAIBAAKCAQEA"),
        ("-----BEGIN PRIVATE KEY-----\nthe end was cut off", "was cut off"),
        ('{"password":"ab\\"cdefgh","user":"ann"}', "cdefgh"),
        (r'{"said": "{\"password\": \"abcdefgh\"}"}', "abcdefgh"),
        ('say \\"quoted\\" words', 'quoted\\" words'),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalrX"),
        ("authorization: Token abcdef01", "abcdef01"),
        ("Cookie: sid=abcdefgh", "abcdefgh"),
        ("tool --db-password hunter22 --verbose", "hunter22"),
        ("postgresql://ann:p@ss:word@host/db", "ss:word"),
        ("nats://abcdefghijklmnopqrst@host:4222", "abcdefghijklmn"),
        ("psql with pa55word-in-a-url", "pa55word"),
    ],
)
def test_a_secret_is_taken_out_wherever_it_stands(text: str, secret: str) -> None:
    told = repr(redact({"text": f"before {text} after", "deep": [{"more": text}]}))
    assert "[redacted]" in told
    assert secret not in told


def test_a_member_that_is_called_a_secret_loses_its_value() -> None:
    assert redact({"password": "x", "tokens": 12}) == {"password": "[redacted]", "tokens": 12}


def test_everything_under_a_name_of_a_secret_is_one_and_numbers_are_none() -> None:
    told = redact({"credentials": {"user": "ann", "parts": ["x", "y"], "age": 3}, "total_tokens": 12})
    mask = "[redacted]"
    assert told == {"credentials": {"user": mask, "parts": [mask, mask], "age": 3}, "total_tokens": 12}


@pytest.mark.parametrize(
    "piece", ["a-", "eyJ-", "token-", "eyJaaaaaaaa.", "b://", "://x:", 'password=\\"', "-----BEGIN ", "x" * 50]
)
def test_a_text_that_was_made_to_be_slow_is_not(piece: str) -> None:
    """The search holds the interpreter's lock: a quadratic one stopped a worker's loop for 18 s at 16 kB."""
    began = time.thread_time()
    redact({"text": piece * (64_000 // len(piece))})
    assert time.thread_time() - began < 2.0


def test_ordinary_text_stays_as_it_is() -> None:
    text = (
        "reading 1234 lines of /home/somebody/notes: the keyboard is a token of esteem; a basic example, "
        "https://host.example/a:b@c, token_count: 12, the bearer of news"
    )
    assert redact({"text": text}) == {"text": text}


def test_a_redactor_of_ones_own_is_found_or_refused() -> None:
    assert find_redactor("builtins:dict", {}) is dict
    with pytest.raises(HandlerNotFound, match="nothing_there"):
        find_redactor("builtins:nothing_there", {})
    with pytest.raises(HandlerNotFound, match="expected a function"):
        find_redactor("sys:maxsize", {})
