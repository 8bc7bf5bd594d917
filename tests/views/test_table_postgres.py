"""A table in PostgreSQL keeps the promises of every view, and what is particular to a server: a real one, always."""

from __future__ import annotations

import pytest

from foldlog.views.table import table
from views.view_contract import ViewCase, ViewContract


class TestPostgresTable(ViewContract):
    """The contract, by a URL."""

    @pytest.fixture
    def case(self, postgres_url: str) -> ViewCase:
        return ViewCase(lambda: table(postgres_url, "payments"))
