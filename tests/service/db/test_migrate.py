from __future__ import annotations

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from service.db import migrate
from service.db.session import Database
from service.db.tables import Table


def test_a_new_database_has_no_revision(empty_database: Database) -> None:
    assert migrate.current_revision(empty_database) is None


def test_upgrade_reaches_the_head_and_may_be_repeated(empty_database: Database) -> None:
    migrate.upgrade(empty_database)
    migrate.upgrade(empty_database)
    assert migrate.current_revision(empty_database) == migrate.head_revision()


def test_the_migrated_schema_is_that_of_the_tables(database: Database) -> None:
    with database.pool.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Table.metadata) == []


def test_downgrade_leaves_no_table_and_upgrade_comes_back(database: Database) -> None:
    migrate.downgrade(database)
    assert set(sa.inspect(database.pool).get_table_names()) <= {"alembic_version"}
    migrate.upgrade(database)
    assert migrate.current_revision(database) == migrate.head_revision()
