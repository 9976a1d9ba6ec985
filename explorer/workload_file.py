"""Files that hold a workload: traces, lists of matrix products, layer tables, and documents that state scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from explorer.document import StudyError
from explorer.files import MAX_BYTES
from explorer.inputs import InputFile, Inputs, Uploads, named_trace, read_plain_document
from explorer.inspection import inspect_study
from explorer.workload import pointing_at
from models.workload.inspect import workload_statistics
from models.workload.requests import MAX_TRACE_BYTES, ZeroRows, unpacked

WorkloadKind = Literal["trace", "gemm_list", "layer_table", "workload", "study"]

GEMM_COLUMNS, LAYER_COLUMNS = {"m", "n", "k"}, {"in_h", "in_w", "in_c", "out_c"}
"""Columns by which tables that are no traces are recognised."""

YAML_SUFFIXES = (".yaml", ".yml")

INSPECTION_STUDY = {
    "budget": {"area": "800 mm2", "tdp": "700 W"},
    "objectives": [{"metric": "area_mm2", "direction": "minimize"}],
}
"""What a workload alone does not say; the shape of the work does not depend on it."""


def inspect_file(path: Path, zero_token_rows: ZeroRows = "refuse") -> dict[str, Any]:
    """
    Return what a workload file asks for; files that it names lie beside it.

    Raises
    ------
    StudyError
        If the file breaks a rule; the message names line or field.
    """
    with pointing_at(""):
        if not path.is_file():
            raise LookupError(f"no trace file '{path}'")
        if path.stat().st_size > MAX_TRACE_BYTES:
            raise ValueError(f"{path.name} must be at most {MAX_TRACE_BYTES} B, got {path.stat().st_size}")
        file = InputFile(path.name.removesuffix(".gz"), unpacked(path.read_bytes(), path.name), zero_token_rows)
    return inspect_input(file, path.parent)


def inspect_input(file: InputFile, inputs: Inputs) -> dict[str, Any]:
    """
    Return what a workload file asks for, before any hardware is chosen.

    Parameters
    ----------
    file : InputFile
        A trace in any format that `read_trace` knows, a list of matrix products or a layer table (CSV), or a document
        (YAML, JSON): a study, the `scenarios` of one, or rows of matrix products.
    inputs : Path or Uploads, optional
        Where files lie that a document names.

    Returns
    -------
    dict
        `kind`, `name`; `requests`, `moments` and `classes` of a trace; of everything else `scenarios` with the
        `operators` that each becomes on its reference chip.

    Raises
    ------
    StudyError
        If the file breaks a rule; the message names line or field.
    """
    with pointing_at(""):
        kind = workload_kind(file)
        if kind == "trace":
            statistics = workload_statistics(named_trace(file.name, Uploads({file.name: file})))
            return {"kind": kind, "name": file.name, **statistics}
        if kind in ("study", "workload"):
            return inspect_study(stated_study(file), inputs) | {"kind": kind}
    study = _study(file.name, _table_workload(kind, file))
    try:
        return inspect_study(study, Uploads({file.name: file})) | {"kind": kind}
    except StudyError as error:
        raise StudyError([{"pointer": "", "detail": each["detail"]} for each in error.errors]) from None


def stated_study(file: InputFile) -> Any:
    """Return the study that a document states, one around its workload where it states that alone, or nothing."""
    kind = workload_kind(file)
    if kind == "workload":
        return _study(file.name, {"scenarios": read_plain_document(file)["scenarios"]})
    return read_plain_document(file) if kind == "study" else {}


def read_zero_token_rows(text: str) -> ZeroRows:
    """Return what to do with rows without tokens, or raise StudyError."""
    if text not in ("refuse", "drop"):
        detail = f"must be 'refuse' or 'drop', got '{text[:40]}'"
        raise StudyError([{"pointer": "/zero_token_rows", "detail": detail}])
    return "drop" if text == "drop" else "refuse"


def workload_kind(file: InputFile) -> WorkloadKind:
    """Return what a file holds, by the fields of its document or the columns of its table."""
    start = file.content[:MAX_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip()
    is_yaml = file.name.lower().endswith(YAML_SUFFIXES)
    if is_yaml or (start[:1] in (b"{", b"[") and len(file.content) <= MAX_BYTES):
        return _document_kind(file, is_yaml)
    header = next((line for line in start.splitlines() if line.strip() and not line.startswith(b"#")), b"")
    columns = {cell.strip().lower() for cell in header.decode("utf-8", "replace").split(",")}
    if columns >= GEMM_COLUMNS:
        return "gemm_list"
    return "layer_table" if columns >= LAYER_COLUMNS else "trace"


def _document_kind(file: InputFile, is_yaml: bool) -> WorkloadKind:
    """A JSON document that is none of ours is a trace, whose reader says what is wrong with it."""
    try:
        document = read_plain_document(file)
    except (StudyError, ValueError):
        if is_yaml:
            raise
        return "trace"
    if isinstance(document, dict) and isinstance(document.get("scenarios"), list):
        return "workload"
    rows = document.get("rows") if isinstance(document, dict) else document
    if isinstance(rows, list) and rows and isinstance(rows[0], dict) and rows[0].keys() >= GEMM_COLUMNS:
        return "gemm_list"
    return "study" if is_yaml or (isinstance(document, dict) and "workload" in document) else "trace"


def _study(name: str, workload: dict[str, Any]) -> dict[str, Any]:
    return {"name": name[:200], "workload": workload, **INSPECTION_STUDY}


def _table_workload(kind: WorkloadKind, file: InputFile) -> dict[str, Any]:
    """The one scenario that a table states."""
    if kind == "gemm_list":
        return {"scenarios": [{"name": file.name[:100], "kind": "gemm_list", "file": file.name}]}
    return {"scenarios": [{"name": file.name[:100], "kind": "convnet", "network": file.name}]}
