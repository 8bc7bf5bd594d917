"""Joins of two topics, kept in a table: see `foldlog.views.join.side`."""
