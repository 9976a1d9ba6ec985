"""Persistence: engine and transactions, tables, queries, migrations."""
