"""What the tests of captures share: real servers, and a database of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from capture.mysql_shop import MySqlShop
from capture.shop import Shop
from mysql_server import MySqlServer, mysql
from postgres_server import PostgresServer, postgres

__all__ = ["mysql", "postgres"]


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[Shop]:
    """A database that is captured; its slot ends with the test."""
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        found = Shop(url, connection)
        yield found
        found.forget()


@pytest.fixture
def mysql_shop(mysql: MySqlServer) -> Iterator[MySqlShop]:
    """A database of MariaDB's, or of MySQL's, that is captured."""
    url = mysql.new_database()
    with mysql.connect(url.rpartition("/")[2]) as connection:
        yield MySqlShop(mysql, url, connection)
