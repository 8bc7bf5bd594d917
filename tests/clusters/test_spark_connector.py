"""Spark's own `kafka` connector and our source `foldlog`, side by side: at our broker, and at Apache Kafka.

The same options give the same columns and the same rows, whatever is in the topics: nulls, tombstones, headers, every
codec, the holes of compaction, and at Apache Kafka transactions that were committed, aborted or left open.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clusters.apache_kafka import ApacheKafka
from clusters.maven import SPARK_KAFKA, JarsUnavailable, fetch
from confluent_kafka import Producer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import lit

import foldlog
from foldlog.client.backends.directory import broker_of
from foldlog.log.partition import Partition
from foldlog.testing import KafkaBroker
from spark_session import running_session

FIRST_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ORDERS, STATES, PAYMENTS = "connector-orders", "connector-states", "connector-payments"
SETTLING_POLLS = 2000

pytestmark = pytest.mark.timeout(900)  # a Spark, a Kafka and a broker of ours start before the first test


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        jars = sorted(fetch(SPARK_KAFKA).glob("*.jar"))
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with running_session(tmp_path_factory.mktemp("spark"), jars) as session:
        yield session


@pytest.fixture(scope="module")
def ours() -> Iterator[KafkaBroker]:
    """Our broker, with ORDERS and a STATES that is compacted."""
    with KafkaBroker.launch() as broker:
        write_orders(broker)
        broker.create_topic(STATES, config={"cleanup.policy": "compact", "segment.bytes": 1024})
        write_states(broker)
        broker.log.compact(STATES)
        assert len(list(broker.log.read(STATES, 0))) < 60
        yield broker


@pytest.fixture(scope="module")
def apache(apache_kafka: ApacheKafka) -> Iterator[str]:
    """Apache Kafka, with ORDERS, a STATES that its cleaner compacted, and PAYMENTS with transactions."""
    with foldlog.connect(apache_kafka.url) as log:
        settings = {"cleanup.policy": "compact", "segment.ms": 1, "min.cleanable.dirty.ratio": 0}
        log.create_topic(STATES, config=settings)
        write_states(apache_kafka.bootstrap)
        write_orders(apache_kafka.bootstrap)
        open_transaction = write_payments(apache_kafka.bootstrap)
        for _ in range(SETTLING_POLLS):
            if len(list(log.read(STATES, 0))) < 60:
                break
        else:
            pytest.fail("Kafka's cleaner did not compact the topic")
        # Its cleaner would go on, and both readers have to find the same.
        log.alter_topic(STATES, {"cleanup.policy": "delete", "retention.ms": -1})
    yield apache_kafka.bootstrap
    open_transaction.abort_transaction()


def write_orders(address: str) -> None:
    """Three partitions, the last of them empty: no key, no value, headers, every codec; a second between records."""
    with foldlog.connect(f"kafka://{address}") as log:
        log.create_topic(ORDERS, partitions=3, config={"retention.ms": -1})
        for place, codec in enumerate(CODECS):
            with log.producer(compression=codec) as producer:
                for number in range(12 * place, 12 * (place + 1)):
                    producer.send(
                        ORDERS,
                        None if number % 5 == 4 else f"{codec} {number}",
                        key=None if number % 7 == 3 else f"k{number % 4}",
                        headers=[("trace", b"t%d" % number), ("trace", None), ("ü", b"")] if number % 3 else None,
                        partition=number % 2,
                        timestamp_ms=FIRST_MS + 1000 * number,
                    )


def write_states(address: str) -> None:
    """Few keys and many values, and a tombstone here and there, each record in a batch of its own."""
    with foldlog.connect(f"kafka://{address}") as log:
        for number in range(60):
            log.append(STATES, None if number % 13 == 12 else f"v{number}", key=f"k{number % 5}")


def write_payments(address: str) -> Producer:
    """Two transactions that were committed around one that was aborted, and the producer of one that is still open."""
    with foldlog.connect(f"kafka://{address}") as log:
        log.create_topic(PAYMENTS, partitions=2)
    producer = Producer({"bootstrap.servers": address, "transactional.id": "connector-payments"})
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        _pay(producer, end.__name__)
        end()
    stays_open = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": "connector-payments-open",
            "transaction.timeout.ms": 900_000,  # the most that Kafka allows unless told: nobody ends it before the test
        }
    )
    stays_open.init_transactions()
    stays_open.begin_transaction()
    _pay(stays_open, "open")
    return stays_open


def _pay(producer: Producer, value: str) -> None:
    for number in range(6):
        producer.produce(PAYMENTS, f"{value} {number}".encode(), partition=number % 2)
    producer.flush()


# --- reading ----------------------------------------------------------------------------------------------------------


def both(spark: SparkSession, address: str, **options: str) -> tuple[DataFrame, DataFrame]:
    """Our source, and Spark's connector, with the same options."""
    chosen = {"kafka.bootstrap.servers": address, "includeHeaders": "true", **options}
    ours, theirs = (spark.read.format(name).options(**chosen).load() for name in ("foldlog", "kafka"))
    return ours, theirs


def same_rows(spark: SparkSession, address: str, **options: str) -> list[Row]:
    """The rows that both read, in one job; they have to be the same."""
    ours, theirs = both(spark, address, **options)
    assert ours.schema == theirs.schema
    rows = ours.withColumn("side", lit("ours")).unionAll(theirs.withColumn("side", lit("theirs"))).collect()
    mine, other = (
        sorted((row[:-1] for row in rows if row["side"] == side), key=lambda row: row[2:5])
        for side in ("ours", "theirs")
    )
    assert mine == other
    return [Row(*ours.columns)(*row) for row in mine]


def offsets_of(rows: list[Row]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


FORMS: list[tuple[dict[str, str], dict[int, list[int]]]] = [
    ({"subscribe": ORDERS}, {0: list(range(30)), 1: list(range(30))}),
    ({"subscribePattern": "connector-ord.*", "minPartitions": "7"}, {0: list(range(30)), 1: list(range(30))}),
    ({"assign": json.dumps({ORDERS: [1, 2]})}, {1: list(range(30))}),
    (
        {
            "subscribe": ORDERS,
            "startingOffsets": json.dumps({ORDERS: {"0": 5, "1": -2, "2": -2}}),
            "endingOffsets": json.dumps({ORDERS: {"0": 8, "1": -1, "2": -1}}),
        },
        {0: [5, 6, 7], 1: list(range(30))},
    ),
    (
        {
            "assign": json.dumps({ORDERS: [0, 1]}),
            "startingTimestamp": str(FIRST_MS + 9_500),
            "endingTimestamp": str(FIRST_MS + 13_000),
        },
        {0: [5, 6], 1: [5]},
    ),
    (
        {
            "assign": json.dumps({ORDERS: [0, 1]}),
            "startingOffsetsByTimestamp": json.dumps({ORDERS: {"0": FIRST_MS + 52_000, "1": FIRST_MS + 1_000}}),
            "endingOffsetsByTimestamp": json.dumps({ORDERS: {"0": FIRST_MS * 2, "1": FIRST_MS + 4_000}}),
        },
        {0: [26, 27, 28, 29], 1: [0, 1]},
    ),
    (
        {"subscribe": ORDERS, "startingTimestamp": str(FIRST_MS * 2), "startingOffsetsByTimestampStrategy": "latest"},
        {},
    ),
]


@pytest.mark.parametrize("place", range(len(FORMS)))
def test_both_read_the_same_rows_from_our_broker_whatever_is_asked_for(
    spark: SparkSession, ours: KafkaBroker, place: int
) -> None:
    options, offsets = FORMS[place]
    rows = same_rows(spark, ours, **options)
    assert offsets_of(rows) == offsets
    if place == 0:
        assert sum(row["value"] is None for row in rows) == 12
        assert any(row["key"] is None for row in rows)
        assert {len(row["headers"] or ()) for row in rows} == {0, 3}


@pytest.mark.parametrize("place", [0, 3, 4])
def test_both_read_the_same_rows_from_apache_kafka(spark: SparkSession, apache: str, place: int) -> None:
    options, offsets = FORMS[place]
    assert offsets_of(same_rows(spark, apache, **options)) == offsets


@pytest.mark.parametrize("place", ["ours", "apache"])
def test_both_read_around_the_holes_of_compaction(
    spark: SparkSession, request: pytest.FixtureRequest, place: str
) -> None:
    rows = same_rows(spark, request.getfixturevalue(place), subscribe=STATES)
    newest = {row["key"]: row["value"] for row in rows}
    assert newest == {b"k%d" % key: b"v%d" % (55 + key) for key in range(5)}
    assert len(rows) < 60


def test_both_read_transactions_as_they_are_told(spark: SparkSession, apache: str) -> None:
    def values(**options: str) -> list[str]:
        rows = same_rows(spark, apache, subscribe=PAYMENTS, **options)
        return sorted({row["value"].decode().rsplit(" ", 1)[0] for row in rows})

    everything = ["abort_transaction", "commit_transaction", "open"]
    assert values() == everything
    assert values(**{"kafka.isolation.level": "read_uncommitted"}) == everything
    assert values(**{"kafka.isolation.level": "read_committed"}) == ["commit_transaction"]
    cut = json.dumps({PAYMENTS: {"0": 2, "1": 1}})
    assert values(startingOffsets=cut, **{"kafka.isolation.level": "read_committed"}) == ["commit_transaction"]


def test_our_broker_has_no_transactions_to_hide(spark: SparkSession, ours: KafkaBroker) -> None:
    assert len(same_rows(spark, ours, subscribe=ORDERS, **{"kafka.isolation.level": "read_committed"})) == 60


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "connector-none"},
        {"subscribe": ORDERS, "startingOffsets": "latest"},
        {"subscribe": ORDERS, "startingOffsets": json.dumps({ORDERS: {"0": 5}})},
        {"subscribe": ORDERS, "startingTimestamp": str(FIRST_MS * 2)},
        {"subscribe": ORDERS, "assign": json.dumps({ORDERS: [0]})},
        {"subscribe": ORDERS, "kafka.auto.offset.reset": "earliest"},
    ],
    ids=["no topic", "from the end", "not all partitions", "no such time", "two choices", "a setting of its own"],
)
def test_both_refuse_the_same(spark: SparkSession, ours: KafkaBroker, options: dict[str, str]) -> None:
    """Spark's connector with the JVM's exceptions, where it has none of Spark's."""
    for name in ("foldlog", "kafka"):
        with pytest.raises((PySparkException, Py4JJavaError) if name == "kafka" else PySparkException):
            spark.read.format(name).options(**{"kafka.bootstrap.servers": ours, **options}).load().collect()


# --- streams ----------------------------------------------------------------------------------------------------------


def read_now(spark: SparkSession, name: str, checkpoint: Path, **options: str) -> list[tuple[object, ...]]:
    """What a stream finds that reads what is there and ends, from where its checkpoint is."""
    found: list[tuple[object, ...]] = []
    stream = spark.readStream.format(name).options(**options).load()

    def keep(batch: DataFrame, _: int) -> None:
        found.extend(tuple(row) for row in batch.collect())

    query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return sorted(found, key=lambda row: row[2:5])


@pytest.mark.parametrize("place", ["ours", "apache"])
def test_streams_of_both_go_on_from_their_checkpoints(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, place: str
) -> None:
    address = request.getfixturevalue(place)
    topic = f"connector-stream-{place}"
    options = {
        "kafka.bootstrap.servers": str(address),
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "7",
        "includeHeaders": "true",
    }
    with foldlog.connect(f"kafka://{address}") as log:
        log.create_topic(topic, partitions=2)
        for expected in ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9], []):
            for offset in expected:
                for partition in range(2):
                    log.append(topic, f"v{offset}", key=f"k{offset}", partition=partition, headers={"h": b"x"})
            mine, other = (read_now(spark, name, tmp_path / name, **options) for name in ("foldlog", "kafka"))
            assert mine == other
            assert [row[4] for row in mine] == [*expected, *expected]


# --- the sink ---------------------------------------------------------------------------------------------------------


def written(broker: KafkaBroker, topic: str) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    return sorted(
        (record.key, record.value, list(record.headers))
        for partition in range(2)
        for record in broker.log.read(topic, partition)
    )


def test_sparks_sink_writes_batches_and_streams_to_our_broker(
    spark: SparkSession, ours: KafkaBroker, tmp_path: Path
) -> None:
    """With the producer that it has unless told: an idempotent one."""
    ours.create_topic("connector-sink", 2)
    to_us = {"kafka.bootstrap.servers": str(ours), "topic": "connector-sink"}
    rows = spark.createDataFrame(
        [(b"k%d" % number, b"v%d" % number, [("h", b"x")]) for number in range(40)],
        "key binary, value binary, headers array<struct<key:string,value:binary>>",
    )
    rows.write.format("kafka").options(**to_us, includeHeaders="true").save()
    batch = [(b"k%d" % number, b"v%d" % number, [("h", b"x")]) for number in range(40)]
    assert written(ours, "connector-sink") == sorted(batch)
    sink = broker_of(ours.log).partition("connector-sink", 0)
    assert isinstance(sink, Partition)
    assert sink.producers_info()
    stream = spark.readStream.format("kafka").options(
        **{"kafka.bootstrap.servers": str(ours), "subscribe": ORDERS, "startingOffsets": "earliest"}
    )
    query = stream.load().selectExpr("key", "value", "'connector-echo' AS topic").writeStream.format("kafka")
    ours.create_topic("connector-echo", 2)
    query = query.option("kafka.bootstrap.servers", str(ours)).option("checkpointLocation", str(tmp_path / "echo"))
    query.trigger(availableNow=True).start().awaitTermination()
    orders = [(record.key, record.value) for partition in (0, 1) for record in ours.log.read(ORDERS, partition)]
    echoed = [
        (record.key, record.value) for partition in (0, 1) for record in ours.log.read("connector-echo", partition)
    ]
    order: Callable[[tuple[bytes | None, bytes | None]], str] = repr
    assert sorted(echoed, key=order) == sorted(orders, key=order)
