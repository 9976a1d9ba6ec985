"""Documents in YAML or JSON: bounded, without tags, cycles, NaN or infinities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from explorer.document import StudyError
from models.fidelity.profiles import profile_document, read_profile

MAX_BYTES = 5_000_000


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases, so that a document can be neither cyclic nor a bomb."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse an alias where it stands."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=event.start_mark)
        return super().compose_node(parent, index)


def parse_yaml(text: str, name: str) -> Any:
    """
    Return the parsed document.

    Raises
    ------
    StudyError
        Naming the line where the text is no plain YAML.
    """
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" line {mark.line + 1}" if mark else ""
        raise StudyError([{"pointer": "", "detail": f"{name}{where}: {error.problem}"}]) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise StudyError([{"pointer": "", "detail": f"{name}: no plain YAML ({type(error).__name__})"}]) from None


def parse_json(text: str, name: str) -> Any:
    """
    Return the parsed document.

    Raises
    ------
    StudyError
        Naming the line where the text is no JSON.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        detail = f"{name} line {error.lineno} column {error.colno}: malformed JSON, {error.msg}"
    except RecursionError:
        detail = f"{name}: malformed JSON, nested too deeply"
    except ValueError as error:
        detail = f"{name}: {error}"
    raise StudyError([{"pointer": "", "detail": detail}])


def _refuse_constant(text: str) -> None:
    raise ValueError(f"numbers must be finite, got {text}")


def read_yaml(path: Path) -> Any:
    """
    Return the document in a file.

    Raises
    ------
    StudyError
        If the file is missing, too large, not UTF-8 or no plain YAML.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise StudyError([{"pointer": "", "detail": f"{path.name} must be at most {MAX_BYTES} bytes"}])
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise StudyError([{"pointer": "", "detail": f"{path.name} must be UTF-8 text"}]) from None
    except OSError as error:
        raise StudyError([{"pointer": "", "detail": f"{path}: {error.strerror}"}]) from None
    return parse_yaml(text, path.name)


def with_profile(document: Any, profile: str | None) -> Any:
    """
    Return a study document with the calibration profile of the command line: a file (TOML), or a shipped one by name.

    Raises
    ------
    StudyError
        If the file is no profile.
    """
    if profile is None or not isinstance(document, dict):
        return document
    path = Path(profile)
    if not path.is_file():
        return document | {"profile": profile}
    try:
        return document | {"profile": profile_document(read_profile(path))}
    except (ValueError, LookupError) as error:
        raise StudyError([{"pointer": "/profile", "detail": str(error)}]) from None
