"""A table in a SQLite file keeps the promises of every view, and what is particular to files and to SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from foldlog.views.table import table
from views.view_contract import ViewCase, ViewContract


class TestSqliteTable(ViewContract):
    """The contract, by a path."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return ViewCase(lambda: table(tmp_path / "views" / "live.db", "payments"))
