"""Rows by version: the newest of each key by a column, and the history of each key."""
