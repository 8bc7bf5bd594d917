"""Rows as a table of SQL: PostgreSQL and SQLite."""
