"""Power against real boards: limits of the report, and bad tables."""

import pytest

from models.fidelity.power import best_shape_reports, gemm_power_reports, left_out_w, rating_reports
from models.fidelity.report import TableError
from models.fidelity.tdp_rows import envelope_w
from models.hardware.catalog import CHIPS
from models.tables import DATA

MEASURED = DATA / "measured"
HEADER = "device,op,m,n,k,dtype,latency_us,power_w,power_limit_w,source\n"


def test_ratings_are_scored_without_products_whose_envelope_is_the_rating():
    # The limits of the project are 9 and 11 % (18 % unseen): held only with the products that know their answer.
    rated, unseen, circular, other, *per_chip = rating_reports(CHIPS)
    assert len({report.device for report in per_chip}) == sum(r.rows for r in (rated, unseen, circular, other))
    assert [report.group for report in (rated, unseen)] == ["rated", "rated, unseen"]
    assert rated.rows >= 18
    assert rated.median_ape < 0.14
    assert rated.leave_one_device_out_median_ape < 0.17
    assert unseen.median_ape < 0.18
    assert circular.rows >= 8
    assert other.rows > 5


def test_long_steady_gemms_in_wide_formats_hold_15_percent():
    reports = {
        (r.device, r.dtype): r for r in gemm_power_reports(MEASURED / "aic_gemm_power.csv") if r.group == "steady, long"
    }
    assert reports["h200_sxm", "bfloat16"].mape < 0.15
    assert reports["b200_sxm", "bfloat16"].mape < 0.15


def test_every_row_of_measured_power_is_reported():
    rows = sum(report.rows for report in gemm_power_reports(MEASURED / "aic_gemm_power.csv"))
    lines = (MEASURED / "aic_gemm_power.csv").read_text().splitlines()
    assert rows == sum(not line.startswith("#") for line in lines) - 1


def test_share_of_peak_at_the_best_shape_lies_within_8_points():
    report = next(iter(best_shape_reports(MEASURED / "gemm_throughput_best_shapes.csv")))
    assert report.mean_absolute_difference < 0.08
    assert report.leave_one_device_out_mean_absolute_difference < 0.08


def test_left_out_ratings_exist_for_the_chips_of_the_fit():
    assert left_out_w()["a100_sxm"] == pytest.approx(400, rel=0.3)


def test_an_unknown_device_is_refused_with_file_and_line(tmp_path):
    path = tmp_path / "aic_gemm_power.csv"
    path.write_text(HEADER + "h300_sxm,gemm,1,32,32,bfloat16,2.3,149.1,700.0,x\n")
    with pytest.raises(TableError, match=r"aic_gemm_power.csv line 2: device 'h300_sxm' is no known chip"):
        list(gemm_power_reports(path))


@pytest.mark.parametrize("power", ["-5", "0", "much"])
def test_a_power_that_is_not_positive_is_refused_with_line_and_column(tmp_path, power):
    path = tmp_path / "aic_gemm_power.csv"
    path.write_text(HEADER + f"h200_sxm,gemm,1,32,32,bfloat16,2.3,{power},700.0,x\n")
    with pytest.raises(TableError, match=rf"line 2: power_w must be a positive number, got '{power}'"):
        list(gemm_power_reports(path))


def test_a_power_in_another_unit_is_refused(tmp_path):
    path = tmp_path / "aic_gemm_power.csv"
    path.write_text(HEADER.replace("power_w,", "power_kw,") + "h200_sxm,gemm,1,32,32,bfloat16,2.3,0.1,700.0,x\n")
    with pytest.raises(TableError, match="column power_w is missing, got 'power_kw' in another unit"):
        list(gemm_power_reports(path))


@pytest.mark.parametrize(
    ("row", "limit_w"),
    [
        ({"link_name": "none", "link_gb_per_s_bidir": "0", "mem_gb_per_s": "300"}, 75),
        ({"link_name": "none", "link_gb_per_s_bidir": "0", "mem_gb_per_s": "864"}, 350),
        ({"link_name": "NVLink3 bridge", "link_gb_per_s_bidir": "600", "mem_gb_per_s": "1935"}, 350),
        ({"link_name": "NVLink4", "link_gb_per_s_bidir": "900", "mem_gb_per_s": "3350"}, float("inf")),
        ({"link_name": "NVLink4", "link_gb_per_s_bidir": "900", "envelope_w": "400"}, 400),
    ],
    ids=["slot-powered card", "card", "bridged card", "module", "as listed"],
)
def test_form_factor_follows_from_links_and_memory_unless_listed(row, limit_w):
    assert envelope_w(row) == limit_w
