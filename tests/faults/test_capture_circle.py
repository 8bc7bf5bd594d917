"""The circle: a table of PostgreSQL, captured into a served log, folded into a table of another database, equal to it.

Every part is killed with SIGKILL and started again while transactions go on: the capture, the broker, the fold, and the
server's own process that sends the changes. Whatever the copy holds at any moment, the table held after one of its
commits, and never an earlier one than was seen before.
"""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from cli.command import COMMAND, environment
from faults.served import ServedDirectory
from fold_commands import FoldCommand, wait_until
from postgres_server import PostgresServer, running_server
from spark_session import missing_java

pytestmark = pytest.mark.faults

FOLDS: Final = """
import foldlog.spark as fl

orders = fl.topic("circle.public.orders", key=["region", "id"], format="debezium",
                  schema="region STRING, id BIGINT, item STRING, price DECIMAL(9,2), at TIMESTAMP")

@fl.fold(orders, into=fl.table({url!r}, "copied"))
def copied(rows):
    return rows
"""

Rows = tuple[tuple[Any, ...], ...]


class Origin:
    """The captured table, and every state that a commit has left it in."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._chance = random.Random(11)
        self._connection.execute(
            "CREATE TABLE orders (region text, id bigint, item text, price numeric(9,2), at timestamptz,"
            " PRIMARY KEY (region, id))"
        )
        self.states: list[Rows] = [()]

    def transact(self, times: int) -> None:
        for _ in range(times):
            with self._connection.transaction():
                for _ in range(self._chance.randrange(1, 6)):
                    self._statement()
            self.states.append(rows_of(self._connection, "orders"))

    def _statement(self) -> None:
        region, number = self._chance.choice(("eu", "in")), self._chance.randrange(12)
        statement = self._chance.choice(
            (
                "INSERT INTO orders VALUES (%(region)s, %(id)s, 'tea', 1.10, now()) ON CONFLICT DO NOTHING",
                "UPDATE orders SET price = price + 0.01, item = NULL WHERE region = %(region)s",
                (
                    "UPDATE orders SET id = id + 100 WHERE id = %(id)s AND region = %(region)s AND NOT EXISTS"
                    " (SELECT 1 FROM orders WHERE id = %(id)s + 100)"
                ),
                "DELETE FROM orders WHERE id = %(id)s",
            )
        )
        self._connection.execute(statement, {"region": region, "id": number})

    def cut_the_stream(self) -> None:
        """As if the connection had been lost."""
        self._connection.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")

    def close(self) -> None:
        self._connection.close()


class Copy:
    """The folded table. Each look checks that it is a state of the origin's, and not an earlier one."""

    def __init__(self, url: str, origin: Origin) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._origin = origin
        self._seen = 0

    def is_equal(self) -> bool:
        if self._connection.execute("SELECT to_regclass('copied')").fetchone() == (None,):
            return False
        rows = rows_of(self._connection, "copied")
        at = [number for number, state in enumerate(self._origin.states) if state == rows]
        assert at, f"no commit has left the table so: {rows}"
        assert at[-1] >= self._seen, f"it was at commit {self._seen}, and is at {at[-1]}"
        self._seen = next(number for number in at if number >= self._seen)
        return rows == self._origin.states[-1]

    def close(self) -> None:
        self._connection.close()


def rows_of(connection: psycopg.Connection[tuple[Any, ...]], table: str) -> Rows:
    query = f"SELECT region, id, item, price, at FROM {table} ORDER BY region, id"
    return tuple(connection.execute(query.encode()).fetchall())


class CaptureProcess:
    """`foldlog capture run`, which somebody starts again whenever it has ended."""

    def __init__(self, url: str, data: Path, output: Path) -> None:
        self._arguments = ["capture", "run", url, "--name", "circle", "--values", "debezium", "-d", str(data)]
        self.output = output
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.output.open("ab") as out:
            return subprocess.Popen(
                [*COMMAND, *self._arguments], env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def look_after(self) -> None:
        if self._process.poll() is not None:
            self._process = self._start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def server() -> Any:
    reason = missing_java()
    if reason is not None:
        pytest.skip(reason)
    with running_server() as running:
        yield running


def test_the_copy_is_the_table_after_one_of_its_commits_whatever_is_killed(
    server: PostgresServer, tmp_path: Path
) -> None:
    source, target = server.new_database(), server.new_database()
    folds, said = tmp_path / "folds.py", tmp_path / "capture.log"
    folds.write_text(FOLDS.format(url=target))
    origin = Origin(source)
    origin.transact(5)
    copy = Copy(target, origin)
    with ServedDirectory(tmp_path, "-X", "auto.create.topics.enable=false") as served:
        capture = CaptureProcess(source, served.path, said)
        wait_until(lambda: "snapshot done" in said.read_text(), said.read_text)  # a fold needs a topic that is there
        run = ("run", folds, "-d", served.path, "--interval", "200ms")
        fold = FoldCommand(tmp_path / "fold.log", *run)

        def is_equal() -> bool:
            capture.look_after()
            return copy.is_equal()

        def wait() -> None:
            wait_until(is_equal, lambda: f"{said.read_text()[-2000:]} {fold.said()[-3000:]}")

        try:
            wait()
            for _ in range(3):
                origin.transact(7)
                capture.kill()
                origin.transact(2)
                wait()
            origin.transact(3)
            origin.cut_the_stream()
            origin.transact(3)
            wait()
            served.end(signal.SIGKILL)
            origin.transact(4)
            served.start()
            fold.end()  # a fold whose broker is gone may have ended: it is killed and started again, too
            origin.transact(4)
            fold = FoldCommand(tmp_path / "fold.log", *run)
            wait()
        finally:
            fold.end()
            capture.kill()
            copy.close()
            origin.close()
