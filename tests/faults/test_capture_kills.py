"""A capture, killed with SIGKILL before and after each of its steps, writes every transaction once, whole and in order.

The parent changes a table at random and notes what each commit changed. The child captures, and kills itself at a step
that the parent chose: while the slot is made, within the snapshot, between a record and its commit, between a commit
and what the server is told of it. At the end the topic is compared with the notes, record by record.
"""

from __future__ import annotations

import json
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

import foldlog
from faults.processes import child, last_lines
from postgres_server import running_server

pytestmark = pytest.mark.faults

KILLS = 14
ROWS_AT_FIRST = 30

CAPTURING = """
import signal
import foldlog, foldlog.capture
from foldlog.capture.captured_log import CapturedLog
from foldlog.capture.from_postgres.database import CapturedPostgres

url, path, step, moment, count = sys.argv[1:6]
left = int(count)
owner = CapturedPostgres if hasattr(CapturedPostgres, step) else CapturedLog if hasattr(CapturedLog, step) else None
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
        foldlog.capture.postgres(url, ["items"], name="kills"), log, once=True, tell=say
    )
say("done")
"""

STEPS = {"_publish": 1, "_made_slot": 1, "take": 1, "send": 40, "commit": 9, "confirm": 9, "newest": 1, "end": 1}
"""Steps of a capture, and how often each is taken at most before the child is killed at it."""

Row = dict[str, Any]
Written = list[tuple[str, Row | None]]


@dataclass
class Table:
    """The table as it has to be, and what each commit changed: the records that are to be written for it."""

    chance: random.Random
    rows: dict[int, Row] = field(default_factory=dict)
    commits: list[Written] = field(default_factory=list)

    def transact(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """A random transaction: inserts, updates, deletes and changes of keys; some are rolled back."""
        before, written = dict(self.rows), []
        with connection.transaction() as transaction:
            for _ in range(self.chance.choice((1, 1, 2, 5, 12))):
                written += self._statement(connection)
            if self.chance.random() < 0.2:
                self.rows = before
                raise psycopg.Rollback(transaction)
        if self.rows is not before and written:
            self.commits.append(written)

    def _statement(self, connection: psycopg.Connection[tuple[Any, ...]]) -> Written:
        key = self.chance.randrange(40)
        text = self.chance.choice(("tea", 'quoted "cake"', "line\nline", None, "x" * 5000))
        if key not in self.rows:
            connection.execute("INSERT INTO items VALUES (%s, %s, 0)", (key, text))
            self.rows[key] = {"id": key, "text": text, "n": 0}
            return [(str(key), self.rows[key])]
        what = self.chance.choice(("update", "update", "delete", "move"))
        if what == "delete":
            connection.execute("DELETE FROM items WHERE id = %s", (key,))
            del self.rows[key]
            return [(str(key), None)]
        moved = key + 100
        if what == "move" and moved not in self.rows:
            connection.execute("UPDATE items SET id = %s WHERE id = %s", (moved, key))
            self.rows[moved] = {**self.rows.pop(key), "id": moved}
            return [(str(key), None), (str(moved), self.rows[moved])]
        connection.execute("UPDATE items SET n = n + 1 WHERE id = %s", (key,))
        self.rows[key] = {**self.rows[key], "n": self.rows[key]["n"] + 1}
        return [(str(key), self.rows[key])]


def transactions(log: foldlog.Log) -> list[tuple[str, Written]]:
    """The committed transactions of the topic: the first record's operation, and the records."""
    found: list[tuple[str, Written]] = []
    after = None
    for record in log.read("kills.public.items", isolation="read_committed"):
        value = None if record.value is None else json.loads(record.value)
        if record.offset != after:
            found.append(((dict(record.headers)["op"] or b"").decode(), []))
        found[-1][1].append(((record.key or b"").decode(), value))
        after = record.offset + 1
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_a_capture_killed_at_any_step_writes_every_transaction_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    table = Table(chance)
    killed: list[str] = []
    with running_server() as server, psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id integer PRIMARY KEY, text text, n integer)")
        connection.execute("ALTER TABLE items ALTER text SET STORAGE EXTERNAL")  # so that large ones are left out
        while len(table.rows) < ROWS_AT_FIRST:
            table.transact(connection)
        for number in range(KILLS + 1):
            step, most = chance.choice(list(STEPS.items()))
            if number == KILLS:
                step, most = "none: this one ends by itself", 1
            chosen = (step, chance.choice(("before", "after")), str(chance.randint(1, most)))
            with child(CAPTURING, server.url, str(tmp_path / "data"), *chosen) as process:
                for _ in range(chance.randrange(6)):
                    table.transact(connection)  # beside the capture
                said, status = last_lines(process), process.wait()
                assert status in (0, -signal.SIGKILL), process.stderr.read() if process.stderr else ""
            assert (status == 0) == (said[-1:] == ["done"])
            killed += [step] * (status != 0)
            if number < KILLS:
                for _ in range(chance.randrange(4)):
                    table.transact(connection)
        table_now = {
            str(number): {"id": number, "text": text, "n": n}
            for number, text, n in connection.execute("SELECT * FROM items").fetchall()
        }
        # What was committed beside the last run may not be in the log; one more run has all of it.
        with child(CAPTURING, server.url, str(tmp_path / "data"), "none", "", "1") as process:
            assert last_lines(process)[-1:] == ["done"], process.stderr.read() if process.stderr else ""
    with foldlog.open(tmp_path / "data", "r") as log:
        found = transactions(log)
    assert len(set(killed)) >= 5, killed
    snapshot = dict(found[0][1])
    assert {op for op, _ in found[:1]} == {"r"}
    assert all(op != "r" for op, _ in found[1:])
    # The snapshot is the table after one of the commits; each transaction after it is the next commit, whole.
    after = len(table.commits) - len(found[1:])
    model: dict[str, Row | None] = {}
    for written in table.commits[:after]:
        model.update(written)
    assert snapshot == {key: row for key, row in model.items() if row is not None}
    assert [written for _, written in found[1:]] == table.commits[after:]
    state: dict[str, Row | None] = {}
    for _, written in found:
        state.update(written)
    assert {key: row for key, row in state.items() if row is not None} == table_now
