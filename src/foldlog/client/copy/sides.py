"""The two sides of a copy, with their batches: from the files of a directory, or from a cluster's leaders."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Final, Protocol

from foldlog.broker.topics.catalog import GROWTHS_SETTING, Growth
from foldlog.client.backends.directory import directory_of
from foldlog.client.copy.batches import count_below
from foldlog.errors import OffsetOutOfRange, PartitionElsewhere
from foldlog.limits import READ_CHUNK_BYTES
from foldlog.log.foreign import ForeignPartition
from foldlog.records.loops import BatchHeader, walk

if TYPE_CHECKING:
    from foldlog.broker.groups.committed import OffsetAndMetadata
    from foldlog.client.log import Log
    from foldlog.client.positions import TopicPartition
    from foldlog.client.wire.cluster import Cluster

ISOLATION_LEVEL: Final = "isolation.level"


class Side(Protocol):
    """A log whose batches can be read, together with its `Log`. One thread uses it."""

    @property
    def log(self) -> Log: ...

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """The readable offsets of each partition, as of now."""
        ...

    def undecided(self, topic: str) -> dict[int, tuple[int, int]]:
        """The offsets behind `bounds` in partitions with an open transaction, which read_committed does not return."""
        ...

    def pieces(self, topic: str, partition: int, start: int, stop: int) -> Generator[memoryview, None, None]:
        """Whole verified batches from the one that holds `start` (or the next) on; some may be at or after `stop`.

        Each is valid until the next is taken. A caller that stops early closes the generator.
        """
        ...

    def growths(self, topic: str) -> tuple[Growth, ...] | None:
        """The topic's growths; None if the log does not record them."""
        ...

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit the notes of a copy in its target."""
        ...

    def close(self) -> None: ...


def open_side(log: Log) -> Side:
    """Open a log for reading: a directory from its files, even if it is served; a cluster by the protocol."""
    from foldlog.client.backends.directory import is_directory

    return DirectorySide(log) if is_directory(log) else ClusterSide(log, open_cluster(log, is_source=True))


def open_cluster(log: Log, *, is_source: bool = False) -> Cluster:
    """Our own connections to the brokers behind a log. Only committed records are read: a transaction is copied once it
    has ended, and not at all if it was aborted; unless a source's properties say otherwise."""
    from foldlog.client.backends.backend import backend_of
    from foldlog.client.backends.cluster.backend import ClusterBackend
    from foldlog.client.wire.cluster import Cluster

    backend = backend_of(log)
    given = dict(backend.properties) if isinstance(backend, ClusterBackend) else {}
    level = given.get(ISOLATION_LEVEL, "read_committed") if is_source else "read_committed"
    return Cluster.open(log.bootstrap or "", {**given, ISOLATION_LEVEL: level}, has_answered=True)


class DirectorySide:
    """A directory: of this process, or one that another process writes meanwhile."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def log(self) -> Log:
        return self._log

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        bounds = self._log.offsets(topic)
        for number in range(self._log.topic(topic).partition_count):
            if number not in bounds:  # a topic of Kafka's: keys would not be where a copy has them
                raise PartitionElsewhere(self._log.path, topic, number)
        return bounds

    def undecided(self, topic: str) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for number in range(self._log.topic(topic).partition_count):
            log = directory_of(self._log).broker.partition(topic, number)
            if isinstance(log, ForeignPartition) and log.undecided[0] < log.undecided[1]:
                found[number] = log.undecided
        return found

    def pieces(self, topic: str, partition: int, start: int, stop: int) -> Generator[memoryview, None, None]:
        log = directory_of(self._log).broker.partition(topic, partition)
        offset = start
        while offset < stop:
            found = log.read(offset, READ_CHUNK_BYTES)
            if not found.data:
                return  # Kafka's compaction may leave nothing at the end of the readable part
            yield found.data
            offset = found.next_offset

    def growths(self, topic: str) -> tuple[Growth, ...]:
        return self._log.topic(topic).growths or ()

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        directory_of(self._log).broker.commit_offsets(group, dict(offsets.items()))

    def close(self) -> None:
        """Nothing to close: the log belongs to its opener."""


class ClusterSide:
    """A cluster, or a directory that is reached through its broker."""

    def __init__(self, log: Log, cluster: Cluster) -> None:
        self._log = log
        self.cluster = cluster

    @property
    def log(self) -> Log:
        return self._log

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        return {number: (one.start, one.end) for number, one in sorted(self.cluster.bounds(topic).items())}

    def undecided(self, topic: str) -> dict[int, tuple[int, int]]:
        return self.cluster.undecided(topic)

    def pieces(self, topic: str, partition: int, start: int, stop: int) -> Generator[memoryview, None, None]:
        if start >= stop:
            return
        with closing(self.cluster.fetch_range(topic, partition, start, stop)) as answers:
            for fetched in answers:
                yield from fetched.pieces

    def growths(self, topic: str) -> tuple[Growth, ...] | None:
        return self.cluster.growths(self.cluster.topic_config(topic, [GROWTHS_SETTING]))

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.cluster.commit_offsets(group, offsets)

    def close(self) -> None:
        self.cluster.close()


def batches(side: Side, topic: str, partition: int, start: int, stop: int) -> Iterator[tuple[memoryview, BatchHeader]]:
    """The batches with records of a range, one by one; the first and the last may reach beyond it.

    Records that retention removes meanwhile are skipped, as if compaction had removed them.
    """
    while start < stop:
        try:
            with closing(side.pieces(topic, partition, start, stop)) as pieces:
                for piece in pieces:
                    for header in walk(piece, check_crc=False).headers:
                        if header.base_offset >= stop:
                            return
                        if header.record_count and not header.is_control and header.next_offset > start:
                            yield piece, header
                        start = max(start, header.next_offset)
            return
        except OffsetOutOfRange as error:
            if error.start <= start:
                raise
            start = error.start


def count_records(side: Side, topic: str, partition: int, start: int, stop: int) -> int:
    """How many records there are now, from `start` to before `stop`."""
    return sum(
        count_below(data, header, stop) - count_below(data, header, start)
        for data, header in batches(side, topic, partition, start, stop)
    )


def compacts(side: Side, topic: str) -> bool:
    """Whether the log may remove records between others."""
    policy = side.log.topic_config(topic).get("cleanup.policy")
    return policy is not None and "compact" in policy.value
