"""Tables of shared rows: built once, right after eviction, keyed by everything they depend on."""

import functools
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hardware.design import concatenate, take
from models.operators import factor_tables
from models.operators.factor_tables import Blocks, FactorTables, compress
from models.operators.step import run_step
from tests.models.random_designs import random_designs
from tests.models.serving_scenarios import compiled

FIELDS = ("n_cores", "l2_bytes")
ALL = np.arange(4)
ONE_BLOCK, TWO_BLOCKS = Blocks(np.zeros(4, dtype=int)), Blocks(np.array([7, 7, 3, 7]))


class Rows:
    """A builder that counts what it is asked for."""

    def __init__(self):
        self.built = 0

    def __call__(self, designs, rate, entries=ALL):
        self.built += designs.n_designs * len(entries)
        return np.stack([designs.n_cores, designs.l2_bytes, rate, designs.n_cores * rate], axis=1)[:, entries]


@settings(max_examples=20, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_compressed_columns_restore_the_originals(rows):
    m, n = np.array(rows, dtype=float).T
    distinct, index = compress(m=m, n=n)
    np.testing.assert_array_equal(distinct["m"][index], m)
    np.testing.assert_array_equal(distinct["n"][index], n)
    assert len(distinct["m"]) == len(set(rows))


def test_a_row_is_built_once_for_each_key():
    tables, rows, designs = FactorTables(), Rows(), random_designs(1, 6)
    doubled = take(designs, [0, 1, 2, 3, 4, 5, 0, 3])
    first = tables.rows("t", doubled, FIELDS, ONE_BLOCK, rows)
    assert rows.built == 6 * 4
    np.testing.assert_array_equal(tables.rows("t", doubled, FIELDS, ONE_BLOCK, rows), first)
    assert rows.built == 6 * 4
    np.testing.assert_array_equal(first[:, 0], doubled.n_cores)


def test_the_rate_is_part_of_the_key():
    tables, rows, designs = FactorTables(), Rows(), random_designs(1, 3)
    slow = tables.rows("t", designs, FIELDS, ONE_BLOCK, rows, rate_ratio=1.0)
    fast = tables.rows("t", designs, FIELDS, ONE_BLOCK, rows, rate_ratio=np.array([2.0, 2.0, 1.0]))
    np.testing.assert_array_equal(fast[:, 2], [2.0, 2.0, 1.0])
    np.testing.assert_array_equal(fast[2], slow[2])
    assert rows.built == 5 * 4


def test_tables_of_other_names_are_apart():
    tables, rows, designs = FactorTables(), Rows(), random_designs(1, 3)
    tables.rows("one", designs, FIELDS, ONE_BLOCK, rows)
    tables.rows("other", designs, FIELDS, ONE_BLOCK, rows)
    assert rows.built == 6 * 4


def test_wanted_columns_equal_a_selection_of_the_row():
    tables, rows, designs = FactorTables(), Rows(), random_designs(2, 4)
    wanted = np.array([[0, 3], [1, 1], [2, 0], [3, 2]])
    whole = tables.rows("t", designs, FIELDS, ONE_BLOCK, rows)
    np.testing.assert_array_equal(
        tables.rows("t", designs, FIELDS, ONE_BLOCK, rows, columns=wanted), whole[np.arange(4)[:, None], wanted]
    )


@pytest.mark.parametrize("n_kept", [1, 3, 7])
def test_rows_are_right_after_a_full_table_starts_afresh(monkeypatch, n_kept):
    monkeypatch.setattr(factor_tables, "MAX_TABLE_BYTES", 10 * 4 * 8)
    tables, rows = FactorTables(), Rows()
    first, second = random_designs(3, 9), random_designs(4, 9)
    mixed = concatenate([take(first, np.arange(n_kept)), second])
    for designs in (first, second, mixed, first, mixed):
        right = rows(designs, np.ones(designs.n_designs))
        np.testing.assert_array_equal(tables.rows("t", designs, FIELDS, ONE_BLOCK, rows), right)


def test_a_step_is_the_same_when_its_tables_overflow(monkeypatch):
    program, designs = compiled().step, random_designs(5, 12)
    expected = run_step(program, designs, FactorTables()).time_s
    monkeypatch.setattr(factor_tables, "MAX_TABLE_BYTES", 2000)
    tables = FactorTables()
    for start in range(0, 12, 4):
        part = run_step(program, take(designs, np.arange(start, start + 4)), tables).time_s
        np.testing.assert_array_equal(part, expected[start : start + 4])
    np.testing.assert_array_equal(run_step(program, designs, tables).time_s, expected)


def test_only_blocks_that_are_wanted_are_built():
    tables, rows, designs = FactorTables(), Rows(), random_designs(1, 6)
    whole = rows(designs, np.ones(6))
    columns = np.array([[2, 2], [2, 0], [0, 1], [2, 2], [3, 3], [2, 1]])
    wanted = np.array([[True, True], [True, False], [True, True], [False, False], [True, True], [True, True]])
    ask = lambda: tables.rows("t", designs, FIELDS, TWO_BLOCKS, rows, columns=columns, wanted=wanted)  # noqa: E731
    for built in (3 * 1 + 3 * 3, 0):
        rows.built = 0
        found = ask()
        np.testing.assert_array_equal(found[wanted], whole[np.arange(6)[:, None], columns][wanted])
        assert rows.built == built
    np.testing.assert_array_equal(tables.rows("t", designs, FIELDS, TWO_BLOCKS, rows), whole)
    assert rows.built == 3 * 1 + 3 * 3


def test_blocks_that_all_designs_lack_are_built_together_and_in_order():
    asked = []
    tables, designs = FactorTables(), random_designs(1, 5)

    def build(some, rate, entries):
        asked.append((some.n_designs, entries.tolist()))
        return np.zeros((some.n_designs, len(entries)))

    tables.rows("t", designs, FIELDS, TWO_BLOCKS, build)
    assert asked == [(5, [0, 1, 2, 3])]


def test_equal_designs_of_a_batch_are_built_once():
    tables, rows, designs = FactorTables(), Rows(), take(random_designs(1, 2), [0, 1, 0, 0])
    tables.rows("t", designs, FIELDS, TWO_BLOCKS, rows, columns=np.full((4, 1), 2))
    assert rows.built == 2


def test_threads_that_fill_one_table_get_the_rows_of_their_own_designs():
    rows, batches = Rows(), [random_designs(seed, 40) for seed in range(8)]
    right = [rows(designs, np.ones(40)) for designs in batches]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            tables = FactorTables()
            ask = functools.partial(FactorTables.rows, tables, "t", fields=FIELDS, blocks=TWO_BLOCKS, build=rows)
            with ThreadPoolExecutor(8) as threads:
                found = list(threads.map(ask, batches * 5))
            for i, each in enumerate(found):
                np.testing.assert_array_equal(each, right[i % 8])
    finally:
        sys.setswitchinterval(interval_s)
