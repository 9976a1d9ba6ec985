"""`chipfit validate`: JSON on stdout, problems on stderr, exit codes."""

import json
import shutil

from typer.testing import CliRunner

from models.tables import DATA
from service.cli import app

TABLE = DATA / "measured" / "llmcompass_allreduce.csv"
FIELDS = {
    "table", "group", "device", "dtype", "quantity", "constants", "rows", "out_of_scope", "skipped", "mape",
    "calibrated_mape", "leave_one_device_out_mape", "median_ape", "bias", "p90_ape", "kendall_tau", "spearman",
    "roofline_mape", "interval_coverage", "interval_width",
}  # fmt: skip


def run(*arguments):
    return CliRunner().invoke(app, ["validate", *map(str, arguments)])


def test_one_json_document_with_every_field(tmp_path):
    shutil.copy(TABLE, tmp_path)
    result = run("--data", tmp_path, "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["errors"] == [] and document["model_version"]
    (group,) = document["tables"]
    assert set(group) >= FIELDS
    assert group["rows"] == 26


def test_a_bad_table_is_listed_and_the_exit_code_is_0_while_another_is_reported(tmp_path):
    shutil.copy(TABLE, tmp_path)
    (tmp_path / "aic_moe.csv").write_text("device,tokens\nh100_sxm,1\n")
    result = run("--data", tmp_path, "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    (error,) = document["errors"]
    assert (error["file"], error["line"], error["column"]) == ("aic_moe.csv", 1, "hidden")
    assert len(document["tables"]) == 1
    assert result.stderr.startswith("chipfit: aic_moe.csv line 1: column hidden is missing")


def test_nothing_to_compare_and_a_missing_folder_end_with_2(tmp_path):
    result = run("--data", tmp_path, "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["tables"] == []
    assert "no measured row could be compared" in result.stderr
    missing = run("--data", tmp_path / "nowhere")
    assert missing.exit_code == 2
    assert "no such file or folder" in missing.stderr


def test_without_json_a_table_with_errors_in_percent(tmp_path):
    shutil.copy(TABLE, tmp_path)
    result = run("--data", tmp_path)
    assert result.exit_code == 0
    document = json.loads(run("--data", tmp_path, "--json").stdout)
    assert f"{100 * document['tables'][0]['mape']:.1f}" in result.stdout
    assert "llmcompass_allreduce" in result.stdout
