"""`up` on the files of a test, ended at its end."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.up_process import UpProcess


@pytest.fixture
def make_up(tmp_path: Path) -> Iterator[Callable[..., UpProcess]]:
    """Make an `up`: `make_up(procfile, toml, **options)`; the second one of a test stands in the same folder."""
    made: list[UpProcess] = []

    def make(procfile: str, toml: str = "", **options: object) -> UpProcess:
        up = UpProcess(tmp_path, procfile, toml, **options)  # type: ignore[arg-type]
        made.append(up)
        return up

    yield make
    for up in made:
        up.end()
