"""A captured database of MariaDB's or MySQL's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import foldlog
from foldlog import capture
from foldlog.capture import Capture, Captured
from mysql_server import MySqlServer


@dataclass
class MySqlShop:
    """A database and its connection; `said` is what captures told people."""

    server: MySqlServer
    url: str
    connection: Any
    said: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def execute(self, *statements: str) -> None:
        """In one transaction."""
        self.connection.begin()
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        self.connection.commit()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def capture(self, tables: Any = None, **options: Any) -> Capture:
        return capture.mysql(options.pop("url", self.url), tables, name=options.pop("name", self.name), **options)

    def run(self, log: foldlog.Log, tables: Any = None, *, again: bool = False, **options: Any) -> Captured:
        """Once, to the end."""
        return capture.run(self.capture(tables, **options), log, once=True, snapshot_again=again, tell=self.said.append)

    def topic(self, table: str) -> str:
        return f"{self.name}.{table}"
