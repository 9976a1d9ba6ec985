"""States of a study."""

from __future__ import annotations

from typing import Literal, get_args

StudyState = Literal["queued", "running", "succeeded", "failed", "cancelled"]

StudyQueue = Literal["studies", "sweeps"]
"""Studies that people wait for, and those of sweeps and schedules."""

STUDY_STATES: tuple[StudyState, ...] = get_args(StudyState)
