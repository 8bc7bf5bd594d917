"""KafkaJS, the client of Node.js: what it sends is in the log, what the log has it is given, alone and in groups.

KafkaJS 2.2 runs in Node.js and is told what to do over a pipe. The broker is on real files; the other side of each test
is the same directory, embedded. Of the codecs zstd is left out, which KafkaJS has no installable package for.
"""

from __future__ import annotations

import pytest

from clients.conftest import NewTopic
from clients.foreign.kafkajs import GZIP, LZ4, SNAPPY, KafkaJs, KafkaJsError, Received, messages
from foldlog.broker.broker import Broker
from foldlog.client.log import Log
from foldlog.client.outgoing import partition_for_key
from foldlog.records.batch import Compression
from foldlog.records.loops import walk
from foldlog.wire.error_codes import ErrorCode

CODECS = {"none": 0, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4}
READ_CODECS = ("none", "gzip", "snappy")
"""Not lz4: the library's blocks have checksums, which lz4js looks for on the wrong side of a block."""

NOON_MS = 1_760_000_000_000
VALUES = [b"the same words again and again %d" % number for number in range(200)]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_arrives_as_it_was_sent_and_is_read_again(
    kafkajs: KafkaJs, broker: Broker, log: Log, topic: str, group: str, codec: str
) -> None:
    (sent,) = kafkajs.producer().call(
        "send", {"topic": topic, "messages": messages(VALUES), "compression": CODECS[codec]}
    )
    assert (sent["topicName"], sent["partition"], sent["errorCode"], sent["baseOffset"]) == (topic, 0, 0, "0")
    assert [record.value for record in log.read(topic)] == VALUES
    batches = walk(broker.partition(topic, 0).read(0).data).headers
    assert {batch.compression for batch in batches} == {Compression.named(codec)}
    assert [record.value for record in kafkajs.consumer(group, topic).take(200)] == VALUES


def test_what_was_acknowledged_without_the_disk_is_found_at_once(kafkajs: KafkaJs, topic: str) -> None:
    producer, admin = kafkajs.producer(), kafkajs.admin()
    for number in range(100):
        (sent,) = producer.call("send", {"topic": topic, "messages": messages([b"paid"]), "acks": 1})
        assert sent["baseOffset"] == str(number)
        (found,) = admin.call("fetchTopicOffsets", topic)
        assert found["high"] == str(number + 1)


@pytest.mark.parametrize("codec", READ_CODECS)
def test_what_the_library_compressed_is_read(kafkajs: KafkaJs, log: Log, topic: str, group: str, codec: str) -> None:
    with log.producer(compression=codec) as producer:
        for value in VALUES:
            producer.send(topic, value)
    assert [record.value for record in kafkajs.consumer(group, topic).take(200)] == VALUES


def test_keys_headers_nulls_and_times_arrive_as_they_are(kafkajs: KafkaJs, log: Log, topic: str) -> None:
    sent = [
        {"key": b"order-1", "value": b"paid", "timestamp": str(NOON_MS), "headers": {"trace": b"1"}},
        {"key": b"order-1", "value": None, "timestamp": str(NOON_MS + 5)},
        {"key": None, "value": b"", "timestamp": str(NOON_MS - 5), "headers": {"trace": [b"1", b"2"], "empty": b""}},
        {"key": b"", "value": b"\x00\xff", "timestamp": str(NOON_MS)},
    ]
    kafkajs.producer().call("send", {"topic": topic, "messages": sent})
    found = [(record.key, record.value, record.timestamp_ms, record.headers) for record in log.read(topic)]
    assert found == [
        (b"order-1", b"paid", NOON_MS, (("trace", b"1"),)),
        (b"order-1", None, NOON_MS + 5, ()),
        (None, b"", NOON_MS - 5, (("trace", b"1"), ("trace", b"2"), ("empty", b""))),
        (b"", b"\x00\xff", NOON_MS, ()),
    ]


def test_keys_headers_nulls_and_times_are_read_as_they_are(kafkajs: KafkaJs, log: Log, topic: str, group: str) -> None:
    headers = [("trace", b"1"), ("trace", b"2"), ("one", b"\xff")]
    log.append(topic, b"paid", b"order-1", headers=headers, timestamp_ms=NOON_MS)
    log.append(topic, None, b"order-1", timestamp_ms=NOON_MS + 1)
    log.append(topic, b"", None, timestamp_ms=NOON_MS - 1)
    assert kafkajs.consumer(group, topic).take(3) == [
        Received(topic, 0, 0, NOON_MS, b"order-1", b"paid", {"trace": [b"1", b"2"], "one": b"\xff"}),
        Received(topic, 0, 1, NOON_MS + 1, b"order-1", None, {}),
        Received(topic, 0, 2, NOON_MS - 1, None, b"", {}),
    ]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_kind_of_acknowledgement_gets_the_records_there(
    kafkajs: KafkaJs, log: Log, topic: str, acks: int
) -> None:
    kafkajs.producer().call("send", {"topic": topic, "messages": messages(VALUES), "acks": acks})
    follow = log.read(topic, max_records=len(VALUES), follow=True, timeout_ms=60_000)
    assert [record.value for record in follow] == VALUES


def test_keys_go_where_java_clients_and_the_library_send_them(kafkajs: KafkaJs, log: Log, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=7)
    keys = [b"tx_%03d" % number for number in range(100)]
    kafkajs.producer().call("send", {"topic": topic, "messages": [{"key": key, "value": b"wire"} for key in keys]})
    found = {record.key: number for number in range(7) for record in log.read(topic, number)}
    assert found == {key: partition_for_key(key, 7) for key in keys}


def test_one_request_writes_to_many_topics(kafkajs: KafkaJs, log: Log, new_topic: NewTopic) -> None:
    topics = [new_topic(partitions=2) for _ in range(3)]
    batch = [{"topic": topic, "messages": [{"value": topic.encode(), "partition": 1}]} for topic in topics]
    sent = kafkajs.producer().call("sendBatch", {"topicMessages": batch})
    assert sorted((one["topicName"], one["partition"]) for one in sent) == sorted((topic, 1) for topic in topics)
    for topic in topics:
        assert log.offsets(topic) == {0: (0, 0), 1: (0, 1)}
        assert [record.value for record in log.read(topic, 1)] == [topic.encode()]


def test_an_idempotent_producer_numbers_its_batches(kafkajs: KafkaJs, broker: Broker, topic: str) -> None:
    producer = kafkajs.producer(idempotent=True)
    assert producer.call("isIdempotent") is True
    for value in VALUES[:20]:
        producer.call("send", {"topic": topic, "messages": messages([value, value])})
    batches = walk(broker.partition(topic, 0).read(0).data).headers
    assert len({batch.producer_id for batch in batches}) == 1
    assert batches[0].producer_id >= 0
    assert [batch.base_sequence for batch in batches] == list(range(0, 40, 2))


def test_a_record_that_is_too_large_is_refused_with_kafkas_error(
    kafkajs: KafkaJs, log: Log, new_topic: NewTopic
) -> None:
    topic = new_topic(max_message_bytes=1000)
    producer = kafkajs.producer()
    with pytest.raises(KafkaJsError) as refusal:
        producer.call("send", {"topic": topic, "messages": messages([bytes(1000)])})
    assert (refusal.value.kind, refusal.value.code) == ("MESSAGE_TOO_LARGE", ErrorCode.MESSAGE_TOO_LARGE)
    producer.call("send", {"topic": topic, "messages": messages([b"small"])})
    assert [record.value for record in log.read(topic)] == [b"small"]


def test_a_topic_that_is_not_there_is_made_by_the_first_record(kafkajs: KafkaJs, log: Log) -> None:
    producer = kafkajs.producer(allowAutoTopicCreation=True)
    producer.call("send", {"topic": "made-by-kafkajs", "messages": messages([b"first"])})
    assert [record.value for record in log.read("made-by-kafkajs")] == [b"first"]


def test_a_transaction_is_committed_or_aborted(kafkajs: KafkaJs, log: Log, topic: str, group: str) -> None:
    producer = kafkajs.producer(transactionalId=topic, idempotent=True, maxInFlightRequests=1)
    for number, end in enumerate(["commit", "abort", "commit"]):
        transaction = producer.transaction(f"{topic}-{number}")
        transaction.call("send", {"topic": topic, "messages": [{"value": end}]})
        offsets = [{"topic": topic, "partitions": [{"partition": 0, "offset": str(number)}]}]
        transaction.call("sendOffsets", {"consumerGroupId": group, "topics": offsets})
        transaction.call(end)
    consumer = kafkajs.consumer(f"{group}-reads", topic)
    assert [record.value for record in consumer.take(2)] == [b"commit", b"commit"]
    assert [committed.offset for committed in log.committed(group).values()] == [2]


def test_a_consumer_seeks_and_reads_on_from_there(kafkajs: KafkaJs, log: Log, topic: str, group: str) -> None:
    for number in range(10):
        log.append(topic, b"%d" % number, timestamp_ms=NOON_MS + 1000 * number)
    consumer = kafkajs.consumer(group, topic)
    assert [record.offset for record in consumer.take(10)] == list(range(10))
    consumer.call("seek", {"topic": topic, "partition": 0, "offset": "7"})
    assert [record.offset for record in consumer.take(3)] == [7, 8, 9]
    found = kafkajs.admin().call("fetchTopicOffsetsByTimestamp", topic, NOON_MS + 4500)
    assert found == [{"partition": 0, "offset": "5"}]
    consumer.call("seek", {"topic": topic, "partition": 0, "offset": found[0]["offset"]})
    assert [record.offset for record in consumer.take(5)] == [5, 6, 7, 8, 9]


def test_a_consumer_that_starts_at_the_end_gets_what_comes_later(
    kafkajs: KafkaJs, log: Log, topic: str, group: str
) -> None:
    log.append(topic, b"before")
    consumer = kafkajs.consumer(group, topic, is_from_start=False)
    # Nothing tells when it has looked up where the end is: records are sent until it is given one.
    while consumer.records.empty():
        log.append(topic, b"after")
        consumer.wait_record(0.1)
    assert consumer.take(1)[0].value == b"after"


def test_a_group_goes_on_where_it_committed(kafkajs: KafkaJs, log: Log, topic: str, group: str) -> None:
    for number in range(10):
        log.append(topic, b"%d" % number)
    first = kafkajs.consumer(group, topic, autoCommit=False)
    first.take(10)
    first.call("commitOffsets", [{"topic": topic, "partition": 0, "offset": "6", "metadata": "six"}])
    first.disconnect()
    (found,) = kafkajs.admin().call("fetchOffsets", {"groupId": group, "topics": [topic]})
    assert found["partitions"] == [{"partition": 0, "offset": "6", "metadata": "six"}]
    second = kafkajs.consumer(group, topic)
    assert [record.offset for record in second.take(4)] == [6, 7, 8, 9]


def test_what_was_read_is_committed_by_itself(kafkajs: KafkaJs, log: Log, topic: str, group: str) -> None:
    for number in range(10):
        log.append(topic, b"%d" % number)
    consumer = kafkajs.consumer(group, topic, autoCommitThreshold=1)
    consumer.take(10)
    consumer.disconnect()
    (found,) = kafkajs.admin().call("fetchOffsets", {"groupId": group, "topics": [topic]})
    assert found["partitions"] == [{"partition": 0, "offset": "10", "metadata": None}]


def test_two_members_share_a_topic_and_one_takes_over_when_the_other_leaves(
    kafkajs: KafkaJs, log: Log, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=4)
    first = kafkajs.consumer(group, topic, autoCommitThreshold=1)
    first.wait_assigned(topic, 4)
    second = kafkajs.consumer(group, topic, autoCommitThreshold=1)
    second.wait_assigned(topic, 2)
    first.wait_assigned(topic, 2)
    for number in range(4):
        log.append(topic, b"shared", partition=number)
    of_first = {record.partition for record in first.take(2)}
    of_second = {record.partition for record in second.take(2)}
    assert of_first | of_second == {0, 1, 2, 3}
    second.disconnect()
    first.wait_assigned(topic, 4)
    for number in range(4):
        log.append(topic, b"alone", partition=number)
    taken = first.take(4)
    assert {record.partition for record in taken} == {0, 1, 2, 3}
    assert {record.value for record in taken} == {b"alone"}, "what the other had read and committed is not read again"
