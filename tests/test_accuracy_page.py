"""README and accuracy page say what the code computes from the shipped tables."""

from pathlib import Path

import pytest

from models.fidelity.accuracy_page import BLOCK, PAGES, blocks, rewrite, rewritten

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tables(shipped_validation):
    return blocks(shipped_validation)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_equals_what_the_code_computes(page, tables):
    # `make accuracy` rewrites both pages.
    text = (ROOT / page).read_text(encoding="utf-8")
    assert rewritten(text, tables) == text


def test_every_table_stands_on_a_page(tables):
    found = {name for page in PAGES for _, name, _ in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))}
    assert found == set(tables)
    assert all(table.count("\n") > 2 for table in tables.values())


def test_only_what_stands_between_the_markers_is_replaced():
    text = "a\n<!-- accuracy:x:begin -->\nold\n<!-- accuracy:x:end -->\nb\n"
    assert rewritten(text, {"accuracy:x": "new\n"}) == text.replace("old", "new")
    assert rewritten("no block", {}) == "no block"


def test_an_unknown_block_is_refused():
    with pytest.raises(LookupError, match="unknown block 'accuracy:x', known: accuracy"):
        rewritten("<!-- accuracy:x:begin -->\n<!-- accuracy:x:end -->", {"accuracy": ""})


def test_files_are_rewritten_in_place(tmp_path, tables):
    page = tmp_path / "page.md"
    page.write_text("<!-- accuracy:begin -->\n<!-- accuracy:end -->\n", encoding="utf-8")
    rewrite([page], tables)
    assert page.read_text(encoding="utf-8") == f"<!-- accuracy:begin -->\n{tables['accuracy']}<!-- accuracy:end -->\n"
