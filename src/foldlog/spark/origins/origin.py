"""Where records come from: the segment files of a directory, or a broker. Only this package knows which.

An `OriginSpec` is a few strings that are sent to the executors, where `open_origin` makes an `Origin` of it. An origin
is used by one thread at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from foldlog.client.backends.cluster.url import SCHEME as KAFKA_SCHEME
from foldlog.client.backends.cluster.url import parse_url
from foldlog.client.isolation import READ_COMMITTED
from foldlog.errors import InvalidArgument
from foldlog.files.paths import PathLike, as_text, exists

if TYPE_CHECKING:
    import pyarrow as pa


ISOLATION_LEVEL: Final = "isolation.level"


@dataclass(frozen=True, slots=True)
class OriginSpec:
    """Exactly one of `path` and `bootstrap`. `directory_id` is set by the driver and compared when the path is opened:
    an executor that sees another directory under that path, or none, raises an error. `properties` are Kafka client
    properties, without their `kafka.` prefix; of a path isolation.level alone. `has_answered`: brokers have answered
    the driver at these addresses, so an executor that cannot reach them waits until they are back.
    """

    path: str | None = None
    bootstrap: str | None = None
    directory_id: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # may contain a password
    has_answered: bool = False

    @property
    def reads_committed(self) -> bool:
        """Whether records of open and of aborted transactions are left out."""
        return self.properties.get(ISOLATION_LEVEL) == READ_COMMITTED

    @property
    def location(self) -> str:
        """The path or the addresses, for messages."""
        return self.path if self.path is not None else f"kafka://{self.bootstrap}"


class TopicGrowth(NamedTuple):
    """Partitions were added: the new count, and where each older partition ended at that time."""

    partitions: int
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic at one moment. `growths` is None if the origin does not remember them (a foreign cluster). Of several
    topics that are read as one, `each` has the facts, and `partition_count` is the largest.
    """

    name: str
    topic_id: str
    partition_count: int
    is_compacted: bool
    growths: tuple[TopicGrowth, ...] | None = ()
    each: tuple[TopicFacts, ...] = ()


class Bounds(NamedTuple):
    """The readable offsets of a partition, [start, end), and its current leader epoch."""

    start: int
    end: int
    leader_epoch: int


class OffsetRange(NamedTuple):
    """Offsets of one partition to read, start inclusive, stop exclusive."""

    topic: str
    partition: int
    start: int
    stop: int


class Origin(Protocol):
    """One opened log to read from. Raises foldlog's errors; UnknownTopic names the existing topics."""

    @property
    def spec(self) -> OriginSpec:
        """How to open it in another process; for a path with the directory's id."""
        ...

    def topics(self) -> list[str]:
        """The current names, sorted, without internal topics."""
        ...

    def topic(self, name: str) -> TopicFacts:
        """The topic as it is now, not as of opening."""
        ...

    def bounds(self, name: str) -> dict[int, Bounds]:
        """The current bounds of each partition."""
        ...

    def offsets_at(self, name: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        """Per partition the offset of the first record at or after its time; None if there is none."""
        ...

    def epoch_before(self, name: str, partition: int, offset: int) -> int:
        """The leader epoch of the record before `offset`, or -1 if it is unknown."""
        ...

    def missing(
        self, name: str, topic_id: str | None, partition: int, offset: int, leader_epoch: int = -1
    ) -> str | None:
        """Why a reader at `offset` (inclusive, of the topic with that id) cannot continue; None if it can. One that has
        read up to there, and so gives a leader epoch, may stand behind the last stable offset.

        One of MISSING_CAUSES: "recreated" if the id is another one, "truncated" if the log under that leader epoch ends
        before it, "expired" or "deleted" if the log start is beyond it, "unwritten" if it is beyond the end. A gap left
        by compaction is not missing.
        """
        ...

    def read(
        self, wanted: OffsetRange, columns: Sequence[str], *, topic_id: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The records of a range in offset order, as `foldlog.records.arrow` names and types the columns.

        There may be gaps. RecordsMissing if the range begins before the log start, ends beyond the end, or the topic is
        not the one with `topic_id`; its `wanted` is the unread rest of the range, if some batches were returned.
        """
        ...

    def read_all(
        self, wanted: Sequence[OffsetRange], columns: Sequence[str], *, topic_id: str | None = None
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        """Reads several ranges of a topic, each batch with its range: in offset order within a partition, and from
        several leaders in parallel.
        """
        ...

    def close(self) -> None: ...


_ADDRESSES: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):\d+(,(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):\d+)*")


def origin_spec(source: str | PathLike[str] | OriginSpec, properties: Mapping[str, str] | None = None) -> OriginSpec:
    """The log that a user names: a directory, "host:port" of a broker, or "kafka://host:port,host2:port?name=value"
    with Kafka client properties; `properties` are added and take precedence. InvalidArgument if it is none of these.

    >>> origin_spec("data").path, origin_spec("127.0.0.1:9092").bootstrap
    ('data', '127.0.0.1:9092')
    >>> origin_spec("kafka://a:9092,b:9092?client.id=folds", {"sasl.username": "ann"}).properties
    {'client.id': 'folds', 'sasl.username': 'ann'}
    """
    if isinstance(source, OriginSpec):
        return source if not properties else replace(source, properties={**source.properties, **properties})
    text = as_text(source)
    if not text:
        raise InvalidArgument(f"{source!r} is not a log: give a directory, or kafka://host:port")
    if _ADDRESSES.fullmatch(text) and not exists(text):
        text = KAFKA_SCHEME + text
    if text.startswith(KAFKA_SCHEME.rstrip("/")):  # even if there is a directory of that name
        url = parse_url(text, properties)
        return OriginSpec(bootstrap=url.bootstrap, properties=dict(url.properties))
    return OriginSpec(path=text)


def for_folds(spec: OriginSpec) -> OriginSpec:
    """As folds read it: committed records, unless isolation.level says otherwise. What a transaction has taken back
    must not be in a view, and cannot be taken out of one."""
    if ISOLATION_LEVEL in spec.properties:
        return spec
    return replace(spec, properties={**spec.properties, ISOLATION_LEVEL: READ_COMMITTED})


def open_origin(spec: OriginSpec) -> Origin:
    """Open it in this process."""
    from foldlog.spark.origins.several import SeveralTopics

    if spec.path is not None:
        from foldlog.spark.origins.by_path import PathOrigin

        return SeveralTopics(PathOrigin.open(spec))
    from foldlog.spark.origins.by_wire import WireOrigin

    return SeveralTopics(WireOrigin.open(spec))
