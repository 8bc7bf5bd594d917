"""A captured database, and what a topic holds, read with nothing of the capture's own: JSON and a dict."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import psycopg

import foldlog
from foldlog import capture
from foldlog.capture import Capture, Captured

COMMITTED = "read_committed"


@dataclass
class Shop:
    """A database and its connection; `said` is what captures told people."""

    url: str
    connection: psycopg.Connection[tuple[Any, ...]]
    said: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Slots are the whole server's, so each database has a name of its own for its."""
        return self.connection.info.dbname

    def execute(self, *statements: str) -> None:
        """In one transaction."""
        with self.connection.transaction():
            for statement in statements:
                self.connection.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode()).fetchall()

    def capture(self, tables: Any = None, **options: Any) -> Capture:
        return capture.postgres(self.url, tables, name=options.pop("name", self.name), **options)

    def run(self, log: foldlog.Log, tables: Any = None, *, again: bool = False, **options: Any) -> Captured:
        """Once, to the end."""
        return capture.run(self.capture(tables, **options), log, once=True, snapshot_again=again, tell=self.said.append)

    def topic(self, table: str) -> str:
        return f"{self.name}.public.{table}"

    def forget(self) -> None:
        for (slot,) in self.rows(
            "SELECT slot_name FROM pg_replication_slots WHERE database = current_database() AND NOT active"
        ):
            self.connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


def records(log: foldlog.Log, topic: str) -> list[tuple[str, Any, str]]:
    """Key, value and operation of every committed record."""
    return [
        (
            (record.key or b"").decode(),
            None if record.value is None else json.loads(record.value),
            (dict(record.headers)["op"] or b"").decode(),
        )
        for record in log.read(topic, isolation=COMMITTED)
    ]


def state(log: foldlog.Log, topic: str) -> dict[str, Any]:
    """What compaction would leave: the newest value of each key, without deleted ones."""
    found: dict[str, Any] = {}
    for partition in log.offsets(topic):
        for record in log.read(topic, partition, isolation=COMMITTED):
            found[(record.key or b"").decode()] = record.value
    return {key: json.loads(value) for key, value in found.items() if value is not None}


def boundaries(log: foldlog.Log, topic: str) -> list[list[str]]:
    """The keys of each transaction of the log: the offset that a marker takes lies between two of them."""
    found: list[list[str]] = []
    after = None
    for record in log.read(topic, isolation=COMMITTED):
        if record.offset != after:
            found.append([])
        found[-1].append((record.key or b"").decode())
        after = record.offset + 1
    return found
