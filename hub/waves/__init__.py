"""Waves: sets of tasks with dependencies; what makes one valid. Pure."""

from hub.waves.errors import BadWave, WaveError
from hub.waves.validation import MAX_TASKS, validated

__all__ = ["validated", "MAX_TASKS", "WaveError", "BadWave"]
