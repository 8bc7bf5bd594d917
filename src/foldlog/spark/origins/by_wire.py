"""Reads a log over the network: from a foldlog broker, or from any Kafka cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from foldlog.broker.topics.names import is_internal
from foldlog.client.wire.cluster import GROWTHS_SETTING, Cluster
from foldlog.client.wire.ranges import WantedRange
from foldlog.errors import (
    FoldlogError,
    InvalidArgument,
    OffsetOutOfRange,
    RefusedByBroker,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.spark.origins.missing import records_missing
from foldlog.spark.origins.origin import Bounds, OffsetRange, OriginSpec, TopicFacts, TopicGrowth

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("foldlog")

_POLICY: Final = "cleanup.policy"
_RETENTIONS: Final = ("retention.ms", "retention.bytes")


class WireOrigin:
    """See `Origin`. A topic's growths are known from a foldlog broker only. Records below the log start count as
    expired if the topic has a retention, otherwise as deleted. With `isolation.level=read_committed` the end is the
    last stable offset.
    """

    def __init__(self, cluster: Cluster, spec: OriginSpec) -> None:
        """Use `open`."""
        self._cluster = cluster
        self._spec = spec
        self._warned: set[str] = set()

    @classmethod
    def open(cls, spec: OriginSpec) -> WireOrigin:
        """BrokerUnreachable if no broker answers."""
        if spec.bootstrap is None:
            raise InvalidArgument("the address of a broker is needed")
        cluster = Cluster.open(spec.bootstrap, spec.properties, has_answered=spec.has_answered)
        return cls(cluster, replace(spec, has_answered=True))

    @property
    def spec(self) -> OriginSpec:
        return self._spec

    def topics(self) -> list[str]:
        return [name for name in self._cluster.topics(include_internal=True) if not is_internal(name)]

    def topic(self, name: str) -> TopicFacts:
        topic = self._cluster.topic(name)
        config = self._config(name)
        growths = self._cluster.growths(config)
        return TopicFacts(
            name=name,
            topic_id=topic.topic_id.hex(),
            partition_count=topic.partition_count,
            is_compacted="compact" in config.get(_POLICY, ""),
            growths=None
            if growths is None
            else tuple(TopicGrowth(growth.partitions, growth.ends) for growth in growths),
        )

    def bounds(self, name: str) -> dict[int, Bounds]:
        return {number: Bounds(*bounds) for number, bounds in self._cluster.bounds(name).items()}

    def offsets_at(self, name: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        return self._cluster.offsets_at(name, times_ms)

    def epoch_before(self, name: str, partition: int, offset: int) -> int:
        """A binary search over the ends of epochs; usually the first request is enough."""
        bounds = self._bounds_of(name, partition)
        if bounds.leader_epoch < 0 or offset <= bounds.start:
            return -1
        low, high = 0, bounds.leader_epoch
        probe = high - 1
        while low < high:
            _, end = self._cluster.epoch_end(name, partition, probe)
            if end >= offset:
                high = probe
            else:
                low = probe + 1
            probe = (low + high) // 2
        return low

    def missing(
        self, name: str, topic_id: str | None, partition: int, offset: int, leader_epoch: int = -1
    ) -> str | None:
        try:
            topic = self._cluster.topic(name)
        except UnknownTopic:
            return "deleted"
        if topic_id is not None and topic_id != topic.topic_id.hex():
            return "recreated"
        if partition >= topic.partition_count:
            return "unwritten"
        start, end, _ = self._bounds_of(name, partition)
        if offset < start:
            return "expired" if self._has_retention(name) else "deleted"
        if offset > end:
            return "unwritten" if leader_epoch < 0 else "truncated"
        if leader_epoch >= 0 and offset > self._cluster.epoch_end(name, partition, leader_epoch)[1]:
            return "truncated"  # the record before it now was written after the one that the reader has seen
        return None

    def read(
        self, wanted: OffsetRange, columns: Sequence[str], *, topic_id: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        for _, batch in self.read_all([wanted], columns, topic_id=topic_id):
            yield batch

    def read_all(
        self, wanted: Sequence[OffsetRange], columns: Sequence[str], *, topic_id: str | None = None
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        for ranges in _one_per_partition(wanted):
            yield from self._read_in_parallel(ranges, columns, topic_id)

    def _read_in_parallel(
        self, ranges: Sequence[OffsetRange], columns: Sequence[str], topic_id: str | None
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        from foldlog.records.arrow import arrow_batches

        wanted_id = None if topic_id is None else _id_of(topic_id)
        left = {WantedRange(*one, wanted_id): one for one in ranges}
        try:
            with closing(self._cluster.fetch_ranges(left)) as answers:
                for one, fetched in answers:
                    start, end = left[one].start, min(one.stop, fetched.next_offset)
                    for piece in fetched.pieces:
                        for batch in arrow_batches(
                            piece,
                            topic=one.topic,
                            partition=one.partition,
                            start_offset=start,
                            end_offset=end,
                            columns=columns,
                        ):
                            yield OffsetRange(*one[:4]), batch
                    left[one] = left[one]._replace(start=fetched.next_offset)
        except (OffsetOutOfRange, UnknownTopic, UnknownPartition) as error:
            raise self._why(_blamed(error, list(left.values())), topic_id, error) from error

    def close(self) -> None:
        self._cluster.close()

    def _why(self, left: OffsetRange, topic_id: str | None, error: FoldlogError) -> FoldlogError:
        for offset in (left.start, left.stop):
            cause = self.missing(left.topic, topic_id, left.partition, offset)
            if cause is not None:
                return records_missing(left, cause, self._bounds_if_any(left), self._spec.location)
        if isinstance(error, UnknownTopic):
            # The topic exists now, but had another id during the read.
            return records_missing(left, "recreated", self._bounds_if_any(left), self._spec.location)
        return error

    def _bounds_of(self, name: str, partition: int) -> Bounds:
        found = self._cluster.bounds(name, [partition]).get(partition)
        if found is None:
            raise UnknownPartition(name, partition, self._cluster.partition_count(name))
        return Bounds(*found)

    def _bounds_if_any(self, wanted: OffsetRange) -> Bounds | None:
        try:
            return self._bounds_of(wanted.topic, wanted.partition)
        except (UnknownTopic, UnknownPartition):
            return None

    def _has_retention(self, name: str) -> bool:
        config = self._config(name)
        if "delete" not in config.get(_POLICY, "delete"):
            return False
        return any(not config.get(setting, "1").startswith("-") for setting in _RETENTIONS)

    def _config(self, name: str) -> dict[str, str]:
        """The topic's settings; empty if this client may read the topic but not its settings."""
        try:
            return self._cluster.topic_config(name, (_POLICY, *_RETENTIONS, GROWTHS_SETTING))
        except RefusedByBroker as error:
            if name not in self._warned:
                self._warned.add(name)
                _log.warning(
                    "the settings of topic %r cannot be seen, so it is taken for not compacted: %s", name, error
                )
            return {}


def _one_per_partition(wanted: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
    """As few lists as possible with one range per partition each; in sequence they keep each partition's order."""
    passes: list[list[OffsetRange]] = []
    counts: dict[tuple[str, int], int] = {}
    for one in wanted:
        number = counts.get(one[:2], 0)
        counts[one[:2]] = number + 1
        if number == len(passes):
            passes.append([])
        passes[number].append(one)
    return passes


def _blamed(error: FoldlogError, left: Sequence[OffsetRange]) -> OffsetRange:
    """The unread range of the partition that an error names; the first one if it names none."""
    number = getattr(error, "partition", None)
    return next((one for one in left if one.partition == number), left[0])


def _id_of(topic_id: str) -> bytes:
    try:
        return bytes.fromhex(topic_id)
    except ValueError:
        return b""  # no topic has it
