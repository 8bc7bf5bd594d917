"""Writing by `path`, in the tasks: rows are packed and staged beside the log. committing.py appends them.

A task changes nothing in the log, except for creating a topic if `createTopic` allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from foldlog.client.backends.served.resumable import ResumableLog, TopicLimits
from foldlog.client.log import open_log, open_shared
from foldlog.clock import SystemClock
from foldlog.errors import InvalidArgument, LogNotFound, TopicExists, UnknownTopic
from foldlog.files.base import Files
from foldlog.files.posix import PosixFiles
from foldlog.spark.origins.by_path import in_other_words, open_directory
from foldlog.spark.sink.options import SinkOptions, with_create_option
from foldlog.spark.sink.rows import FindLimits, RowPacker
from foldlog.spark.sink.staging import StagedFile, StagingArea, safe_name

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_JOB: Final = "query."
"""Prefix of the directories of a query's micro-batches."""

_NEW_LOG: Final = ' to write to; let the sink make it, and its topics: option("createTopic", <number of partitions>)'
_OTHER_FILES: Final = (
    " to write to, and what is there is something else; name the directory that holds its catalog.json, or one that is"
    ' new, which becomes a log with option("createTopic", <number of partitions>)'
)


@dataclass(frozen=True, slots=True)
class PathPlan:
    """The driver's plan for the tasks. `defaults` are the writer's settings for topics without their own."""

    options: SinkOptions
    defaults: Mapping[str, str]

    @property
    def path(self) -> str:
        if self.options.origin.path is None:
            raise InvalidArgument("a path is needed")
        return self.options.origin.path


@dataclass(slots=True)
class StagedTopic:
    """The rows that a task has staged for one topic: their counts, and the topic's limits when they were packed."""

    limits: TopicLimits
    record_counts: dict[int, int] = field(default_factory=dict)
    largest_batch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The result of one task. `file` is None if it had no rows."""

    file: StagedFile | None = None
    topics: dict[str, StagedTopic] = field(default_factory=dict)


def plan(options: SinkOptions) -> PathPlan:
    """On the driver, before any row is packed: LogNotFound; UnknownTopic for the topic of the option; DirectoryLocked
    if the directory has a writer that accepts no connections, so that nothing could be appended later."""
    if options.origin.path is None:
        raise InvalidArgument("a path is needed")
    is_new = not _has_files(options.origin.path)
    if options.partitions_of_new_topics is not None and is_new:
        # createTopic at a new path means that a new log is wanted there, as every other sink of Spark's creates one.
        open_log(options.origin.path).close()
    try:
        opened = ResumableLog.open(options.origin.path)
    except LogNotFound as error:
        raise in_other_words(error, _NEW_LOG if is_new else _OTHER_FILES) from None
    with closing(opened) as log:
        origin = replace(options.origin, directory_id=log.directory_id)
        told = PathPlan(replace(options, origin=origin), dict(log.defaults))
        if options.topic is not None:
            _find_limits(told, log.limits, options.topic)
    return told


def _has_files(path: str) -> bool:
    try:
        return bool(PosixFiles().entries(path))
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True


def job_of_query(query_id: str, batch_id: int) -> str:
    """The directory of a micro-batch, the same for all its attempts.

    >>> job_of_query("5f2c", 7)
    'query.5f2c.7'
    """
    return f"{QUERY_JOB}{safe_name(query_id)}.{batch_id}"


def stage(
    told: PathPlan, job: str, task_number: int, rows: Iterable[pa.RecordBatch], files: Files | None = None
) -> StagedRows:
    """In a task: pack the rows into a new file. Durable on return; an error leaves nothing behind."""
    options = told.options
    area = StagingArea(files or PosixFiles(), told.path)
    with open_directory(options.origin) as log:

        def limits_of(topic: str) -> TopicLimits:
            return _find_limits(told, lambda name: TopicLimits.of(log.topic(name), told.defaults), topic)

        packer = RowPacker(
            limits_of,
            topic=options.topic,
            compression=options.compression,
            now_ms=SystemClock().now_ms(),
        )
        return stage_rows(area, packer, job, task_number, rows)


def stage_rows(
    area: StagingArea, packer: RowPacker, job: str, task_number: int, rows: Iterable[pa.RecordBatch]
) -> StagedRows:
    """The staging itself, with all dependencies given."""
    topics: dict[str, StagedTopic] = {}
    file = None
    try:
        for packed in packer.pack(rows):
            if file is None:
                file = area.begin(job, task_number)
            topic = topics.get(packed.topic)
            if topic is None:
                topic = topics[packed.topic] = StagedTopic(packer.limits[packed.topic])
            counts = topic.record_counts
            counts[packed.partition] = counts.get(packed.partition, 0) + packed.record_count
            topic.largest_batch_bytes = max(topic.largest_batch_bytes, len(packed.buffer))
            file.add(*packed)
        return StagedRows(None if file is None else file.finish(), topics)
    except BaseException:
        if file is not None:
            file.discard()
        raise


def _find_limits(told: PathPlan, look: FindLimits, topic: str) -> TopicLimits:
    try:
        return look(topic)
    except UnknownTopic as error:
        partitions = told.options.partitions_of_new_topics
        if partitions is None:
            raise with_create_option(error) from None
    with open_shared(told.path) as shared:
        try:
            shared.create_topic(topic, partitions)
        except TopicExists:
            pass  # another task has created it meanwhile
        return TopicLimits.of(shared.topic(topic), told.defaults)
