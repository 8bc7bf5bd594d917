"""A data directory that Apache Kafka wrote, with everything in it that such a directory can hold, and what Kafka's own
consumers read from it: the truth that a reader of the files is held to.

| topic | what is in it |
| --- | --- |
| `codecs` | a batch in each codec, with headers, without keys, without values |
| `orders.eu-west` | two partitions, several segments, two leader epochs: a name with dots and dashes |
| `prices` | compacted, with tombstones: batches without records, offsets that are gone, also at the ends of segments |
| `payments` | transactions: committed, aborted, interleaved with others, and one that is still open |
| `expired` | records deleted in the middle of a segment |
| `stamped` | append times |
| `gone` | deleted: its directory has another name, and waits for its end |
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from clusters.apache_kafka import ApacheKafka

BASE_MS: Final = 1_760_000_000_000
HOUR_MS: Final = 3_600_000
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS: Final = ("codecs", "orders.eu-west", "prices", "payments", "expired", "stamped")
GROUPS: Final = ("billing", "settled", "dropped")
ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")

PROPERTIES: Final[Mapping[str, object]] = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 1,
    "log.cleaner.backoff.ms": 100,
    "log.flush.start.offset.checkpoint.interval.ms": 100,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
}
"""Of the broker: small, and soon done with what it does in the background."""

_ROLLING: Final = {"segment.ms": str(HOUR_MS // 2), "index.interval.bytes": "200", "retention.ms": "-1"}
"""Segments roll by the times of records: one an hour is one a segment."""

_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "codecs": {"index.interval.bytes": "200", "retention.ms": "-1"},
    "orders.eu-west": _ROLLING,
    "prices": {**_ROLLING, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "payments": _ROLLING,
    "expired": _ROLLING,
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "gone": {},
}
_PARTITIONS: Final = {"orders.eu-west": 2}
_TIMEOUT_S: Final = 60.0

Row = dict[str, Any]
"""A record as JSON has it: keys, values and headers as text, one character a byte."""


def write_kafka_files(kafka: ApacheKafka) -> Producer:
    """Fill the topics of a broker that was launched with PROPERTIES, restarting it once on the way.

    Returns the producer whose transaction is open: it stays so for as long as somebody holds on to it.
    """
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    small = {"segment.index.bytes": "1200"}  # room is made ahead for so many bytes of an index
    made = admin.create_topics(
        [
            NewTopic(name, _PARTITIONS.get(name, 1), 1, config={**small, **settings})
            for name, settings in _SETTINGS.items()
        ]
    )
    for future in made.values():
        future.result(_TIMEOUT_S)
    _write_codecs(kafka)
    _write_hours(kafka, "orders.eu-west", hours=range(3))
    kafka.brokers[0].stop()
    kafka.brokers[0].start()
    _write_hours(kafka, "orders.eu-west", hours=range(3, 5))
    _write_prices(kafka)
    _write_hours(kafka, "expired", hours=range(4))
    _send(kafka, "stamped", [(None, f"stamped {number}", BASE_MS) for number in range(3)])
    _send(kafka, "gone", [("a", "gone", BASE_MS)])
    still_open = _write_payments(kafka)
    _commit(kafka, "billing", {("orders.eu-west", 0): 7, ("codecs", 0): 3})
    deleted = admin.delete_records([TopicPartition("expired", 0, 7)])
    for future in deleted.values():
        future.result(_TIMEOUT_S)
    for future in admin.delete_topics(["gone"]).values():
        future.result(_TIMEOUT_S)
    data = kafka.brokers[0].data
    _wait_for("prices to be compacted", lambda: _is_compacted(kafka))
    _wait_for("the log start of expired", lambda: "expired 0 7" in _text(data / "log-start-offset-checkpoint"))
    _wait_for("the end of topic gone", lambda: any(data.glob("gone-0.*-delete")))
    return still_open


def consumed(kafka: ApacheKafka, isolation_level: str) -> dict[str, list[Row]]:
    """Every record of TOPICS as confluent-kafka reads it."""
    return {topic: _read(kafka, topic, isolation_level) for topic in TOPICS}


def committed(kafka: ApacheKafka) -> dict[str, dict[str, int]]:
    """What the groups have committed, by "topic-partition"."""
    admin, found = AdminClient({"bootstrap.servers": kafka.bootstrap}), {}
    from confluent_kafka import ConsumerGroupTopicPartitions

    for group in GROUPS:
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(_TIMEOUT_S)
        found[group] = {f"{one.topic}-{one.partition}": one.offset for one in answer.topic_partitions}
    return found


def facts(kafka: ApacheKafka) -> dict[str, Any]:
    """What a reader of the files has to find in them."""
    return {
        "records": {level: consumed(kafka, level) for level in ISOLATION_LEVELS},
        "committed": committed(kafka),
    }


def facts_text(found: Mapping[str, Any]) -> str:
    """JSON with a record a line."""
    lines = []
    for level, topics in found["records"].items():
        for topic, rows in topics.items():
            lines += [json.dumps({"isolation": level, "topic": topic, **row}) for row in rows]
    return "\n".join(lines + [json.dumps({"committed": found["committed"]})]) + "\n"


# What is written


def _write_codecs(kafka: ApacheKafka) -> None:
    for number, codec in enumerate(CODECS):
        at_ms = BASE_MS + number * 1000
        rows = [
            (f"{codec} {n}" if n else None, f"{codec} value {n} " * 8 if n != 2 else None, at_ms + n) for n in range(4)
        ]
        _send(kafka, "codecs", rows, headers=[("codec", codec.encode()), ("empty", None), ("codec", b"\xff\x00")],
              **{"compression.type": codec})  # fmt: skip


def _write_hours(kafka: ApacheKafka, topic: str, hours: Iterable[int]) -> None:
    """Two batches an hour, of two records each."""
    for hour in hours:
        for half in range(2):
            at_ms = BASE_MS + hour * HOUR_MS + half * 1000
            for partition in range(_PARTITIONS.get(topic, 1)):
                rows = [(f"{hour}", f"hour {hour} half {half} record {n} of {partition}", at_ms + n) for n in range(2)]
                _send(kafka, topic, rows, partition=partition)


def _write_prices(kafka: ApacheKafka) -> None:
    """Each hour all keys anew, one record a batch; tea is deleted in the third. What comes last stays as it is."""
    for hour in range(5):
        for number, key in enumerate(("tea", "milk", "salt", "rice")):
            value = None if (key, hour) == ("tea", 2) else f"{key} {hour}"
            if (key == "tea" and hour > 2) or (key == "salt" and hour > 0):
                continue
            at_ms = BASE_MS + hour * HOUR_MS + number
            _send(kafka, "prices", [(key, value, at_ms)], **{"enable.idempotence": False})


def _is_compacted(kafka: ApacheKafka) -> bool:
    rows = _read(kafka, "prices", "read_uncommitted")
    kept = [row["key"] for row in rows if row["timestamp_ms"] < BASE_MS + 4 * HOUR_MS]
    return len(kept) == len(set(kept))


def _write_payments(kafka: ApacheKafka) -> Producer:
    first, second = (_transactional(kafka, f"payer-{number}") for number in (1, 2))
    _in_transaction(first, "committed", 0)
    first.commit_transaction()
    _in_transaction(first, "aborted", 0)
    first.abort_transaction()
    _in_transaction(first, "aborted", 1)
    _send(kafka, "payments", [("plain", "between", BASE_MS + HOUR_MS)])
    _in_transaction(second, "committed", 1)
    _commit_in_transaction(kafka, second, "settled", 5)
    second.commit_transaction()
    _in_transaction(second, "committed", 2)
    first.abort_transaction()
    second.commit_transaction()
    first.begin_transaction()
    first.produce("payments", key="committed", value="after", timestamp=BASE_MS + 3 * HOUR_MS)
    first.commit_transaction()
    second.begin_transaction()
    _commit_in_transaction(kafka, second, "dropped", 9)
    second.abort_transaction()
    _in_transaction(second, "open", 4)
    _send(kafka, "payments", [("plain", "above the open one", BASE_MS + 4 * HOUR_MS)])
    return second


def _transactional(kafka: ApacheKafka, name: str) -> Producer:
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000}
    producer = Producer(settings)
    producer.init_transactions(_TIMEOUT_S)
    return producer


def _in_transaction(producer: Producer, fate: str, hour: int) -> None:
    """Begin one, and have two batches of it in the log."""
    producer.begin_transaction()
    for number in range(2):
        at_ms = BASE_MS + hour * HOUR_MS + number
        producer.produce("payments", key=fate, value=f"{fate} {hour} {number}", timestamp=at_ms)
        producer.flush(_TIMEOUT_S)


def _commit_in_transaction(kafka: ApacheKafka, producer: Producer, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    try:
        place = TopicPartition("orders.eu-west", 1, offset)
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), _TIMEOUT_S)
    finally:
        consumer.close()


def _commit(kafka: ApacheKafka, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    try:
        places = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
    finally:
        consumer.close()


def _send(
    kafka: ApacheKafka,
    topic: str,
    rows: Iterable[tuple[str | None, str | None, int]],
    *,
    partition: int = 0,
    headers: list[tuple[str, bytes | None]] | None = None,
    **settings: object,
) -> None:
    """One batch, acknowledged."""
    refused: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 1000, "acks": "all", **settings})
    for key, value, timestamp_ms in rows:
        producer.produce(
            topic, key=key, value=value, partition=partition, timestamp=timestamp_ms, headers=headers or [],
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )  # fmt: skip
    if producer.flush(_TIMEOUT_S) or refused:
        raise RuntimeError(f"Kafka did not take records of {topic}: {refused}")


# What is read


def _read(kafka: ApacheKafka, topic: str, isolation_level: str) -> list[Row]:
    """A topic from its start to its end, in order of partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "auto.offset.reset": "earliest",
        }
    )
    partitions = _PARTITIONS.get(topic, 1)
    rows: list[Row] = []
    try:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        ended = 0
        deadline_s = time.monotonic() + _TIMEOUT_S
        while ended < partitions:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"topic {topic} has no end")
            for message in consumer.consume(1000, 1.0):
                error = message.error()
                if error is None:
                    rows.append(_row(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended += 1
    finally:
        consumer.close()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def _row(message: Message) -> Row:
    kind, timestamp_ms = message.timestamp()
    headers = message.headers() or []
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": timestamp_ms,
        "timestamp_type": kind - 1,  # librdkafka counts from "none"
        "key": as_text(message.key()),
        "value": as_text(message.value()),
        "headers": [[name, as_text(value)] for name, value in headers],
    }


def as_text(data: object) -> str | None:
    """
    >>> as_text(b"tea"), as_text(None)
    ('tea', None)
    """
    return None if data is None else bytes(data).decode("latin-1")  # type: ignore[call-overload,no-any-return]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        return ""


def _wait_for(what: str, is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {_TIMEOUT_S:.0f} s for {what}")
        time.sleep(0.1)
