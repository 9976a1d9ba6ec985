"""Runs the migrations on the connection that `service.db.migrate` hands over."""

from __future__ import annotations

from alembic import context

from service.db.tables import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    render_as_batch=True,
    transactional_ddl=False,  # the caller's transaction surrounds all steps
)
context.run_migrations()
