"""Copies topics, groups and bookmarks from one log to another."""
