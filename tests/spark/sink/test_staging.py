"""The staging area and its book of commits: what is written is read again, damage is found, what is left over goes, and
one process commits at a time. No Spark is needed for any of it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from faults.processes import child, finish, next_line, tell
from foldlog.client.backends.served.resumable import EPOCH_MAX, Numbers
from foldlog.errors import CorruptLog, NewerVersion, StorageError
from foldlog.files.base import Files
from foldlog.files.memory import MemoryFiles
from foldlog.files.posix import PosixFiles
from foldlog.limits import STAGED_LEFTOVER_MS, STAGED_SENDERS_MAX, STAGED_WRITE_BYTES
from foldlog.spark.sink import commits as book
from foldlog.spark.sink import staging
from foldlog.spark.sink.commits import Commit, Commits, SinkTarget
from foldlog.spark.sink.staging import Frame, StagedFile, StagingArea

DIRECTORY = "data"


def area(files: Files | None = None) -> StagingArea:
    made = files or MemoryFiles()
    made.make_directory(DIRECTORY)
    return StagingArea(made, DIRECTORY)


def staged(where: StagingArea, frames: list[Frame], job: str = "job") -> StagedFile:
    file = where.begin(job, 3)
    for frame in frames:
        file.add(frame.topic, frame.partition, frame.record_count, bytearray(frame.batch))
    return file.finish()


frames_strategy = st.lists(
    st.builds(
        Frame,
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=249),
        st.integers(0, 10_000),
        st.integers(1, 1 << 31),
        st.binary(max_size=2000).map(bytearray),
    ),
    max_size=8,
)


@given(frames_strategy)
def test_what_was_staged_is_read_again_in_order(frames: list[Frame]) -> None:
    where = area()
    assert list(where.frames(staged(where, frames))) == frames


def test_a_file_of_many_writes_is_read_again(tmp_path: Path) -> None:
    where = StagingArea(PosixFiles(), str(tmp_path))
    frames = [Frame("orders", number, 1, bytearray([number]) * (STAGED_WRITE_BYTES // 3)) for number in range(10)]
    file = staged(where, frames)
    assert list(where.frames(file)) == frames
    assert (tmp_path / ".staged" / file.name).stat().st_size == file.size_bytes > 3 * STAGED_WRITE_BYTES


@pytest.mark.parametrize("part", range(8))
def test_every_flipped_byte_and_every_cut_is_found(part: int) -> None:
    files = MemoryFiles()
    where = area(files)
    file = staged(where, [Frame("orders", 1, 2, bytearray(b"first")), Frame("x", 0, 9, bytearray(b"second"))])
    path = where.path_of(file.name)
    whole = files.open(path).read(0, file.size_bytes)
    for position in range(part, len(whole), 8):
        damaged = bytearray(whole)
        damaged[position] ^= 0x41
        files.open(path, write=True).write(0, [damaged])
        with pytest.raises(CorruptLog):
            list(where.frames(file))
        files.open(path, write=True).truncate(position)
        with pytest.raises(CorruptLog):
            list(where.frames(file))


def test_a_file_that_is_gone_is_named() -> None:
    where = area()
    with pytest.raises(StorageError, match="cannot be read, which holds rows of a commit"):
        list(where.frames(StagedFile("job/nothing.batches", 10)))


def test_an_attempt_that_fails_leaves_no_file_and_attempts_do_not_share_one() -> None:
    files = MemoryFiles()
    where = area(files)
    one, other = where.begin("job", 0), where.begin("job", 0)
    one.add("orders", 0, 1, bytearray(b"batch"))
    other.add("orders", 0, 1, bytearray(b"batch"))
    one.discard()
    kept = other.finish()
    assert [f"job/{entry.name}" for entry in files.entries(where.path_of("job"))] == [kept.name]


def test_a_name_that_could_leave_the_directory_is_replaced_by_one_that_cannot() -> None:
    assert staging.safe_name("0d9f3a2c-aa") == "0d9f3a2c-aa"
    for name in ("../up", "a/b", "", "x" * 300, "tab\t"):
        assert staging.safe_name(name).isalnum()
    assert staging.safe_name("../up") != staging.safe_name("../down")


def test_leftovers_go_when_they_are_over_or_old_and_not_before() -> None:
    files = MemoryFiles()
    where = area(files)
    for job in ("needed", "over", "old", "kept"):
        staged(where, [Frame("orders", 0, 1, bytearray(b"batch"))], job)
    where.keep_job("kept")
    (born_ms,) = {entry.modified_ms for entry in files.entries(where.path_of("old"))}

    def left(now_ms: int) -> set[str]:
        where.remove_leftovers({"needed"}, now_ms, lambda job: job in ("needed", "over"))
        return {entry.name for entry in files.entries(where.path) if entry.is_directory}

    assert left(born_ms + STAGED_LEFTOVER_MS) == {"needed", "old", "kept.kept"}
    assert left(born_ms + STAGED_LEFTOVER_MS + 1) == {"needed", "kept.kept"}


def test_removing_what_is_not_there_is_fine() -> None:
    where = area()
    where.remove_job("nothing")
    where.remove_file(StagedFile("nothing/at.batches", 0))
    where.remove_leftovers((), 0, lambda job: True)


HOLDER = """
from foldlog.files.posix import PosixFiles
from foldlog.spark.sink.staging import StagingArea
with StagingArea(PosixFiles(), sys.argv[1]).committing():
    say("mine")
    sys.stdin.readline()
"""


def test_one_process_commits_at_a_time_and_who_is_killed_lets_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "STAGED_LOCK_WAIT_MS", 0)
    where = StagingArea(PosixFiles(), str(tmp_path))
    with child(HOLDER, str(tmp_path)) as other:
        assert next_line(other) == "mine"
        with pytest.raises(StorageError, match=f"process {other.pid} has been committing rows"), where.committing():
            pass
        other.kill()
        other.wait()
    with where.committing():
        pass
    with child(HOLDER, str(tmp_path)) as next_one:
        assert next_line(next_one) == "mine"
        tell(next_one, "go on")
        finish(next_one)


numbers_strategy = st.builds(Numbers, st.integers(0, 1 << 62), st.integers(0, EPOCH_MAX))
per_partition_strategy = st.dictionaries(st.integers(0, 99), st.integers(0, 1 << 62))
commit_strategy = st.builds(
    Commit,
    job=st.text(min_size=1),
    files=st.lists(st.builds(StagedFile, st.text(), st.integers(0, 1 << 40))).map(tuple),
    targets=st.dictionaries(
        st.text(), st.builds(SinkTarget, st.text(), per_partition_strategy, per_partition_strategy)
    ),
    numbers=numbers_strategy,
    decided_ms=st.integers(0, 1 << 50),
    sender=st.none() | st.text(),
    version=st.none() | st.integers(0, 1 << 62),
)
commits_strategy = st.builds(
    Commits,
    decided=st.lists(commit_strategy, max_size=3).map(tuple),
    senders=st.dictionaries(st.text(), st.tuples(st.integers(0, 1 << 62), st.integers(0, 1 << 50)), max_size=3),
    producers=st.lists(numbers_strategy, max_size=3).map(tuple),
)


@given(commits_strategy)
def test_the_book_is_read_as_it_was_stored(commits: Commits) -> None:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    assert book.load(files, DIRECTORY) == Commits()
    book.store(files, DIRECTORY, commits)
    assert book.load(files, DIRECTORY) == commits


def test_every_flipped_byte_of_the_book_is_found() -> None:
    commits = Commits(decided=(one_commit(),), senders={"q": (3, 5)}, producers=(Numbers(4, 2),))
    whole = book.encode(commits)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x01
        with pytest.raises(CorruptLog, match="nothing was changed; restore the file"):
            book.decode(bytes(damaged), "commits.json")


def test_a_book_of_another_version_is_not_guessed_at() -> None:
    body = b'{"version":2'
    data = body + f',\n"crc32c":"{crc32c(body):08x}"}}\n'.encode()
    with pytest.raises(NewerVersion, match="it has version 2"):
        book.decode(data, "commits.json")


def one_commit(version: int = 1, numbers: Numbers | None = None) -> Commit:
    return Commit("job", (StagedFile("job/a", 1),), {}, numbers or Numbers(4, 2), 9, "q", version)


def test_a_producer_is_lent_to_one_commit_at_a_time_with_an_epoch_that_nobody_had() -> None:
    commits = Commits(producers=(Numbers(4, 1),))
    assert commits.free_numbers() == Numbers(4, 2)
    decided = commits.with_decided(one_commit())
    assert decided.free_numbers() is None
    assert decided.with_done(one_commit(), 0).free_numbers() == Numbers(4, 3)
    spent = one_commit(numbers=Numbers(4, EPOCH_MAX))
    assert Commits().with_decided(spent).with_done(spent, 0).producers == ()


def test_a_version_is_done_once_it_or_a_later_one_is() -> None:
    done = Commits().with_decided(one_commit(5)).with_done(one_commit(5), 0)
    assert [done.is_done("q", version) for version in (4, 5, 6)] == [True, True, False]
    assert not done.is_done("other", 4)
    assert not done.is_done(None, None)
    assert done.decided == ()


def test_of_too_many_senders_the_one_that_was_silent_longest_is_forgotten() -> None:
    senders = {str(number): (1, number) for number in range(1, STAGED_SENDERS_MAX + 1)}
    done = Commits(senders=senders).with_done(replace(one_commit(), sender="new"), STAGED_SENDERS_MAX + 5)
    assert len(done.senders) == STAGED_SENDERS_MAX
    assert "1" not in done.senders
    assert done.senders["new"] == (1, STAGED_SENDERS_MAX + 5)
