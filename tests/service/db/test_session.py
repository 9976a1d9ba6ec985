"""What one reading of the database sees while others write, and what becomes of its connection."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest
import sqlalchemy as sa
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


def test_a_connection_in_use_while_the_database_is_closed_is_closed_when_it_is_given_back(database: Database) -> None:
    with reading(database) as reader:
        connection = reader.connection().connection.dbapi_connection
        assert connection is not None
        database.close()
        assert reader.scalar(sa.text("SELECT 1")) == 1
    with pytest.raises((psycopg.OperationalError, sqlite3.ProgrammingError), match="closed"):
        connection.cursor().execute("SELECT 1")
