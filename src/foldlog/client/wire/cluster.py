"""A Kafka cluster as a client sees it: ours of one broker, or any other.

Synchronous; only who reads several partitions has threads look for lost leaders. To follow a read:
`Cluster.fetch_range`, ranges.py, fetch.py, then `ClusterLinks.reach` for the partition's leader; a consumer's read:
leader_fetch.py. To follow a write: produce.py. Logins are in logins/sasl.py. Other requests are in questions.py, what
takes several of them in admin.py; how long they are tried in retries.py.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Mapping
from types import TracebackType
from typing import Self

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.topics.catalog import GROWTHS_SETTING as GROWTHS_SETTING
from foldlog.broker.topics.catalog import Growth, parse_growths
from foldlog.broker.topics.names import COMMITS_TOPIC as COMMITS_TOPIC
from foldlog.broker.topics.names import STAGED_TOPIC as STAGED_TOPIC
from foldlog.client.positions import TopicPartition
from foldlog.client.wire import admin, questions
from foldlog.client.wire.fetch import Fetched, PartitionFetcher
from foldlog.client.wire.links import ClusterLinks, TopicMetadata
from foldlog.client.wire.produce import ClusterProducer
from foldlog.client.wire.properties import ClusterProperties, parse_addresses
from foldlog.client.wire.questions import LATEST
from foldlog.client.wire.ranges import WantedRange, fetch_range, fetch_ranges
from foldlog.client.wire.transactions.produce import WireTransaction
from foldlog.errors import MalformedBytes


class Cluster:
    """One thread at a time; nothing is cached that a call answers. Errors are those that the embedded log would raise,
    RefusedByBroker for codes that it has none for, and BrokerUnreachable.

    With `isolation.level=read_committed` the end of a partition is its last stable offset, and records of aborted
    transactions are left out.
    """

    def __init__(self, links: ClusterLinks) -> None:
        """Use `Cluster.open`."""
        self._links = links

    @classmethod
    def open(
        cls, bootstrap: str, properties: Mapping[str, str] | None = None, *, has_answered: bool = False
    ) -> Cluster:
        """Connect to the first of these addresses ("host:port,host2:port") that answers.

        Where none does, that is told soon, as one may be mistyped; where they are known to be right, since somebody
        `has_answered` there, they are waited for as in every other call.

        `properties` are Kafka client properties: security.protocol, ssl.* and sasl.*, client.id, isolation.level, the
        timeouts and sizes of `ClusterProperties`. Others that Kafka clients have are passed over. AuthenticationFailed,
        at once, if a broker does not let the user in.
        """
        links = ClusterLinks(parse_addresses(bootstrap), ClusterProperties.parse(properties or {}))
        try:
            links.open(has_answered=has_answered)
        except BaseException:
            links.close()
            raise
        return cls(links)

    def close(self) -> None:
        """Producers and readers that were made of it must not be used any more. Closing twice is fine."""
        self._links.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- topics ---------------------------------------------------------------------------------------------------

    def topics(self, include_internal: bool = False) -> list[str]:
        """The names of those that this client may see, in order."""
        found = self._links.all_topics()
        return sorted(one.name for one in found if include_internal or not one.is_internal)

    def topic(self, name: str) -> TopicMetadata:
        """Its id and its leaders, as of now; UnknownTopic names those that there are."""
        return self._links.topic(name)

    def partition_count(self, name: str) -> int:
        return self._links.topic(name).partition_count

    def topic_config(self, name: str, settings: Iterable[str] | None = None) -> dict[str, str]:
        """Settings that are in force, defaults included: all, or those named."""
        return {setting: one.value for setting, one in admin.topic_settings(self._links, name, settings).items()}

    @staticmethod
    def growths(config: Mapping[str, str]) -> tuple[Growth, ...] | None:
        """When a topic grew, from its settings. None of a broker that is not ours: Kafka does not remember."""
        told = config.get(GROWTHS_SETTING)
        try:
            return None if told is None else parse_growths(told)
        except ValueError as error:
            raise MalformedBytes("DescribeConfigs response", str(error), 0) from error

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """With as many replicas as the brokers have for a default. Ready to be used on return."""
        admin.create_topic(self._links, name, partitions, config or {})

    def ensure_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic unless it exists; it is left as it is then."""
        admin.ensure_topic(self._links, name, partitions, config or {})

    # --- offsets --------------------------------------------------------------------------------------------------

    def bounds(
        self, name: str, partitions: Container[int] | None = None, *, written: bool = False
    ) -> dict[int, admin.PartitionBounds]:
        """Per partition, as of now; of all, or of those among `partitions` that there are. With `written` the end is
        the high watermark, whatever isolation.level says."""
        leaders = self._links.topic(name).leaders.items()
        epochs = {number: leader.epoch for number, leader in leaders if partitions is None or number in partitions}
        return admin.partition_bounds(self._links, name, epochs, isolation_level=0 if written else None)

    def undecided(self, name: str) -> dict[int, tuple[int, int]]:
        """Per partition that has a transaction open, with read_committed: where that begins, and where the log ends."""
        numbers = dict.fromkeys(self._links.topic(name).leaders, LATEST)
        # The later end is asked for first: what is written in between must not look undecided.
        written = admin.list_offsets(self._links, name, numbers, isolation_level=0)
        stable = admin.list_offsets(self._links, name, numbers)
        ends = {number: (stable[number].offset, one.offset) for number, one in written.items()}
        return {number: (first, end) for number, (first, end) in sorted(ends.items()) if first < end}

    def offsets_at(self, name: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        """Per partition the offset of the first record at or after its time; None where there is none."""
        return admin.offsets_at(self._links, name, times_ms)

    def epoch_end(self, name: str, partition: int, epoch: int) -> tuple[int, int]:
        """(the latest leader epoch not after `epoch`, the offset where it ended); (-1, -1) if there is none such."""
        return admin.epoch_end(self._links, name, partition, epoch)

    # --- records --------------------------------------------------------------------------------------------------

    def fetch(self, name: str, partition: int, offset: int, max_bytes: int | None = None) -> Fetched:
        """Whole batches from the one that holds `offset` on: about `max_bytes` (max.partition.fetch.bytes), at least
        one. None at the end of the log, after fetch.max.wait.ms. OffsetOutOfRange if the log does not hold the offset.
        """
        fetcher = PartitionFetcher(self._links, name, partition, offset, max_bytes=max_bytes)
        try:
            return fetcher.next()
        finally:
            fetcher.close()

    def fetch_range(
        self, name: str, partition: int, start: int, stop: int, *, topic_id: bytes | None = None
    ) -> Generator[Fetched, None, None]:
        """All batches with offsets from `start` to before `stop`, one answer at a time, the next one always under way.

        See `ranges.fetch_range`. Read it to its end, or close it.
        """
        return fetch_range(self._links, name, partition, start, stop, topic_id=topic_id)

    def fetch_ranges(self, wanted: Iterable[WantedRange]) -> Generator[tuple[WantedRange, Fetched], None, None]:
        """`fetch_range` for ranges of different partitions, from their leaders at the same time: as answers come."""
        return fetch_ranges(self._links, wanted)

    def producer(
        self, numbers: tuple[int, int] | None = None, sequences: Mapping[tuple[str, int], int] | None = None
    ) -> ClusterProducer:
        """With a new id, or with the `numbers` of an earlier one, to go on where that one was: see ClusterProducer."""
        return ClusterProducer(self._links, numbers, sequences)

    def transaction(self, transactional_id: str, timeout_ms: int) -> WireTransaction:
        """Become the id's one producer: whoever was it before is fenced, and what it left open is aborted."""
        return WireTransaction(self._links, transactional_id, timeout_ms)

    def new_producer_id(self) -> tuple[int, int]:
        """An id that no producer has had, and its epoch."""
        return self._links.ask(questions.new_producer_id(self._links.properties.request_timeout_ms))

    # --- groups ---------------------------------------------------------------------------------------------------

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Store a group's offsets; GroupError if it has members."""
        wanted = {TopicPartition(topic, number): OffsetAndMetadata(offset) for number, offset in offsets.items()}
        admin.commit(self._links, group, wanted)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """`commit` for any partitions, each with a note."""
        admin.commit(self._links, group, offsets)

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """All that a group has committed, with the notes; nothing, if there is no such group."""
        return self._links.ask(questions.committed(group))

    def delete_group(self, group: str) -> None:
        """UnknownGroup if there is none; GroupNotEmpty if it has members."""
        self._links.ask(questions.delete_group(group))
