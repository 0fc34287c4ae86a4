"""What the operator stopped stays stopped: remembered in a file until `down`."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from runtime.group import Group


class StoppedByOperator:
    """The memory.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._earlier: frozenset[str] = frozenset()

    def read(self) -> frozenset[str]:
        """The names that were stopped when the last `up` ended; nothing when the file cannot be understood."""
        try:
            self._earlier = msgspec.json.decode(self._path.read_bytes(), type=frozenset[str])
        except (FileNotFoundError, msgspec.DecodeError):
            self._earlier = frozenset()
        return self._earlier

    def write(self, groups: Mapping[str, Group], *, forget: bool = False) -> None:
        """Remember what is stopped now (what this `up` has not come to yet is as it was), or `forget` it all."""
        stopped = {name for name, group in groups.items() if group.is_stopped} | (self._earlier - set(groups))
        beside = self._path.with_name(self._path.name + ".new")
        beside.write_bytes(msgspec.json.encode([] if forget else sorted(stopped)))
        beside.replace(self._path)
