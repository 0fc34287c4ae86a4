"""The worker process: an identity, a mailbox on disk, and handlers that are plugins."""
