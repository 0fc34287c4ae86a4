"""What every long-lived process of ours does alike: logs, signals, readiness, metrics, exit codes, the state folder."""
