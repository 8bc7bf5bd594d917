"""A data directory that Apache Kafka wrote, with everything in it that such a directory can hold, and what Kafka's own
consumers read from it: the truth that a reader of the files is held to.

| topic | what is in it |
| --- | --- |
| `codecs` | a batch in each codec, with headers, without keys, without values |
| `orders.eu-west` | two partitions, several segments, two leader epochs: a name with dots and dashes |
| `prices` | compacted, with a tombstone, and with offsets that are gone |
| `payments` | transactions: committed, aborted, interleaved with others, and one that is still open |
| `expired` | records deleted in the middle of a segment |
| `stamped` | append times |
| `roomy` | a segment with room made ahead |
| `gone` | deleted: its directory has another name, and waits for its end |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from clusters.apache_kafka import ApacheKafka
from clusters.kafka_facts import Facts, Row, as_text

BASE_MS: Final = 1_760_000_000_000
HOUR_MS: Final = 3_600_000
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS: Final = ("codecs", "orders.eu-west", "prices", "payments", "expired", "stamped", "roomy")
GROUPS: Final = ("billing", "settled", "dropped")

PROPERTIES: Final[Mapping[str, object]] = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 1,
    "log.cleaner.backoff.ms": 100,
    "log.flush.start.offset.checkpoint.interval.ms": 100,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "metadata.max.idle.interval.ms": 0,
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
    "roomy": {"preallocate": "true", "segment.bytes": str(1 << 20), "retention.ms": "-1"},
    "gone": {"retention.ms": "-1"},
}
_PARTITIONS: Final = {"orders.eu-west": 2}
_TIMEOUT_S: Final = 60.0

_Sent = tuple[str | None, str | None, int]
"""Key, value, time."""


class KafkaFiles:
    """Writes it all to a broker that was launched with PROPERTIES, which it kills and starts again on the way."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self._kafka = kafka
        self._servers: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap, "log_level": 0}
        self._producers: dict[str, Producer] = {}
        self._payers: list[Producer] = []

    def write(self) -> None:
        """Returns when everything is in the files. One transaction stays open until `close`."""
        admin = AdminClient(self._servers)
        small = {"segment.index.bytes": "1200"}  # room is made ahead for so many bytes of an index
        topics = {
            name: NewTopic(name, _PARTITIONS.get(name, 1), 1, config={**small, **settings})
            for name, settings in _SETTINGS.items()
        }
        roomy = topics.pop("roomy")
        for future in admin.create_topics(list(topics.values())).values():
            future.result(_TIMEOUT_S)
        self._write_codecs()
        self._write_hours("orders.eu-west", range(3))
        self._kafka.brokers[0].kill()
        self._kafka.brokers[0].start()
        for future in admin.create_topics([roomy]).values():  # a crash takes the room away that was made before it
            future.result(_TIMEOUT_S)
        self._write_hours("orders.eu-west", range(3, 5))
        self._write_prices()
        self._write_hours("expired", range(4))
        for topic in ("stamped", "roomy", "gone"):
            self._send(topic, [(None, f"{topic} {number}", BASE_MS) for number in range(3)])
        self._write_payments()
        self._commit("billing", {("orders.eu-west", 0): 7, ("codecs", 0): 3})
        for future in admin.delete_records([TopicPartition("expired", 0, 7)]).values():
            future.result(_TIMEOUT_S)
        for future in admin.delete_topics(["gone"]).values():
            future.result(_TIMEOUT_S)
        data = self._kafka.brokers[0].data
        _wait_for("prices to be compacted", self._is_compacted)
        _wait_for("the log start of expired", lambda: "expired 0 7" in _text(data / "log-start-offset-checkpoint"))
        _wait_for("the end of topic gone", lambda: any(data.glob("gone-0.*-delete")))

    def close(self) -> None:
        """Let go of the clients. The transaction is not aborted by it: its producer is just gone."""
        self._payers.clear()
        self._producers.clear()

    def _write_codecs(self) -> None:
        for number, codec in enumerate(CODECS):
            at_ms = BASE_MS + number * 1000
            rows: list[_Sent] = [
                (f"{codec} {n}" if n else None, f"{codec} value {n} " * 8 if n != 2 else None, at_ms + n)
                for n in range(4)
            ]
            self._send("codecs", rows, codec=codec, headers=[("codec", codec), ("empty", None), ("codec", b"\xff\x00")])

    def _write_hours(self, topic: str, hours: Iterable[int]) -> None:
        """Two batches an hour, of two records each."""
        for hour in hours:
            for half in range(2):
                at_ms = BASE_MS + hour * HOUR_MS + half * 1000
                for partition in range(_PARTITIONS.get(topic, 1)):
                    value = f"hour {hour} half {half} of {partition}"
                    self._send(topic, [(f"{hour}", f"{value} record {n}", at_ms + n) for n in range(2)], partition)

    def _write_prices(self) -> None:
        """Each hour keys anew, one record a batch; tea is deleted in the third. What comes last stays as it is."""
        for hour in range(5):
            for number, key in enumerate(("tea", "milk", "salt", "rice")):
                value = None if (key, hour) == ("tea", 2) else f"{key} {hour}"
                if (key == "tea" and hour > 2) or (key == "salt" and hour > 0):
                    continue
                self._send("prices", [(key, value, BASE_MS + hour * HOUR_MS + number)])

    def _is_compacted(self) -> bool:
        rows = _read(self._kafka, ["prices"], "read_uncommitted")["prices"]
        kept = [row["key"] for row in rows if row["timestamp_ms"] < BASE_MS + 4 * HOUR_MS]
        return len(kept) == len(set(kept))

    def _write_payments(self) -> None:
        self._payers = [self._payer(f"payer-{number}") for number in (1, 2)]
        first, second = self._payers
        _pay(first, "committed", 0)
        first.commit_transaction()
        _pay(first, "aborted", 0)
        first.abort_transaction()
        _pay(first, "aborted", 1)
        self._send("payments", [("plain", "between", BASE_MS + HOUR_MS)])
        _pay(second, "committed", 1)
        self._commit_with(second, "settled", 5)
        second.commit_transaction()
        _pay(second, "committed", 2)
        first.abort_transaction()
        second.commit_transaction()
        _pay(first, "committed", 3)
        first.commit_transaction()
        second.begin_transaction()
        self._commit_with(second, "dropped", 9)
        second.abort_transaction()
        _pay(second, "open", 4)
        self._send("payments", [("plain", "above the open one", BASE_MS + 4 * HOUR_MS)])

    def _payer(self, name: str) -> Producer:
        producer = Producer({**self._servers, "transactional.id": name, "transaction.timeout.ms": 600_000})
        producer.init_transactions(_TIMEOUT_S)
        return producer

    def _commit_with(self, producer: Producer, group: str, offset: int) -> None:
        """Offsets as part of the producer's transaction."""
        consumer = Consumer({**self._servers, "group.id": group})
        try:
            place = TopicPartition("orders.eu-west", 1, offset)
            producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), _TIMEOUT_S)
        finally:
            consumer.close()

    def _commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        consumer = Consumer({**self._servers, "group.id": group})
        try:
            places = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
            consumer.commit(offsets=places, asynchronous=False)
        finally:
            consumer.close()

    def _send(
        self,
        topic: str,
        rows: Iterable[_Sent],
        partition: int = 0,
        *,
        codec: str = "none",
        headers: list[tuple[str, str | bytes | None]] | None = None,
    ) -> None:
        """One batch, acknowledged."""
        refused: list[KafkaError] = []
        producer = self._producers.get(codec)
        if producer is None:
            settings = {"linger.ms": 1000, "acks": "all", "compression.type": codec}
            producer = self._producers[codec] = Producer({**self._servers, **settings})
        for key, value, timestamp_ms in rows:
            producer.produce(
                topic, key=key, value=value, partition=partition, timestamp=timestamp_ms, headers=headers or [],
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )  # fmt: skip
        if producer.flush(_TIMEOUT_S) or refused:
            raise RuntimeError(f"Kafka did not take records of {topic}: {refused}")


def _pay(producer: Producer, fate: str, hour: int) -> None:
    """Begin a transaction, and have two batches of it in the log."""
    producer.begin_transaction()
    for number in range(2):
        at_ms = BASE_MS + hour * HOUR_MS + number
        producer.produce("payments", key=fate, value=f"{fate} {hour} {number}", timestamp=at_ms)
        producer.flush(_TIMEOUT_S)


# What is read


def ask_facts(kafka: ApacheKafka) -> Facts:
    """What Kafka's own consumers make of it."""
    committed = _read(kafka, TOPICS, "read_committed")
    return Facts(
        _read(kafka, TOPICS, "read_uncommitted"),
        {topic: [[row["partition"], row["offset"]] for row in rows] for topic, rows in committed.items()},
        _committed(kafka),
    )


def _committed(kafka: ApacheKafka) -> dict[str, dict[str, int]]:
    admin, found = AdminClient({"bootstrap.servers": kafka.bootstrap}), {}
    for group in GROUPS:
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(_TIMEOUT_S)
        found[group] = {f"{one.topic}-{one.partition}": one.offset for one in answer.topic_partitions}
    return found


def _read(kafka: ApacheKafka, topics: Iterable[str], isolation_level: str) -> dict[str, list[Row]]:
    """These topics from their starts to their ends, each in order of partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "log_level": 0,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "auto.offset.reset": "earliest",
        }
    )
    places = [TopicPartition(topic, number) for topic in topics for number in range(_PARTITIONS.get(topic, 1))]
    rows: dict[str, list[Row]] = {place.topic: [] for place in places}
    try:
        consumer.assign(places)
        ended = 0
        deadline_s = time.monotonic() + _TIMEOUT_S
        while ended < len(places):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{ended} of {len(places)} partitions have an end")
            message = consumer.poll(1.0)
            error = None if message is None else message.error()
            if message is not None and error is None:
                rows[str(message.topic())].append(_row(message))
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                ended += 1
    finally:
        consumer.close()
    return {topic: sorted(found, key=lambda row: (row["partition"], row["offset"])) for topic, found in rows.items()}


def _row(message: Message) -> Row:
    kind, timestamp_ms = message.timestamp()
    headers: list[tuple[str, object]] = list(message.headers() or [])  # type: ignore[arg-type]
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": timestamp_ms,
        "timestamp_type": kind - 1,  # librdkafka counts from "none"
        "key": as_text(message.key()),
        "value": as_text(message.value()),
        "headers": [[name, as_text(value)] for name, value in headers],
    }


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
