"""Joins in PostgreSQL run against a real server, started once for a worker when the first test needs it."""

from __future__ import annotations

from postgres_server import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]
