"""Conformance: what every backend of `Storage` must do; run each of `CASES` with a `Harness` on an empty database.

The cases are plain coroutines with plain asserts, so that a backend of somebody else can be judged by any test runner.
"""

from hub.storage.conformance import history, lifecycle, mirror, records, statistics, threads, waves
from hub.storage.conformance.harness import Case, Clock, Harness

CASES: list[Case] = [
    *lifecycle.CASES,
    *mirror.CASES,
    *history.CASES,
    *threads.CASES,
    *records.CASES,
    *statistics.CASES,
    *waves.CASES,
]

__all__ = ["CASES", "Case", "Clock", "Harness"]
