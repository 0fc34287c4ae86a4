"""docs/api.md shows a request of every operation, and each of them is understood."""

import re

import pytest

from hub.api.operations import OPERATIONS
from hub.api.params import decode
from tests.support.documents import DOCS

EXAMPLES = re.findall(r"^    hub\.api\.\w+\.([a-z_.]+)(?: (\{.*\}))?$", (DOCS / "api.md").read_text(), re.MULTILINE)


def test_every_operation_has_an_example() -> None:
    assert {op for op, _ in EXAMPLES} == set(OPERATIONS)


@pytest.mark.parametrize(("op", "body"), EXAMPLES)
def test_every_example_is_understood(op: str, body: str) -> None:
    decode(body.encode(), OPERATIONS[op].params)
