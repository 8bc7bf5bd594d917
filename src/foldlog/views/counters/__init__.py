"""Numbers that add up: PostgreSQL, SQLite and DuckDB."""
