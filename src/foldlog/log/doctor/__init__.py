"""Finds damaged and outdated parts of a log, sets them aside, and rewrites them."""
