"""Peeks into a view, for people, by another process than the one that writes it."""

from foldlog.views.peek.peek import Page, Peek, Series, open_peek

__all__ = ["Page", "Peek", "Series", "open_peek"]
