"""Fetch: whole batches within both limits, long polls that end when enough has come, sessions, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from foldlog.broker.broker import Broker
from foldlog.files.posix import PosixFile
from foldlog.log.partition import Partition
from foldlog.records.loops import decode
from foldlog.server.config.settings import ServerSettings
from foldlog.server.fetches.fetching import FetchRead
from foldlog.server.fetches.sessions import WantedPartition
from foldlog.server.server import Server
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from server.conftest import Connect
from server.raw_client import RawClient, batch, fetch, fetched, produce
from server.small_node import SmallNode


def fill(broker: Broker, partition: int = 0, batches: int = 10, size_bytes: int = 1000) -> int:
    """Append batches of one record; returns how many bytes one has."""
    target = broker.partition("orders", partition)
    assert isinstance(target, Partition)
    for number in range(batches):
        target.append(batch(b"%d" % number + b"x" * size_bytes))
        target.sync()
    return len(batch(b"0" + b"x" * size_bytes))


def only(answer: FetchResponse) -> PartitionData:
    return answer.responses[0].partitions[0]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads_what_was_written(connect: Connect, broker: Broker, version: int) -> None:
    fill(broker)
    request = fetch(3)
    request.topics[0].topic_id = bytes.fromhex(broker.topic("orders").topic_id)
    answer = only(connect().ask(request, version))
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 10, 10)
    records = decode(answer.records or b"", "orders", 0)[0]
    assert [record.offset for record in records] == list(range(3, 10))


def test_a_fetch_inside_a_batch_gets_the_whole_batch(connect: Connect) -> None:
    client = connect()
    client.ask(produce(batch(b"a", b"b", b"c")), 9)
    assert fetched(client.ask(fetch(2), 11)) == [b"a", b"b", b"c"]


def test_limits_cut_between_batches_and_the_first_batch_always_comes(connect: Connect, broker: Broker) -> None:
    size = fill(broker)
    client = connect()
    assert len(fetched(client.ask(fetch(0, partition_max_bytes=3 * size + 5), 11))) == 3
    assert len(fetched(client.ask(fetch(0, max_bytes=4 * size), 11))) == 4
    assert len(fetched(client.ask(fetch(0, partition_max_bytes=1), 11))) == 1
    assert len(fetched(client.ask(fetch(0, max_bytes=0, min_bytes=0), 11))) == 1


def test_only_the_first_partition_may_exceed_the_limit(connect: Connect, broker: Broker) -> None:
    for partition in range(3):
        fill(broker, partition)
    wanted = [FetchPartition(partition=number, partition_max_bytes=10) for number in range(3)]
    request = FetchRequest(max_bytes=10, topics=[FetchTopic(topic="orders", partitions=wanted)])
    answer = connect().ask(request, 11)
    assert [bool(one.records) for one in answer.responses[0].partitions] == [True, False, False]


def test_a_long_poll_ends_when_something_comes(connect: Connect) -> None:
    reader, writer = connect(), connect()
    reader.send(fetch(0, max_wait_ms=25_000), 11)
    writer.ask(produce(batch(b"one")), 9)
    assert fetched(reader.receive(FetchResponse, 11)[1]) == [b"one"]


def test_a_long_poll_waits_for_as_many_bytes_as_it_asked_for(connect: Connect) -> None:
    reader, writer = connect(), connect()
    reader.send(fetch(0, max_wait_ms=25_000, min_bytes=5000), 11)
    for _ in range(6):
        writer.ask(produce(batch(b"x" * 1000)), 9)
    assert len(fetched(reader.receive(FetchResponse, 11)[1])) >= 5


def test_bytes_that_are_not_durable_yet_count_when_they_are(connect: Connect) -> None:
    reader, writer = connect(), connect()
    for _ in range(20):
        offset = writer.ask(produce(batch(b"x" * 1000), acks=1), 9).responses[0].partition_responses[0].base_offset
        answer = reader.ask(fetch(offset, max_wait_ms=25_000, min_bytes=1000), 11)
        assert len(fetched(answer)) == 1


def test_a_long_poll_ends_with_its_time_and_brings_what_there_is(connect: Connect) -> None:
    client = connect()
    client.ask(produce(batch(b"one")), 9)
    assert fetched(client.ask(fetch(0, max_wait_ms=30, min_bytes=1 << 20), 11)) == [b"one"]
    assert fetched(client.ask(fetch(1, max_wait_ms=30), 11)) == []


def test_a_long_poll_on_a_topic_that_is_deleted_ends(connect: Connect, broker: Broker) -> None:
    broker.create_topic("gone", 1)
    client = connect()
    client.ask(produce(batch(b"one"), topic="gone"), 9)
    client.send(fetch(1, topic="gone", max_wait_ms=25_000), 11)
    client.send(produce(batch(b"two"), acks=1), 9)  # so that the fetch has begun to wait
    deleting = threading.Thread(target=broker.delete_topic, args=("gone",))
    deleting.start()
    answer = only(client.receive(FetchResponse, 11)[1])
    deleting.join()
    assert answer.error_code in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_many_readers_wait_for_the_same_partition(connect: Connect) -> None:
    readers = [connect() for _ in range(50)]
    for reader in readers:
        reader.send(fetch(0, max_wait_ms=25_000), 11)
    connect().ask(produce(batch(b"one")), 9)
    assert [fetched(reader.receive(FetchResponse, 11)[1]) for reader in readers] == [[b"one"]] * 50


def test_offsets_outside_the_log_are_refused_and_its_end_is_not(connect: Connect, broker: Broker) -> None:
    fill(broker)
    client = connect()
    for offset in (-1, 11, 2**62):
        answer = only(client.ask(fetch(offset), 11))
        assert (answer.error_code, answer.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, b""), offset
    assert only(client.ask(fetch(10), 11)).error_code == 0
    partition = broker.partition("orders", 0)
    assert isinstance(partition, Partition)
    partition.delete_records(4)
    refused = only(client.ask(fetch(3), 11))
    assert (refused.error_code, refused.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 4)


def test_what_is_unknown_is_told_so_at_once(connect: Connect) -> None:
    client = connect()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only(client.ask(fetch(0, topic="nowhere", max_wait_ms=25_000), 11)).error_code == unknown
    assert only(client.ask(fetch(0, partition=3, max_wait_ms=25_000), 11)).error_code == unknown
    assert only(client.ask(fetch(0, partition=-1, max_wait_ms=25_000), 11)).error_code == unknown
    by_id = fetch(0, max_wait_ms=25_000)
    by_id.topics[0].topic_id = b"\1" * 16
    assert only(client.ask(by_id, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_leader_epochs_are_compared(connect: Connect, broker: Broker) -> None:
    fill(broker)
    client = connect()
    epoch = broker.partition("orders", 0).leader_epoch
    for asked, code in [(epoch, 0), (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, 0)]:
        request = fetch(0)
        request.topics[0].partitions[0].current_leader_epoch = asked
        assert only(client.ask(request, 11)).error_code == code


def test_what_was_read_before_the_log_was_cut_is_noticed(connect: Connect, broker: Broker) -> None:
    fill(broker)
    request = fetch(10)
    request.topics[0].partitions[0].last_fetched_epoch = broker.partition("orders", 0).leader_epoch + 1
    diverging = only(connect().ask(request, 12)).diverging_epoch
    assert diverging is not None
    assert (diverging.epoch, diverging.end_offset) == (broker.partition("orders", 0).leader_epoch, 10)


def test_a_session_hears_only_what_changed(connect: Connect, broker: Broker) -> None:
    client = connect()
    wanted = [FetchPartition(partition=number, partition_max_bytes=1 << 20) for number in range(3)]
    opening = FetchRequest(
        min_bytes=0, session_epoch=0, topics=[FetchTopic(topic="orders", partitions=wanted)], max_bytes=1 << 20
    )
    first = client.ask(opening, 11)
    assert first.session_id > 0
    assert len(first.responses[0].partitions) == 3
    fill(broker, partition=1, batches=1)
    second = client.ask(FetchRequest(session_id=first.session_id, session_epoch=1, min_bytes=0), 11)
    assert [one.partition_index for one in second.responses[0].partitions] == [1]
    lost = client.ask(FetchRequest(session_id=first.session_id, session_epoch=7), 11)
    assert lost.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = client.ask(FetchRequest(session_id=12345678, session_epoch=1), 11)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_pages_that_are_not_in_memory_are_read_on_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()
    read, read_into = PosixFile.read, PosixFile.read_into

    def read_noted(self: PosixFile, position: int, length: int) -> bytes:
        threads.add(threading.current_thread().name)
        return read(self, position, length)

    def read_cold(self: PosixFile, position: int, buffer: bytearray | memoryview, *, nowait: bool = False) -> int:
        if nowait:
            raise BlockingIOError
        threads.add(threading.current_thread().name)
        return read_into(self, position, buffer)

    with Broker.open(str(tmp_path / "data")) as broker:
        broker.create_topic("orders", 1)
        fill(broker)
        monkeypatch.setattr(PosixFile, "read", read_noted)
        monkeypatch.setattr(PosixFile, "read_into", read_cold)
        monkeypatch.setattr(PosixFile, "descriptor", -1)  # so compiled code calls that, too
        with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
            client = RawClient(server.addresses[0])
            threads.clear()
            assert len(fetched(client.ask(fetch(0), 11))) == 10
            client.close()
    assert any(name.startswith("foldlog-worker") for name in threads)
    assert "foldlog-server" not in threads


def test_a_damaged_partition_is_an_error_and_a_line_in_the_log_and_the_others_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data"
    with Broker.open(str(path)) as broker:
        broker.create_topic("orders", 2)
        fill(broker, 0)
        fill(broker, 1)
    segment = next((path / "orders-0").glob("*.log"))
    damaged = bytearray(segment.read_bytes())
    damaged[100] ^= 1
    segment.write_bytes(damaged)
    with (
        Broker.open(str(path)) as broker,
        Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server,
    ):
        client = RawClient(server.addresses[0])
        wanted = [FetchPartition(partition=number, partition_max_bytes=1 << 20) for number in range(2)]
        request = FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(topic="orders", partitions=wanted)])
        answers = client.ask(request, 11).responses[0].partitions
        assert answers[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(decode(answers[1].records, "orders", 1)[0]) == 10
        client.ask(request, 11)
        client.close()
    (line,) = [record.message for record in caplog.records if "a fetch is refused" in record.message]
    assert line.startswith("orders-0: a fetch is refused: ")
    assert "is damaged at byte" in line


def test_records_keep_their_bytes_while_the_next_answer_is_read(connect: Connect, broker: Broker) -> None:
    """Large answers are read into memory that is used again: never before the socket has taken it."""
    fill(broker, batches=60, size_bytes=200_000)
    client = connect()
    frames = b"".join(client.frame(fetch(offset, partition_max_bytes=1 << 20), 11) for offset in range(55))
    client.socket.sendall(frames)
    for offset in range(55):
        records = only(client.receive(FetchResponse, 11)[1]).records or b""
        first = decode(records, "orders", 0)[0][0]
        assert (first.offset, first.value) == (offset, b"%d" % offset + b"x" * 200_000)


def test_small_and_large_answers_of_one_fetch_do_not_share_memory(connect: Connect, broker: Broker) -> None:
    fill(broker, partition=0, batches=2, size_bytes=400_000)
    fill(broker, partition=1, batches=1, size_bytes=10)
    fill(broker, partition=2, batches=1, size_bytes=300_000)
    client = connect()
    # From the second on, the connection has memory of the one before to read into.
    for numbers in ([0], [1, 0], [0, 1, 2], [1, 2, 0], [2, 1, 0]):
        wanted = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20) for number in numbers]
        request = FetchRequest(min_bytes=1, max_bytes=50 << 20, topics=[FetchTopic(topic="orders", partitions=wanted)])
        answer = client.ask(request, 11)
        for found in answer.responses[0].partitions:
            partition = broker.partition("orders", found.partition_index)
            assert found.records == partition.read(0, 1 << 20).data


def test_an_answer_that_is_full_is_enough_whatever_the_client_would_wait_for(connect: Connect, broker: Broker) -> None:
    """One answer carries less than a client may ask for; it must not wait for what cannot come with it."""
    fill(broker, batches=12, size_bytes=1_000_000)
    request = fetch(0, max_wait_ms=10 * 60 * 1000, min_bytes=20 << 20, partition_max_bytes=50 << 20)
    found = only(connect().ask(request, 11))
    assert 7 << 20 <= len(found.records or b"") <= 8 << 20


def test_what_comes_between_reading_and_waiting_is_not_overslept(
    small: SmallNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.broker.create_topic("orders", 1)
    partition = small.broker.partition("orders", 0)
    assert isinstance(partition, Partition)
    read = FetchRead.read

    def read_and_then_more_comes(self: FetchRead, wanted: Sequence[WantedPartition]) -> None:
        read(self, wanted)
        if not partition.log_end_offset:
            partition.append(batch(b"x" * 1000))
            partition.sync()

    monkeypatch.setattr(FetchRead, "read", read_and_then_more_comes)
    later = small.begin(fetch(0, max_wait_ms=10 * 60 * 1000, min_bytes=500), 11)
    assert fetched(small.answer(later, 11)) == [b"x" * 1000]
