"""What a judgement depends on, as hashes: equal ones give equal answers under one version of the model."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from explorer.document import StudyDocument
from explorer.inputs import Inputs, inputs_of

PACKAGES = ("models", "explorer")
UNJUDGED = ("measured", "__pycache__")
"""Folders that no judgement depends on: data it does not read, and compiled code, which comes and goes."""

SEARCH_ONLY = {"name", "search", "robustness"}
"""Parts of a study that say how to look, not what a design is judged by."""


@functools.cache
def model_version() -> str:
    """
    Return the version of the model: that of the package, with a hash of the sources and data that judge designs.

    An answer kept under one version is never given for another, even where only a constant has changed.
    """
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and not set(UNJUDGED) & set(path.parts):
                digest.update(path.relative_to(root).as_posix().encode())
                digest.update(path.read_bytes())
    return f"{importlib.metadata.version('chipfit')}+{digest.hexdigest()[:12]}"


def workload_hash(document: StudyDocument, inputs: Inputs) -> str:
    """Return the hash of everything but the design that a judgement in a study depends on, what it names included."""
    content = document.model_dump(mode="json", by_alias=True, exclude=SEARCH_ONLY)
    return _sha256([content, inputs_of(content, inputs)])


def design_hash(design: Mapping[str, Any]) -> str:
    """Return the hash of a design as field -> value, whatever the order and whether whole numbers have a point."""
    return _sha256({name: float(v) if isinstance(v, int | float) else v for name, v in design.items()})


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
