"""The supervisor: knows processes, never envelopes."""
