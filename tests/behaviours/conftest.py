"""A log in a directory of its own, open for writing, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import foldlog


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def log(directory: Path) -> Iterator[foldlog.Log]:
    with foldlog.open(str(directory)) as opened:
        yield opened
