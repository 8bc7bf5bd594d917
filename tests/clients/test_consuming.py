"""Reading without a group: where a client begins, where it goes, what it is told of offsets, and that it reads all.

Each behaviour is written once and run with confluent-kafka, kafka-python and aiokafka, over TCP, against a broker on
real files. Records are appended to the log directly, so that what is tested is the reading.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from clients.any_client import AnyClient, Received, Refused, read_count, read_until
from clients.conftest import NewTopic
from foldlog.broker.broker import Broker
from foldlog.client.log import Log
from foldlog.errors import TopicExists

NOON_MS = 1_760_000_000_000


def fill(log: Log, topic: str, count: int, partition: int = 0, start: int = 0) -> None:
    """Append records whose values are their offsets, a second apart, in batches of ten."""
    with log.producer(batch_records=10, linger_ms=1000) as producer:
        for number in range(start, start + count):
            producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=NOON_MS + number * 1000)


def offsets(records: list[Received]) -> list[int]:
    return [record.offset for record in records]


@pytest.fixture
def filled(log: Log, topic: str) -> str:
    """A topic with 100 records in one partition."""
    fill(log, topic, 100)
    return topic


def test_a_reader_gets_every_record_once_and_in_order(client: AnyClient, log: Log, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    for partition in range(3):
        fill(log, topic, 1000, partition)
    read = read_count(client.reader(topic, 0, 1, 2), 3000)
    for partition in range(3):
        mine = [record for record in read if record.partition == partition]
        assert offsets(mine) == list(range(1000))
        assert [record.value for record in mine] == [b"%d" % number for number in range(1000)]
        assert [record.timestamp_ms for record in mine] == [NOON_MS + number * 1000 for number in range(1000)]


@pytest.mark.parametrize("codec", AnyClient.codecs)
def test_every_codec_of_the_log_is_read(client: AnyClient, log: Log, topic: str, codec: str) -> None:
    values = [b"the same words again and again %d" % number for number in range(500)]
    with log.producer(compression=codec, batch_records=100) as producer:
        producer.send_batch(topic, [{"value": value} for value in values])
    assert [record.value for record in read_count(client.reader(topic), 500)] == values


def test_keys_values_and_headers_are_read_as_they_are(client: AnyClient, log: Log, topic: str) -> None:
    headers = (("trace", b"1"), ("empty", b""), ("trace", b"2"), ("nothing", None))
    log.append(topic, b"value", b"key", headers=headers)
    log.append(topic, None, b"key")
    log.append(topic, b"", None)
    read = read_count(client.reader(topic), 3)
    assert [(record.key, record.value, record.headers) for record in read] == [
        (b"key", b"value", headers),
        (b"key", None, ()),
        (None, b"", ()),
    ]


def test_a_record_larger_than_a_fetch_is_read_all_the_same(client: AnyClient, log: Log, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes=3_000_000)
    sizes = [10, 2_000_000, 20]
    for size in sizes:
        log.append(topic, bytes(size))
    read = read_count(client.reader(topic, partition_fetch_bytes=1000), 3)
    assert [len(record.value or b"") for record in read] == sizes


def test_a_reader_of_committed_records_reads_all_as_there_are_no_transactions(client: AnyClient, filled: str) -> None:
    read = read_count(client.reader(filled, isolation="read_committed"), 100)
    assert offsets(read) == list(range(100))


def test_a_reader_waits_for_what_is_not_there_yet(client: AnyClient, log: Log, topic: str) -> None:
    reader = client.reader(topic)
    assert reader.poll() == []
    for number in range(3):
        log.append(topic, b"%d" % number)
        assert offsets(read_count(reader, 1)) == [number]


def test_a_reader_goes_to_an_offset_inside_a_batch_and_to_both_ends(client: AnyClient, log: Log, filled: str) -> None:
    reader = client.reader(filled)
    read_count(reader, 100)
    place = (filled, 0)
    reader.seek(place, 73)
    assert offsets(read_count(reader, 27)) == list(range(73, 100))
    reader.seek_to_beginning(place)
    assert offsets(read_count(reader, 100)) == list(range(100))
    reader.seek(place, 5)
    read_count(reader, 1)
    reader.seek_to_end(place)
    # What was fetched before is passed over; what is read from here on is new.
    after = read_until(reader, lambda read: log.append(filled, b"after").offset >= 0 and bool(read))
    assert {record.value for record in after} == {b"after"}


def test_offsets_by_time_are_of_the_record_not_of_its_batch(client: AnyClient, filled: str) -> None:
    reader = client.reader(filled)
    place = (filled, 0)
    assert reader.offset_for_time(place, NOON_MS - 1) == 0
    assert reader.offset_for_time(place, NOON_MS + 33_000) == 33
    assert reader.offset_for_time(place, NOON_MS + 33_001) == 34
    assert reader.offset_for_time(place, NOON_MS + 99_000) == 99
    assert reader.offset_for_time(place, NOON_MS + 99_001) is None
    read_count(reader, 1)
    found = reader.offset_for_time(place, NOON_MS + 90_000)
    assert found is not None
    reader.seek(place, found)
    assert read_until(reader, lambda read: bool(read) and read[-1].offset == 99)[-10].offset == 90


def test_watermarks_position_and_lag(client: AnyClient, broker: Broker, log: Log, filled: str) -> None:
    reader = client.reader(filled)
    place = (filled, 0)
    assert reader.watermarks(place) == (0, 100)
    read_count(reader, 100)
    assert reader.position(place) == 100
    fill(log, filled, 5, start=100)
    assert reader.watermarks(place)[1] - 100 == 5
    broker.writable_partition(filled, 0).delete_records(40)
    assert reader.watermarks(place) == (40, 105)


def test_a_paused_partition_rests_while_the_others_are_read(client: AnyClient, log: Log, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    reader = client.reader(topic, 0, 1)
    log.append(topic, b"0", partition=0)
    log.append(topic, b"1", partition=1)
    read_count(reader, 2)
    reader.pause((topic, 0))
    log.append(topic, b"paused", partition=0)
    log.append(topic, b"read", partition=1)
    # Long enough for the paused one to come, if it did: the other comes twice.
    assert [record.value for record in read_count(reader, 1)] == [b"read"]
    log.append(topic, b"read", partition=1)
    assert [record.value for record in read_count(reader, 1)] == [b"read"]
    reader.resume((topic, 0))
    assert [record.value for record in read_count(reader, 1)] == [b"paused"]


def test_a_reader_begins_where_it_was_told_to_if_nothing_is_committed(
    client: AnyClient, log: Log, filled: str, group: str
) -> None:
    earliest = client.reader(filled, reset="earliest", group=group)
    assert offsets(read_count(earliest, 100)) == list(range(100))
    latest = client.reader(filled, reset="latest", group=group)
    fresh = read_until(latest, lambda read: log.append(filled, b"fresh").offset >= 0 and bool(read))
    assert {record.value for record in fresh} == {b"fresh"}
    neither = client.reader(filled, reset="none", group=group)
    with pytest.raises(Refused):
        read_count(neither, 1)


def test_a_reader_whose_offset_is_gone_goes_where_it_was_told_to(
    client: AnyClient, broker: Broker, filled: str, group: str
) -> None:
    broker.writable_partition(filled, 0).delete_records(60)
    earliest = client.reader(filled, reset="earliest", group=group)
    read_count(earliest, 1)
    earliest.seek((filled, 0), 10)
    assert offsets(read_count(earliest, 40))[-40:] == list(range(60, 100))
    neither = client.reader(filled, reset="none", group=group)
    neither.commit({(filled, 0): (10, "")})
    client.close_one(neither)
    successor = client.reader(filled, reset="none", group=group)
    with pytest.raises(Refused):
        read_count(successor, 1)


def test_a_reader_goes_on_when_its_topic_was_made_again(client: AnyClient, log: Log, topic: str) -> None:
    fill(log, topic, 10)
    reader = client.reader(topic)
    read_count(reader, 10)
    log.delete_topic(topic)
    with suppress(TopicExists):  # a client may ask for it, and so make it, in between
        log.create_topic(topic)
    # Its offset is beyond the end of the new one. Clients that know epochs go to that end, the others start over.
    again = read_until(reader, lambda read: log.append(topic, b"again").offset >= 0 and bool(read))
    assert {record.value for record in again} == {b"again"}
