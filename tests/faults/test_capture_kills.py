"""A capture, killed with SIGKILL before and after each of its steps, writes every transaction once, whole and in order.

The parent changes a table at random and notes what each commit changed. The child captures, and kills itself at a step
that the parent chose: while the slot is made, within the snapshot, between a record and its commit, between a commit
and what the server is told of it. At the end the topic is compared with the notes, record by record.
"""

from __future__ import annotations

import json
import random
import signal
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

import foldlog
from faults.processes import child, last_lines
from mysql_server import mysql_kind, running_mysql
from postgres_server import running_server

pytestmark = pytest.mark.faults

KILLS = 10
ROWS_AT_FIRST = 30

CAPTURING = """
import signal
import foldlog, foldlog.capture
from foldlog.capture.captured_log import CapturedLog
from foldlog.capture.from_mysql.database import CapturedMySql
from foldlog.capture.from_postgres.database import CapturedPostgres
from foldlog.capture.from_sqlite.database import CapturedSqlite

url, path, step, moment, count = sys.argv[1:6]
left = int(count)
database = CapturedMySql if url.startswith("mysql") else CapturedSqlite if url.endswith(".db") else CapturedPostgres
owner = database if hasattr(database, step) else CapturedLog if hasattr(CapturedLog, step) else None
if owner is not None:
    step_itself = getattr(owner, step)
    def stepped(self, *arguments, **more):
        global left
        left -= 1
        if left == 0 and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = step_itself(self, *arguments, **more)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    setattr(owner, step, stepped)
with foldlog.open(path) as log:
    captured = foldlog.capture.run(
        foldlog.capture.of_url(url, {"items": "items"}, name="kills"), log, once=True, tell=say
    )
say("done")
"""

STEPS = {"take": 1, "send": 40, "commit": 9, "confirm": 9, "newest": 1, "end": 1}
"""Steps of a capture, and how often each is taken at most before the child is killed at it."""

POSTGRES_STEPS = {"_publish": 1, "_made_slot": 1, **STEPS}
MYSQL_STEPS = {"prepare": 1, "_consistent": 1, "_mapped": 1, "_changes": 20, **STEPS}
SQLITE_STEPS = {"stale": 1, "prepare": 1, "_forget": 2, **STEPS}

Connection = Any
"""Of psycopg, of sqlite3, or a cursor of PyMySQL's: `execute` is alike, and statements have their values in them."""

Row = dict[str, Any]
Written = list[tuple[str, Row | None]]


@dataclass
class Table:
    """The table as it has to be, and what each commit changed: the records that are to be written for it."""

    chance: random.Random
    rows: dict[int, Row] = field(default_factory=dict)
    commits: list[Written] = field(default_factory=list)

    def transact(self, connection: Connection) -> None:
        """A random transaction: inserts, updates, deletes and changes of keys; some are rolled back."""
        before, written = dict(self.rows), []
        connection.execute("BEGIN")
        for _ in range(self.chance.choice((1, 1, 2, 5, 12))):
            written += self._statement(connection)
        if self.chance.random() < 0.2:
            self.rows = before
            connection.execute("ROLLBACK")
        else:
            connection.execute("COMMIT")
            self.commits.append(written)

    def _statement(self, connection: Connection) -> Written:
        key = self.chance.randrange(40)
        text = self.chance.choice(("tea", 'quoted "cake"', "line\nline", None, "x" * 5000))
        if key not in self.rows:
            connection.execute(f"INSERT INTO items VALUES ({key}, {literal(text)}, 0)")
            self.rows[key] = {"id": key, "text": text, "n": 0}
            return [(str(key), self.rows[key])]
        what = self.chance.choice(("update", "update", "delete", "move"))
        if what == "delete":
            connection.execute(f"DELETE FROM items WHERE id = {key}")
            del self.rows[key]
            return [(str(key), None)]
        moved = key + 100
        if what == "move" and moved not in self.rows:
            connection.execute(f"UPDATE items SET id = {moved} WHERE id = {key}")
            self.rows[moved] = {**self.rows.pop(key), "id": moved}
            return [(str(key), None), (str(moved), self.rows[moved])]
        connection.execute(f"UPDATE items SET n = n + 1 WHERE id = {key}")
        self.rows[key] = {**self.rows[key], "n": self.rows[key]["n"] + 1}
        return [(str(key), self.rows[key])]


def literal(text: str | None) -> str:
    return "NULL" if text is None else f"'{text}'"


def transactions(log: foldlog.Log) -> list[tuple[str, Written]]:
    """The committed transactions of the topic: the first record's operation, and the records."""
    found: list[tuple[str, Written]] = []
    after = None
    for record in log.read("items", isolation="read_committed"):
        value = None if record.value is None else json.loads(record.value)
        if record.offset != after:
            found.append(((dict(record.headers)["op"] or b"").decode(), []))
        found[-1][1].append(((record.key or b"").decode(), value))
        after = record.offset + 1
    return found


def kill_and_run(
    table: Table, connection: Connection, url: str, data: Path, steps: dict[str, int]
) -> tuple[list[tuple[str, Written]], dict[str, Row]]:
    """Let children capture, and be killed, while the table changes; what the topic has at last, and what the table."""
    chance, killed = table.chance, []
    while len(table.rows) < ROWS_AT_FIRST:
        table.transact(connection)
    for _ in range(KILLS):
        step, most = chance.choice(list(steps.items()))
        chosen = (step, chance.choice(("before", "after")), str(chance.randint(1, most)))
        with child(CAPTURING, url, str(data), *chosen) as process:
            for _ in range(chance.randrange(6)):
                table.transact(connection)  # beside the capture
            said, status = last_lines(process), process.wait()
            assert status in (0, -signal.SIGKILL), process.stderr.read() if process.stderr else ""
        assert (status == 0) == (said[-1:] == ["done"])
        killed += [step] * (status != 0)
        for _ in range(chance.randrange(4)):
            table.transact(connection)
    with child(CAPTURING, url, str(data), "none: this one ends by itself", "", "1") as process:
        assert last_lines(process)[-1:] == ["done"], process.stderr.read() if process.stderr else ""
    looked = connection.execute("SELECT id, text, n FROM items")
    rows = (connection if isinstance(looked, int) else looked).fetchall()
    assert len(set(killed)) >= 3, killed
    with foldlog.open(data, "r") as log:
        return transactions(log), {str(key): {"id": key, "text": text, "n": n} for key, text, n in rows}


def after_commits(commits: list[Written]) -> dict[str, Row]:
    state: dict[str, Row | None] = {}
    for written in commits:
        state.update(written)
    return {key: row for key, row in state.items() if row is not None}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_capture_of_postgres_killed_at_any_step_writes_every_transaction_once(tmp_path: Path, seed: int) -> None:
    table = Table(random.Random(seed))
    with running_server() as server, psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id integer PRIMARY KEY, text text, n integer)")
        connection.execute("ALTER TABLE items ALTER text SET STORAGE EXTERNAL")  # so that large ones are left out
        found, rows = kill_and_run(table, connection, server.url, tmp_path / "data", POSTGRES_STEPS)
    assert [op for op, _ in found[:2]] == ["r", found[1][0]]
    assert all(op != "r" for op, _ in found[1:])
    # The snapshot is the table after one of the commits; each transaction after it is the next commit, whole.
    first = len(table.commits) - len(found[1:])
    assert dict(found[0][1]) == after_commits(table.commits[:first])
    assert [written for _, written in found[1:]] == table.commits[first:]
    assert after_commits([written for _, written in found]) == rows


@pytest.mark.parametrize("seed", [1, 2])
def test_a_capture_of_mysql_killed_at_any_step_writes_every_transaction_once(tmp_path: Path, seed: int) -> None:
    table = Table(random.Random(seed))
    with running_mysql(mysql_kind()) as server:
        url = server.new_database()
        with server.connect(url.rpartition("/")[2]) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE items (id INT PRIMARY KEY, text TEXT, n INT)")
            found, rows = kill_and_run(table, cursor, url, tmp_path / "data", MYSQL_STEPS)
    assert all(op != "r" for op, _ in found[1:])
    first = len(table.commits) - len(found[1:])
    assert dict(found[0][1]) == after_commits(table.commits[:first])
    assert [written for _, written in found[1:]] == table.commits[first:]
    assert after_commits([written for _, written in found]) == rows


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_capture_of_sqlite_killed_at_any_step_writes_every_change_once(tmp_path: Path, journal: str) -> None:
    table = Table(random.Random(len(journal)))
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file, isolation_level=None, timeout=60)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, text TEXT, n INTEGER)")
        found, rows = kill_and_run(table, connection, str(file), tmp_path / "data", SQLITE_STEPS)
    assert after_commits([written for _, written in found]) == rows
    assert all(op != "r" for op, _ in found[1:])
    # SQLite does not tell transactions apart: each of the log's is one or more of its, whole and in order.
    rest = table.commits
    for first in range(len(rest) + 1):
        if dict(found[0][1]) == after_commits(rest[:first]) and sum(map(len, rest[first:])) == sum(
            len(written) for _, written in found[1:]
        ):
            rest = rest[first:]
            break
    else:
        raise AssertionError("the snapshot is the table after none of its commits")
    for _, written in found[1:]:
        while written:
            assert written[: len(rest[0])] == rest[0]
            written = written[len(rest.pop(0)) :]
    assert rest == []
