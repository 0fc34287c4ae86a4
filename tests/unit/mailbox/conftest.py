"""Fixtures of the mailbox's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.mailboxes import Mailboxes


@pytest.fixture
async def mailboxes(tmp_path: Path) -> AsyncIterator[Mailboxes]:
    """Opens mailboxes; what is left open is closed at the end of the test."""
    opened = Mailboxes(tmp_path / "state")
    yield opened
    await opened.close()
