"""Commits of the path sink: who is appended when, what is refused, what is finished by whom, and what is removed.

The directory lives in memory. The model of what has to be there is a list per partition. How a commit fares when it is
cut at any moment is in test_sink_faults.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import foldlog
from foldlog.client.backends.served.resumable import Progress, ResumableLog
from foldlog.clock import SystemClock
from foldlog.errors import InvalidArgument, RecordTooLarge, UnfinishedCommit, UnknownTopic
from foldlog.files.base import Files
from foldlog.files.memory import MemoryFiles
from foldlog.log.producers import EXPIRATION_MS
from foldlog.spark.sink.by_path import StagedRows, job_of_query
from foldlog.spark.sink.commits import load
from foldlog.spark.sink.committing import PathCommitter
from foldlog.testing.sim_clock import SimClock
from spark.sink.sink_batches import (
    PATH,
    QUERY,
    TOPIC,
    contents,
    expected,
    new_directory,
    rows_of,
    staged_names,
    task,
    unfinished,
    write,
)


@pytest.fixture
def files() -> MemoryFiles:
    made = MemoryFiles()
    new_directory(made)
    return made


def test_micro_batches_appear_in_order_and_a_repeated_one_changes_nothing() -> None:
    files = MemoryFiles()
    new_directory(files)
    for batch in (0, 1, 1, 2, 0, 2):
        write(files, batch)
    assert contents(files) == expected(0, 1, 2)
    assert staged_names(files) == {"lock", "commits.json"}


@pytest.mark.parametrize("appended", [0, 1, 3])
def test_whoever_commits_next_finishes_what_was_decided_first(files: MemoryFiles, appended: int) -> None:
    unfinished(files, appended=appended)
    write(files, 1, query="another")
    assert contents(files) == expected(0, 1)
    write(files, 0)
    assert contents(files) == expected(0, 1)


def test_a_write_without_a_name_is_finished_too_and_aborting_it_does_not_take_it_back(files: MemoryFiles) -> None:
    staged = unfinished(files, query=None, appended=2)
    PathCommitter(PATH, files).abort(staged, job_of_query("none", 0))
    assert PathCommitter(PATH, files).finish() == 1
    assert PathCommitter(PATH, files).finish() == 0
    assert contents(files) == expected(0)


def test_an_abort_removes_what_was_staged_and_the_rest_of_its_job(files: MemoryFiles) -> None:
    staged = [task(files, "job", rows, number) for number, rows in enumerate(rows_of(0))]
    task(files, "job", [(0, "of an attempt that nobody heard of")])
    task(files, "other", [(0, "x")])
    PathCommitter(PATH, files).abort(staged[:1])
    assert len(files.entries(f"{PATH}/.staged/job")) == 2
    PathCommitter(PATH, files).abort([], "job")
    assert staged_names(files) == {"lock", "other"}
    assert contents(files) == [[], []]


def test_an_abort_before_anything_was_staged_makes_nothing(files: MemoryFiles) -> None:
    PathCommitter(PATH, files).abort([], "job")
    assert not files.exists(f"{PATH}/.staged")


def test_only_the_attempts_that_the_commit_names_count(files: MemoryFiles) -> None:
    job = job_of_query(QUERY, 0)
    named = [task(files, job, rows, number) for number, rows in enumerate(rows_of(0))]
    for number, rows in enumerate(rows_of(0)):  # speculation, or an attempt that was thought to be lost
        task(files, job, rows, number)
    PathCommitter(PATH, files).commit(job, [*named, StagedRows()], QUERY, 0)
    assert contents(files) == expected(0)
    assert staged_names(files) == {"lock", "commits.json"}


def test_nothing_to_append_is_no_commit(files: MemoryFiles) -> None:
    PathCommitter(PATH, files).commit("job", [StagedRows(), StagedRows()], QUERY, 0)
    assert not files.exists(f"{PATH}/.staged")


def test_a_rewritten_checkpoint_is_another_query(files: MemoryFiles) -> None:
    write(files, 0)
    write(files, 0, query="after the checkpoint was deleted")
    assert contents(files) == expected(0, 0)


def test_writes_without_a_name_are_each_a_commit_of_their_own(files: MemoryFiles) -> None:
    for job in ("one", "two"):
        PathCommitter(PATH, files).commit(job, [task(files, job, rows_of(0)[0])])
    assert [len(values) for values in contents(files)] == [8, 8]


def test_commits_take_turns_with_one_producer(files: MemoryFiles) -> None:
    for batch in range(5):
        write(files, batch)
        write(files, batch, query="another")
    assert len(load(files, f"{PATH}/.staged").producers) == 1
    assert contents(files) == expected(0, 0, 1, 1, 2, 2, 3, 3, 4, 4)


def test_a_repetition_that_finds_more_in_the_log_than_it_was_told_asks_again(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is slow to die may still append when the next one has asked how far it got."""
    unfinished(files, appended=3)
    progress, asked = ResumableLog.progress, []

    def too_early(log: ResumableLog, *args: Any) -> dict[tuple[str, int], Progress]:
        asked.append(args)
        found = progress(log, *args)
        return {key: Progress(0, True) for key in found} if len(asked) == 1 else found

    monkeypatch.setattr(ResumableLog, "progress", too_early)
    write(files, 0)
    assert len(asked) == 2
    assert contents(files) == expected(0)


def test_a_commit_whose_rows_are_all_in_the_log_needs_its_files_no_more(files: MemoryFiles) -> None:
    staged = unfinished(files, appended=100)
    for rows in staged:
        assert rows.file is not None
        files.unlink(f"{PATH}/.staged/{rows.file.name}")
    assert PathCommitter(PATH, files).finish() == 1
    assert contents(files) == expected(0)


def test_what_cannot_be_finished_for_another_is_told_and_does_not_stop_this_one(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    staged = unfinished(files, query="another")
    assert staged[0].file is not None
    files.unlink(f"{PATH}/.staged/{staged[0].file.name}")
    write(files, 1)
    assert contents(files) == expected(1)
    assert "an earlier write to data could not be finished" in caplog.text
    with pytest.raises(UnfinishedCommit, match="cannot be read, which holds rows of a commit"):
        write(files, 1, query="another")
    with pytest.raises(UnfinishedCommit):
        PathCommitter(PATH, files).finish()


# --- topics that change in between --------------------------------------------------------------------------------


def change(files: Files, act: Callable[[foldlog.Log], object]) -> None:
    with foldlog.open(PATH, files=files, background=False) as log:
        act(log)


def recreate(log: foldlog.Log) -> None:
    log.delete_topic(TOPIC)
    log.create_topic(TOPIC, partitions=2)


@pytest.mark.parametrize(
    ("act", "error", "sentence"),
    [
        (lambda log: log.delete_topic(TOPIC), UnknownTopic, "no topic 'orders'"),
        (recreate, InvalidArgument, "was deleted and made again while its rows were staged"),
        (lambda log: log.alter_topic(TOPIC, {"max.message.bytes": 100}), RecordTooLarge, "max.message.bytes=100"),
        (lambda log: log.alter_topic(TOPIC, {"cleanup.policy": "compact"}), InvalidArgument, "became compacted"),
    ],
)
def test_a_topic_that_changed_since_the_rows_were_staged_is_refused_before_anything_is_decided(
    files: MemoryFiles, act: Callable[[foldlog.Log], object], error: type[Exception], sentence: str
) -> None:
    staged = task(files, "job", rows_of(0)[0])
    change(files, act)
    with pytest.raises(error, match=re.escape(sentence)):
        PathCommitter(PATH, files).commit("job", [staged])
    assert load(files, f"{PATH}/.staged").decided == ()
    if error is not UnknownTopic:
        assert contents(files) == [[], []]


def test_a_topic_that_grew_is_the_same_topic(files: MemoryFiles) -> None:
    staged = task(files, "job", rows_of(0)[0])
    change(files, lambda log: log.grow_topic(TOPIC, 3))
    PathCommitter(PATH, files).commit("job", [staged])
    assert [len(values) for values in contents(files)] == [4, 4, 0]


@pytest.mark.parametrize("act", [lambda log: log.delete_topic(TOPIC), recreate])
def test_rows_of_a_topic_that_was_deleted_after_the_decision_are_gone_with_it(
    files: MemoryFiles, act: Callable[[foldlog.Log], object], caplog: pytest.LogCaptureFixture
) -> None:
    change(files, lambda log: log.create_topic("other", partitions=2))
    unfinished(files, appended=1)
    change(files, act)
    assert PathCommitter(PATH, files).finish() == 1
    assert "topic orders was deleted while rows were appended to it" in caplog.text
    with foldlog.open(PATH, "r", files=files) as log:
        assert [log.offsets(topic) for topic in log.topics() if topic == TOPIC] in ([], [{0: (0, 0), 1: (0, 0)}])


def test_what_nobody_can_prove_is_kept_aside_and_not_appended(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows of partition 0 may have been appended and deleted; those of partition 1 were not: nothing is missing."""
    unfinished(files)
    change(files, lambda log: log.append(TOPIC, "later", partition=0))
    change(files, lambda log: log.delete_records(TOPIC, {0: 1}))
    clock = SimClock(SystemClock().now_ms() + EXPIRATION_MS + 60_000)
    assert PathCommitter(PATH, files, clock).finish() == 1
    assert contents(files) == [[], expected(0)[1]]
    kept = f"{PATH}/.staged/kept.{job_of_query(QUERY, 0)}"
    assert len(files.entries(kept)) == 2
    assert (
        f"nobody can tell whether orders-0 has its rows; they were not appended, and are kept in {kept}" in caplog.text
    )
    write(files, 0)
    assert contents(files) == [[], expected(0)[1]]
    assert files.exists(kept)


def test_an_unfinished_commit_is_finished_however_long_it_was_forgotten(files: MemoryFiles) -> None:
    unfinished(files, appended=3)
    clock = SimClock(SystemClock().now_ms() + 50 * EXPIRATION_MS)
    assert PathCommitter(PATH, files, clock).finish() == 1
    assert contents(files) == expected(0)
