"""kill -9 of a process that applies ranges to a table, at any moment: the table is what its bookmark says, every time.

The bookmark alone decides which prefix of the topic the table has to equal, and everything that was said to be applied
is below it. The same for a bulk load that is killed and goes on, and for a server that crashes.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from foldlog.errors import ViewUnavailable
from foldlog.views.contract import View
from foldlog.views.table.table import table
from postgres_server import running_server, start_server
from views.killed_writer import KEYS, SHAPE, at, content, one_range

ROUNDS = 5
TESTS = Path(__file__).resolve().parents[2]


@contextmanager
def writer(place: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    search = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    process = subprocess.Popen(
        [sys.executable, "-m", "views.killed_writer", place, *arguments],
        env={**os.environ, "PYTHONPATH": search},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def kill_at_random(place: str, rng: random.Random, *arguments: str) -> int:
    """Let a writer apply some ranges and kill it, most often in the middle of the next; the offset it came to."""
    with writer(place, str(rng.randrange(10**6)), *arguments) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = []
        for _ in range(rng.randrange(1, 12)):
            line = process.stdout.readline()
            assert line, f"the writer ended: {process.stderr.read()[-2000:]}"
            said.append(int(line))
        try:  # a few milliseconds into the next range, or past it: any moment is a good one
            process.wait(rng.uniform(0, 0.01))
        except subprocess.TimeoutExpired:
            process.kill()
        said += [int(line) for line in process.stdout.read().splitlines() if line]
    return said[-1]


def check(view: View, reached: int) -> int:
    """The table is exactly the prefix that its bookmark names, and no shorter than what was said to be applied."""
    bookmark = view.bookmark()
    assert bookmark is not None
    stop = bookmark.offset(0)
    assert stop is not None
    assert stop >= reached
    snapshot = view.scan()
    assert snapshot.bookmark == bookmark
    rows = [row for batch in snapshot.batches for row in batch.to_pylist()]
    assert sorted(rows, key=lambda row: str(row["tx_id"])) == content(stop)
    return stop


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.faults)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "live.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def test_a_killed_writer_leaves_what_the_bookmark_says(place: str) -> None:
    rng = random.Random(4)
    reached = 0
    with closing(table(place, "payments")) as view:
        for _ in range(ROUNDS):
            reached = check(view, max(reached, kill_at_random(place, rng)))
    assert reached > KEYS


def test_a_killed_bulk_load_goes_on_where_it_was(place: str) -> None:
    rng = random.Random(5)
    reached = 0
    for _ in range(3):
        reached = max(reached, kill_at_random(place, rng, "load"))
    with closing(table(place, "payments")) as view, closing(view.shadow("rebuild")) as shadow:
        shadow.prepare(SHAPE, at(0), loading=True)
        for _ in range(5):
            reached = one_range(shadow, rng)
        shadow.finish_loading()
        check(shadow, reached)
        view.swap(shadow)
        check(view, reached)


def test_two_writers_at_once_and_one_of_them_killed_leave_what_the_bookmark_says(place: str) -> None:
    """Both read the same bookmark again and again: whoever is second is refused, ends, and is no loss."""
    rng = random.Random(6)
    with closing(table(place, "payments")) as view:
        view.prepare(SHAPE, at(0))
        with writer(place, "1"):
            reached = kill_beside_another(place, rng)
        check(view, reached)


def kill_beside_another(place: str, rng: random.Random) -> int:
    """One more writer beside another; each may be refused by the bookmark at any range."""
    with writer(place, str(rng.randrange(10**6))) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        process.kill()
        return max([int(line) for line in lines if line], default=0)


def test_a_server_that_crashes_keeps_what_was_applied_and_nothing_of_what_was_not() -> None:
    """A server with fsync, stopped without a checkpoint; its clients see one error, and go on with the next server."""
    rng = random.Random(7)
    with running_server(durable=True) as server:
        url, directory, reached = server.url, server.directory, 0
        for _ in range(3):
            with closing(table(url, "payments")) as view:
                view.prepare(SHAPE, at(0))
                for _ in range(rng.randrange(2, 9)):
                    reached = one_range(view, rng)
                server.crash()
                with pytest.raises(ViewUnavailable):
                    one_range(view, rng)
            server.process, server.port = (again := start_server(directory, durable=True)).process, again.port
            url = server.url
            with closing(table(url, "payments")) as view:
                check(view, reached)
