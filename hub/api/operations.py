"""The table of all operations, by name."""

from collections.abc import Mapping
from typing import Final

from hub.api import agents, dead_letters, history, ping, sessions, stats, tasks, waves
from hub.api.operation import Operation

OPERATIONS: Final[Mapping[str, Operation]] = {
    operation.name: operation
    for family in (ping, agents, history, sessions, waves, tasks, stats, dead_letters)
    for operation in family.OPERATIONS
}
