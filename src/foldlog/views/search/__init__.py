"""Full-text indexes: SQLite FTS5 and tantivy."""
