"""Writing by `path`, on the driver: the rows that the tasks have staged are appended, once.

The steps of a commit, under the lock of the staging area:

1. earlier commits that were decided and not finished are finished;
2. a batch that its query has committed before is dropped, and nothing else happens;
3. topics, partitions and sizes are checked against the log as it is now: the last chance to refuse;
4. the commit is decided: its files, the ends of the partitions, a producer's numbers. From here on it will happen;
5. the batches are appended with those numbers, through the process that writes the directory;
6. the commit is done, and its files are removed.

If a process is killed between two steps, the next one that commits finds the decided commit, asks the log how much of
it is there, and appends the rest. Readers may see the rows of one partition before those of another: there is no
transaction over partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final

from foldlog.client.backends.served.resumable import RECORDS_MAX, Numbers, PartitionAppender, ResumableLog
from foldlog.clock import Clock, SystemClock
from foldlog.errors import (
    FoldlogError,
    InvalidArgument,
    ProducerError,
    RecordTooLarge,
    StorageError,
    UnfinishedCommit,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.files.base import Files, storage_error
from foldlog.files.posix import PosixFiles
from foldlog.spark.sink import commits as book
from foldlog.spark.sink.by_path import StagedRows, StagedTopic, job_of_query
from foldlog.spark.sink.commits import Commit, Commits, SinkTarget
from foldlog.spark.sink.staging import StagingArea

_log = logging.getLogger("foldlog")

TopicPartition = tuple[str, int]

_TRIES: Final = 3
"""How often the log is asked how far a commit got: again if it turns out to have more than it said."""


class PathCommitter:
    """Commits to one directory. Any number of processes may: they take turns."""

    def __init__(self, path: str, files: Files | None = None, clock: Clock | None = None) -> None:
        self._path = path
        self._files = files or PosixFiles()
        self._clock = clock or SystemClock()
        self._area = StagingArea(self._files, path)

    def commit(
        self, job: str, staged: Sequence[StagedRows], sender: str | None = None, version: int | None = None
    ) -> None:
        """Append the staged rows, in the order given. Durable on return.

        With a `sender`, a version that is not above its last one is dropped. After UnfinishedCommit all the rows will
        be in the log; after any other error none are.
        """
        if not any(rows.file for rows in staged):
            return
        with self._area.committing():
            # Finish earlier decided commits first: a query's batches are appended in order, and the batch that this
            # process repeats after a crash may be among them.
            commits = self._finish_decided(self._load(), sender)
            if not commits.is_done(sender, version):
                with closing(ResumableLog.open(self._path, self._files)) as log:
                    # The decision is a rename, and the point of no return: before it nothing is in the log, after it
                    # everything will be, by this process or the next one that commits. It stores numbers and ends, so
                    # that the next process can find out what is already in the log.
                    commit = self._decide(log, commits, job, staged, (sender, version))
                    commits = self._store_decided(commits, commit)
                    commits = self._finish(commits, commit, log)
            self._area.remove_job(job)
            self._remove_leftovers(commits, sender, version)

    def finish(self) -> int:
        """Finish decided commits that are not done; returns how many. UnfinishedCommit if one cannot be finished."""
        with self._area.committing():
            commits = self._load()
            decided = commits.decided
            for commit in decided:
                commits = self._finish(commits, commit)
            self._remove_leftovers(commits)
            return len(decided)

    def abort(self, staged: Sequence[StagedRows], job: str | None = None) -> None:
        """After a failed write: remove what was staged, unless it is decided; with `job`, all files of that job.

        Spark calls this after a failed commit, too, which may have been decided before.
        """
        if not self._files.exists(self._area.path):
            return
        with self._area.committing():
            needed = {file.name for commit in self._load().decided for file in commit.files}
            for rows in staged:
                if rows.file is not None and rows.file.name not in needed:
                    self._area.remove_file(rows.file)
            if job is not None and all(not name.startswith(f"{job}/") for name in needed):
                self._area.remove_job(job)

    # --- deciding -------------------------------------------------------------------------------------------------

    def _decide(
        self,
        log: ResumableLog,
        commits: Commits,
        job: str,
        staged: Sequence[StagedRows],
        sent: tuple[str | None, int | None],
    ) -> Commit:
        """The commit, after all checks: nothing has been written yet."""
        merged = _merged(staged)
        for name, topic in merged.items():
            _check_topic(log, name, topic)
        targets = {
            name: SinkTarget(
                topic.limits.topic_id, {n: log.end_offset(name, n) for n in topic.record_counts}, topic.record_counts
            )
            for name, topic in sorted(merged.items())
        }
        return Commit(
            job=job,
            files=tuple(rows.file for rows in staged if rows.file is not None),
            targets=targets,
            numbers=commits.free_numbers() or Numbers(log.new_producer_id(), 0),
            decided_ms=self._clock.now_ms(),
            sender=sent[0],
            version=sent[1],
        )

    def _store_decided(self, commits: Commits, commit: Commit) -> Commits:
        decided = commits.with_decided(commit)
        try:
            self._store(decided)
        except StorageError as error:
            if any(one.job == commit.job for one in self._load().decided):
                raise UnfinishedCommit(self._path, str(error)) from error  # renamed, but not synced
            raise
        return decided

    # --- finishing ------------------------------------------------------------------------------------------------

    def _finish_decided(self, commits: Commits, sender: str | None) -> Commits:
        """Finish decided commits. Only a failure of one by `sender` is raised, to keep their order."""
        for commit in commits.decided:
            try:
                commits = self._finish(commits, commit)
            except UnfinishedCommit as error:
                if sender is not None and commit.sender == sender:
                    raise
                _log.warning("an earlier write to %s could not be finished: %s", self._path, error.why)
        return commits

    def _finish(self, commits: Commits, commit: Commit, log: ResumableLog | None = None) -> Commits:
        """Append the missing part of a commit. With `log`, it was decided just now, and all of it is missing."""
        try:
            is_all_proven = self._append_missing(commit) if log is None else self._append_new(commit, log)
            done = commits.with_done(commit, self._clock.now_ms())
            self._store(done)
        except FoldlogError as error:
            raise UnfinishedCommit(self._path, str(error)) from error
        if is_all_proven:
            self._area.remove_job(commit.job)
        else:
            self._area.keep_job(commit.job)
        return done

    def _append_new(self, commit: Commit, log: ResumableLog) -> bool:
        try:
            return self._append(log, commit, {})
        except ProducerError:  # another process has already worked on it
            return self._append_missing(commit)

    def _append_missing(self, commit: Commit) -> bool:
        for tries in range(1, _TRIES + 1):
            with closing(ResumableLog.open(self._path, self._files)) as log:
                try:
                    done = self._in_log(log, commit)
                    # The files may be gone already, if only the note that the commit is done was missing.
                    return _is_complete(commit, done) or self._append(log, commit, done)
                except ProducerError:
                    if tries == _TRIES:
                        raise
        raise AssertionError("the last try returns or raises")

    def _in_log(self, log: ResumableLog, commit: Commit) -> dict[TopicPartition, int | None]:
        """Per partition how many records are already in the log; None if that cannot be known."""
        ends = {
            (name, number): end
            for name, target in commit.targets.items()
            if _is_there(log, name, target)
            for number, end in target.ends.items()
        }
        age_ms = max(0, self._clock.now_ms() - commit.decided_ms)
        found = log.progress(ends, commit.numbers, age_ms) if ends else {}
        return {
            (name, number): count if is_provable or count == commit.targets[name].record_counts[number] else None
            for (name, number), (count, is_provable) in found.items()
        }

    def _append(self, log: ResumableLog, commit: Commit, done: Mapping[TopicPartition, int | None]) -> bool:
        """Append all but the first `done` records of each partition. False if some were left out because it is unknown
        whether they are in the log."""
        appenders: dict[TopicPartition, PartitionAppender | None] = {}
        counts: dict[TopicPartition, int] = {}
        for staged in commit.files:
            for topic, number, record_count, batch in self._area.frames(staged):
                key = (topic, number)
                before = counts.get(key, 0)
                counts[key] = before + record_count
                known = done.get(key, 0)
                if known is None or before < known:
                    continue
                if key not in appenders:
                    appenders[key] = self._appender(log, commit, key, known)
                appender = appenders[key]
                if appender is not None:
                    appender.append(batch)
        log.flush()
        unproven = [f"{topic}-{number}" for (topic, number), known in done.items() if known is None]
        if unproven:
            _log.warning(
                "a write to %s was interrupted so long ago that nobody can tell whether %s has its rows; they were not"
                " appended, and are kept in %s",
                self._path,
                ", ".join(unproven),
                self._area.kept_path(commit.job),
            )
        return not unproven

    def _appender(
        self, log: ResumableLog, commit: Commit, key: TopicPartition, done_count: int
    ) -> PartitionAppender | None:
        """None if the topic was deleted since: appended rows would have been deleted with it."""
        topic, number = key
        try:
            return log.appender(topic, commit.targets[topic].topic_id, number, commit.numbers, done_count)
        except UnknownTopic:
            _log.warning("topic %s was deleted while rows were appended to it; they are gone with it", topic)
            return None

    # --- the staging area -----------------------------------------------------------------------------------------

    def _load(self) -> Commits:
        try:
            return book.load(self._files, self._area.path)
        except OSError as error:
            raise storage_error(f"{self._area.path} cannot be read, where commits are noted", error) from error

    def _store(self, commits: Commits) -> None:
        try:
            book.store(self._files, self._area.path, commits)
        except OSError as error:
            raise storage_error(f"{self._area.path} cannot be written, where commits are noted", error) from error

    def _remove_leftovers(self, commits: Commits, sender: str | None = None, version: int | None = None) -> None:
        """Remove files of jobs that are over: this query's batches up to this one, and old jobs of all others."""
        before = "" if sender is None else job_of_query(sender, 0).rpartition(".")[0]

        def is_over(job: str) -> bool:
            stem, _, number = job.rpartition(".")
            return version is not None and stem == before and number.isdecimal() and int(number) <= version

        self._area.remove_leftovers({commit.job for commit in commits.decided}, self._clock.now_ms(), is_over)


def _merged(staged: Sequence[StagedRows]) -> dict[str, StagedTopic]:
    """The staged rows of all tasks, by topic."""
    merged: dict[str, StagedTopic] = {}
    for rows in staged:
        for name, topic in rows.topics.items():
            whole = merged.setdefault(name, StagedTopic(topic.limits))
            if whole.limits.topic_id != topic.limits.topic_id:
                raise _recreated(name)
            if not topic.limits.is_compacted:
                whole.limits = topic.limits  # this task took rows without a key
            for number, count in topic.record_counts.items():
                whole.record_counts[number] = whole.record_counts.get(number, 0) + count
            whole.largest_batch_bytes = max(whole.largest_batch_bytes, topic.largest_batch_bytes)
    return merged


def _check_topic(log: ResumableLog, name: str, staged: StagedTopic) -> None:
    """Raises if a topic has changed since its rows were packed, so that they no longer fit."""
    now = log.limits(name)
    if now.topic_id != staged.limits.topic_id:
        raise _recreated(name)
    for number, count in staged.record_counts.items():
        if number >= now.partition_count:
            raise UnknownPartition(name, number, now.partition_count)
        if count > RECORDS_MAX:
            raise InvalidArgument(
                f"{count} rows for {name}-{number} are too many for one write, which takes {RECORDS_MAX} a partition;"
                " write them in parts"
            )
    if staged.largest_batch_bytes > now.max_message_bytes:
        raise RecordTooLarge(staged.largest_batch_bytes, now.max_message_bytes)
    if now.is_compacted and not staged.limits.is_compacted:
        raise InvalidArgument(f"topic {name!r} became compacted while its rows were staged; write them again")


def _recreated(topic: str) -> InvalidArgument:
    return InvalidArgument(
        f"topic {topic!r} was deleted and made again while its rows were staged; nothing was appended, write them again"
    )


def _is_complete(commit: Commit, done: Mapping[TopicPartition, int | None]) -> bool:
    """Whether the log has all records of the commit."""
    return all(
        done.get((name, number)) == count
        for name, target in commit.targets.items()
        for number, count in target.record_counts.items()
    )


def _is_there(log: ResumableLog, topic: str, target: SinkTarget) -> bool:
    """Whether the topic still exists, with the same id."""
    try:
        return log.limits(topic).topic_id == target.topic_id
    except UnknownTopic:
        return False
