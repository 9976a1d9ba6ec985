"""The tables of docs/scaling.md are what the studies printed beside them give."""

import pytest

from service.scaling_page import PAGE, TABLES, table_on_page


@pytest.mark.parametrize("name", TABLES)
def test_the_page_holds_the_table_that_its_study_gives(name):
    page = PAGE.read_text(encoding="utf-8")
    assert table_on_page(page, name) == TABLES[name](page), "python -m service.scaling_page writes the tables"
