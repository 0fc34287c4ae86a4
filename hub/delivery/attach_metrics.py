"""Metrics of the attach responder."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from hub.delivery.attach import Outcome

_BUCKETS_SECS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class AttachMetrics:
    """Counts attach requests by how they ended, and how long they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "hub_attach_requests", "Attach requests by how they ended", ["outcome"], registry=registry
        )
        self._latency = Histogram(
            "hub_attach_seconds", "From an attach request to its answer", buckets=_BUCKETS_SECS, registry=registry
        )

    def take(self, outcome: Outcome, secs: float) -> None:
        """Count a request; the responder's `on_outcome`."""
        self._requests.labels(outcome).inc()
        self._latency.observe(secs)
