"""What a stranger installs: the lock file, the licence, the package data, the declared dependencies."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("models", "explorer", "service")
LOCKS = ("requirements.txt", "requirements-weights.txt")

IMPORTED_AS = {"pyyaml": "yaml", "prometheus-client": "prometheus_client", "psycopg": "psycopg"}
"""Import names that differ from the name of the distribution."""


def project() -> dict[str, object]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_requirement_is_pinned_and_hashed(name: str) -> None:
    text = (ROOT / name).read_text()
    requirements = re.split(r"\n(?=\S)", text.strip())
    assert requirements
    for requirement in requirements:
        assert re.match(r"^[a-z0-9._-]+==[^ ]+( ;.*)? \\\n(    --hash=sha256:[0-9a-f]{64}( \\\n)?)+$", requirement), (
            requirement
        )


@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_names_no_host_and_no_index(name: str) -> None:
    assert not re.search(r"://|index-url|find-links|--trusted-host", (ROOT / name).read_text())


def test_every_declared_dependency_is_locked() -> None:
    locked = {line.split("==")[0] for line in (ROOT / "requirements.txt").read_text().splitlines() if "==" in line}
    extras = project()["optional-dependencies"]
    assert isinstance(extras, dict)
    declared = [*project()["dependencies"], *(r for extra in extras.values() for r in extra)]  # type: ignore[misc]
    names = {re.split(r"[\[<>=~! ]", requirement)[0] for requirement in declared} - {"chipfit"}
    assert names <= locked


def test_what_the_product_imports_is_declared() -> None:
    dependencies = project()["dependencies"]
    assert isinstance(dependencies, list)
    declared = {re.split(r"[\[<>=~! ]", requirement)[0] for requirement in dependencies} | {
        "gguf",
        "starlette",
        "anyio",
    }
    known = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in declared} | set(PACKAGES)
    foreign = {
        f"{path.relative_to(ROOT)}: {module}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for module in top_modules(path)
        if module not in known and module not in sys.stdlib_module_names
    }
    assert foreign == set()


def top_modules(path: Path) -> set[str]:
    """What a file imports when it runs: what only a type checker reads need not be installed."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    unread = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in unread:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


def test_the_licence_is_the_one_declared() -> None:
    assert project()["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_no_tracked_file_holds_a_path_of_one_machine() -> None:
    pattern = re.compile(rb"/(work|root|farm|home/[a-z]+)/[a-z]")
    texts = [
        path for path in tracked_files() if path.suffix in {".py", ".toml", ".md", ".yaml", ".yml", ".txt", ".cfg"}
    ]
    assert texts
    found = [
        str(path.relative_to(ROOT)) for path in texts if path != Path(__file__) and pattern.search(path.read_bytes())
    ]
    assert found == []


def test_the_wheel_carries_the_data_of_the_model(tmp_path: Path) -> None:
    """Built without any network, from the tracked files' package data."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    names = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    tracked = {path.relative_to(ROOT).as_posix() for path in tracked_files()}
    data = {name for name in tracked if name.split("/")[0] in PACKAGES}
    assert data - names == set()
    assert not any(name.startswith(("tests/", "examples/")) for name in names)
