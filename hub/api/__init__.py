"""The query API: history, agents, sessions, waves, figures and dead letters for callers over NATS (contract §10)."""
