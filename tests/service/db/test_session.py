"""What one reading of the database sees while others write."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import DBAPIError

from service.db import queries
from service.db.rows import NotFoundError
from service.db.session import Database, reading, writing


def test_all_queries_of_one_reading_see_the_same_moment(database: Database) -> None:
    with reading(database) as reader:
        with pytest.raises(NotFoundError):
            queries.get_study(reader, "late")
        with writing(database) as writer:
            queries.create_study(writer, "late", "late", {}, "1")
        with pytest.raises(NotFoundError):
            queries.get_study(reader, "late")
    with reading(database) as reader:
        assert queries.get_study(reader, "late").state == "queued"


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_reading_of_postgres_cannot_write(database: Database) -> None:
    with reading(database) as reader, pytest.raises(DBAPIError, match="read-only transaction"):
        queries.create_study(reader, "never", "never", {}, "1")
        reader.flush()
