"""Validation of a wave's tasks, before anything of it is stored (contract §9). Pure.

Everything here takes time that grows with the number of tasks, dependencies and path components, also for the largest
wave: which tasks can run at the same time is kept as one bit a pair, and compared a task at a time.
"""

import posixpath
from collections.abc import Sequence
from typing import Final

import msgspec

from hub.protocol import BadName, names
from hub.storage.records import WaveTask
from hub.waves.errors import BadWave

MAX_TASKS: Final = 10_000  # contract §9
MAX_SCOPES: Final = 256  # paths of one task; more are a folder above them
MAX_PATH: Final = 1024  # characters
_MOST_SHOWN: Final = 20  # tasks of a cycle, for people


def validated(tasks: Sequence[WaveTask]) -> list[WaveTask]:
    """The tasks as they are stored: with normalised write scopes.

    Raises:
        BadWave: too few or too many tasks, a bad name, an id that is there twice, a dependency on itself, on an unknown
            task or in a circle, or two tasks that can run at the same time and write to the same place.
    """
    if not 1 <= len(tasks) <= MAX_TASKS:
        raise BadWave(f"expected 1 to {MAX_TASKS} tasks, got {len(tasks)}")
    places = _places(tasks)
    needs = [_needs(task, places) for task in tasks]
    order = _order(tasks, needs)
    normalised = [msgspec.structs.replace(task, write_scope=_scopes(task)) for task in tasks]
    _require_disjoint(normalised, needs, order)
    return normalised


def _places(tasks: Sequence[WaveTask]) -> dict[str, int]:
    places: dict[str, int] = {}
    for place, task in enumerate(tasks):
        try:
            names.token(task.task_id, "task id")
            names.agent_identity(task.worker)
        except BadName as error:
            raise BadWave(f"tasks[{place}]: {error}") from None
        if not task.goal.strip():
            raise BadWave(f"task {task.task_id}: expected a goal, which its worker gets as its prompt; got none")
        other = places.setdefault(task.task_id, place)
        if other != place:
            raise BadWave(f"tasks[{other}] and tasks[{place}] have the same id {task.task_id}: expected each id once")
    return places


def _needs(task: WaveTask, places: dict[str, int]) -> list[int]:
    """The places of what a task depends on, each once."""
    needs: dict[int, None] = {}
    for dependency in task.dependencies:
        if dependency == task.task_id:
            raise BadWave(f"task {task.task_id} depends on itself")
        place = places.get(dependency)
        if place is None:
            raise BadWave(f"task {task.task_id} depends on {ascii(dependency)[:80]}, which is no task of this wave")
        needs[place] = None
    return list(needs)


def _order(tasks: Sequence[WaveTask], needs: Sequence[Sequence[int]]) -> list[int]:
    """The places in an order in which each comes after what it depends on."""
    needed_by: list[list[int]] = [[] for _ in tasks]
    open_needs = [len(each) for each in needs]
    for place, each in enumerate(needs):
        for need in each:
            needed_by[need].append(place)
    order = [place for place, count in enumerate(open_needs) if count == 0]
    for place in order:  # grows meanwhile
        for after in needed_by[place]:
            open_needs[after] -= 1
            if open_needs[after] == 0:
                order.append(after)
    if len(order) < len(tasks):
        start = next(place for place, count in enumerate(open_needs) if count)
        raise BadWave(f"dependencies go in a circle: {_cycle(tasks, needs, open_needs, start)}")
    return order


def _cycle(tasks: Sequence[WaveTask], needs: Sequence[Sequence[int]], open_needs: Sequence[int], start: int) -> str:
    """The circle that is reached from a task which waits for ever: what waits depends on something that waits."""
    path: dict[int, int] = {}
    here = start
    while here not in path:
        path[here] = len(path)
        here = next(need for need in needs[here] if open_needs[need])
    circle = [tasks[place].task_id for place, step in path.items() if step >= path[here]]
    shown = circle if len(circle) <= _MOST_SHOWN else [*circle[:_MOST_SHOWN], f"… ({len(circle)} tasks)"]
    return " → ".join([*shown, circle[0]])


def _scopes(task: WaveTask) -> list[str]:
    if len(task.write_scope) > MAX_SCOPES:
        raise BadWave(
            f"task {task.task_id}: expected at most {MAX_SCOPES} write scopes, got {len(task.write_scope)}; "
            "name a folder instead"
        )
    return list(dict.fromkeys(_normalised(task.task_id, path) for path in task.write_scope))


def _normalised(task_id: str, path: str) -> str:
    """One way to write a path: without `.`, `..`, doubled and trailing slashes."""
    shown = ascii(path)[:80]
    if not path or len(path) > MAX_PATH or "\0" in path:
        raise BadWave(f"task {task_id}: bad write scope {shown}: expected a POSIX path of 1 to {MAX_PATH} characters")
    normal = posixpath.normpath(path)
    if normal.startswith("//"):
        normal = normal[1:]  # POSIX lets two slashes at the start mean something else; no system of ours does
    if normal == ".." or normal.startswith("../"):
        raise BadWave(f"task {task_id}: bad write scope {shown}: it leaves the work folder")
    return normal


class _Place:
    """One place in the tree of paths, and who writes there: a bit for each task."""

    __slots__ = ("below", "writers")

    def __init__(self) -> None:
        self.below: dict[str, _Place] = {}
        self.writers = 0


def _steps(path: str) -> list[str]:
    """The way from the root to a path; relative and absolute ones are two trees."""
    root = "/" if path.startswith("/") else "."
    return [root, *(step for step in path.split("/") if step not in ("", "."))]


def _require_disjoint(tasks: Sequence[WaveTask], needs: Sequence[Sequence[int]], order: Sequence[int]) -> None:
    """Refuse two tasks that write to the same place, or one inside the other's, unless one waits for the other.

    Each pair is met when the deeper path of the two walks down the tree, and passes where the other writes.
    """
    if not any(task.write_scope for task in tasks):
        return
    root = _Place()
    for place, task in enumerate(tasks):
        for path in task.write_scope:
            here = root
            for step in _steps(path):
                here = here.below.setdefault(step, _Place())
            here.writers |= 1 << place
    apart = _sequential(needs, order)
    for place, task in enumerate(tasks):
        for path in task.write_scope:
            here = root
            for step in _steps(path):
                here = here.below[step]
                clashing = here.writers & ~apart[place]
                if clashing:
                    other = tasks[(clashing & -clashing).bit_length() - 1]
                    raise BadWave(
                        f"tasks {other.task_id} and {task.task_id} can run at the same time and both write to "
                        f"{ascii(path)[:200]}: let one depend on the other, or give them places of their own"
                    )


def _sequential(needs: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """For each task a bit for each that never runs at the same time: itself, what it waits for, what waits for it."""
    before = [0] * len(needs)
    for place in order:
        mask = 1 << place
        for need in needs[place]:
            mask |= before[need]
        before[place] = mask
    after = [0] * len(needs)
    for place in reversed(order):
        after[place] |= 1 << place
        for need in needs[place]:
            after[need] |= after[place]
    return [first | last for first, last in zip(before, after, strict=True)]
