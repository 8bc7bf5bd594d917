"""kcat, as people use it in a shell: what it sends is in the log, what it prints is what the log has.

kcat 1.7 has a librdkafka that is years older than the one of the Python tests, and asks with older versions. It runs
as a process against a broker on real files; the other side of each test is the same directory, embedded.
"""

from __future__ import annotations

import pytest

from clients.conftest import NewTopic
from clients.foreign.kcat import Kcat, Printed
from foldlog.broker.broker import Broker
from foldlog.client.log import Log
from foldlog.records.batch import Compression
from foldlog.records.loops import walk
from foldlog.server.server import Server

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOON_MS = 1_760_000_000_000
VALUES = [b"the same words again and again " * 20 + b"%d" % number for number in range(200)]


def test_it_lists_the_broker_its_topics_and_their_partitions(kcat: Kcat, server: Server, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    found = kcat.metadata()
    assert found["brokers"] == [{"id": 1, "name": server.bootstrap}]
    assert found["controllerid"] == 1
    (listed,) = [one for one in found["topics"] if one["topic"] == topic]
    assert listed["partitions"] == [
        {"partition": number, "leader": 1, "replicas": [{"id": 1}], "isrs": [{"id": 1}]} for number in range(3)
    ]
    assert kcat.metadata("-t", topic)["topics"] == [listed]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_arrives_as_it_was_sent_and_is_printed_again(
    kcat: Kcat, broker: Broker, log: Log, topic: str, codec: str
) -> None:
    kcat.produce(topic, b"\n".join(VALUES) + b"\n", "-z", codec)
    assert [record.value for record in log.read(topic)] == VALUES
    batches = walk(broker.partition(topic, 0).read(0).data).headers
    assert {batch.compression for batch in batches} == {Compression.named(codec)}
    assert [record.value for record in kcat.consume(topic)] == [value.decode() for value in VALUES]


@pytest.mark.parametrize("codec", CODECS)
def test_what_the_library_compressed_is_printed(kcat: Kcat, log: Log, topic: str, codec: str) -> None:
    with log.producer(compression=codec) as producer:
        for value in VALUES:
            producer.send(topic, value)
    assert [record.value for record in kcat.consume(topic)] == [value.decode() for value in VALUES]


def test_keys_headers_and_nulls_arrive(kcat: Kcat, log: Log, topic: str) -> None:
    lines = b"k1:v1\nk2:\n:v3\n"
    kcat.produce(topic, lines, "-K", ":", "-Z", "-H", "trace=1", "-H", "trace=2", "-H", "empty=", "-H", "nothing")
    headers = (("trace", b"1"), ("trace", b"2"), ("empty", b""), ("nothing", None))
    assert [(record.key, record.value) for record in log.read(topic)] == [
        (b"k1", b"v1"),
        (b"k2", None),
        (None, b"v3"),
    ]
    assert {record.headers for record in log.read(topic)} == {headers}


def test_keys_headers_nulls_and_times_are_printed(kcat: Kcat, log: Log, topic: str) -> None:
    log.append(topic, b"paid", b"order-1", headers=[("trace", b"1"), ("nothing", None)], timestamp_ms=NOON_MS)
    log.append(topic, None, b"order-1", timestamp_ms=NOON_MS + 1)
    log.append(topic, b"", None, timestamp_ms=NOON_MS - 1)
    assert kcat.consume(topic) == [
        Printed(0, 0, NOON_MS, "order-1", "paid", (("trace", "1"), ("nothing", None))),
        Printed(0, 1, NOON_MS + 1, "order-1", None, ()),
        Printed(0, 2, NOON_MS - 1, None, "", ()),
    ]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_gets_the_records_there(kcat: Kcat, log: Log, topic: str, acks: str) -> None:
    kcat.produce(topic, b"one\ntwo\n", "-X", f"acks={acks}")
    follow = log.read(topic, max_records=2, follow=True, timeout_ms=60_000)
    assert [record.value for record in follow] == [b"one", b"two"]


def test_a_large_record_goes_both_ways(kcat: Kcat, log: Log, topic: str) -> None:
    value = b"x" * 900_000
    kcat.produce(topic, value + b"\n")
    assert [record.value for record in log.read(topic)] == [value]
    (record,) = kcat.consume(topic)
    assert record.value == value.decode()


def test_an_idempotent_producer_numbers_its_batches(kcat: Kcat, broker: Broker, topic: str) -> None:
    kcat.produce(topic, b"\n".join(VALUES) + b"\n", "-X", "enable.idempotence=true", "-X", "batch.num.messages=10")
    batches = walk(broker.partition(topic, 0).read(0).data).headers
    assert len({batch.producer_id for batch in batches}) == 1
    assert batches[0].producer_id >= 0
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]


def test_a_topic_that_is_not_there_is_made_by_the_first_record(kcat: Kcat, log: Log) -> None:
    kcat.produce("made-by-kcat", b"first\n")
    assert [record.value for record in log.read("made-by-kcat")] == [b"first"]


def test_a_transaction_is_committed_at_the_end_of_the_input(kcat: Kcat, log: Log, topic: str) -> None:
    kcat.produce(topic, b"first\nsecond\n", "-X", "transactional.id=mine")
    found = kcat.consume(topic, "-X", "isolation.level=read_committed")
    assert [record.value for record in found] == ["first", "second"]
    assert log.offsets(topic) == {0: (0, 3)}, "and a marker"


def test_reading_starts_and_stops_where_it_is_told(kcat: Kcat, log: Log, topic: str) -> None:
    for number in range(10):
        log.append(topic, b"%d" % number, timestamp_ms=NOON_MS + 1000 * number)

    def offsets(*arguments: str) -> list[int]:
        return [record.offset for record in kcat.consume(topic, "-p", "0", *arguments)]

    assert offsets("-o", "beginning") == list(range(10))
    assert offsets("-o", "7") == [7, 8, 9]
    assert offsets("-o", "-2") == [8, 9]
    assert offsets("-o", "end") == []
    assert offsets("-o", "4", "-c", "2") == [4, 5]
    assert offsets("-o", f"s@{NOON_MS + 6500}") == [7, 8, 9]
    assert offsets("-o", f"s@{NOON_MS + 2000}", "-o", f"e@{NOON_MS + 5000}") == [2, 3, 4]


def test_it_asks_for_the_offset_of_a_time(kcat: Kcat, log: Log, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    for number in range(10):
        log.append(topic, b"%d" % number, timestamp_ms=NOON_MS + 1000 * number, partition=number % 2)
    found = kcat.run("-Q", "-t", f"{topic}:0:{NOON_MS + 3000}", "-t", f"{topic}:1:{NOON_MS + 3000}")
    assert sorted(found.splitlines()) == [f"{topic} [0] offset 2", f"{topic} [1] offset 1"]
    later = NOON_MS + 60_000
    assert kcat.run("-Q", "-t", f"{topic}:0:{later}").strip() == f"{topic} [0] offset -1"


def test_a_group_goes_on_where_it_stopped(kcat: Kcat, log: Log, topic: str, group: str) -> None:
    for number in range(10):
        log.append(topic, b"%d" % number)
    assert [record.offset for record in kcat.take(group, topic, 4)] == [0, 1, 2, 3]
    assert [record.offset for record in kcat.take(group, topic, 6)] == [4, 5, 6, 7, 8, 9]


def test_two_members_share_a_topic_and_one_takes_over_when_the_other_leaves(
    kcat: Kcat, log: Log, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=4)
    first = kcat.join(group, topic)
    first.wait_assigned(4)
    second = kcat.join(group, topic)
    second.wait_assigned(2)
    first.wait_assigned(2)
    for number in range(4):
        log.append(topic, b"shared", partition=number)
    of_first = {first.next_record().partition for _ in range(2)}
    of_second = {second.next_record().partition for _ in range(2)}
    assert of_first | of_second == {0, 1, 2, 3}
    second.end()
    first.wait_assigned(4)
    for number in range(4):
        log.append(topic, b"alone", partition=number)
    taken = [first.next_record() for _ in range(4)]
    assert {record.partition for record in taken} == {0, 1, 2, 3}
    assert {record.value for record in taken} == {"alone"}, "what the other had read and committed is not read again"
