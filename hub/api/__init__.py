"""The query API: history, agents, sessions, waves, figures and dead letters for callers over NATS (contract §10)."""

from hub.api.metrics import ApiMetrics
from hub.api.operation import Facts, WaveControl
from hub.api.service import ApiService

__all__ = ["ApiService", "ApiMetrics", "Facts", "WaveControl"]
