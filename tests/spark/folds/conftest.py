"""Folds into PostgreSQL run against a real server, started once for a worker when the first test needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from postgres_server import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log with an empty topic of payments."""
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("payments", partitions=2)
    return tmp_path / "data"
