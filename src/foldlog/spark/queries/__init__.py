"""Folds that are written in SQL."""
