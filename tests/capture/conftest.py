"""What the tests of captures share: a real PostgreSQL server, and a database of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from capture.shop import Shop
from postgres_server import PostgresServer, postgres

__all__ = ["postgres"]


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[Shop]:
    """A database that is captured; its slot ends with the test."""
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        found = Shop(url, connection)
        yield found
        found.forget()
