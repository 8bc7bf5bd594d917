"""A commit of the path sink, cut at every step: whatever fails, and whoever comes next, every row is in the log once
and in order, or none is.

In memory, on files that are cut or fail after each operation: the appends in between are operations of the same files.
And on the disk, with real processes that are killed, beside a server and without one.
"""

from __future__ import annotations

import errno
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import pytest

import foldlog
from faults.processes import child, last_lines, next_line
from foldlog.client.backends.served.resumable import ResumableLog
from foldlog.errors import DirectoryLocked, FoldlogError, UnfinishedCommit
from foldlog.files.memory import MemoryFiles
from foldlog.files.posix import PosixFiles
from foldlog.spark.sink.by_path import job_of_query
from foldlog.spark.sink.committing import PathCommitter
from foldlog.testing.disk_image import DiskImage
from foldlog.testing.faulty_files import Fault, FaultyFiles
from foldlog.testing.power_cuts import PowerCuts
from foldlog.testing.power_loss import PowerLossFiles
from spark.sink.sink_batches import PATH, QUERY, contents, expected, new_directory, rows_of, staged_names, task, write


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that note each operation are for one thread: the one that appends has ended when `flush` returns."""
    flush = ResumableLog.flush

    def flush_and_join(log: ResumableLog) -> None:
        flush(log)
        thread = log._remote._link._thread
        if thread is not None:
            thread.join()

    monkeypatch.setattr(ResumableLog, "flush", flush_and_join)


@pytest.mark.faults
@pytest.mark.usefixtures("one_thread")
def test_power_cut_at_every_operation_leaves_all_or_nothing_and_the_repetition_leaves_it_once() -> None:
    files = PowerLossFiles()
    new_directory(files)
    write(files, 0)

    def check(image: DiskImage) -> None:
        left = image.files()
        PathCommitter(PATH, left).finish()
        assert contents(left) in (expected(0), expected(0, 1))
        write(left, 1)
        assert contents(left) == expected(0, 1)
        assert staged_names(left) == {"lock", "commits.json"}

    cuts = PowerCuts(check, seed=11, mixes=0)
    cuts.attach(files)
    write(files, 1)
    files.on_operation = lambda: None
    assert cuts.finish() > 100
    assert contents(files) == expected(0, 1)


def test_an_error_at_every_operation_of_a_commit_is_told_and_the_repetition_leaves_every_row_once() -> None:
    """After UnfinishedCommit the rows come without being written again; after any other error nothing is there."""
    outcomes = set()
    number = 0
    while True:
        plain = MemoryFiles()
        new_directory(plain)
        write(plain, 0)
        job = job_of_query(QUERY, 1)
        staged = [task(plain, job, rows, at) for at, rows in enumerate(rows_of(1))]
        faulty = FaultyFiles(plain, Fault.at(number, errno.EIO))
        try:
            PathCommitter(PATH, faulty).commit(job, staged, QUERY, 1)
            outcomes.add("done")
        except UnfinishedCommit:
            outcomes.add("unfinished")
            PathCommitter(PATH, plain).abort(staged)  # as Spark does
            PathCommitter(PATH, plain).finish()  # nothing to do if only the note that it is done was not sure
            assert contents(plain) == expected(0, 1)
        except FoldlogError:
            outcomes.add("refused")
            PathCommitter(PATH, plain).abort(staged)
            assert PathCommitter(PATH, plain).finish() == 0
            assert contents(plain) == expected(0)
        write(plain, 1)
        assert contents(plain) == expected(0, 1), f"operation {number}: {faulty.failed}"
        if not faulty.failed:
            break
        number += 1
    assert outcomes == {"done", "unfinished", "refused"}
    assert number > 30


def test_a_writer_that_does_not_listen_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    path = str(tmp_path)
    new_directory(PosixFiles(), path)
    staged = task(PosixFiles(), "job", rows_of(0)[0], path=path)
    with foldlog.open(path):
        committer = PathCommitter(path)
        with pytest.raises(DirectoryLocked, match="does not listen; open it there with listen=True"):
            committer.commit("job", [staged])
        committer.abort([staged], "job")
    assert contents(PosixFiles(), path) == [[], []]
    assert staged_names(PosixFiles(), path) == {"lock"}


@pytest.mark.parametrize("is_served", [True, False])
def test_queries_that_commit_at_once_do_not_disturb_each_other(tmp_path: Path, is_served: bool) -> None:
    path = str(tmp_path)
    new_directory(PosixFiles(), path)

    def write_three(query: str) -> None:
        for batch in range(3):
            write(PosixFiles(), batch, query, path)

    with ExitStack() as stack:
        if is_served:
            stack.enter_context(foldlog.open(path, listen=True))
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(write_three, [f"query-{number}" for number in range(3)]))
    for found, wanted in zip(contents(PosixFiles(), path), expected(0, 1, 2), strict=True):
        assert sorted(found) == sorted(3 * wanted)
        batches = [value.split("/")[0] for value in found]
        assert len(list(groupby(batches))) <= 9, "commits were mixed with each other"


TESTS = str(Path(__file__).resolve().parents[2])

WRITER = f"""
sys.path.insert(0, {TESTS!r})
from foldlog.files.posix import PosixFiles
from spark.sink.sink_batches import write
for batch in range(int(sys.argv[2]), 1000):
    say(f"begin {{batch}}")
    write(PosixFiles(), batch, path=sys.argv[1])
    say(f"end {{batch}}")
"""

KILLS = 6


@pytest.mark.faults
@pytest.mark.parametrize("is_served", [True, False])
def test_kill_nine_of_the_driver_at_any_moment_leaves_every_batch_once(tmp_path: Path, is_served: bool) -> None:
    """A driver commits batch after batch and is killed; the next one begins with the batch that it was at, as Spark
    does, or with the one before if Spark had not noted that one yet."""
    path, rng, files = str(tmp_path), random.Random(4), PosixFiles()
    new_directory(files, path)
    at = 0
    with ExitStack() as stack:
        if is_served:
            stack.enter_context(foldlog.open(path, listen=True))
        for _ in range(KILLS):
            with child(WRITER, path, str(max(0, at - rng.randrange(2)))) as driver:
                for _ in range(rng.randrange(1, 8)):
                    next_line(driver)
                busy = rng.randrange(0, 60_000)
                while busy:  # for less than a commit takes
                    busy -= 1
                driver.kill()
                said = last_lines(driver)
                at = max([at, *(int(line.split()[1]) for line in said)])
                at = max(at, len({value.split("/")[0] for value in contents(files, path)[0]}) - 1)
    assert at > 0
    write(files, at, path=path)
    assert contents(files, path) == expected(*range(at + 1))
