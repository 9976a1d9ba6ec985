from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from explorer.document import StudyError
from explorer.files import read_yaml
from explorer.sweep import cell_name, cells, heat_map, read_sweep
from explorer.sweep_run import explore_sweep

EXAMPLES = Path(__file__).parents[2] / "examples"


def grid(**changes: Any) -> dict[str, Any]:
    """A sweep over three areas and two nodes; `changes` replace its fields."""
    axes = [
        {"name": "node_nm", "values": [5, 7]},
        {"name": "area", "values": ["200 mm2", "400 mm2", "600 mm2"]},
    ]
    return {"name": "grid", "study": {"budget": {"area": "1 mm2", "tdp": "9 W"}}, "axes": axes, **changes}


def test_cells_are_every_combination_with_the_last_axis_fastest() -> None:
    sweep = read_sweep(grid(), 100)
    found = list(cells(sweep))
    assert [cell.coordinates for cell in found] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert found[4].document["budget"] == {"area": "400 mm2", "tdp": "9 W"}
    assert found[4].document["technology"] == {"node_nm": 7}
    assert cell_name(sweep, (1, 2)) == "grid: node_nm 7, area 600 mm2"
    assert sweep.study["budget"]["area"] == "1 mm2"


def test_a_grid_of_a_billion_cells_is_refused_before_it_is_made() -> None:
    axes = [{"name": f"a{i}", "pointer": f"/x{i}", "values": list(range(1000))} for i in range(3)]
    with pytest.raises(StudyError, match=r"at most 1000 cells, got 1000 x 1000 x 1000 = 1000000000") as refused:
        read_sweep(grid(axes=axes), 1000)
    assert refused.value.errors[0]["pointer"] == "/axes"


TWICE = [{"name": "area", "values": [1]}, {"name": "a", "pointer": "/budget/area", "values": [1]}]


@pytest.mark.parametrize(
    ("axes", "pointer", "said"),
    [
        ([{"name": "colour", "values": [1]}], "/axes/0", "come with a pointer"),
        ([{"name": "area", "values": []}], "/axes/0/values", "at least 1"),
        ([{"name": "area", "values": ["1 mm2"], "labels": []}], "/axes/0", "as many as values"),
        (TWICE, "/axes", "different fields"),
    ],
    ids=["unknown", "empty", "labels", "twice"],
)  # fmt: skip
def test_a_bad_axis_is_named(axes: list[dict[str, Any]], pointer: str, said: str) -> None:
    with pytest.raises(StudyError, match=said) as refused:
        read_sweep(grid(axes=axes), 1000)
    assert refused.value.errors[0]["pointer"] == pointer


def test_a_pointer_into_nothing_is_named() -> None:
    sweep = read_sweep(grid(axes=[{"name": "x", "pointer": "/budget/area/3", "values": [1]}]), 10)
    with pytest.raises(StudyError, match="the study has no field /budget/area/3"):
        list(cells(sweep))


def test_a_heat_map_has_rows_and_columns_and_says_what_has_not_ended() -> None:
    sweep = read_sweep(grid(), 100)
    made = heat_map(sweep, {(0, 1): 2.0, (1, 2): None}, "area_mm2")
    assert made["values"] == [[None, 2.0, None], [None, None, None]]
    assert made["ended"] == [[False, True, False], [False, False, True]]
    turned = heat_map(sweep, {(0, 1): 2.0}, "area_mm2", x="node_nm", y="area")
    assert turned["values"] == [[None, None], [2.0, None], [None, None]]
    assert (turned["x"]["labels"], made["unit"], made["direction"]) == (["5", "7"], "mm2", "minimize")


def test_a_sweep_in_this_process_recommends_no_less_in_a_larger_budget() -> None:
    document = read_yaml(EXAMPLES / "sweep-budgets.yaml")
    document["axes"] = [{"name": "area", "values": ["500 mm2", "700 mm2"]}]
    document["study"]["search"] = {"sampler": "random", "trials": 60, "seed": 1}
    done: list[int] = []
    result = explore_sweep(document, None, lambda n, of: done.append(n))
    small, large = result["heat_maps"][0]["values"][0]
    assert done == [1, 2]
    assert large >= small > 0
    assert [cell["metrics"]["sustainable_output_tokens_per_s"] for cell in result["cells"]] == [small, large]


def test_a_fault_of_a_cell_is_named_at_its_axis() -> None:
    document = read_yaml(EXAMPLES / "sweep-budgets.yaml")
    document["axes"] = [{"name": "area", "values": ["-3 mm2"]}]
    with pytest.raises(StudyError) as refused:
        explore_sweep(document, None, lambda n, of: None)
    assert [error["pointer"] for error in refused.value.errors] == ["/axes/0/values/0"]
