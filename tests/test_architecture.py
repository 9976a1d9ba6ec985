"""Which package may import which, and what every registry must hold."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAY_IMPORT = {"models": {"models"}, "explorer": {"explorer", "models"}, "service": {"service", "explorer", "models"}}

MODEL_LAYERS = (
    ("checks", "tables"),
    ("architectures.lowered", "technology", "workload"),
    ("precision",),
    ("hardware",),
    ("operators",),
    ("architectures",),
    ("evaluation",),
    ("serving",),
    ("throughput",),
    ("metrics",),
    ("evaluate",),
    ("fidelity",),
)
"""Lowest first; a layer imports itself and lower ones. `lowered` and `evaluation` only declare what others fill."""

FORBIDDEN_NAMES = ("util", "utils", "helper", "helpers", "common", "base", "manager", "factory", "impl", "misc")


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the full name of every module or name a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer_of(module: str) -> int | None:
    """Height of a module of `models` by its longest named prefix, None where no layer names it."""
    heights = {name: height for height, names in enumerate(MODEL_LAYERS) for name in names}
    named = [name for name in heights if f"{module}.".startswith(f"models.{name}.")]
    return heights[max(named, key=len)] if named else None


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_those_below_it(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources(package)
        for module in imported_modules(path)
        if module.split(".")[0] in MAY_IMPORT and module.split(".")[0] not in MAY_IMPORT[package]
    ]
    assert wrong == []


def test_a_layer_of_the_model_imports_only_itself_and_lower_ones() -> None:
    wrong = []
    for path in sources("models"):
        own = layer_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for module in imported_modules(path):
            other = layer_of(module) if module.startswith("models.") else None
            if own is not None and other is not None and other > own:
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert wrong == []


def test_every_part_of_the_model_has_its_layer() -> None:
    parts = {module.name for module in pkgutil.iter_modules([str(ROOT / "models")])}
    assert parts <= {name for names in MODEL_LAYERS for name in names}


def test_the_model_does_no_io_of_its_own_kind() -> None:
    """No logging, no clock, no network, no database inside the model."""
    forbidden = {
        "logging",
        "time",
        "datetime",
        "socket",
        "urllib",
        "http",
        "httpx",
        "sqlalchemy",
        "fastapi",
        "structlog",
    }
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources("models")
        for module in imported_modules(path)
        if module.split(".")[0] in forbidden
    ]
    assert wrong == []


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_files_are_named_after_what_they_compute(package: str) -> None:
    assert [str(path) for path in sources(package) if path.stem in FORBIDDEN_NAMES] == []


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_code_prints_or_reads_the_environment_on_the_side(package: str) -> None:
    """Only the edges may print; settings come as arguments."""
    allowed = {"service/cli.py", "service/tables.py", "service/demo.py", "service/settings.py"}
    wrong = []
    for path in sources(package):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            prints = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            reads = isinstance(node, ast.Attribute) and node.attr == "environ"
            if (prints or reads) and path.relative_to(ROOT).as_posix() not in allowed:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert wrong == []


def test_the_model_names_no_device() -> None:
    """A chip is a row of data; code that asks for its name would be a special case."""
    from models.hardware.catalog import chip_ids

    wrong = []
    for path in sources("models"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                constants = [c.value for c in [node.left, *node.comparators] if isinstance(c, ast.Constant)]
                wrong += [f"{path.relative_to(ROOT)}:{node.lineno} {c}" for c in constants if c in set(chip_ids())]
    assert wrong == []


def test_every_router_of_the_api_is_served() -> None:
    from fastapi import APIRouter

    import service.api

    found = set()
    for module in pkgutil.iter_modules(service.api.__path__):
        router = getattr(importlib.import_module(f"service.api.{module.name}"), "router", None)
        if isinstance(router, APIRouter):
            found.add(id(router))
    assert found == {id(router) for router in service.api.ROUTERS}


@pytest.mark.parametrize(
    ("module", "registry"),
    [
        ("models.metrics", "METRICS"),
        ("models.architectures", "ARCHITECTURES"),
        ("explorer.samplers", "SAMPLERS"),
    ],
)
def test_every_registry_has_entries_under_plain_names(module: str, registry: str) -> None:
    entries = getattr(importlib.import_module(module), registry)
    assert entries
    assert all(name == name.lower() and name.replace("_", "").replace("-", "").isalnum() for name in entries)
