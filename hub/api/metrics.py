"""Metrics of the query API."""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS_SECS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0)


class ApiMetrics:
    """Counts requests by operation and code, and how long they took. Names that are no operation count as `unknown`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "hub_api_requests", "API requests by how they ended", ["op", "code"], registry=registry
        )
        self._latency = Histogram(
            "hub_api_seconds", "From an API request to its answer", ["op"], buckets=_BUCKETS_SECS, registry=registry
        )
        self._under_way = Gauge("hub_api_under_way", "API requests that are being answered", registry=registry)

    def take(self, op: str, code: str, secs: float) -> None:
        """Count a request that has ended; `code` is `ok`, an error's code or `bad_reply`."""
        self._requests.labels(op, code).inc()
        self._latency.labels(op).observe(secs)

    def watch(self, under_way: Callable[[], int]) -> None:
        """Show at each scrape how many are being answered."""
        self._under_way.set_function(under_way)
