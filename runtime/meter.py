"""Memory and CPU of the running replicas: all that came from a replica counts, its shim does not."""

import psutil

from runtime import shim
from runtime.child import Child


class Usage:
    """Measured figures of one replica.

    Attributes:
        memory_bytes: resident memory of all its processes; pages that they share count once each.
        cpu_percent: of one core, since the last look (the first time: since its start).
        processes: how many there are.
    """

    def __init__(self, memory_bytes: int, cpu_percent: float, processes: int) -> None:
        self.memory_bytes = memory_bytes
        self.cpu_percent = cpu_percent
        self.processes = processes


class Meter:
    """Looks at running children; remembers the last look."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, float]] = {}

    def measure(self, children: list[Child], now: float) -> dict[int, Usage]:
        """By the shim's pid, what each child uses; one walk over the process table for all."""
        seen = shim.parents() if children else {}
        usages = {}
        looks = {}
        for child in children:
            memory, cpu_secs, count = 0, 0.0, 0
            for pid in shim.descendants(child.shim_pid, child.pid, seen) if child.pid else []:
                try:
                    process = psutil.Process(pid)
                    with process.oneshot():
                        times = process.cpu_times()
                        memory += process.memory_info().rss
                        cpu_secs += times.user + times.system
                except psutil.Error:
                    continue  # ended while we looked
                count += 1
            before_secs, before_at = self._last.get(child.shim_pid, (0.0, child.started_at))
            elapsed = max(now - before_at, 0.001)
            # A process that ended took its CPU time along: never below zero.
            usages[child.shim_pid] = Usage(memory, round(max(0.0, 100 * (cpu_secs - before_secs) / elapsed), 1), count)
            looks[child.shim_pid] = (cpu_secs, now)
        self._last = looks
        return usages


def own_memory_bytes() -> int:
    """Resident memory of this process."""
    return int(psutil.Process().memory_info().rss)
