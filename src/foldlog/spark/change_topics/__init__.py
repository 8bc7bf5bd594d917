"""Folds into topics: a view that is a topic of changes, which other folds read."""
