"""What Apache Kafka's logs hold that ours never do, or do otherwise: transactions, offsets that are no record's, holes
that its cleaner leaves, partitions that were emptied, groups of the newer protocol.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from clusters.apache_kafka import ApacheKafka
from confluent_kafka import Producer as StockProducer

import foldlog
from client.log_places import IN_A_HURRY, WAIT_MS, polled
from foldlog import errors

_numbers = itertools.count()


@pytest.fixture(scope="module")
def log(apache_kafka: ApacheKafka) -> Iterator[foldlog.Log]:
    with foldlog.connect(apache_kafka.url, properties=IN_A_HURRY) as connected:
        yield connected


@pytest.fixture(scope="module")
def committed_log(apache_kafka: ApacheKafka) -> Iterator[foldlog.Log]:
    """A log that shows committed transactions only."""
    properties = {**IN_A_HURRY, "isolation.level": "read_committed"}
    with foldlog.connect(apache_kafka.url, properties=properties) as connected:
        yield connected


@pytest.fixture(scope="module")
def newer_log(apache_kafka: ApacheKafka) -> Iterator[foldlog.Log]:
    """A log whose consumers speak the protocol of KIP-848, in which the brokers share out partitions."""
    with foldlog.connect(apache_kafka.url, properties={"group.protocol": "consumer"}) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"logs-{next(_numbers)}-{uuid.uuid4().hex[:8]}"


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_MS / 1000
    while not is_so():
        assert time.monotonic() < deadline_s, f"{what} never came to be"


def offsets_of(records: Iterator[foldlog.Record]) -> list[int]:
    return [record.offset for record in records]


# --- transactions -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def transactions(apache_kafka: ApacheKafka, log: foldlog.Log) -> str:
    """0, 1, 2 are committed, and 3 says so; 4 and 5 are aborted, and 6 says so, where the log ends."""
    topic = f"transactions-{uuid.uuid4().hex[:8]}"
    log.create_topic(topic)
    producer = StockProducer({"bootstrap.servers": apache_kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(3):
        producer.produce(topic, b"%d" % number, key=b"k", partition=0)
    producer.commit_transaction()
    producer.begin_transaction()
    for number in (4, 5):
        producer.produce(topic, b"%d" % number, key=b"k", partition=0)
    producer.flush()
    producer.abort_transaction()
    wait_until(lambda: log.offsets(topic) == {0: (0, 7)}, "the end of the second transaction")
    return topic


def test_a_read_passes_what_is_no_record_and_ends(log: foldlog.Log, transactions: str) -> None:
    """Also where nothing but such an offset is left between where it begins and where it stops."""
    assert offsets_of(log.read(transactions)) == [0, 1, 2, 4, 5]
    assert offsets_of(log.read(transactions, start=2, stop=4)) == [2]
    assert offsets_of(log.read(transactions, start=3, stop=5)) == [4]
    assert offsets_of(log.read(transactions, start=3, stop=4)) == []
    assert offsets_of(log.read(transactions, start=6)) == []
    assert offsets_of(log.read(transactions, start=5, stop=7, follow=True, timeout_ms=WAIT_MS)) == [5]


def test_who_reads_what_is_committed_does_not_see_what_was_aborted(
    committed_log: foldlog.Log, transactions: str
) -> None:
    assert committed_log.offsets(transactions) == {0: (0, 7)}
    assert offsets_of(committed_log.read(transactions)) == [0, 1, 2]
    assert offsets_of(committed_log.read(transactions, start=4)) == []
    assert committed_log.read_arrow(transactions).column("offset").to_pylist() == [0, 1, 2]


def test_a_table_has_the_records_and_nothing_else(log: foldlog.Log, transactions: str) -> None:
    assert log.read_arrow(transactions).column("offset").to_pylist() == [0, 1, 2, 4, 5]
    assert log.read_arrow(transactions, 3, 4).num_rows == 0
    assert log.read_arrow(transactions, 6).num_rows == 0
    assert log.read_arrow(transactions, 2, 5).column("value").to_pylist() == [b"2", b"4"]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_group_has_no_lag_at_the_end_although_the_last_offset_is_no_record(
    log: foldlog.Log, committed_log: foldlog.Log, transactions: str, isolation: str
) -> None:
    reading = committed_log if isolation == "read_committed" else log
    expected = [0, 1, 2] if isolation == "read_committed" else [0, 1, 2, 4, 5]
    group = f"{isolation}-of-{transactions}"
    with reading.consumer([transactions], group, auto_offset_reset="earliest") as consumer:
        assert [record.offset for record in polled(consumer, len(expected))] == expected

        def is_at_end() -> bool:
            assert consumer.poll(timeout_ms=20) == []
            return consumer.position(transactions, 0) == 7

        wait_until(is_at_end, "the end of the partition")
        consumer.commit()
    assert reading.lag(group) == {(transactions, 0): 0}


def test_an_open_transaction_is_where_committed_reading_ends(
    apache_kafka: ApacheKafka, log: foldlog.Log, committed_log: foldlog.Log, topic: str
) -> None:
    log.create_topic(topic)
    log.append(topic, "before")
    producer = StockProducer({"bootstrap.servers": apache_kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(WAIT_MS / 1000) == 0
    assert log.offsets(topic) == {0: (0, 2)}
    assert committed_log.offsets(topic) == {0: (0, 1)}
    assert [record.value for record in committed_log.read(topic)] == [b"before"]
    assert committed_log.read_arrow(topic).num_rows == 1
    assert [record.value for record in log.read(topic)] == [b"before", b"open"]
    producer.commit_transaction()
    wait_until(lambda: committed_log.offsets(topic) == {0: (0, 3)}, "the end of the transaction")
    assert [record.value for record in committed_log.read(topic)] == [b"before", b"open"]


# --- what Kafka deletes -----------------------------------------------------------------------------------------------


def test_holes_that_the_cleaner_left_are_passed(log: foldlog.Log, topic: str) -> None:
    """Each key is written again and again, and a tombstone for one is cleaned away, too."""
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": 0.001,
        "delete.retention.ms": 0,
        "segment.ms": 1,
        "min.compaction.lag.ms": 0,
    }
    log.create_topic(topic, config=config)
    for number in range(12):
        log.append(topic, str(number), key=f"k{number % 3}")
    log.append(topic, None, key="k0")
    left: list[int] = []

    def is_cleaned() -> bool:
        nonlocal left
        log.append(topic, "later", key="last")  # what is written last is in no segment that is cleaned
        left = [record.offset for record in log.read(topic) if record.key != b"last"]
        return left == [10, 11]

    wait_until(is_cleaned, "the cleaner's work")
    (start, end) = log.offsets(topic)[0]
    assert start == 0
    assert offsets_of(log.read(topic, start=1, stop=10)) == []
    assert offsets_of(log.read(topic, start=5, stop=11)) == [10]
    assert offsets_of(log.read(topic, start=3, max_records=2)) == [10, 11]
    assert log.read_arrow(topic, 0, 11).column("offset").to_pylist() == [10]
    with log.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek(topic, 0, 4)
        assert [record.offset for record in polled(consumer, 2)][:2] == [10, 11]
        assert 12 <= consumer.position(topic, 0) <= end


def test_a_partition_that_was_emptied_is_read_as_empty_and_goes_on(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic)
    for number in range(3):
        log.append(topic, str(number))
    log.delete_records(topic, {0: "end"})
    assert log.offsets(topic) == {0: (3, 3)}
    assert list(log.read(topic)) == []
    assert log.read_arrow(topic).num_rows == 0
    assert log.offsets_at(topic, 0) == {0: None}
    assert log.offsets_at(topic, -1) == {0: None}
    for start in (0, 4):
        with pytest.raises(errors.OffsetOutOfRange):
            log.read(topic, start=start)
        with pytest.raises(errors.OffsetOutOfRange):
            log.read_arrow(topic, start)
    with log.consumer([topic], auto_offset_reset="earliest") as consumer:
        assert consumer.position(topic, 0) == 3
        log.append(topic, "3")
        assert [record.offset for record in polled(consumer, 1)] == [3]


def test_a_topic_that_is_made_again_at_once_is_another_one(log: foldlog.Log, topic: str) -> None:
    first = log.create_topic(topic, partitions=3)
    log.append(topic, "old", key="k")
    log.delete_topic(topic)
    second = log.create_topic(topic)
    assert (second.partition_count, log.offsets(topic)) == (1, {0: (0, 0)})
    assert first.topic_id != second.topic_id
    assert log.append(topic, "new", key="k").offset == 0
    assert [record.value for record in log.read(topic)] == [b"new"]


# --- groups of the newer protocol -------------------------------------------------------------------------------------


def test_a_group_of_the_newer_protocol_is_shared_described_and_goes_on(newer_log: foldlog.Log, topic: str) -> None:
    log, group = newer_log, f"group-of-{topic}"
    log.create_topic(topic, partitions=2)
    for number in range(2):
        log.append(topic, str(number), partition=number)
    with log.consumer([topic], group, auto_offset_reset="earliest") as first:
        assert sorted(record.value or b"" for record in polled(first, 2)) == [b"0", b"1"]
        first.commit()
        with log.consumer([topic], group, auto_offset_reset="earliest") as second:

            def is_shared() -> bool:
                assert first.poll(timeout_ms=20) == second.poll(timeout_ms=20) == []
                return len(first.assignment()) == len(second.assignment()) == 1

            wait_until(is_shared, "a fair share")
            wait_until(lambda: log.describe_group(group).state == "Stable", "a stable group")
            described = log.describe_group(group)
            assert len(described.members) == 2
            shares = sorted(partition for member in described.members for partition in member.assignment)
            assert shares == [(topic, 0), (topic, 1)]
            with pytest.raises(errors.GroupNotEmpty) as caught:
                log.reset_group(group, {(topic, 0): "start"})
            assert sorted(caught.value.members) == sorted(member.name for member in described.members)
            log.reset_group(group, {(topic, 0): "start"}, evict=True)
            assert log.committed(group)[foldlog.TopicPartition(topic, 0)].offset == 0
            assert log.describe_group(group).members == ()
    assert group in log.groups()
    assert log.lag(group) == {(topic, 0): 1, (topic, 1): 0}
    assert log.describe_group(group).state == "Empty"
    log.reset_group(group, {(topic, 0): "end", (topic, 1): "start"})
    with log.consumer([topic], group) as consumer:
        assert [record.value for record in polled(consumer, 1)] == [b"1"]
    log.delete_group(group)
    assert group not in log.groups()
