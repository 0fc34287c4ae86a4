"""Counters of a router: plain numbers on the hot path, Prometheus families when they are read."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from hub.delivery.evictions import EvictionCount
from hub.delivery.report import Report
from hub.router.rules import Home, Reason

log = structlog.get_logger(__name__)

_LATENCY_BUCKETS_SECS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LatencyCount:
    """How many took how long. Counted on every message: the client library's histogram takes a lock a bucket.

    Args:
        name: the metric's.
        help_text: what is measured.
    """

    def __init__(self, name: str, help_text: str) -> None:
        self._name = name
        self._help_text = help_text
        self._counts = [0] * (len(_LATENCY_BUCKETS_SECS) + 1)  # the last one: above all buckets
        self._sum_secs = 0.0

    def observe(self, secs: float) -> None:
        """Count one."""
        self._counts[bisect_left(_LATENCY_BUCKETS_SECS, secs)] += 1
        self._sum_secs += secs

    def family(self) -> HistogramMetricFamily:
        """The family for a scrape."""
        bounds = [*map(str, _LATENCY_BUCKETS_SECS), "+Inf"]
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        return HistogramMetricFamily(self._name, self._help_text, buckets=buckets, sum_value=self._sum_secs)


class RouterMetrics(Collector):
    """What a router counts.

    Attributes:
        routed: messages that reached their home, by home.
        dropped: messages that went nowhere, by reason (contract §3.4).
        naks: publishes that failed and will be tried again.
        redelivered: ingress messages that came more than once.
        duplicates: stored copies that were there already.
        in_flight: tells how many publishes' outcomes are open; their owner puts it here.
        ingress_pending: messages waiting in the ingress behind the last one that came.
        ingress_oldest_secs: how old the oldest message in the ingress was at the last look, by the server's clock.
        inboxes: of the last look: `unread` messages, `stalled` inboxes, `full` ones that drop their oldest unread.
        evictions: unread messages that left an inbox before they were delivered, at least.
        mirror_dropped: best-effort rows that the mirror's bounded queue had no room for.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.routed: dict[Home, int] = dict.fromkeys(Home, 0)
        self.dropped: dict[Reason, int] = dict.fromkeys(Reason, 0)
        self.naks = 0
        self.redelivered = 0
        self.duplicates = 0
        self.in_flight: Callable[[], int] = lambda: 0
        self.ingress_pending = 0
        self.ingress_oldest_secs = 0.0
        self.inboxes = {"unread": 0, "stalled": 0, "full": 0}
        self.evictions = EvictionCount()
        self.mirror_dropped = 0
        self.mirror_lag: dict[str, int] = {}
        self.dead_letters_lost = 0
        self.streams_made_again = 0
        self.publish_latency = LatencyCount("hub_publish_latency_seconds", "From the publish into a stream to its ack")
        self.registry = registry or CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The families for a scrape."""
        yield self.publish_latency.family()
        routed = CounterMetricFamily("hub_routed", "Messages that reached their home", labels=["home"])
        for home, count in self.routed.items():
            routed.add_metric([home.value], count)
        yield routed
        dropped = CounterMetricFamily("hub_dropped", "Messages that went nowhere", labels=["reason"])
        for reason, count in self.dropped.items():
            dropped.add_metric([reason.value], count)
        yield dropped
        lag = GaugeMetricFamily("hub_mirror_lag", "Stored messages that history lacks yet", labels=["stream"])
        for stream, count in self.mirror_lag.items():
            lag.add_metric([stream], count)
        yield lag
        yield CounterMetricFamily("hub_naks", "Failed publishes that are tried again", value=self.naks)
        yield CounterMetricFamily("hub_redelivered", "Ingress messages that came again", value=self.redelivered)
        yield CounterMetricFamily("hub_duplicates", "Stored copies that were there already", value=self.duplicates)
        yield CounterMetricFamily("hub_mirror_dropped", "Broadcasts missing in the history", value=self.mirror_dropped)
        yield CounterMetricFamily("hub_dead_letters_lost", "Dead letters not kept", value=self.dead_letters_lost)
        yield CounterMetricFamily("hub_streams_made_again", "Streams that were lost", value=self.streams_made_again)
        yield GaugeMetricFamily("hub_in_flight", "Publishes whose outcome is open", value=self.in_flight())
        yield GaugeMetricFamily("hub_ingress_pending", "Messages waiting to be routed", value=self.ingress_pending)
        yield GaugeMetricFamily(
            "hub_ingress_oldest_age_seconds", "Age of the oldest message to be routed", value=self.ingress_oldest_secs
        )
        yield GaugeMetricFamily("hub_inbox_unread", "Messages not acked, all inboxes", value=self.inboxes["unread"])
        yield GaugeMetricFamily(
            "hub_inboxes_stalled", "Inboxes at their limit of un-acked messages", value=self.inboxes["stalled"]
        )
        yield GaugeMetricFamily(
            "hub_inboxes_full",
            "Inboxes that drop their oldest unread message for each new one",
            value=self.inboxes["full"],
        )
        yield CounterMetricFamily(
            "hub_evictions", "Unread messages dropped by a limit, at least", value=self.evictions.total
        )

    def take(self, report: Report) -> None:
        """Take over what a look at the streams found."""
        ingress, inboxes = report.named("ingress"), report.named("inboxes")
        if ingress is not None:
            self.ingress_pending = ingress.data["waiting"]
            self.ingress_oldest_secs = ingress.data["oldest_secs"]
        if inboxes is not None:
            self.inboxes = {
                "unread": inboxes.data["unread"],
                "stalled": inboxes.data["stalled"],
                "full": inboxes.data["full"],
            }
            lost = self.evictions.take(report)
            if lost:
                log.error("unread messages were dropped by a limit of the inbox stream", at_least=lost)
