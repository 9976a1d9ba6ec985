"""Fixtures shared by all tests."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("CHIPFIT_PROCESSES", "1")

import pytest


@pytest.fixture(scope="session")
def shipped_validation():
    """Predicted against measured for the tables of the package, once for all tests that ask for it."""
    from models.fidelity.validate import validate

    return validate()
