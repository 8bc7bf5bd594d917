"""Servers that are not set up for captures, or that have given up on one, are told apart in one sentence each; and a
capture writes into a broker as it does into a directory.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

import foldlog
from capture.shop import Shop, state
from foldlog import capture
from foldlog.errors import CaptureRunning, ChangesLost, DatabaseRefused
from foldlog.testing import KafkaBroker
from postgres_server import running_server

pytestmark = pytest.mark.faults

ITEMS = "CREATE TABLE items (id integer PRIMARY KEY, name text)"


@contextmanager
def shop_of(**settings: str) -> Iterator[Shop]:
    with running_server(**settings) as server, psycopg.connect(server.url, autocommit=True) as connection:
        shop = Shop(server.url, connection)
        shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'tea')")
        yield shop


def test_a_server_without_logical_decoding() -> None:
    with shop_of(wal_level="replica") as shop, foldlog.open(":memory:") as log:
        with pytest.raises(DatabaseRefused, match=r"has wal_level=replica.*ALTER SYSTEM SET wal_level = logical"):
            shop.run(log)
        assert log.topics() == []


def test_a_server_that_has_given_up_on_the_slot() -> None:
    with (
        shop_of(max_slot_wal_keep_size="1MB", min_wal_size="32MB", max_wal_size="32MB") as shop,
        foldlog.open(":memory:") as log,
    ):
        shop.run(log)
        shop.execute("UPDATE items SET name = 'lost'")
        for _ in range(4):  # more log than the slot may keep
            shop.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', 20000000))")
            shop.connection.execute("SELECT pg_switch_wal()")
            shop.connection.execute("CHECKPOINT")
        found = capture.status(shop.capture(), log).source
        assert (found.state, "invalidated" in (found.warning or "")) == ("slot lost", True)
        with pytest.raises(ChangesLost, match=r"the server has invalidated slot .*--snapshot again"):
            shop.run(log)
        shop.run(log, again=True)
        assert state(log, shop.topic("items"))["1"]["name"] == "lost"


def test_a_server_without_a_free_slot() -> None:
    with shop_of(max_replication_slots="1") as shop, foldlog.open(":memory:") as log:
        shop.execute("SELECT pg_create_physical_replication_slot('other')")
        with pytest.raises(DatabaseRefused, match="all replication slots are in use; drop a slot that nobody uses"):
            shop.run(log)
        shop.execute("SELECT pg_drop_replication_slot('other')")
        assert shop.run(log).records == 1


def test_a_second_run_leaves_the_first_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foldlog.capture.from_postgres.database.BUSY_S", 0.5)
    stop, failed = threading.Event(), []
    with shop_of() as shop, foldlog.open(":memory:") as log:
        shop.run(log)

        def run() -> None:
            try:
                capture.run(shop.capture(), log, stop=stop)
            except Exception as error:  # noqa: BLE001 told to the test
                failed.append(error)

        first = threading.Thread(target=run)
        first.start()
        while not shop.rows("SELECT 1 FROM pg_replication_slots WHERE active"):
            pass
        with pytest.raises(CaptureRunning, match="the capture runs elsewhere"):
            shop.run(log)
        shop.execute("UPDATE items SET name = 'green tea'")
        for record in log.read(shop.topic("items"), start="end", follow=True):  # the first one goes on
            assert b"green tea" in (record.value or b"")
            break
        stop.set()
        first.join()
    assert failed == []


def test_into_a_broker_with_several_partitions(tmp_path: Path) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as shop,
        KafkaBroker.launch() as broker,
    ):
        shop.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
        shop.executemany("INSERT INTO t VALUES (?, 'a')", [(number,) for number in range(20)])
        chosen = capture.sqlite(tmp_path / "shop.db", partitions=3)
        for statement in ("DELETE FROM t WHERE id < 5", "UPDATE t SET v = 'b' WHERE id > 10", "SELECT 1"):
            with foldlog.connect(f"kafka://{broker}") as log:
                capture.run(chosen, log, once=True)
            shop.execute(statement)
        with foldlog.connect(f"kafka://{broker}") as log:
            assert capture.run(chosen, log, once=True).records == 0
            assert capture.run(chosen, log, once=True, snapshot_again=True).records == 0
            rows = {str(number): {"id": number, "v": v} for number, v in shop.execute("SELECT * FROM t")}
            assert state(log, "shop.t") == rows
            assert {op for partition in range(3) for *_, op in records_of(log, partition)} == {"r", "u", "d"}


def records_of(log: foldlog.Log, partition: int) -> list[tuple[bytes | None, str]]:
    return [
        (record.key, (dict(record.headers)["op"] or b"").decode())
        for record in log.read("shop.t", partition, isolation="read_committed")
    ]
