"""The default redactor: what looks like a secret does not leave the worker."""

import pytest

from workers.plugins import HandlerNotFound
from workers.redactor import SecretRedactor, find_redactor

redact = SecretRedactor({"DEPLOY_TOKEN": "value-of-the-environment", "HOME": "/home/somebody", "PIN_SECRET": "1234"})


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
    ],
)
def test_a_secret_is_taken_out_wherever_it_stands(text: str, secret: str) -> None:
    told = repr(redact({"text": f"before {text} after", "deep": [{"more": text}]}))
    assert "[redacted]" in told
    assert secret not in told


def test_a_member_that_is_called_a_secret_loses_its_value() -> None:
    assert redact({"password": "x", "tokens": 12}) == {"password": "[redacted]", "tokens": 12}


def test_ordinary_text_stays_as_it_is() -> None:
    text = "reading 1234 lines of /home/somebody/notes: the keyboard is a token of esteem"
    assert redact({"text": text}) == {"text": text}


def test_a_redactor_of_ones_own_is_found_or_refused() -> None:
    assert find_redactor("builtins:dict", {}) is dict
    with pytest.raises(HandlerNotFound, match="nothing_there"):
        find_redactor("builtins:nothing_there", {})
    with pytest.raises(HandlerNotFound, match="expected a function"):
        find_redactor("sys:maxsize", {})
