"""Validation of whole folders: every reader runs, bad files are named, the others are still reported."""

import csv
import gzip
import importlib
import json
import pkgutil
import shutil

import pytest

import models.fidelity
from models.fidelity import FAMILIES
from models.fidelity.report import PER_CHIP
from models.fidelity.validate import SHIPPED, readers_of, validate
from models.tables import DATA, read_rows

MEASURED = DATA / "measured"
EXPERTS = MEASURED / "infersim_grouped_gemm.csv"
GEMM = MEASURED / "llmcompass_gemm.csv"


@pytest.fixture
def shipped(shipped_validation):
    return shipped_validation


def lines_of(path):
    return [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def edited(path, folder, edit):
    """Copy a table into a folder with its rows, header first, changed by `edit`."""
    rows = edit(list(csv.reader(lines_of(path))))
    with (folder / path.name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def with_cell(row, column, text):
    def edit(rows):
        rows[row][rows[0].index(column)] = text
        return rows

    return edit


def test_every_module_that_reads_tables_is_registered():
    offered = {
        glob
        for module in pkgutil.iter_modules(models.fidelity.__path__)
        for glob in getattr(importlib.import_module(f"models.fidelity.{module.name}"), "TABLES", {})
    }
    assert offered == {glob for tables in FAMILIES.values() for readers in tables for glob in readers}


def test_a_file_may_have_readers_in_several_families():
    assert [family for family, _ in readers_of("aic_gemm_power.csv")] == ["gemm", "power"]
    assert [family for family, _ in readers_of("chips.csv")] == ["area", "power"]
    assert [family for family, _ in readers_of("aic_moe.csv.gz")] == ["experts"]
    assert readers_of("technology.csv") == []


def test_every_shipped_table_is_read_without_a_problem(shipped):
    files = {path.name for path in MEASURED.iterdir()} | {"chips.csv", "published_quality.csv"}
    assert {each.file for each in shipped.reports} == files
    assert shipped.problems == () and shipped.unrecognised == ()


def test_no_row_of_a_shipped_table_is_dropped_without_a_word(shipped):
    for path in (*MEASURED.iterdir(), *SHIPPED[::2]):
        groups = [e.report for e in shipped.reports if e.file == path.name and e.report.group != PER_CHIP]
        skipped = sum(skip["rows"] for report in groups for skip in report.skipped)
        counted = sum(r.rows + r.out_of_scope for r in groups) + skipped
        assert counted == len(readers_of(path.name)) * len(read_rows(path)), path.name


def test_the_document_is_json_with_the_fields_of_every_group(shipped):
    document = json.loads(json.dumps(shipped.document("1.2.3"), allow_nan=False))
    assert document["model_version"] == "1.2.3"
    group = next(t for t in document["tables"] if t["table"] == "aic_gemm_h100_sxm" and t["group"] == "large")
    assert (group["device"], group["dtype"], group["quantity"]) == ("h100_sxm", "bfloat16", "latency")
    assert group["constants"] == "global"
    assert 0 < group["mape"] < group["roofline_mape"] < 1
    assert 0.5 < group["interval_coverage"] <= 1 and group["interval_width"] > 0


def test_two_runs_are_equal(tmp_path):
    shutil.copy(EXPERTS, tmp_path)
    shutil.copy(GEMM, tmp_path)
    assert validate([tmp_path]) == validate([tmp_path])


def test_tables_are_found_at_any_depth_and_packed_ones_are_read(tmp_path):
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / f"{EXPERTS.name}.gz").write_bytes(gzip.compress(EXPERTS.read_bytes()))
    (tmp_path / "notes.csv").write_text("x\n1\n")
    packed, plain = validate([tmp_path]), validate([EXPERTS])
    assert [each.report for each in packed.reports] == [each.report for each in plain.reports]
    assert {each.file for each in packed.reports} == {f"a/b/{EXPERTS.name}.gz"}
    assert packed.unrecognised == ("notes.csv",)


def test_order_of_columns_and_rows_further_columns_and_line_ends_change_nothing(tmp_path):
    header, *rows = csv.reader(lines_of(EXPERTS))
    table = [[*reversed(header), "extra_us"], *([*reversed(row), "-7"] for row in reversed(rows))]
    text = "\r\n".join(",".join(row) for row in table)
    (tmp_path / EXPERTS.name).write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\r\n")
    for changed, plain in zip(validate([tmp_path]).reports, validate([EXPERTS]).reports, strict=True):
        assert changed.report.rows == plain.report.rows
        assert changed.report.mape == pytest.approx(plain.report.mape, rel=1e-9)


@pytest.mark.parametrize(
    ("edit", "line", "column", "rule"),
    [
        (with_cell(0, "latency_us", "latency_ms"), 1, "latency_us", "got 'latency_ms' in another unit"),
        (lambda rows: [row[:4] + row[5:] for row in rows], 1, "n_local_experts", "column n_local_experts is missing"),
        (with_cell(7, "latency_us", "-3"), 8, "latency_us", "must be a positive number, got '-3'"),
        (with_cell(7, "latency_us", "0"), 8, "latency_us", "must be a positive number, got '0'"),
        (with_cell(7, "latency_us", "nan"), 8, "latency_us", "must be a positive number, got 'nan'"),
        (with_cell(7, "latency_us", ""), 8, "latency_us", "must be a positive number, got ''"),
        (with_cell(7, "device", "moon"), 8, "device", "device 'moon' is no known chip (1 rows)"),
        (lambda rows: rows[:1], 1, "", "no rows below the header"),
        (lambda rows: [], 1, "", "no header"),
        (lambda rows: [*rows[:4], rows[4][:-1], *rows[5:]], 5, "", "a row must have"),
        (lambda rows: [[*row, row[0]] for row in rows], 1, "device", "is given twice"),
    ],
    ids=["unit", "column", "negative", "zero", "nan", "empty cell", "device", "header", "empty", "short row", "twice"],
)  # fmt: skip
def test_a_bad_table_is_named_and_the_others_are_reported(tmp_path, edit, line, column, rule):
    edited(EXPERTS, tmp_path, edit)
    shutil.copy(MEASURED / "llmcompass_allreduce.csv", tmp_path)
    result = validate([tmp_path])
    (problem,) = result.problems
    assert (problem.file, problem.line, problem.column) == (EXPERTS.name, line, column)
    assert rule in problem.rule
    assert any(each.report.table == "llmcompass_allreduce" and each.report.rows for each in result.reports)


@pytest.mark.parametrize(
    ("name", "content", "line", "rule"),
    [
        (EXPERTS.name, EXPERTS.read_bytes().replace(b"H20", b"H\xff0", 1), 4, "text must be UTF-8, got byte 0xff"),
        (f"{EXPERTS.name}.gz", gzip.compress(EXPERTS.read_bytes())[:900], None, "gzip data must be whole"),
        (f"{EXPERTS.name}.gz", b"plain", None, "gzip data must be whole: not a gzipped file"),
        ("chips.csv", b"id,name\nx,y\n", 1, "column vendor is missing"),
    ],
    ids=["not UTF-8", "truncated", "not packed", "chips"],
)
def test_an_unreadable_file_is_named(tmp_path, name, content, line, rule):
    (tmp_path / name).write_bytes(content)
    result = validate([tmp_path])
    assert result.rows == 0
    assert {(problem.file, problem.line) for problem in result.problems} == {(name, line)}
    assert result.problems[0].rule.startswith(rule)


def test_rows_of_unknown_devices_are_counted_and_the_other_rows_scored(tmp_path):
    edited(EXPERTS, tmp_path, with_cell(7, "device", "moon"))
    before, after = validate([EXPERTS]), validate([tmp_path])
    assert after.rows == before.rows - 1
    skipped = [skip for each in after.reports for skip in each.report.skipped]
    assert skipped == [{"reason": "device 'moon' is no known chip", "rows": 1, "line": 8, "column": "device"}]


def test_chips_of_the_folder_are_the_ones_predicted(tmp_path):
    def renamed(rows):
        kept = [row for row in rows if row[0] in ("id", "h100_sxm", "mi210", "tpu_v4")]
        return [[row[0] if row[0] == "id" else f"{row[0]}_b", *row[1:]] for row in kept]

    edited(DATA / "chips.csv", tmp_path, renamed)
    reports = [each.report for each in validate([tmp_path]).reports]
    assert {r.device for r in reports if r.group == PER_CHIP} == {"h100_sxm_b", "mi210_b", "tpu_v4_b"}
    assert {r.group for r in reports if r.quantity == "area"} == {"whole die, unseen", PER_CHIP}
    area = next(r for r in reports if r.device == "h100_sxm_b" and r.quantity == "area")
    assert area.mape == pytest.approx(abs(area.predicted / area.measured - 1))


def test_a_chip_outside_the_technology_is_skipped_by_name_alone(tmp_path):
    def at_65_nm(rows):
        kept = [row for row in rows if row[0] in ("id", "h100_sxm", "tpu_v4")]
        return with_cell(1, "node_nm", "65")(kept)

    edited(DATA / "chips.csv", tmp_path, at_65_nm)
    result = validate([tmp_path])
    assert result.problems == ()
    assert {each.report.device for each in result.reports if each.report.group == PER_CHIP} == {"tpu_v4"}
    reasons = {skip["reason"] for each in result.reports for skip in each.report.skipped}
    assert reasons == {"node 65 nm is outside the tables of technology, 3 to 28 nm"}


def test_a_place_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        validate([tmp_path / "nowhere"])
