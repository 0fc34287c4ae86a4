"""The end of `up`: everything is stopped in reverse, with one deadline for all; the embedded server goes last."""

from collections.abc import Callable, Mapping
from typing import Final

from runtime.errors import SupervisorError
from runtime.group import Group
from runtime.plan import SERVER_NAME
from runtime.surroundings import Surroundings

_SERVER_STOP_SECS: Final = 10.0
_KILL_SECS: Final = 15.0  # from SIGKILL to the end: longer only in a system call that cannot be interrupted


class CannotBeKilled(SupervisorError):
    """Processes did not end after SIGKILL: they hang in the kernel (a dead network disk?); their shims wait."""

    code = "unavailable"


def start_order(after: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The order of start: as given, but whoever comes after another one stands behind it.

    Args:
        after: by name, in the Procfile's order, what it comes after; without circles.
    """
    order: list[str] = []

    def put(name: str) -> None:
        if name not in order and name in after:
            for other in after[name]:
                put(other)
            order.append(name)

    for name in after:
        put(name)
    return order


async def stop_all(
    groups: Mapping[str, Group], around: Surroundings, hurried_stop_by: Callable[[], float | None]
) -> None:
    """Stop everything; each is asked when the one before it has ended or used up its share of the time.

    Args:
        groups: by name.
        around: shared.
        hurried_stop_by: an earlier deadline, once the operator has no more patience.

    Raises:
        CannotBeKilled: some are still there a while after SIGKILL.
    """
    bell = around.bell
    after = {name: group.plan.settings.after for name, group in groups.items() if name != SERVER_NAME}
    order = [groups[name] for name in reversed(start_order(after))]
    latest = bell.now() + max((group.plan.settings.stop_timeout_secs for group in order), default=0.0)

    def stop_by() -> float:
        return min(latest, hurried_stop_by() or latest)

    for position, group in enumerate(order):
        by = stop_by()
        group.stop(by - bell.now())
        share_ends = bell.now() + (by - bell.now()) / (len(order) - position)
        await bell.until(lambda: group.is_down or stop_by() != by, share_ends)  # noqa: B023 - asked in this step only
    while not all(group.is_down for group in order):
        by = stop_by()
        for group in order:
            group.stop(by - bell.now())
        is_decided = await bell.until(
            lambda: all(group.is_down for group in order) or stop_by() != by,  # noqa: B023
            max(by, bell.now()) + _KILL_SECS,
        )
        if not is_decided:
            left = ", ".join(slot.label for group in order for slot in group.everyone if not slot.is_down)
            raise CannotBeKilled(f"{left} did not end within {_KILL_SECS:g} s of SIGKILL; they hang in the kernel")
    for group in order:
        await group.close()
    if (server := groups.get(SERVER_NAME)) is not None:
        server.stop(_SERVER_STOP_SECS)
        await server.close()
