"""The count of evictions: unread messages that left an inbox before they were delivered. Pure.

JetStream tells nobody when a limit drops a message. What two looks at the same inbox prove is counted: the oldest
unread message was never delivered, and is gone. Of what left between two looks that proves one, or all that were unread
when none of them is left: the count is a lower bound.
"""

import msgspec

from hub.delivery.report import Report


class _Seen(msgspec.Struct, frozen=True):
    oldest_seq: int
    last_seq: int
    unread: int


class EvictionCount:
    """Counts from look to look.

    Attributes:
        total: unread messages that were lost, at least.
    """

    def __init__(self) -> None:
        self.total = 0
        self._seen: dict[str, _Seen] = {}

    def take(self, report: Report) -> int:
        """Compare with the look before.

        Returns:
            How many were lost since then, at least.
        """
        stream = next((f.data for f in report.findings if f.data.get("role") == "inbox"), {})
        last_seq = int(stream.get("last_seq", 0))
        now: dict[str, _Seen] = {}
        lost = 0
        for finding in report.findings:
            data = finding.data
            if not finding.name.startswith("inbox ") or data.get("oldest_seq") is None:
                continue
            seen = _Seen(data["oldest_seq"], last_seq, data["waiting"] + data["unacked"])
            before = self._seen.get(finding.name)
            if before and data["delivered_seq"] < before.oldest_seq < seen.oldest_seq:
                lost += before.unread if seen.oldest_seq > before.last_seq > 0 else 1
            now[finding.name] = seen
        self._seen = now
        self.total += lost
        return lost
