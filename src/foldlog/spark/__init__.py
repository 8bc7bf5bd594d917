"""Spark reads, writes and folds the log."""
