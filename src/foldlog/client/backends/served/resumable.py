"""Appending batches whose producer numbers were decided before: a process that comes later can finish what one that is
gone began, and nothing is in the log twice.

Who appends decides a producer id and an epoch, and notes both somewhere durable, with what is to be appended and where
the partitions ended. The batches of each partition are numbered from 0 in that epoch. Whoever finds the note asks
`progress` how many of them the log has, and appends the others. The batches go through the process that writes the
directory, if it listens; else this process takes the lock for the moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Condition
from typing import NamedTuple

from foldlog.broker.broker import Broker
from foldlog.broker.topics.catalog import CatalogTopic
from foldlog.broker.topics.names import refuse_user_write
from foldlog.client.backends.served.broker import RemoteBroker
from foldlog.client.backends.served.catch_up import hurried
from foldlog.client.backends.served.partition import RemotePartition
from foldlog.client.descriptions import Topic
from foldlog.client.wire.batches import EPOCH_MAX
from foldlog.errors import FoldlogError, UnknownTopic
from foldlog.files.base import Files
from foldlog.files.posix import PosixFiles
from foldlog.limits import NUMBERED_IN_FLIGHT_BYTES, READ_CHUNK_BYTES
from foldlog.log.partition import Appended, OnAppended
from foldlog.log.producers import EXPIRATION_MS
from foldlog.records.batch import MAX_INT32
from foldlog.records.loops import walk

TopicPartition = tuple[str, int]

RECORDS_MAX = MAX_INT32
"""Of one partition in one epoch: sequence numbers begin again after that."""

__all__ = ["EPOCH_MAX", "RECORDS_MAX", "Numbers", "PartitionAppender", "Progress", "ResumableLog", "TopicLimits"]


class Numbers(NamedTuple):
    """Whose batches they are: an id that nobody else has, and an epoch of it that was not used before."""

    producer_id: int
    epoch: int


class Progress(NamedTuple):
    """How many records of an epoch a partition has. Not provable: there may have been more, as retention or compaction
    has been where they would be, and it is so long ago that the producer may be forgotten."""

    record_count: int
    is_provable: bool


class TopicLimits(NamedTuple):
    """What decides how rows are packed for a topic."""

    topic_id: str
    partition_count: int
    max_message_bytes: int
    segment_bytes: int
    is_compacted: bool

    @classmethod
    def of(cls, topic: Topic | CatalogTopic, defaults: Mapping[str, str] | None = None) -> TopicLimits:
        """`defaults`: what the writer sets for topics that do not, where `topic` was read from the directory alone."""
        refuse_user_write(topic.name)
        log = (topic.config.with_defaults(defaults) if defaults else topic.config).log
        return cls(topic.topic_id, topic.partition_count, log.max_message_bytes, log.segment_bytes, log.compact)


class ResumableLog:
    """A directory to append to. One thread uses it, and closes it."""

    def __init__(self, followed: Broker, remote: RemoteBroker, defaults: Mapping[str, str]) -> None:
        """Use `open`."""
        self.defaults = defaults
        self.directory_id = followed.directory_id
        self._followed = followed
        self._remote = remote
        self._flow = _Flow()

    @classmethod
    def open(cls, path: str, files: Files | None = None) -> ResumableLog:
        """LogNotFound if there is no log; DirectoryLocked if its writer does not listen, WriterUnreachable if it does
        not answer: before anything is written."""
        files = files or PosixFiles()
        followed = hurried(Broker.open(path, files=files, mode="r"), files)
        remote = RemoteBroker(followed, files, None)
        try:
            return cls(followed, remote, remote.ask_defaults())
        except BaseException:
            remote.close()
            raise

    def limits(self, topic: str) -> TopicLimits:
        """As of now. UnknownTopic names the topics there are."""
        self._followed.look_again()
        return TopicLimits.of(self._remote.topic(topic))

    def new_producer_id(self) -> int:
        return self._remote.allocate_producer_id()

    def end_offset(self, topic: str, number: int) -> int:
        """Where `progress` may begin to look for what is appended from now on."""
        return self._followed.partition(topic, number).high_watermark

    def progress(
        self, partitions: Mapping[TopicPartition, int], numbers: Numbers, age_ms: int
    ) -> dict[TopicPartition, Progress]:
        """How far each partition got. The values are offsets that `end_offset` gave before the first batch was sent, so
        long ago as `age_ms`.

        The producers that the partitions remember tell it for a day. The log itself tells it as long as it holds them.
        """
        # Asked first: whoever answers has recovered the log, so that what it knows can be read.
        remembered = self._remote.last_sequences(partitions, *numbers)
        found: dict[TopicPartition, Progress] = {}
        for key, from_offset in partitions.items():
            seen = self._scan(key, from_offset, numbers)
            count = max(remembered.get(key, -1) + 1, seen.record_count)
            is_provable = key in remembered or seen.is_provable or age_ms < EXPIRATION_MS
            found[key] = Progress(count, is_provable)
        return found

    def _scan(self, key: TopicPartition, from_offset: int, numbers: Numbers) -> Progress:
        """What the log itself shows: the last batch of the epoch, and whether it is whole from there on."""
        partition = self._followed.partition(*key)
        offset = max(from_offset, partition.log_start_offset)
        is_whole = offset == from_offset
        count = 0
        while offset < partition.high_watermark:
            data, next_offset, _ = partition.read(offset, READ_CHUNK_BYTES)
            for header in walk(data, check_crc=False).headers:
                is_dense = header.record_count == header.last_offset_delta + 1
                is_whole = is_whole and header.base_offset <= offset and is_dense
                offset = header.next_offset
                if (header.producer_id, header.producer_epoch) == numbers:
                    count = header.base_sequence + header.last_offset_delta + 1
                    is_whole = True  # what is missing before it was in the log
            is_whole = is_whole and next_offset == offset
            if not data:
                break
            offset = next_offset
        return Progress(count, is_whole)

    def appender(self, topic: str, topic_id: str, number: int, numbers: Numbers, done_count: int) -> PartitionAppender:
        """To append to one partition what comes after the first `done_count` records of the epoch. UnknownTopic if the
        topic is another one now."""
        partition = self._remote.resumable_partition(topic, number, *numbers, done_count)
        if partition.topic_id.hex() != topic_id:
            raise UnknownTopic(topic)
        return PartitionAppender(partition, self._flow)

    def flush(self) -> None:
        """Returns once all that was appended is durable; raises what went wrong."""
        self._flow.wait_below(0)

    def close(self) -> None:
        self._remote.close()


class PartitionAppender:
    """The way to one partition, in order. What `append` was given is durable after `ResumableLog.flush`."""

    def __init__(self, partition: RemotePartition, flow: _Flow) -> None:
        self._partition = partition
        self._flow = flow

    def append(self, batch: bytearray) -> None:
        """The buffer belongs to the log from here on. Waits while much is on its way; raises what went wrong before."""
        settled = self._flow.expect(len(batch))
        try:
            self._partition.begin_append(batch, settled)
        except FoldlogError as error:
            settled(None, error)
            raise


class _Flow:
    """How much is on its way, over all partitions. Any thread."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._in_flight_bytes = 0
        self._error: FoldlogError | None = None

    def expect(self, size_bytes: int) -> OnAppended:
        self.wait_below(NUMBERED_IN_FLIGHT_BYTES)
        with self._changed:
            self._in_flight_bytes += size_bytes

        def settled(appended: Appended | None, error: FoldlogError | None) -> None:
            with self._changed:
                self._in_flight_bytes -= size_bytes
                self._error = self._error or error
                self._changed.notify_all()

        return settled

    def wait_below(self, limit_bytes: int) -> None:
        with self._changed:
            while self._error is None and self._in_flight_bytes > limit_bytes:
                self._changed.wait()
            if self._error is not None:
                raise self._error.with_traceback(None)
