"""Servers of MariaDB's and MySQL's that are not set up for captures, that crash, or that have lost their binlog."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest

import foldlog
from capture.mysql_shop import MySqlShop
from capture.shop import records, state
from foldlog import capture
from foldlog.errors import CaptureRunning, ChangesLost, DatabaseRefused
from mysql_server import MySqlServer, mysql_kind, running_mysql, start_mysql

pytestmark = pytest.mark.faults

ITEMS = "CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(50))"


@contextmanager
def shop_of(**settings: Any) -> Iterator[MySqlShop]:
    with running_mysql(mysql_kind(), **settings) as server:
        url = server.new_database()
        with server.connect(url.rpartition("/")[2]) as connection:
            shop = MySqlShop(server, url, connection)
            shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'tea')")
            yield shop


def test_a_server_without_a_binlog() -> None:
    with running_mysql(mysql_kind()) as server:
        url = server.new_database()
        server.crash()
        again = start_mysql(server.kind, server.directory, disable_log_bin="" if server.kind == "mysql" else "1")
        try:
            moved = again.url_of(url.rpartition("/")[2])
            with foldlog.open(":memory:") as log, pytest.raises(DatabaseRefused, match=r"no binlog \(log_bin=OFF\)"):
                capture.run(capture.mysql(moved), log, once=True)
        finally:
            again.stop()


def test_settings_that_do_not_do_and_a_binlog_that_begins_anew() -> None:
    with shop_of() as shop, foldlog.open(":memory:") as log:
        for name, wrong in (
            ("binlog_format", "STATEMENT"),
            ("binlog_row_image", "MINIMAL"),
            ("binlog_row_metadata", "MINIMAL"),
        ):
            right = shop.rows(f"SELECT @@GLOBAL.{name}")[0][0]
            shop.rows(f"SET GLOBAL {name} = '{wrong}'")
            with pytest.raises(DatabaseRefused, match=f"has {name}={wrong}.*SET GLOBAL {name} = '{right}'"):
                shop.run(log)
            shop.rows(f"SET GLOBAL {name} = '{right}'")
        assert log.topics() == []
        shop.run(log)
        reset = "RESET MASTER" if shop.server.kind == "mariadb" else "RESET BINARY LOGS AND GTIDS"
        position = len(shop.rows("SHOW BINARY LOGS"))
        begun = shop.rows("SELECT UNIX_TIMESTAMP()")
        while shop.rows("SELECT UNIX_TIMESTAMP()") == begun:  # a file is told from another by its second
            pass
        shop.rows(reset)
        with pytest.raises(ChangesLost, match="it was reset, or the server is an older copy"):
            shop.run(log)
        # The file of our bookmark is there again, and longer than before: only its beginning tells that it is another.
        while len(shop.rows("SHOW BINARY LOGS")) < position:
            shop.rows("FLUSH BINARY LOGS")
        for number in range(200):
            shop.execute(f"INSERT INTO items VALUES ({number + 10}, REPEAT('x', 50))")
        with pytest.raises(ChangesLost, match="was reset"):
            shop.run(log)
        assert shop.run(log, again=True).snapshot_rows == 200
        shop.execute("DELETE FROM items WHERE id > 10")
        shop.run(log)
        assert set(state(log, shop.topic("items"))) == {"1", "10"}


def test_a_second_run_leaves_the_first_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foldlog.capture.from_mysql.database.BUSY_S", 0.5)
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
        while capture.status(shop.capture(), log).source.state != "running":
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


def test_a_compressed_binlog_of_mariadb() -> None:
    with running_mysql("mariadb", log_bin_compress="1", log_bin_compress_min_len="10") as server:
        url = server.new_database()
        with server.connect(url.rpartition("/")[2]) as connection, foldlog.open(":memory:") as log:
            shop = MySqlShop(server, url, connection)
            shop.execute(ITEMS)
            shop.run(log)
            shop.execute("INSERT INTO items VALUES (1, REPEAT('x', 50)), (2, REPEAT('y', 50)), (3, 'z')")
            shop.execute("UPDATE items SET name = CONCAT(name, '!') WHERE id = 3")
            shop.execute("DELETE FROM items WHERE id = 1")
            shop.run(log)
            assert {key: row["name"] for key, row in state(log, shop.topic("items")).items()} == {
                "2": "y" * 50,
                "3": "z!",
            }
            assert shop.run(log, again=True).records == 0


def test_types_of_mariadb_alone() -> None:
    with running_mysql("mariadb") as server:
        url = server.new_database()
        with server.connect(url.rpartition("/")[2]) as connection, foldlog.open(":memory:") as log:
            shop = MySqlShop(server, url, connection)
            shop.execute("CREATE TABLE t (id UUID PRIMARY KEY, a INET4, b INET6)")
            shop.run(log)
            for key in ("00000000-0000-0000-0000-000000000000", "face0001-9ce7-11ec-8000-000000000000",
                       "123e4567-e89b-42d3-a456-426614174000", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
                       "ffffffff-ffff-ffff-ffff-ffffffffffff", "1ec9414c-232a-6b00-b3c8-9e6bdeced846"):  # fmt: skip
                shop.execute(f"INSERT INTO t VALUES ('{key}', '127.0.0.1', '::ffff:1.2.3.4')")
            shop.execute("UPDATE t SET b = '2001:db8::1:0:0' WHERE id = '00000000-0000-0000-0000-000000000000'")
            shop.run(log)
            assert shop.run(log, again=True).records == 0
            assert len(state(log, shop.topic("t"))) == 6


def test_a_server_that_crashes_again_and_again() -> None:
    """Killed in the middle of transactions: what the topic holds is what the table holds after it has recovered, and
    each commit that was confirmed is one transaction of the log."""
    chance, confirmed = random.Random(3), [0]
    with running_mysql(mysql_kind(), durable=True) as server, foldlog.open(":memory:") as log:
        database = server.new_database().rpartition("/")[2]
        current = server
        try:
            with server.connect(database) as connection, connection.cursor() as cursor:
                cursor.execute(ITEMS)
            for turn in (1, 2, 3):
                stop = threading.Event()
                captured = threading.Thread(target=_run, args=(current.url_of(database), log, stop))
                captured.start()
                writer = threading.Thread(target=_write, args=(current, database, chance.random(), confirmed))
                writer.start()
                while len(records(log, "crash.items") if log.topics() else []) < 30 * turn:
                    stop.wait(0.05)
                current.crash()
                writer.join()
                stop.set()
                captured.join()
                current = start_mysql(server.kind, server.directory, durable=True)
            url = current.url_of(database)
            capture.run(capture.mysql(url, name="crash"), log, once=True)
            with current.connect(database) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT id, name FROM items")
                rows = {str(key): {"id": key, "name": name} for key, name in cursor.fetchall()}
            assert state(log, "crash.items") == rows
            inserted = [key for key, _, op in records(log, "crash.items") if op in ("c", "r")]
            assert len(inserted) == len(set(inserted)) == len(rows) >= confirmed[0] * 2
            assert capture.run(capture.mysql(url, name="crash"), log, once=True, snapshot_again=True).records == 0
        finally:
            current.stop()


def _run(url: str, log: foldlog.Log, stop: threading.Event) -> None:
    try:
        capture.run(capture.mysql(url, name="crash"), log, stop=stop)
    except foldlog.errors.CaptureError:
        pass  # it was reached once, or never; the next one goes on


def _write(server: MySqlServer, database: str, seed: float, confirmed: list[int]) -> None:
    """Two rows a transaction, until the server is gone. Keys are never used again."""
    chance = random.Random(seed)
    try:
        with server.connect(database) as connection, connection.cursor() as cursor:
            while True:
                first = chance.randrange(1 << 30)
                connection.begin()
                cursor.execute(f"INSERT INTO items VALUES ({first}, 'a')")
                cursor.execute(f"INSERT INTO items VALUES ({first + 1}, 'b')")
                connection.commit()
                confirmed[0] += 1
    except pymysql.Error:
        pass
