"""confluent-kafka: librdkafka underneath, as are most clients that are neither Java nor Go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from clients.any_client import (
    BOUND_S,
    POLL_S,
    UNKNOWN_OFFSET,
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

QUICK: dict[str, Any] = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    "topic.metadata.refresh.interval.ms": 500,
    "log_level": 0,
}
"""No second of waiting where a test cuts connections or makes topics."""


def refused(error: KafkaError) -> Refused:
    return Refused(error.code(), error.str())


class ConfluentProducer(AnyProducer):
    """librdkafka's. Delivery reports come on the thread that flushes."""

    def __init__(self, bootstrap: str, options: ProducerOptions) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.codec": options.codec,
                "acks": options.acks,
                # Its default of a million would send everything again at each cut.
                "max.in.flight.requests.per.connection": 5,
                "enable.idempotence": options.is_idempotent,
                "batch.size": options.batch_bytes,
                "linger.ms": options.linger_ms,
                "message.max.bytes": options.request_bytes_max,
                "partitioner": "murmur2_random",
                **QUICK,
            }
        )

    def send(self, topic: str, records: Iterable[Outgoing]) -> list[Sent]:
        futures = [self._produce(topic, record) for record in records]
        left = self._producer.flush(BOUND_S)
        assert left == 0, f"{left} records are not acknowledged"
        return [future.result(0) for future in futures]

    def _produce(self, topic: str, record: Outgoing) -> Future[Sent]:
        future: Future[Sent] = Future()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                future.set_exception(refused(error))
            else:
                offset = message.offset()
                future.set_result(Sent(_known(message.partition()), UNKNOWN_OFFSET if offset is None else offset))

        where: dict[str, Any] = {}
        if record.partition is not None:
            where["partition"] = record.partition
        if record.timestamp_ms is not None:
            where["timestamp"] = record.timestamp_ms
        self._producer.produce(
            topic, record.value, record.key, headers=list(record.headers), on_delivery=delivered, **where
        )
        return future

    def close(self) -> None:
        self._producer.close()


class ConfluentConsumer(AnyConsumer):
    """librdkafka's. It needs a group's name also to read alone, and then does not join it."""

    def __init__(self, bootstrap: str, options: ConsumerOptions) -> None:
        super().__init__()
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": options.group or "alone",
            "auto.offset.reset": "error" if options.reset == "none" else options.reset,
            "isolation.level": options.isolation,
            "enable.auto.commit": options.is_auto_committing,
            "auto.commit.interval.ms": options.auto_commit_interval_ms,
            "partition.assignment.strategy": ",".join(options.assignors),
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": options.heartbeat_ms,
            "fetch.wait.max.ms": options.fetch_wait_ms,
            "fetch.error.backoff.ms": 10,
            "max.partition.fetch.bytes": options.partition_fetch_bytes,
            **QUICK,
        }
        if options.instance_id is not None:
            settings["group.instance.id"] = options.instance_id
        self._consumer = Consumer(settings)

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(
            list(topics),
            on_assign=lambda _, partitions: self.given.append(_places(partitions)),
            on_revoke=lambda _, partitions: self.taken.append(_places(partitions)),
        )

    def subscribe_pattern(self, pattern: str) -> None:
        self.subscribe([f"^{pattern}$"])

    def assign(self, places: Iterable[Place]) -> None:
        self._consumer.assign([TopicPartition(*place) for place in places])

    def assignment(self) -> set[Place]:
        return _places(self._consumer.assignment())

    def poll(self, wait_s: float = POLL_S) -> list[Received]:
        # Its `consume` would wait for the rest.
        first = self._consumer.poll(wait_s)
        return [] if first is None else [_received(message) for message in (first, *self._consumer.consume(500, 0))]

    def seek(self, place: Place, offset: int) -> None:
        _raising(lambda: self._consumer.seek(TopicPartition(*place, offset)))

    def seek_to_beginning(self, place: Place) -> None:
        self.seek(place, OFFSET_BEGINNING)

    def seek_to_end(self, place: Place) -> None:
        self.seek(place, OFFSET_END)

    def position(self, place: Place) -> int:
        return int(self._consumer.position([TopicPartition(*place)])[0].offset)

    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None:
        found = self._consumer.offsets_for_times([TopicPartition(*place, timestamp_ms)], timeout=BOUND_S)[0]
        return None if found.offset == OFFSET_END else int(found.offset)

    def watermarks(self, place: Place) -> tuple[int, int]:
        found = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=BOUND_S)
        assert found is not None
        return found

    def pause(self, place: Place) -> None:
        self._consumer.pause([TopicPartition(*place)])

    def resume(self, place: Place) -> None:
        self._consumer.resume([TopicPartition(*place)])

    def commit(self, offsets: Mapping[Place, tuple[int, str]] | None = None) -> None:
        if offsets is None:
            kept = _raising(lambda: self._consumer.commit(asynchronous=False))
        else:
            wanted = [TopicPartition(*place, offset, metadata) for place, (offset, metadata) in offsets.items()]
            kept = _raising(lambda: self._consumer.commit(offsets=wanted, asynchronous=False))
        for partition in kept or ():
            if partition.error is not None:
                raise refused(partition.error)

    def commit_later(self) -> Callable[[], bool]:
        wanted = [found for found in self._consumer.position(self._consumer.assignment()) if found.offset >= 0]
        self._consumer.commit(offsets=wanted, asynchronous=True)
        return lambda: all(self.committed((one.topic, one.partition)) == one.offset for one in wanted)

    def committed(self, place: Place) -> int | None:
        found = self._consumer.committed([TopicPartition(*place)], timeout=BOUND_S)[0]
        if found.error is not None:
            raise refused(found.error)
        return int(found.offset) if found.offset >= 0 else None

    def close(self) -> None:
        self._consumer.close()


class ConfluentClient(AnyClient):
    """See the module."""

    name = "confluent-kafka"
    assignors = ("range", "roundrobin", "cooperative-sticky")

    def make_producer(self, options: ProducerOptions) -> AnyProducer:
        return ConfluentProducer(self.bootstrap, options)

    def make_consumer(self, options: ConsumerOptions) -> AnyConsumer:
        return ConfluentConsumer(self.bootstrap, options)


def _places(partitions: Iterable[TopicPartition]) -> set[Place]:
    return {(one.topic, one.partition) for one in partitions}


def _received(message: Message) -> Received:
    error = message.error()
    if error is not None:
        raise refused(error)
    headers = tuple((name, None if value is None else bytes(value)) for name, value in _pairs(message.headers()))
    return Received(
        message.topic() or "",
        _known(message.partition()),
        _known(message.offset()),
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,
    )


def _pairs(headers: Any) -> Iterable[tuple[str, Any]]:
    return headers or ()


def _known(number: int | None) -> int:
    assert number is not None
    return number


def _raising(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except KafkaException as error:
        raise refused(error.args[0]) from error
