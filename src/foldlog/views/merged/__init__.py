"""Views that merge new rows into stored ones, each by a rule of its own, in SQLite, PostgreSQL and DuckDB."""
