"""One API, wherever the log is: the same calls give the same values and the same errors in a directory that this
process writes, in one that another process serves, and on a Kafka cluster.

Every test runs in every place of `log_places.PLACES`, over real files and real sockets. Where places cannot agree, the
row is in docs/clusters.md, and the test is of what they share.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest

import foldlog
from client.log_places import PLACES, WAIT_MS, polled
from foldlog import errors
from foldlog.client.backends.directory import is_directory
from foldlog.client.log import DEFAULT_COLUMNS

_numbers = itertools.count()

FOR_EVER = {"retention.ms": -1}
"""For records of 1970, which a broker may find expired at any moment."""


@pytest.fixture(scope="module", params=PLACES)
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[foldlog.Log]:
    """One log for all tests of a place: what they share is its broker, and nothing in it."""
    with PLACES[request.param](tmp_path_factory.mktemp(request.param)) as opened:
        yield opened


@pytest.fixture
def topic() -> str:
    return f"orders-{next(_numbers)}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def kept_by_default() -> str:
    """What retention.ms is where nobody sets it."""
    return "-1"


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


def committed(log: foldlog.Log, group: str, topic: str) -> int:
    """What the group committed in partition 0."""
    return log.committed(group)[foldlog.TopicPartition(topic, 0)].offset


def filled(log: foldlog.Log, topic: str, count: int, partitions: int = 1) -> None:
    """A topic with `count` records "0", "1", … in partition 0, a second apart, and long ago."""
    log.create_topic(topic, partitions, config=FOR_EVER)
    with log.producer() as producer:
        for number in range(count):
            producer.send(topic, str(number), partition=0, timestamp_ms=1000 * (number + 1))


# --- topics -----------------------------------------------------------------------------------------------------------


def test_a_topic_is_made_described_grown_and_deleted(log: foldlog.Log, topic: str) -> None:
    made = log.create_topic(topic, partitions=2, config={"retention.ms": 86_400_000, "cleanup.policy": ["delete"]})
    assert (made.name, made.partition_count, made.config.log.retention_ms) == (topic, 2, 86_400_000)
    assert made.config.settings == {"retention.ms": "86400000", "cleanup.policy": "delete"}
    assert topic in log.topics()
    assert log.grow_topic(topic, 3).partition_count == 3
    assert log.topic(topic).topic_id == made.topic_id
    assert len(made.topic_id) == 32
    log.delete_topic(topic)
    assert topic not in log.topics()


def test_settings_tell_their_values_and_who_set_them(log: foldlog.Log, topic: str, kept_by_default: str) -> None:
    log.create_topic(topic, config={"retention.ms": 1000})
    assert log.topic_config(topic)["retention.ms"] == foldlog.ConfigEntry("1000", is_default=False)
    assert log.topic_config(topic)["index.interval.bytes"] == foldlog.ConfigEntry("4096", is_default=True)
    log.alter_topic(topic, {"retention.ms": None, "segment.bytes": 1 << 20})
    config = log.topic_config(topic)
    assert config["retention.ms"] == foldlog.ConfigEntry(kept_by_default, is_default=True)
    assert config["segment.bytes"] == foldlog.ConfigEntry("1048576", is_default=False)


def test_a_topic_that_is_there_is_not_made_again(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic)
    with pytest.raises(errors.TopicExists) as caught:
        log.create_topic(topic)
    assert caught.value.topic == topic


def test_a_topic_that_is_not_there_is_named_with_those_that_are(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic)
    missing = f"no-{topic}"
    calls: list[Callable[[], object]] = [
        lambda: log.topic(missing),
        lambda: log.topic_config(missing),
        lambda: log.offsets(missing),
        lambda: log.offsets_at(missing, 0),
        lambda: log.read(missing),
        lambda: log.append(missing, "x"),
        lambda: log.consumer([missing]),
        lambda: log.delete_topic(missing),
        lambda: log.grow_topic(missing, 3),
        lambda: log.alter_topic(missing, {"retention.ms": 1}),
        lambda: log.delete_records(missing, {0: "end"}),
        lambda: log.reset_group("nobody", {(missing, 0): "start"}),
    ]
    for call in calls:
        with pytest.raises(errors.UnknownTopic, match=missing):
            call()
    with pytest.raises(errors.UnknownTopic) as caught:
        log.topic(missing)
    assert topic in caught.value.known


def test_a_partition_that_is_not_there_is_named(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic, partitions=2)
    calls: list[Callable[[], object]] = [
        lambda: log.append(topic, "x", partition=2),
        lambda: log.read(topic, 2),
        lambda: log.consumer().assign([(topic, 2)]),
        lambda: log.delete_records(topic, {2: "end"}),
        lambda: log.reset_group("nobody", {(topic, 2): "start"}),
    ]
    for call in calls:
        with pytest.raises(errors.UnknownPartition, match="has no partition 2; it has 0 to 1"):
            call()
    with pytest.raises(errors.InvalidArgument, match="has 2 partitions; say which"):
        log.read(topic)


@pytest.mark.parametrize("name", ["", ".", "a b", "x" * 250, "__consumer_offsets"])
def test_names_that_no_topic_can_have_are_refused(log: foldlog.Log, name: str) -> None:
    with pytest.raises(errors.InvalidTopicName):
        log.create_topic(name)


def test_settings_that_cannot_be_are_refused_and_nothing_is_made(log: foldlog.Log, topic: str) -> None:
    with pytest.raises(errors.InvalidConfig):
        log.create_topic(topic, config={"retention.ms": "soon"})
    with pytest.raises(errors.InvalidConfig):
        log.create_topic(topic, config={"no.such.setting": 1})
    with pytest.raises(errors.InvalidArgument):
        log.create_topic(topic, partitions=0)
    assert topic not in log.topics()
    log.create_topic(topic, partitions=2)
    with pytest.raises(errors.InvalidArgument):
        log.grow_topic(topic, 2)
    with pytest.raises(errors.InvalidConfig):
        log.alter_topic(topic, {"retention.ms": "soon"})


def test_the_topic_that_the_log_keeps_for_groups_is_left_alone(log: foldlog.Log, topic: str, group: str) -> None:
    """Without it every group begins anew, so nobody is told to do it: not a directory, and not Apache Kafka, which
    would."""
    filled(log, topic, 3)
    log.reset_group(group, {(topic, 0): 2})
    changes: list[tuple[Callable[[str], object], str]] = [
        (log.delete_topic, "it cannot be deleted"),
        (lambda name: log.grow_topic(name, 60), "with more partitions it would lose what it keeps"),
        (lambda name: log.alter_topic(name, {"retention.ms": 1}), "with other settings it could lose what it keeps"),
        (lambda name: log.delete_records(name, {0: "end"}), "its records cannot be deleted; move a group with reset_"),
    ]
    for change, why in changes:
        with pytest.raises(errors.InvalidTopicName, match=f"^topic '__consumer_offsets' is made and kept by .*; {why}"):
            change("__consumer_offsets")
    assert committed(log, group, topic) == 2


# --- writing ----------------------------------------------------------------------------------------------------------


def test_what_is_appended_is_read_back_whole(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic, config=FOR_EVER)
    sent = log.append(topic, {"n": 1}, key="k", headers=[("a", b"1"), ("a", None), ("b", "x")], timestamp_ms=5)
    assert sent == foldlog.RecordMetadata(topic, 0, 0, 5)
    log.append(topic, None, key=b"k", timestamp_ms=6)
    first, second = log.read(topic)
    assert (first.topic, first.partition, first.offset, first.timestamp_ms) == (topic, 0, 0, 5)
    assert (first.key, first.value, first.json()) == (b"k", b'{"n":1}', {"n": 1})
    assert first.headers == (("a", b"1"), ("a", None), ("b", b"x"))
    assert (first.timestamp_type, second.timestamp_type) == (0, 0)
    assert (second.key, second.value, second.headers) == (b"k", None, ())


def test_keys_go_where_java_clients_send_them(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic, partitions=3)
    with log.producer() as producer:
        sent = {key: producer.send(topic, "x", key=key).result().partition for key in ("21", "foobar", "abc")}
    # murmur2 of these keys stands in Kafka's own tests.
    hashes = {"21": -973932308, "foobar": -790332482, "abc": 479470107}
    assert sent == {key: (number & 0x7FFFFFFF) % 3 for key, number in hashes.items()}


def test_keyless_records_go_round_when_asked_and_appends_always(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic, partitions=3)
    assert {log.append(topic, "x").partition for _ in range(3)} == {0, 1, 2}
    with log.producer(partitioner="round_robin") as producer:
        assert {producer.send(topic, "x").result().partition for _ in range(3)} == {0, 1, 2}
    with log.producer(partitioner=lambda name, key, count: count - 1) as producer:
        assert producer.send(topic, "x", key="k").result().partition == 2


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_producer_keeps_order_in_every_compression(log: foldlog.Log, topic: str, compression: str) -> None:
    log.create_topic(topic)
    with log.producer(compression=compression, batch_records=10) as producer:
        futures = [producer.send(topic, str(number)) for number in range(100)]
        producer.flush()
        assert all(future.done() for future in futures)
    assert [future.result().offset for future in futures] == list(range(100))
    assert [record.value for record in log.read(topic)] == [b"%d" % number for number in range(100)]


def test_a_batch_is_checked_before_any_of_it_is_sent(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic)
    with log.producer() as producer:
        with pytest.raises(errors.SerializationError, match=r"record 1 of the batch.*nothing was sent"):
            producer.send_batch(topic, [{"value": b"a"}, {"value": object()}])
        assert [one.result().offset for one in producer.send_batch(topic, [{"value": b"a"}, {"value": b"b"}])] == [0, 1]


def test_a_record_that_is_too_large_is_refused_and_the_next_one_is_not(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic, config={"max.message.bytes": 1000})
    with pytest.raises(errors.RecordTooLarge) as caught:
        log.append(topic, b"x" * 1000)
    assert caught.value.limit_bytes == 1000
    with log.producer(linger_ms=100) as producer:
        for _ in range(50):
            producer.send(topic, b"x" * 100)
    assert log.offsets(topic) == {0: (0, 50)}


def test_a_compacted_topic_takes_no_record_without_a_key(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic, config={"cleanup.policy": "compact"})
    with pytest.raises(errors.InvalidArgument, match="is compacted: every record in it needs a key"):
        log.append(topic, "x")
    assert log.append(topic, "x", key="k").offset == 0


def test_the_brokers_time_is_told_where_the_topic_wants_it(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    sent = log.append(topic, "x", timestamp_ms=5)
    (record,) = log.read(topic)
    assert sent.timestamp_ms == record.timestamp_ms > 5
    assert record.timestamp_type == 1


@pytest.mark.parametrize(
    "arguments", [{"timestamp_ms": -1}, {"timestamp_ms": 1.5}, {"headers": {"a": 5}}, {"value": object()}]
)
def test_what_no_record_can_hold_is_refused(log: foldlog.Log, topic: str, arguments: dict[str, object]) -> None:
    log.create_topic(topic)
    with pytest.raises((errors.InvalidArgument, errors.SerializationError)):
        log.append(topic, **{"value": "x", **arguments})  # type: ignore[arg-type]
    assert log.offsets(topic) == {0: (0, 0)}


# --- reading ----------------------------------------------------------------------------------------------------------


def test_slices_begin_and_stop_where_they_are_told(log: foldlog.Log, topic: str) -> None:
    filled(log, topic, 10)

    def values(**arguments: object) -> list[int]:
        return [int(record.value) for record in log.read(topic, 0, **arguments)]  # type: ignore[arg-type]

    assert values() == list(range(10))
    assert values(start=3, stop=5) == [3, 4]
    assert values(start=3, max_records=2) == [3, 4]
    assert values(start="end") == values(start=4, stop=4) == []
    assert values(start=8, stop=100) == [8, 9]
    assert [record.value for record in log.read(topic, start=9, value_deserializer="json")] == [9]


def test_an_offset_that_the_log_does_not_hold_is_told_with_those_it_holds(log: foldlog.Log, topic: str) -> None:
    filled(log, topic, 5)
    assert log.delete_records(topic, {0: 2}) == {0: 2}
    why_gone = "deleted on request" if is_directory(log) else "expired by retention, or deleted"  # no cluster tells
    for wanted, why in ((1, why_gone), (6, "not written yet")):
        with pytest.raises(errors.OffsetOutOfRange, match=why) as caught:
            list(log.read(topic, start=wanted))
        assert (caught.value.wanted, caught.value.start, caught.value.end) == (wanted, 2, 5)
        assert (caught.value.topic, caught.value.partition) == (topic, 0)
    assert [record.offset for record in log.read(topic)] == [2, 3, 4]


def test_a_tail_begins_at_the_end_of_the_moment_and_misses_nothing(log: foldlog.Log, topic: str) -> None:
    filled(log, topic, 3)
    tail = log.read(topic, start="end", follow=True, timeout_ms=WAIT_MS, max_records=2)
    log.append(topic, "3")
    log.append(topic, "4")
    assert [record.value for record in tail] == [b"3", b"4"]
    assert list(log.read(topic, start="end", follow=True, timeout_ms=1)) == []


def test_a_tail_ends_with_its_topic(log: foldlog.Log, topic: str) -> None:
    filled(log, topic, 1)
    tail = log.read(topic, follow=True)
    assert next(tail).value == b"0"
    log.delete_topic(topic)
    with pytest.raises(errors.UnknownTopic, match=topic):
        next(tail)


def test_offsets_are_found_by_time(log: foldlog.Log, topic: str) -> None:
    filled(log, topic, 3, partitions=2)
    assert log.offsets(topic) == {0: (0, 3), 1: (0, 0)}
    assert log.offsets_at(topic, 1500) == {0: 1, 1: None}
    assert log.offsets_at(topic, -1) == {0: 0, 1: None}
    assert log.offsets_at(topic, 3001) == {0: None, 1: None}
    with pytest.raises(errors.InvalidArgument, match="is not a time"):
        log.offsets_at(topic, "now")  # type: ignore[arg-type]


def test_deleting_records_moves_the_start_for_good(log: foldlog.Log, topic: str) -> None:
    filled(log, topic, 3)
    assert log.delete_records(topic, {0: "end"}) == {0: 3}
    assert log.offsets(topic) == {0: (3, 3)}
    with pytest.raises(errors.OffsetOutOfRange):
        log.delete_records(topic, {0: 4})
    assert log.append(topic, "3").offset == 3


def test_a_table_goes_in_and_comes_out_the_same(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic, partitions=2, config=FOR_EVER)
    table = pa.table(
        {
            "key": ["a", None, "c"],
            "value": [b"1", None, b"3"],
            "partition": pa.array([1, 0, 1], pa.int32()),
            "timestamp": pa.array([1, 2, 3], pa.timestamp("ms", tz="UTC")),
            "headers": [[{"key": "h", "value": b"x"}], [], None],
        }
    )
    assert log.append_arrow(topic, table) == {0: (0, 1), 1: (0, 2)}
    found = log.read_arrow(topic)
    assert found.schema.names == list(DEFAULT_COLUMNS)
    assert found.column("partition").to_pylist() == [0, 1, 1]
    assert found.column("offset").to_pylist() == [0, 0, 1]
    assert found.column("key").to_pylist() == [None, b"a", b"c"]
    assert found.column("value").to_pylist() == [None, b"1", b"3"]
    assert found.column("headers").to_pylist() == [[], [{"key": "h", "value": b"x"}], []]
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [2, 1, 3]
    part = log.read_arrow(topic, start={1: 1}, columns=["offset"], partitions=[1])
    assert part.to_pylist() == [{"offset": 1}]
    with pytest.raises(errors.SerializationError, match="'amount' would be lost"):
        log.append_arrow(topic, pa.table({"value": ["1"], "amount": [1]}))


# --- groups -----------------------------------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_committed(log: foldlog.Log, topic: str, group: str) -> None:
    filled(log, topic, 5)
    with log.consumer([topic], group, auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert consumer.assignment() == {(topic, 0)}
        records = polled(consumer, 5)
        consumer.commit(records[1], metadata="two are done")
        assert consumer.committed(topic, 0) == foldlog.OffsetAndMetadata(2, 0, "two are done")
    assert log.committed(group) == {(topic, 0): foldlog.OffsetAndMetadata(2, 0, "two are done")}
    assert log.lag(group) == {(topic, 0): 3}
    assert group in log.groups()
    with log.consumer([topic], group) as consumer:
        assert [record.value for record in polled(consumer, 3)] == [b"2", b"3", b"4"]
    assert committed(log, group, topic) == 5


def test_what_a_consumer_works_on_is_not_committed_by_itself(log: foldlog.Log, topic: str, group: str) -> None:
    filled(log, topic, 3)
    consumer = log.consumer([topic], group, auto_offset_reset="earliest", auto_commit_interval_ms=1, max_records=1)
    with suppress(ZeroDivisionError), consumer:
        polled(consumer, 1)
        polled(consumer, 1)
        raise ZeroDivisionError
    assert committed(log, group, topic) == 1


def test_a_consumer_without_a_group_reads_all_and_commits_nothing(log: foldlog.Log, topic: str) -> None:
    filled(log, topic, 2, partitions=2)
    log.append(topic, "x", partition=1)
    with log.consumer([topic], auto_offset_reset="earliest", value_deserializer="str") as consumer:
        assert consumer.assignment() == {(topic, 0), (topic, 1)}
        assert sorted(record.value for record in polled(consumer, 3)) == ["0", "1", "x"]
        assert set(consumer.lag().values()) == {0}
        with pytest.raises(errors.InvalidArgument, match="has no group"):
            consumer.commit()


def test_a_consumer_moves_about_and_holds_back(log: foldlog.Log, topic: str) -> None:
    filled(log, topic, 5)
    with log.consumer() as consumer:
        consumer.assign([(topic, 0)])
        assert consumer.position(topic, 0) == 5
        consumer.seek(topic, 0, 3)
        assert [record.offset for record in polled(consumer, 2)] == [3, 4]
        consumer.seek_to_beginning()
        assert consumer.position(topic, 0) == 0
        assert consumer.lag() == {(topic, 0): 5}
        consumer.seek_to_time(2500, (topic, 0))
        assert [record.offset for record in polled(consumer, 3)] == [2, 3, 4]
        consumer.pause()
        log.append(topic, "5")
        assert consumer.poll(timeout_ms=100) == []
        consumer.resume((topic, 0))
        assert [record.offset for record in polled(consumer, 1)] == [5]
        consumer.seek_to_end()
        assert consumer.position(topic, 0) == 6


def test_what_is_not_assigned_cannot_be_moved_or_committed(log: foldlog.Log, topic: str, group: str) -> None:
    log.create_topic(topic, partitions=2)
    with log.consumer(group=group) as consumer:
        consumer.assign([(topic, 0)])
        for call in (
            lambda: consumer.seek(topic, 1, 0),
            lambda: consumer.position(topic, 1),
            lambda: consumer.pause((topic, 1)),
            lambda: consumer.commit({(topic, 1): 0, (topic, 0): 0}),
        ):
            with pytest.raises(errors.NotAssigned, match=f"{topic}-1"):
                call()
        with pytest.raises(errors.UnknownPartition):
            consumer.seek(topic, 2, 0)
    assert (topic, 1) not in log.committed(group)


def test_without_a_commit_and_a_reset_a_group_is_asked_where_to_begin(log: foldlog.Log, topic: str, group: str) -> None:
    filled(log, topic, 2)
    with log.consumer([topic], group, auto_offset_reset="none") as consumer:
        with pytest.raises(errors.OffsetOutOfRange, match="has committed nothing here"):
            consumer.poll(timeout_ms=WAIT_MS)
        consumer.seek(topic, 0, 1)
        assert [record.offset for record in polled(consumer, 1)] == [1]


def test_an_offset_that_expired_is_reset_or_told(log: foldlog.Log, topic: str, group: str) -> None:
    filled(log, topic, 5)
    log.reset_group(group, {(topic, 0): 1})
    log.delete_records(topic, {0: 3})
    with log.consumer([topic], group, auto_offset_reset="none") as consumer:
        with pytest.raises(errors.OffsetOutOfRange) as caught:
            consumer.poll(timeout_ms=WAIT_MS)
        assert (caught.value.wanted, caught.value.start, caught.value.end) == (1, 3, 5)
    with log.consumer([topic], group, auto_offset_reset="earliest") as consumer:
        assert [record.offset for record in polled(consumer, 2)] == [3, 4]


def test_a_bad_record_is_told_after_those_before_it_and_can_be_passed(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic)
    for value in ("1", "{", "3"):
        log.append(topic, value)
    with log.consumer([topic], auto_offset_reset="earliest", value_deserializer="json") as consumer:
        assert [record.value for record in polled(consumer, 1)] == [1]
        with pytest.raises(errors.SerializationError, match="offset 1"):
            consumer.poll(timeout_ms=WAIT_MS)
        consumer.seek(topic, 0, 2)
        assert [record.value for record in polled(consumer, 1)] == [3]


def test_a_loop_over_a_consumer_counts_one_record_at_a_time(log: foldlog.Log, topic: str, group: str) -> None:
    filled(log, topic, 3)
    with log.consumer([topic], group, auto_offset_reset="earliest") as consumer:
        for record in consumer:
            if record.offset == 1:
                break
    assert committed(log, group, topic) == 1


def test_two_members_share_a_topic_and_the_second_takes_over(log: foldlog.Log, topic: str, group: str) -> None:
    filled(log, topic, 4, partitions=2)
    log.append(topic, "x", partition=1)
    with log.consumer([topic], group, auto_offset_reset="earliest") as first:
        assert len(polled(first, 5)) == 5
        first.commit()
        with log.consumer([topic], group, auto_offset_reset="earliest") as second:
            wait_until(lambda: len(first.assignment()) == len(second.assignment()) == 1, first, second)
            assert first.assignment() | second.assignment() == {(topic, 0), (topic, 1)}
            described = log.describe_group(group)
            assert (described.group, described.state, len(described.members)) == (group, "Stable", 2)
            shares = {partition for member in described.members for partition in member.assignment}
            assert shares == {(topic, 0), (topic, 1)}
            first.close()
            wait_until(lambda: len(second.assignment()) == 2, second)
            log.append(topic, "y", partition=0)
            log.append(topic, "z", partition=1)
            assert sorted(record.value for record in polled(second, 2)) == [b"y", b"z"]


def wait_until(is_so: Callable[[], bool], *members: foldlog.Consumer) -> None:
    """Poll the members, who get nothing, until it is so: on a cluster, shares change as members poll."""
    deadline_s = time.monotonic() + WAIT_MS / 1000
    while not is_so():
        assert time.monotonic() < deadline_s, "it never came to be so"
        for member in members:
            assert member.poll(timeout_ms=20) == []


def test_partitions_that_a_topic_gains_are_read_from_their_start(log: foldlog.Log, topic: str, group: str) -> None:
    log.create_topic(topic)
    with log.consumer([topic], group) as consumer:
        log.grow_topic(topic, 2)
        log.append(topic, "first of the new one", partition=1)
        assert [record.value for record in polled(consumer, 1)] == [b"first of the new one"]
        assert consumer.assignment() == {(topic, 0), (topic, 1)}


def test_a_group_that_is_not_there_is_told(log: foldlog.Log, topic: str, group: str) -> None:
    assert log.committed(group) == {}
    assert log.lag(group) == {}
    log.create_topic(topic)
    calls: list[Callable[[], object]] = [
        lambda: log.describe_group(group),
        lambda: log.delete_group(group),
        lambda: log.delete_offsets(group, [(topic, 0)]),
    ]
    for call in calls:
        with pytest.raises(errors.UnknownGroup, match=group):
            call()
    with pytest.raises(errors.InvalidArgument, match="name is a string"):
        log.describe_group("")


def test_a_group_without_members_is_moved_and_forgotten(log: foldlog.Log, topic: str, group: str) -> None:
    filled(log, topic, 4, partitions=2)
    log.reset_group(group, {(topic, 0): 2, (topic, 1): "end"})
    assert log.lag(group) == {(topic, 0): 2, (topic, 1): 0}
    assert log.describe_group(group) == foldlog.GroupDescription(group, "Empty", "", ())
    log.reset_group(group, {(topic, 0): "start"})
    assert committed(log, group, topic) == 0
    with pytest.raises(errors.OffsetOutOfRange):
        log.reset_group(group, {(topic, 0): 5})
    log.delete_offsets(group, [(topic, 0)])
    assert set(log.committed(group)) == {(topic, 1)}
    log.delete_group(group)
    assert group not in log.groups()


def test_a_group_with_members_is_not_moved_and_they_are_named(log: foldlog.Log, topic: str, group: str) -> None:
    filled(log, topic, 3)
    with log.consumer([topic], group, auto_offset_reset="earliest") as consumer:
        polled(consumer, 3)
        consumer.commit()
        (member,) = log.describe_group(group).members
        assert member.assignment == ((topic, 0),)
        with pytest.raises(errors.GroupNotEmpty, match=member.member_id) as caught:
            log.reset_group(group, {(topic, 0): "start"})
        assert caught.value.members == [f"{member.client_id}/{member.member_id}"]
        with pytest.raises(errors.GroupNotEmpty):
            log.delete_group(group)
        with pytest.raises(errors.GroupNotEmpty):
            log.delete_offsets(group, [(topic, 0)])
        assert committed(log, group, topic) == 3


@pytest.mark.parametrize("instance", [None, "worker-1"])
def test_evicted_members_come_back_at_the_new_offsets(
    log: foldlog.Log, topic: str, group: str, instance: str | None
) -> None:
    filled(log, topic, 5)
    with log.consumer(
        [topic], group, auto_offset_reset="earliest", auto_commit_interval_ms=1, group_instance_id=instance
    ) as consumer:
        assert len(polled(consumer, 5)) == 5
        log.reset_group(group, {(topic, 0): 2}, evict=True)
        assert committed(log, group, topic) == 2
        assert [record.offset for record in polled(consumer, 3)] == [2, 3, 4]
    assert committed(log, group, topic) == 5


def test_members_of_a_group_that_was_deleted_begin_anew(log: foldlog.Log, topic: str, group: str) -> None:
    """Its generations begin anew, too: a member that is back may be in one of the same number as before."""
    filled(log, topic, 3)
    with log.consumer([topic], group, auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert len(polled(consumer, 3)) == 3
        is_deleted = False
        while not is_deleted:
            log.reset_group(group, {(topic, 0): 2}, evict=True)
            with suppress(errors.GroupNotEmpty):  # it is back already
                log.delete_group(group)
                is_deleted = True
        assert [record.offset for record in polled(consumer, 3)] == [0, 1, 2]


def test_evicting_nobody_is_moving(log: foldlog.Log, topic: str, group: str) -> None:
    filled(log, topic, 3)
    log.reset_group(group, {(topic, 0): 1}, evict=True)
    assert committed(log, group, topic) == 1


# --- ends -------------------------------------------------------------------------------------------------------------


def test_what_is_closed_says_so(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic)
    producer, consumer = log.producer(), log.consumer([topic])
    producer.close()
    consumer.close()
    producer.close()
    consumer.close()
    with pytest.raises(errors.LogClosed, match="the producer is closed"):
        producer.send(topic, "x")
    with pytest.raises(errors.LogClosed, match="the consumer is closed"):
        consumer.poll()
    assert list(consumer) == []


def test_a_waiting_poll_ends_when_another_thread_closes_the_consumer(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic)
    consumer = log.consumer([topic])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.poll, timeout_ms=None)
        consumer.close()
        assert waiting.exception(WAIT_MS / 1000) is None or isinstance(waiting.exception(), errors.LogClosed)
