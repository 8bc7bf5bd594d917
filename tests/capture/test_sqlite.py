"""A SQLite database, captured by triggers: its topics hold what its tables hold, whoever writes them and however."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import foldlog
from capture.shop import boundaries, records, state
from foldlog import capture
from foldlog.errors import CaptureError, ChangesLost, DatabaseRefused

ITEMS = "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price REAL)"


@pytest.fixture
def log() -> Iterator[foldlog.Log]:
    with foldlog.open(":memory:") as opened:
        yield opened


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def chosen(tmp_path: Path) -> capture.Capture:
    return capture.sqlite(tmp_path / "shop.db")


def run(chosen: capture.Capture, log: foldlog.Log, *, again: bool = False) -> capture.Captured:
    return capture.run(chosen, log, once=True, snapshot_again=again)


def test_a_snapshot_and_then_what_changes(shop: sqlite3.Connection, chosen: capture.Capture, log: foldlog.Log) -> None:
    shop.executescript(f"{ITEMS}; INSERT INTO items VALUES (1, 'tea', 1.1), (2, 'cake', 3)")
    assert run(chosen, log).snapshot_rows == 2
    shop.executescript(
        "BEGIN; UPDATE items SET name = 'it''s' WHERE id = 1; DELETE FROM items WHERE id = 2; COMMIT;"
        "BEGIN; INSERT INTO items VALUES (9, 'never', 0); ROLLBACK;"
    )
    run(chosen, log)
    shop.executescript("UPDATE items SET id = 7 WHERE id = 1")
    run(chosen, log)
    assert records(log, "shop.items") == [
        ("1", {"id": 1, "name": "tea", "price": 1.1}, "r"),
        ("2", {"id": 2, "name": "cake", "price": 3.0}, "r"),
        ("1", {"id": 1, "name": "it's", "price": 1.1}, "u"),
        ("2", None, "d"),
        ("1", None, "d"),
        ("7", {"id": 7, "name": "it's", "price": 1.1}, "c"),
    ]
    assert boundaries(log, "shop.items") == [["1", "2"], ["1", "2"], ["1", "7"]]
    assert run(chosen, log).records == 0
    assert shop.execute("SELECT count(*) FROM _foldlog_changes_shop").fetchone() == (0,)  # what is safe is deleted


def test_values_of_every_kind(shop: sqlite3.Connection, chosen: capture.Capture, log: foldlog.Log) -> None:
    shop.execute('CREATE TABLE "odd name" (k TEXT PRIMARY KEY NOT NULL, "v" v, twice AS (v || v)) WITHOUT ROWID')
    values: list[Any] = [None, 1, -(2**63), 1.5, 1e300, 0.1, "", 'tab\t "x" \\ é\n', b"", b"\x00\xff", "x" * 3000]
    for number, value in enumerate(values):
        shop.execute('INSERT INTO "odd name" VALUES (?, ?)', (f"a'{number}", value))
    run(chosen, log)
    for number, value in enumerate(values):
        shop.execute('INSERT INTO "odd name" VALUES (?, ?)', (f"b'{number}", value))
    run(chosen, log)
    found = state(log, "shop.odd_name")
    expected = {9: "AP8=", 8: ""}
    for number, value in enumerate(values):
        wanted = expected.get(number, value)
        assert found[f"a'{number}"] == {"k": f"a'{number}", "v": wanted}
        assert found[f"b'{number}"] == {"k": f"b'{number}", "v": wanted}


def test_rows_that_a_replace_removes_are_deleted(
    shop: sqlite3.Connection, chosen: capture.Capture, log: foldlog.Log
) -> None:
    """SQLite fires no trigger for them."""
    shop.executescript(
        "CREATE TABLE users (id INTEGER PRIMARY KEY, mail TEXT UNIQUE, a, b, UNIQUE (a, b));"
        "INSERT INTO users VALUES (1, 'x', 1, 1), (2, 'y', 1, 2), (3, 'z', 1, 3), (4, 'w', 1, 4)"
    )
    run(chosen, log)
    shop.executescript(
        "INSERT OR REPLACE INTO users VALUES (10, 'x', 1, 2);"  # 1 by its mail, 2 by a and b
        "UPDATE OR REPLACE users SET mail = 'z' WHERE id = 4;"  # 3
        "INSERT OR IGNORE INTO users VALUES (11, 'z', 0, 0);"  # none
        "INSERT INTO users (mail) VALUES ('z') ON CONFLICT (mail) DO UPDATE SET a = 5"  # none
    )
    run(chosen, log)
    rows = {
        str(row[0]): dict(zip(("id", "mail", "a", "b"), row, strict=True))
        for row in shop.execute("SELECT * FROM users")
    }
    assert sorted(rows) == ["10", "4"]
    assert state(log, "shop.users") == rows


def test_random_statements(shop: sqlite3.Connection, chosen: capture.Capture, log: foldlog.Log) -> None:
    chance = random.Random(5)
    shop.execute("CREATE TABLE t (a INTEGER, b TEXT, c UNIQUE, PRIMARY KEY (a, b))")
    for _ in range(6):
        for _ in range(chance.randrange(20)):
            a, b, c = chance.randrange(4), chance.choice("xy"), chance.randrange(9)
            shop.execute(
                chance.choice(
                    (
                        "INSERT OR REPLACE INTO t VALUES (:a, :b, :c)",
                        "INSERT OR IGNORE INTO t VALUES (:a, :b, :c)",
                        "UPDATE OR REPLACE t SET a = :c WHERE b = :b AND a = :a",
                        "UPDATE OR REPLACE t SET c = :c WHERE a = :a",
                        "DELETE FROM t WHERE a = :a",
                    )
                ),
                {"a": a, "b": b, "c": c},
            )
        run(chosen, log)
        rows = [dict(zip("abc", row, strict=True)) for row in shop.execute("SELECT * FROM t ORDER BY a, b")]
        found = sorted(state(log, "shop.t").values(), key=lambda row: (row["a"], row["b"]))
        assert found == rows


def test_schema_changes_are_followed(shop: sqlite3.Connection, chosen: capture.Capture, log: foldlog.Log) -> None:
    shop.executescript(f"{ITEMS}; INSERT INTO items VALUES (1, 'tea', 1), (2, 'cake', 2)")
    run(chosen, log)
    shop.executescript(
        "UPDATE items SET price = 5 WHERE id = 1; ALTER TABLE items ADD COLUMN tag TEXT;"
        "INSERT INTO items VALUES (3, 'pie', 3, 'new'); ALTER TABLE items RENAME COLUMN name TO title"
    )
    run(chosen, log)
    shop.executescript("UPDATE items SET tag = 'late' WHERE id = 2")
    run(chosen, log)
    assert state(log, "shop.items") == {
        "1": {"id": 1, "title": "tea", "price": 5.0, "tag": None},
        "2": {"id": 2, "title": "cake", "price": 2.0, "tag": "late"},
        "3": {"id": 3, "title": "pie", "price": 3.0, "tag": "new"},
    }
    shop.executescript("CREATE TABLE more (k INTEGER PRIMARY KEY); INSERT INTO more VALUES (1)")
    run(chosen, log)
    assert list(state(log, "shop.more")) == ["1"]


def test_what_is_lost_is_said(shop: sqlite3.Connection, chosen: capture.Capture, log: foldlog.Log) -> None:
    shop.executescript(f"{ITEMS}; INSERT INTO items VALUES (1, 'tea', 1), (2, 'cake', 2)")
    run(chosen, log)
    shop.executescript("UPDATE items SET price = 5 WHERE id = 1; DELETE FROM _foldlog_changes_shop")
    with pytest.raises(ChangesLost, match="somebody has deleted changes from _foldlog_changes_shop"):
        run(chosen, log)
    run(chosen, log, again=True)
    assert state(log, "shop.items")["1"]["price"] == 5.0
    removed = capture.drop(chosen)
    assert len(removed) == 4
    assert shop.execute("SELECT name FROM sqlite_master").fetchall() == [("items",), ("sqlite_sequence",)]
    with pytest.raises(ChangesLost, match="its triggers and its table _foldlog_changes_shop are not in"):
        run(chosen, log)
    assert capture.status(chosen, log).source.state == "triggers lost"
    shop.executescript("DELETE FROM items WHERE id = 2")
    run(chosen, log, again=True)
    assert sorted(state(log, "shop.items")) == ["1"]
    shop.executescript("INSERT INTO items VALUES (5, 'x', 1)")
    assert capture.status(chosen, log).source.lag_changes == 1


def test_what_cannot_be_captured(
    shop: sqlite3.Connection, tmp_path: Path, chosen: capture.Capture, log: foldlog.Log
) -> None:
    shop.execute("CREATE TABLE notes (text TEXT)")
    with pytest.raises(DatabaseRefused, match="notes has no primary key"):
        run(capture.sqlite(tmp_path / "shop.db", ["notes"]), log)
    with pytest.raises(DatabaseRefused, match="there is no SQLite database"):
        run(capture.sqlite(tmp_path / "missing.db"), log)
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at")
    with pytest.raises(DatabaseRefused, match="file is not a database"):
        run(capture.sqlite(tmp_path / "text.db"), log)
    shop.executescript("CREATE TABLE loose (k TEXT PRIMARY KEY); INSERT INTO loose VALUES (NULL)")
    with pytest.raises(CaptureError, match="a row of loose has NULL in its primary key"):
        run(chosen, log)
