"""Reads a log's segment files directly while another process writes them: on a local or a shared file system."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foldlog.client.backends.directory import broker_of
from foldlog.client.bulk import read_batches
from foldlog.client.isolation import ReadablePartition, plain, readable
from foldlog.client.log import Log, open_log
from foldlog.errors import (
    DirectoryElsewhere,
    FoldlogError,
    InvalidArgument,
    LogNotFound,
    OffsetOutOfRange,
    StorageError,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.files.paths import place_of_log
from foldlog.limits import ARROW_READ_BYTES
from foldlog.log.checkpoint import StartReason
from foldlog.log.follower import FollowedPartition
from foldlog.spark.origins.missing import records_missing
from foldlog.spark.origins.origin import Bounds, OffsetRange, OriginSpec, TopicFacts, TopicGrowth

if TYPE_CHECKING:
    import pyarrow as pa

_CAUSES = {
    StartReason.RETENTION_SIZE: "expired",
    StartReason.RETENTION_TIME: "expired",
    StartReason.DELETED: "deleted",
    StartReason.MISSING: "deleted",
    StartReason.WRITTEN: "deleted",
    StartReason.UNKNOWN: "expired",
}


class PathOrigin:
    """See `Origin`. Takes no lock and writes nothing; reads in bounded slices."""

    def __init__(self, log: Log, spec: OriginSpec) -> None:
        """Use `open`."""
        self._log = log
        self._spec = spec

    @classmethod
    def open(cls, spec: OriginSpec) -> PathOrigin:
        """DirectoryElsewhere if `spec` comes from another process and its directory is not visible here."""
        log = open_directory(spec)
        # Absolute: Spark's processes have their own working directories.
        path = None if spec.path is None else place_of_log(spec.path)
        return cls(log, replace(spec, path=path, directory_id=log.directory_id))

    @property
    def spec(self) -> OriginSpec:
        return self._spec

    def topics(self) -> list[str]:
        broker_of(self._log).look_again()
        return self._log.topics()

    def topic(self, name: str) -> TopicFacts:
        broker_of(self._log).look_again()
        topic = self._log.topic(name)
        return TopicFacts(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_count=topic.partition_count,
            is_compacted=topic.config.log.compact,
            growths=tuple(TopicGrowth(growth.partitions, growth.ends) for growth in topic.growths or ()),
        )

    def bounds(self, name: str) -> dict[int, Bounds]:
        return {number: _bounds_of(self._readable(name, number)) for number in range(self.topic(name).partition_count)}

    def offsets_at(self, name: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        found: dict[int, int | None] = {}
        for number, time_ms in times_ms.items():
            hit = self._readable(name, number).offset_at_time(time_ms)
            found[number] = None if hit is None else hit[0]
        return found

    def epoch_before(self, name: str, partition: int, offset: int) -> int:
        epoch = -1
        for known, start in self._partition(name, partition).load_epoch_starts():
            if start < offset:
                epoch = known
        return epoch

    def missing(
        self, name: str, topic_id: str | None, partition: int, offset: int, leader_epoch: int = -1
    ) -> str | None:
        try:
            facts = self.topic(name)
        except UnknownTopic:
            return "deleted"
        if topic_id is not None and topic_id != facts.topic_id:
            return "recreated"
        if partition >= facts.partition_count:
            return "unwritten"
        reader = self._readable(name, partition)
        start, end, _ = _bounds_of(reader if leader_epoch < 0 else plain(reader))
        if offset < start:
            return _CAUSES[reader.start_reason]
        if offset > end:
            return "unwritten" if leader_epoch < 0 else "truncated"
        if leader_epoch >= 0 and self.epoch_before(name, partition, offset) > leader_epoch:
            return "truncated"  # the record before it now was written after the one that the reader has seen
        return None

    def read(
        self, wanted: OffsetRange, columns: Sequence[str], *, topic_id: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        topic, number, start, stop = wanted
        checked_id = self._checked_topic_id(wanted, topic_id)
        reader = self._readable(topic, number)

        def read(offset: int, memory: bytearray) -> tuple[Any, int]:
            left = wanted._replace(start=offset)
            try:
                found = reader.read(offset, ARROW_READ_BYTES, memory)
            except FoldlogError as error:
                raise self._why(left, checked_id, error) from error
            # A recreated topic has its files in the same place: the data read is the topic's if the topic is still
            # there afterwards. Records that expired meanwhile have been read.
            self._refuse_missing(left, checked_id, stop)
            return found.data, found.next_offset

        return read_batches(read, (topic, number), start, stop, columns, decompressed_limit=reader.decompressed_limit)

    def read_all(
        self, wanted: Sequence[OffsetRange], columns: Sequence[str], *, topic_id: str | None = None
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        for one in wanted:
            for batch in self.read(one, columns, topic_id=topic_id):
                yield one, batch

    def close(self) -> None:
        self._log.close()

    def _readable(self, name: str, number: int) -> ReadablePartition:
        """As this origin reads it."""
        return readable(self._partition(name, number), self._spec.reads_committed)

    def _partition(self, name: str, number: int) -> FollowedPartition:
        reader = broker_of(self._log).partition(name, number)
        if not isinstance(reader, FollowedPartition):
            raise TypeError(f"{name}-{number} was opened for writing")
        return reader

    def _checked_topic_id(self, wanted: OffsetRange, topic_id: str | None) -> str | None:
        """The topic's id, which has to stay the same while it is read."""
        if wanted.start < wanted.stop:
            self._refuse_missing(wanted, topic_id, wanted.start)
            self._refuse_missing(wanted, topic_id, wanted.stop)
        return topic_id or self.topic(wanted.topic).topic_id

    def _refuse_missing(self, left: OffsetRange, topic_id: str | None, offset: int) -> None:
        cause = self.missing(left.topic, topic_id, left.partition, offset)
        if cause is not None:
            raise records_missing(left, cause, self._bounds_if_any(left), self._spec.location)

    def _why(self, left: OffsetRange, topic_id: str | None, error: FoldlogError) -> FoldlogError:
        """The reason for a failed read: often the topic's deletion, which removes its files, or retention."""
        cause = self.missing(left.topic, topic_id, left.partition, left.start)
        if cause is None and isinstance(error, OffsetOutOfRange):
            cause = "expired"
        return error if cause is None else records_missing(left, cause, self._bounds_if_any(left), self._spec.location)

    def _bounds_if_any(self, wanted: OffsetRange) -> Bounds | None:
        try:
            return _bounds_of(self._readable(wanted.topic, wanted.partition))
        except (UnknownTopic, UnknownPartition):
            return None


def open_directory(spec: OriginSpec) -> Log:
    """Opens the log in that directory to read. DirectoryElsewhere if `spec` comes from another process and its
    directory is not visible here."""
    if spec.path is None:
        raise InvalidArgument("a path is needed")
    host = socket.gethostname()
    try:
        log = open_log(spec.path, "r")
    except StorageError as error:
        if spec.directory_id is None:
            raise in_other_words(error, "; name the directory that holds its catalog.json") from None
        raise DirectoryElsewhere(host, spec.path, str(error)) from error
    found = log.directory_id
    if spec.directory_id is not None and found != spec.directory_id:
        log.close()
        why = f"there is another log under that path, with id {found} and not {spec.directory_id}"
        raise DirectoryElsewhere(host, spec.path, why)
    return log


def in_other_words(error: StorageError, advice: str) -> StorageError:
    """LogNotFound with this advice instead of the one about mode='w', which Spark's users cannot follow."""
    if isinstance(error, LogNotFound):
        error.args = (str(error).replace(" to read; open it with mode='w' to make one", advice),)
    return error


def _bounds_of(reader: ReadablePartition) -> Bounds:
    end = reader.acknowledged_end()
    return Bounds(min(reader.log_start_offset, end), end, reader.leader_epoch)
