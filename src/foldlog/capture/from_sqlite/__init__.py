"""SQLite: triggers that write into a table of changes in the same database."""
