"""Where a cluster's partitions begin and end, what was written when, and records that are deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foldlog.broker.topic_names import OwnTopicChange
from foldlog.client.cluster_requests import EARLIEST, LATEST, list_offsets
from foldlog.client.kafka.faults import Where
from foldlog.client.kafka.handles import Attempt
from foldlog.client.kafka.topics import KafkaTopics
from foldlog.client.partitioners import checked_partition
from foldlog.client.positions import Place, resolve_place
from foldlog.errors import InvalidArgument, ReadOnly, brief_repr
from foldlog.records.batch import MAX_INT64

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition as KafkaTopicPartition

_OFFSET_INVALID: Final = -1001


class Bounds(NamedTuple):
    """What can be read of one partition at one moment: [log_start_offset, high_watermark)."""

    label: tuple[str, int]
    log_start_offset: int
    high_watermark: int
    leader_epoch: int


class KafkaOffsets(KafkaTopics):
    """The part of a KafkaLog that is about offsets. Any thread."""

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Per partition the log start offset and where reading ends now: what can be read is [start, end).

        The end is the high watermark; with isolation.level=read_committed, where the oldest open transaction begins.
        """
        numbers = range(self.partition_count(topic))
        return {
            one.label[1]: (one.log_start_offset, one.high_watermark)
            for one in self.bounds((topic, number) for number in numbers).values()
        }

    def bounds_of(self, topic: str, number: int) -> Bounds:
        """Where one partition begins and ends now; UnknownTopic, UnknownPartition."""
        checked_partition(topic, number, self.partition_count(topic))
        return self.bounds([(topic, number)])[topic, number]

    def offset_at(self, topic: str, number: int, timestamp_ms: int) -> int | None:
        """The offset of one partition's first record at or after `timestamp_ms`; None if there is none."""
        return self.offsets_at(topic, timestamp_ms)[number]

    def bounds(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Bounds]:
        """The same of several, which there are."""
        chosen = list(partitions)
        starts = self._listed_offsets(dict.fromkeys(chosen, EARLIEST))
        ends = self._listed_offsets(dict.fromkeys(chosen, LATEST))
        return {
            one: Bounds(one, min(starts[one][0], ends[one][0]), ends[one][0], max(starts[one][1], ends[one][1]))
            for one in chosen
        }

    def _listed_offsets(self, times_ms: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], tuple[int, int]]:
        """(offset, leader epoch) of each, at a time or EARLIEST or LATEST; the offset is -1 where there is none.

        Over our own connections, which wait for a partition's leader; librdkafka 2.16 answers at once with no offset
        and no error while there is none.
        """
        if not self._handles.speaks_wire:
            return self._offsets_by_library(times_ms)
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, number), at in times_ms.items():
            by_topic.setdefault(topic, {})[number] = at
        with self._handles.wire() as links:
            return {
                (topic, number): (found.offset, found.leader_epoch)
                for topic, wanted in by_topic.items()
                for number, found in list_offsets(links, topic, wanted).items()
            }

    def _offsets_by_library(self, times_ms: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], tuple[int, int]]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        if not times_ms:
            return {}
        is_committed = self._handles.url.properties.get("isolation.level") == "read_committed"
        isolation = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        named: dict[int, Any] = {
            EARLIEST: OffsetSpec.earliest(),  # type: ignore[no-untyped-call]
            LATEST: OffsetSpec.latest(),  # type: ignore[no-untyped-call]
        }
        wanted = {
            TopicPartition(*partition): named.get(at) or OffsetSpec.for_timestamp(at)
            for partition, at in times_ms.items()
        }

        def attempt(now: Attempt) -> dict[tuple[str, int], tuple[int, int]]:
            asked = now.admin.list_offsets(wanted, isolation_level=isolation, request_timeout=now.timeout_s)
            found: dict[tuple[str, int], tuple[int, int]] = {}
            for one, future in asked.items():
                where = Where(one.topic, one.partition)
                answer = self._handles.answer(future, now, where)
                if answer.offset <= _OFFSET_INVALID:
                    raise self._handles.no_leader(where)
                epoch = -1 if answer.leader_epoch is None else answer.leader_epoch
                found[one.topic, one.partition] = (answer.offset, epoch)
            return found

        return self._handles.retried(attempt)

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        """Per partition the offset of the first record at or after `timestamp_ms`; None where there is none."""
        if type(timestamp_ms) is not int or not -MAX_INT64 <= timestamp_ms <= MAX_INT64:
            raise InvalidArgument(
                f"timestamp_ms {brief_repr(timestamp_ms)} is not a time: an int, milliseconds since 1970, below 2**63"
            )
        partitions = [(topic, number) for number in range(self.partition_count(topic))]
        if timestamp_ms < 0:
            # Brokers take such times for questions of another kind. Every record is at or after it.
            whole = self.bounds(partitions).items()
            return {
                number: one.log_start_offset if one.log_start_offset < one.high_watermark else None
                for (_, number), one in whole
            }
        found = self._listed_offsets(dict.fromkeys(partitions, timestamp_ms))
        return {number: None if offset < 0 else offset for (_, number), (offset, _) in found.items()}

    def delete_records(self, topic: str, before: Mapping[int, Place]) -> dict[int, int]:
        """Delete everything below an offset, per partition, for good; "end" means all. Answers the new log starts."""
        from confluent_kafka import TopicPartition

        if not isinstance(before, Mapping):
            raise InvalidArgument(f"delete_records() takes a dict such as {{0: 'end'}}, not {brief_repr(before)}")
        count = len(self._changeable(topic, OwnTopicChange.DELETE_RECORDS).partitions)
        for number in before:
            checked_partition(topic, number, count)
        bounds = self.bounds((topic, number) for number in before)
        wanted: list[KafkaTopicPartition] = [
            TopicPartition(topic, number, resolve_place(bounds[topic, number], at, "before"))
            for number, at in before.items()
        ]
        if not wanted:
            return {}

        def attempt(now: Attempt) -> dict[int, int]:
            asked = now.admin.delete_records(wanted, request_timeout=now.timeout_s, operation_timeout=now.timeout_s)
            return {
                one.partition: self._handles.answer(future, now, Where(topic, one.partition)).low_watermark
                for one, future in asked.items()
            }

        return self._handles.retried(attempt)

    # --- upkeep ---------------------------------------------------------------------------------------------------

    def compact(self, topic: str | None = None) -> dict[tuple[str, int], object]:
        """Not here: the brokers compact when it is due, and nobody can ask them to."""
        raise ReadOnly(f"compaction at {self._handles.url} is done by the cluster itself, when it is due")

    def recompress(self, topic: str, codec: str) -> dict[tuple[str, int], object]:
        """Not here: the brokers keep what they have as it was compressed."""
        raise ReadOnly(
            f"what is stored at {self._handles.url} stays as the cluster has compressed it; the topic's"
            " compression.type is for records that come"
        )

    def enforce_retention(self, topic: str | None = None) -> int:
        """Not here: the brokers do it when it is due. `delete_records` is the way to delete now."""
        raise ReadOnly(
            f"retention at {self._handles.url} is enforced by the cluster itself, when it is due; delete_records()"
            " deletes now"
        )
