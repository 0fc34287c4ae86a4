"""Errors of waves: one family; the CLI, the API and the logs render the same text."""


class WaveError(Exception):
    """Something is wrong with a wave."""

    code = "internal"


class BadWave(WaveError):
    """A wave that cannot be run; the text names the tasks, what was expected and what came."""

    code = "bad_request"
