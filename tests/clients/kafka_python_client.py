"""kafka-python: all in Python, with a network thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from clients.any_client import (
    BOUND_S,
    POLL_S,
    AnyClient,
    AnyConsumer,
    AnyProducer,
    ConsumerOptions,
    Outgoing,
    Place,
    ProducerOptions,
    Received,
    Refused,
    Sent,
)

ASSIGNORS = {
    assignor.name: assignor
    for assignor in (
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    )
}
QUICK: dict[str, Any] = {
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
    "retry_backoff_ms": 10,
    "metadata_max_age_ms": 500,
    "metrics_enabled": False,
}


def refused(error: KafkaError) -> Refused:
    return Refused(getattr(error, "errno", -1), f"{type(error).__name__}: {error}")


class KafkaPythonProducer(AnyProducer):
    """kafka-python's. Its futures are set by its network thread."""

    def __init__(self, bootstrap: str, options: ProducerOptions) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if options.codec == "none" else options.codec,
            acks=options.acks,
            enable_idempotence=options.is_idempotent,
            batch_size=options.batch_bytes,
            linger_ms=options.linger_ms,
            max_request_size=options.request_bytes_max,
            **QUICK,
        )

    def send(self, topic: str, records: Iterable[Outgoing]) -> list[Sent]:
        futures = [
            self._producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        self._producer.flush(timeout=BOUND_S)
        try:
            found = [future.get(timeout=BOUND_S) for future in futures]
        except KafkaError as error:
            raise refused(error) from error
        return [Sent(metadata.partition, metadata.offset) for metadata in found]

    def close(self) -> None:
        self._producer.close(timeout=5)


class KafkaPythonConsumer(AnyConsumer):
    """kafka-python's."""

    def __init__(self, bootstrap: str, options: ConsumerOptions) -> None:
        super().__init__()
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=options.group,
            group_instance_id=options.instance_id,
            partition_assignment_strategy=[ASSIGNORS[name] for name in options.assignors],
            auto_offset_reset=options.reset,
            isolation_level=options.isolation,
            enable_auto_commit=options.is_auto_committing,
            auto_commit_interval_ms=options.auto_commit_interval_ms,
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=options.heartbeat_ms,
            fetch_max_wait_ms=options.fetch_wait_ms,
            max_partition_fetch_bytes=options.partition_fetch_bytes,
            **QUICK,
        )

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics), listener=_Rebalances(self))
        # Otherwise it joins before it knows the topic and again when it does, and if a poll ends in between, it never
        # looks at what it was given.
        self._consumer.topics()

    def subscribe_pattern(self, pattern: str) -> None:
        self._consumer.subscribe(pattern=f"^{pattern}$", listener=_Rebalances(self))

    def assign(self, places: Iterable[Place]) -> None:
        self._consumer.assign([TopicPartition(*place) for place in places])

    def assignment(self) -> set[Place]:
        return _places(self._consumer.assignment())

    def poll(self, wait_s: float = POLL_S) -> list[Received]:
        try:
            found = self._consumer.poll(timeout_ms=int(wait_s * 1000))
        except KafkaError as error:
            raise refused(error) from error
        return [
            Received(
                record.topic,
                record.partition,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for records in found.values()
            for record in records
        ]

    def seek(self, place: Place, offset: int) -> None:
        self._consumer.seek(TopicPartition(*place), offset)

    def seek_to_beginning(self, place: Place) -> None:
        self._consumer.seek_to_beginning(TopicPartition(*place))

    def seek_to_end(self, place: Place) -> None:
        self._consumer.seek_to_end(TopicPartition(*place))

    def position(self, place: Place) -> int:
        return int(self._consumer.position(TopicPartition(*place)))

    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None:
        partition = TopicPartition(*place)
        found = self._consumer.offsets_for_times({partition: timestamp_ms})[partition]
        return None if found is None else int(found.offset)

    def watermarks(self, place: Place) -> tuple[int, int]:
        partition = TopicPartition(*place)
        start = self._consumer.beginning_offsets([partition])[partition]
        return start, self._consumer.end_offsets([partition])[partition]

    def pause(self, place: Place) -> None:
        self._consumer.pause(TopicPartition(*place))

    def resume(self, place: Place) -> None:
        self._consumer.resume(TopicPartition(*place))

    def commit(self, offsets: Mapping[Place, tuple[int, str]] | None = None) -> None:
        try:
            self._consumer.commit(
                None
                if offsets is None
                else {
                    TopicPartition(*place): OffsetAndMetadata(offset, metadata, -1)
                    for place, (offset, metadata) in offsets.items()
                }
            )
        except KafkaError as error:
            raise refused(error) from error

    def commit_later(self) -> Callable[[], bool]:
        future = self._consumer.commit_async()

        def is_done() -> bool:
            self._consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=1, update_offsets=False)
            if future.is_done and future.exception is not None:
                raise refused(future.exception)
            return bool(future.is_done)

        return is_done

    def committed(self, place: Place) -> int | None:
        found = self._consumer.committed(TopicPartition(*place))
        return None if found is None else int(found)

    def close(self) -> None:
        self._consumer.close()


class _Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
    """Notes what rebalances bring and take."""

    def __init__(self, consumer: AnyConsumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._consumer.given.append(_places(assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._consumer.taken.append(_places(revoked))


def _places(partitions: Iterable[TopicPartition]) -> set[Place]:
    return {(one.topic, one.partition) for one in partitions}


class KafkaPythonClient(AnyClient):
    """See the module."""

    name = "kafka-python"
    has_null_headers = False
    assignors = ("range", "roundrobin", "sticky", "cooperative-sticky")

    def make_producer(self, options: ProducerOptions) -> AnyProducer:
        return KafkaPythonProducer(self.bootstrap, options)

    def make_consumer(self, options: ConsumerOptions) -> AnyConsumer:
        return KafkaPythonConsumer(self.bootstrap, options)
