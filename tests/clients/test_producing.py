"""What a client sends is in the log as it sent it: every codec, every kind of key, value, header, time and size.

Each behaviour is written once and run with confluent-kafka, kafka-python and aiokafka, over TCP, against a broker on
real files. What arrived is read back from the log itself, not through the client that sent it.
"""

from __future__ import annotations

import pytest

from clients.any_client import BOUND_S, AnyClient, Outgoing, Refused, Sent
from clients.conftest import NewTopic
from foldlog.broker.broker import Broker
from foldlog.client.backends.directory import broker_of
from foldlog.client.log import Log
from foldlog.client.outgoing import partition_for_key
from foldlog.records.batch import Compression, TimestampType
from foldlog.records.loops import walk
from foldlog.wire.error_codes import ErrorCode

NOON_MS = 1_760_000_000_000
MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes."""
ONE_RECORD_BYTES = 72
"""What a batch adds to the one value of a megabyte in it: the header of 61, and lengths and counts of the record."""


@pytest.mark.parametrize("codec", AnyClient.codecs)
def test_every_codec_arrives_and_stays_as_it_was_sent(
    client: AnyClient, broker: Broker, log: Log, topic: str, codec: str
) -> None:
    values = [b"the same words again and again %d" % number for number in range(200)]
    sent = client.producer(codec=codec, linger_ms=20).send(topic, [Outgoing(value) for value in values])
    assert [one.offset for one in sent] == list(range(200))
    assert [record.value for record in log.read(topic)] == values
    # The broker writes batches as they come, so the log has the client's compression.
    batches = walk(broker.partition(topic, 0).read(0).data).headers
    assert {batch.compression for batch in batches} == {Compression.named(codec)}


def test_keys_values_and_headers_arrive_as_they_are_null_empty_or_repeated(
    client: AnyClient, log: Log, topic: str
) -> None:
    records = [
        Outgoing(b"value", b"key"),
        Outgoing(b"value", None),
        Outgoing(b"", b"key"),
        Outgoing(b"value", b""),
        Outgoing(None, b"key"),
        Outgoing(b"\x00\xff", b"\xff\x00"),
        Outgoing(b"value", None, (("trace", b"1"), ("empty", b""), ("trace", b"2"), ("schlüssel", b"\x00\xff"))),
    ]
    if client.has_null_headers:
        records.append(Outgoing(b"value", None, (("nothing", None),)))
    client.producer().send(topic, records)
    found = [Outgoing(record.value, record.key, record.headers) for record in log.read(topic)]
    assert found == records


def test_times_are_kept_in_any_order(client: AnyClient, log: Log, topic: str) -> None:
    times_ms = [NOON_MS, NOON_MS + 5000, NOON_MS - 86_400_000, 1]
    client.producer().send(topic, [Outgoing(b"value", timestamp_ms=time_ms) for time_ms in times_ms])
    assert [record.timestamp_ms for record in log.read(topic)] == times_ms


def test_a_topic_of_append_time_has_the_brokers_time(client: AnyClient, log: Log, new_topic: NewTopic) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before_ms = broker_of(log).clock.now_ms()
    client.producer().send(topic, [Outgoing(b"value", timestamp_ms=NOON_MS)])
    (record,) = log.read(topic)
    assert record.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert before_ms <= record.timestamp_ms <= broker_of(log).clock.now_ms()


def test_a_record_as_large_as_is_allowed_is_written_and_one_byte_more_is_refused(
    client: AnyClient, log: Log, topic: str
) -> None:
    producer = client.producer()
    largest = bytes(MAX_MESSAGE_BYTES - ONE_RECORD_BYTES)
    assert producer.send(topic, [Outgoing(largest)]) == [Sent(0, 0)]
    with pytest.raises(Refused) as refusal:
        producer.send(topic, [Outgoing(largest + b"1")])
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert producer.send(topic, [Outgoing(b"small")]) == [Sent(0, 1)]
    assert [record.value for record in log.read(topic)] == [largest, b"small"]


def test_a_topic_has_a_bound_of_its_own(client: AnyClient, log: Log, new_topic: NewTopic) -> None:
    large, small = new_topic(max_message_bytes=3_000_000), new_topic(max_message_bytes=1000)
    producer = client.producer()
    producer.send(large, [Outgoing(bytes(2_000_000))])
    assert [len(record.value) for record in log.read(large)] == [2_000_000]
    with pytest.raises(Refused) as refusal:
        producer.send(small, [Outgoing(bytes(1000))])
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_keys_go_where_java_clients_and_the_library_send_them(client: AnyClient, log: Log, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=7)
    keys = [b"tx_%03d" % number for number in range(100)] + [b"\xff\xfe", "schlüssel".encode()]
    sent = client.producer().send(topic, [Outgoing(b"wire", key) for key in keys])
    assert [one.partition for one in sent] == [partition_for_key(key, 7) for key in keys]
    embedded = [log.append(topic, b"embedded", key) for key in keys[:10]]
    assert [one.partition for one in embedded] == [one.partition for one in sent[:10]]


def test_a_named_partition_wins_over_the_key(client: AnyClient, log: Log, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    sent = client.producer().send(topic, [Outgoing(b"value", b"key", partition=number) for number in (2, 0, 1)])
    assert [one.partition for one in sent] == [2, 0, 1]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_kind_of_acknowledgement_gets_the_records_there(
    client: AnyClient, log: Log, topic: str, acks: int
) -> None:
    values = [b"%d" % number for number in range(50)]
    sent = client.producer(acks=acks).send(topic, [Outgoing(value) for value in values])
    if acks:
        assert [one.offset for one in sent] == list(range(50))
    # Without acknowledgements nobody tells offsets, and the records may still be on their way.
    follow = log.read(topic, max_records=50, follow=True, timeout_ms=BOUND_S * 1000)
    assert [record.value for record in follow] == values


def test_a_topic_that_is_not_there_is_made_by_the_first_record(client: AnyClient, log: Log) -> None:
    topic = f"made-by-{client.name}"
    assert client.producer().send(topic, [Outgoing(b"first")]) == [Sent(0, 0)]
    assert [record.value for record in log.read(topic)] == [b"first"]


def test_a_compacted_topic_refuses_a_record_without_a_key(client: AnyClient, log: Log, new_topic: NewTopic) -> None:
    topic = new_topic(cleanup_policy="compact")
    producer = client.producer()
    with pytest.raises(Refused) as refusal:
        producer.send(topic, [Outgoing(b"keyless")])
    assert refusal.value.code == client.told(ErrorCode.INVALID_RECORD)
    producer.send(topic, [Outgoing(b"keyed", b"key")])
    assert [record.value for record in log.read(topic)] == [b"keyed"]


def test_records_of_one_producer_are_in_order_per_partition(client: AnyClient, log: Log, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    sent = [Outgoing(b"%d" % number, partition=number % 3) for number in range(3000)]
    client.producer(batch_bytes=512, linger_ms=0).send(topic, sent)
    for partition in range(3):
        values = [record.value for record in log.read(topic, partition)]
        assert values == [record.value for record in sent if record.partition == partition]
