from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import sqlite

from service.db.filters import FILTER_COLUMNS, FilterError, compile_filter


def sql_of(text: str) -> str:
    return str(compile_filter(text).condition.compile(dialect=sqlite.dialect()))


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("area_mm2 < 600", "designs.area_mm2 < ?"),
        ('memory_kind = "hbm3" OR n_cores >= 8', "designs.memory_kind = ? OR designs.n_cores >= ?"),
        ("NOT feasible = true", "designs.feasible != 1"),
        (
            "n_cores = 1 OR n_cores = 2 AND tdp_w < 3",
            "designs.n_cores = ? OR designs.n_cores = ? AND designs.tdp_w < ?",
        ),
        (
            "(n_cores = 1 OR n_cores = 2) AND tdp_w < 3",
            "(designs.n_cores = ? OR designs.n_cores = ?) AND designs.tdp_w < ?",
        ),
    ],
)
def test_a_filter_becomes_sql_with_bound_values(text: str, sql: str) -> None:
    assert sql_of(text) == sql


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(["AND", "OR", "NOT", "IN", "(", ")", ",", "=", "<", "1", "-2.5e3", '"x"', "'", ";", "true"])
        | st.sampled_from(FILTER_COLUMNS)
        | st.text(max_size=5),
        max_size=12,
    )
)
def test_any_text_is_compiled_or_refused(words: list[str]) -> None:
    try:
        assert "designs." in sql_of(" ".join(words))
    except FilterError as error:
        assert str(error)


def test_a_number_in_quotes_is_refused_where_a_number_is_held() -> None:
    with pytest.raises(FilterError, match="area_mm2 must carry a unit, such as '600 mm2', got '600'"):
        compile_filter('area_mm2 < "600"')


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("area_mm2 < 600 and (tdp_w < 3 and area_mm2 > 2)", {"area_mm2", "tdp_w"}),
        ("area_mm2 < 600 or tdp_w < 3", set()),
        ("not area_mm2 < 600 and tdp_w != 3", set()),
        ("area_mm2 < 600 and (tdp_w < 3 or n_cores = 2) and n_cores in (1, 2)", {"area_mm2", "n_cores"}),
    ],
    ids=["all", "either", "negated", "in"],
)
def test_a_filter_tells_what_every_match_meets(text: str, required: set[str]) -> None:
    assert set(compile_filter(text).required) == required
