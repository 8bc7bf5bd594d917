"""An answer never denies what was acknowledged: whoever asks where the log ends, or names an offset that is written and
not durable yet, gets its answer after the sync.

What nobody waits for is synced after 10 ms. Here that takes an hour, so what does not hurry the sync waits for ever, or
is seen to deny the record, each time and not by chance.
"""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import foldlog
from foldlog.broker.broker import Broker
from foldlog.client.backends.directory import broker_of
from foldlog.files.posix import PosixFiles
from foldlog.log.partition import Partition
from foldlog.server.config.settings import ServerSettings
from foldlog.server.console import api
from foldlog.server.fetches import fetching
from foldlog.server.fetches.fetching import Fetching, FetchReading
from foldlog.server.net import purgatory as syncs
from foldlog.server.server import Server
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles, Kind, Operation
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from foldlog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from foldlog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from server.conftest import Connect
from server.console.console_site import ConsoleSite, console
from server.raw_client import RawClient, batch, fetch, fetched, produce, produced

LATEST, MAX_TIMESTAMP = -1, -3


@pytest.fixture(autouse=True)
def nobody_syncs_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncs, "_DEFERRED_SYNC_S", 3600.0)


def acknowledged(client: RawClient, *values: bytes) -> int:
    """Written with acks=1 and answered, and not synced; the offset after it."""
    error, offset = produced(client.ask(produce(batch(*values), acks=1), 9))
    assert error == ErrorCode.NONE
    return offset + len(values)


def list_offsets(timestamp: int, *, epoch: int = -1) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=[asked])])


def listed(answer: Any) -> tuple[int, int]:
    only = answer.topics[0].partitions[0]
    return only.error_code, only.offset


def delete_records(before: int) -> DeleteRecordsRequest:
    wanted = DeleteRecordsPartition(partition_index=0, offset=before)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=[wanted])], timeout_ms=30_000)


def deleted(answer: Any) -> tuple[int, int]:
    only = answer.topics[0].partitions[0]
    return only.error_code, only.low_watermark


def end_of_epoch(epoch: int) -> OffsetForLeaderEpochRequest:
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic="orders", partitions=[wanted])]
    )


def partition_of(broker: Broker) -> Partition:
    partition = broker.partition("orders", 0)
    assert isinstance(partition, Partition)
    return partition


def test_the_latest_offset_is_after_every_acknowledged_record(connect: Connect) -> None:
    client = connect()
    for expected in range(1, 6):
        assert acknowledged(client, b"one") == expected
        assert listed(client.ask(list_offsets(LATEST), 7)) == (0, expected)


@pytest.mark.parametrize("timestamp", [5, 3, MAX_TIMESTAMP])
def test_an_offset_by_time_finds_an_acknowledged_record(connect: Connect, timestamp: int) -> None:
    client = connect()
    acknowledged(client, b"one")
    assert listed(client.ask(list_offsets(timestamp), 7)) == (0, 0)


@pytest.mark.parametrize(("before", "start"), [(2, 2), (-1, 3), (3, 3)])
def test_acknowledged_records_can_be_deleted(connect: Connect, before: int, start: int) -> None:
    client = connect()
    acknowledged(client, b"one", b"two", b"three")
    assert deleted(client.ask(delete_records(before), 2)) == (0, start)
    assert deleted(client.ask(delete_records(4), 2)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_the_leader_epoch_ends_after_every_acknowledged_record(connect: Connect) -> None:
    client = connect()
    acknowledged(client, b"one", b"two")
    only = client.ask(end_of_epoch(0), 4).topics[0].partitions[0]
    assert (only.error_code, only.leader_epoch, only.end_offset) == (0, 0, 2)


@pytest.mark.parametrize("min_bytes", [0, 1, 1 << 20])
def test_a_fetch_without_patience_gets_an_acknowledged_record(connect: Connect, min_bytes: int) -> None:
    client = connect()
    acknowledged(client, b"one")
    assert fetched(client.ask(fetch(0, max_wait_ms=0, min_bytes=min_bytes), 11)) == [b"one"]
    assert fetched(client.ask(fetch(1, max_wait_ms=0, min_bytes=min_bytes), 11)) == []


def test_a_fetch_inside_what_is_not_durable_yet_gets_what_it_asked_for(connect: Connect) -> None:
    client = connect()
    for value in (b"one", b"two"):
        acknowledged(client, value)
    assert fetched(client.ask(fetch(1, max_wait_ms=0), 11)) == [b"two"]


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_the_high_watermark_beside_records_is_after_every_acknowledged_one(connect: Connect, max_bytes: int) -> None:
    """Also where the answer has no room for all that could be read already."""
    client = connect()
    for _ in range(2):
        assert produced(client.ask(produce(batch(b"durable")), 9))[0] == ErrorCode.NONE
    for end in (3, 4):
        assert acknowledged(client, b"one") == end
        only = client.ask(fetch(0, max_wait_ms=0, max_bytes=max_bytes), 11).responses[0].partitions[0]
        assert (only.error_code, only.high_watermark) == (0, end)


def test_a_fetch_with_records_does_not_wait_for_what_is_acknowledged_after_it_came(
    connect: Connect, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each further look, a writer that never rests has one more record acknowledged."""
    client = connect()
    client.ask(produce(batch(b"durable")), 9)
    acknowledged(client, b"one")
    look_again, is_enough, looks = Fetching._look_again, Fetching._is_enough, list[int]()

    def one_more(self: Fetching) -> None:
        partition = partition_of(broker)
        partition.acknowledged_early(partition.append(batch(b"later"), foreign=True).next_offset)
        look_again(self)

    def noted(self: Fetching, reading: FetchReading) -> bool:
        looks.append(reading.size_bytes)
        return is_enough(self, reading)

    monkeypatch.setattr(Fetching, "_look_again", one_more)  # after the sync that the first look asked for
    monkeypatch.setattr(Fetching, "_is_enough", noted)
    only = client.ask(fetch(0, max_wait_ms=30_000), 11).responses[0].partitions[0]
    assert only.high_watermark >= 2
    assert len(looks) == 2, "one before the sync, one after it"


def test_a_fetch_behind_what_is_not_durable_yet_has_not_diverged(connect: Connect) -> None:
    """A client that committed an acknowledged offset, and the epoch it was written in, begins there."""
    client = connect()
    acknowledged(client, b"one", b"two")
    request = fetch(2, max_wait_ms=0)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    only = client.ask(request, 12).responses[0].partitions[0]
    assert (only.error_code, only.diverging_epoch) == (0, None)


def test_no_sync_is_asked_for_where_everything_is_durable(connect: Connect, broker: Broker) -> None:
    client, counted = connect(), list[float]()
    client.ask(produce(batch(b"one"), acks=-1), 9)
    broker.watch_syncs(lambda seconds, size, records: counted.append(seconds))
    for request, version in (
        (list_offsets(LATEST), 7),
        (list_offsets(1), 7),
        (end_of_epoch(0), 4),
        (fetch(1, max_wait_ms=0), 11),
    ):
        client.ask(request, version)
    assert counted == []


def test_relaxed_topics_answer_without_a_sync(broker: Broker, connect: Connect) -> None:
    broker.alter_topic("orders", {"flush.messages": 1000})
    client, counted = connect(), list[float]()
    broker.watch_syncs(lambda seconds, size, records: counted.append(seconds))
    assert acknowledged(client, b"one") == 1
    assert listed(client.ask(list_offsets(LATEST), 7)) == (0, 1)
    assert fetched(client.ask(fetch(0), 11)) == [b"one"]
    assert counted == []


# --- the console ---


def ends_told(site: ConsoleSite) -> list[int]:
    (topic,) = site.get("/api/overview")["topics"]
    return [one["end"] for one in topic["partitions"]]


def test_the_consoles_overview_has_every_acknowledged_record(broker: Broker) -> None:
    with console(broker) as site:
        client = RawClient(site.server.addresses[0])
        try:
            assert acknowledged(client, b"one", b"two") == 2
            assert ends_told(site)[0] == 2
        finally:
            client.close()


def test_an_overview_does_not_wait_for_a_disk_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "CONSOLE_SYNC_WAIT_MS", 20)
    disk = FailingDisk(tmp_path / "data", console="127.0.0.1:0")
    try:
        client = disk.connect()
        acknowledged(client, b"one")
        disk.files.fault = Fault(disk.wait_at_sync)
        assert ends_told(ConsoleSite(disk.broker, disk.server)) == [0, 0]
    finally:
        disk.close()


class FailingDisk:
    """A served directory whose syncs of one partition can be kept waiting, or made to fail."""

    def __init__(self, path: Path, console: str = "") -> None:
        self.files = FaultyFiles(PosixFiles())
        self.gate = threading.Event()
        self.reached = threading.Event()
        self.broker = Broker.open(str(path), files=self.files)
        self.broker.create_topic("orders", 2)
        settings = {"listeners": "127.0.0.1:0"} | ({"foldlog.console": console} if console else {})
        self.server = Server.start(self.broker, ServerSettings.parse(settings))
        self.clients: list[RawClient] = []

    def connect(self) -> RawClient:
        self.clients.append(RawClient(self.server.addresses[0]))
        return self.clients[-1]

    def wait_at_sync(self, doing: Operation) -> int:
        if doing.kind is Kind.SYNC and "orders-0" in doing.path:
            self.reached.set()
            assert self.gate.wait(30)
        return 0

    def close(self) -> None:
        self.gate.set()
        self.files.fault = NO_FAULT
        for client in self.clients:
            client.close()
        self.server.stop()
        self.broker.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FailingDisk]:
    disk = FailingDisk(tmp_path / "data")
    yield disk
    disk.close()


ASKED = {
    "latest": (list_offsets(LATEST), 7, listed, (ErrorCode.KAFKA_STORAGE_ERROR, -1)),
    "by time": (list_offsets(5), 7, listed, (ErrorCode.KAFKA_STORAGE_ERROR, -1)),
    "delete": (delete_records(1), 2, deleted, (ErrorCode.KAFKA_STORAGE_ERROR, -1)),
    "delete all": (delete_records(-1), 2, deleted, (ErrorCode.KAFKA_STORAGE_ERROR, -1)),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_sync_that_fails_is_a_storage_error_and_stays_one(disk: FailingDisk, what: str) -> None:
    request, version, read, refused = ASKED[what]
    client = disk.connect()
    acknowledged(client, b"one")
    disk.files.fault = Fault(lambda doing: errno.EIO if doing.kind is Kind.SYNC and "orders-0" in doing.path else 0)
    for _ in range(2):
        assert read(client.ask(request, version)) == refused
    assert client.ask(end_of_epoch(0), 4).topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_fetch_of_what_a_failed_sync_lost_is_a_storage_error(disk: FailingDisk) -> None:
    client = disk.connect()
    client.ask(produce(batch(b"durable"), acks=-1), 9)
    acknowledged(client, b"lost")
    disk.files.fault = Fault(lambda doing: errno.EIO if doing.kind is Kind.SYNC and "orders-0" in doing.path else 0)
    only = client.ask(fetch(1, max_wait_ms=0), 11).responses[0].partitions[0]
    assert only.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert fetched(client.ask(fetch(0, max_wait_ms=0), 11)) == [b"durable"]


def test_others_are_answered_while_somebody_waits_for_a_sync(disk: FailingDisk) -> None:
    waiting, other = disk.connect(), disk.connect()
    acknowledged(waiting, b"one")
    disk.files.fault = Fault(disk.wait_at_sync)
    waiting.send(list_offsets(LATEST), 7)
    assert disk.reached.wait(30)
    assert produced(other.ask(produce(batch(b"other"), partition=1), 9)) == (0, 0)
    disk.gate.set()
    _, answer = waiting.receive(ListOffsetsResponse, 7)
    assert listed(answer) == (0, 1)


def test_a_sync_that_takes_too_long_is_told_and_does_not_hang_the_client(
    disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = disk.connect()
    acknowledged(client, b"one")
    disk.files.fault = Fault(disk.wait_at_sync)
    with monkeypatch.context() as impatient:
        for module in (syncs, fetching):
            impatient.setattr(module, "SYNC_WAIT_MS", 20)
        assert listed(client.ask(list_offsets(LATEST), 7)) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        only = client.ask(fetch(0, max_wait_ms=0), 11).responses[0].partitions[0]
        assert (only.error_code, only.records or b"") == (0, b"")
    disk.gate.set()
    assert listed(client.ask(list_offsets(LATEST), 7)) == (0, 1)


# --- the library, in the process that serves and in others ---


READS: dict[str, Callable[[foldlog.Log], object]] = {
    "offsets": lambda log: log.offsets("orders")[0],
    "read": lambda log: [record.value for record in log.read("orders")],
    "read from the end": lambda log: [record.value for record in log.read("orders", start=1)],
    "read_arrow": lambda log: log.read_arrow("orders").num_rows,
    "offsets_at": lambda log: log.offsets_at("orders", 5)[0],
    "lag": lambda log: log.lag("fraud")[foldlog.TopicPartition("orders", 0)],
    "seek_to_end": lambda log: sought(log, foldlog.Consumer.seek_to_end),
    "seek_to_time": lambda log: sought(log, lambda consumer: consumer.seek_to_time(6)),
    "poll": lambda log: polled(log, 0),
    "poll behind": lambda log: polled(log, 1),
}

FOUND = {
    "offsets": (0, 1),
    "read": [b"one"],
    "read from the end": [],
    "read_arrow": 1,
    "offsets_at": 0,
    "lag": 1,
    "seek_to_end": 1,
    "seek_to_time": 1,
    "poll": [b"one"],
    "poll behind": [],
}


def sought(log: foldlog.Log, seek: Callable[[foldlog.Consumer], object]) -> int:
    with log.consumer(["orders"], auto_offset_reset="earliest") as consumer:
        seek(consumer)
        return consumer.position("orders", 0)


def polled(log: foldlog.Log, offset: int) -> list[bytes | None]:
    with log.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([("orders", 0)])
        consumer.seek("orders", 0, offset)
        return [record.value for record in consumer.poll(timeout_ms=0)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[foldlog.Log]:
    with foldlog.open(tmp_path / "data", listen=True) as log:
        log.create_topic("orders")
        log.reset_group("fraud", {("orders", 0): 0})
        yield log


def acknowledged_by(log: foldlog.Log, value: bytes = b"one") -> None:
    host, _, port = (log.bootstrap or "").rpartition(":")
    client = RawClient((host, int(port)))
    acknowledged(client, value)
    client.close()


@pytest.mark.parametrize("what", READS)
def test_the_program_that_serves_sees_what_it_acknowledged(served: foldlog.Log, what: str) -> None:
    acknowledged_by(served)
    assert READS[what](served) == FOUND[what]


@pytest.mark.parametrize("mode", ["r", "w"])
@pytest.mark.parametrize("what", READS)
def test_who_reads_the_files_of_a_served_directory_sees_what_was_acknowledged(
    served: foldlog.Log, what: str, mode: str
) -> None:
    with foldlog.open(served.path, mode) as reader:
        acknowledged_by(served)
        assert READS[what](reader) == FOUND[what]


def test_another_process_deletes_what_was_acknowledged(served: foldlog.Log) -> None:
    with foldlog.open(served.path) as other:
        acknowledged_by(served)
        other.delete_records("orders", {0: 1})
        assert other.offsets("orders") == {0: (1, 1)}


def test_a_process_of_its_own_sees_what_was_acknowledged(served: foldlog.Log) -> None:
    acknowledged_by(served)
    program = "import sys, foldlog; print(foldlog.open(sys.argv[1], 'r').offsets('orders'))"
    done = subprocess.run([sys.executable, "-c", program, served.path], capture_output=True, text=True, check=True)
    assert done.stdout == "{0: (0, 1)}\n"


def test_a_reader_asks_nobody_where_everything_is_durable(served: foldlog.Log) -> None:
    served.append("orders", "durable")
    with foldlog.open(served.path, "r") as reader:
        asked = list[object]()
        broker_of(reader).hurry_with(NotedHurry(asked))
        assert reader.offsets("orders") == {0: (0, 1)}
        assert asked == []
        acknowledged_by(served, b"two")
        reader.offsets("orders")
        assert asked == [("orders", 0)]


class NotedHurry:
    def __init__(self, asked: list[object]) -> None:
        self._asked = asked

    def __call__(self, topic: str, number: int) -> None:
        self._asked.append((topic, number))

    def close(self) -> None: ...


def test_a_reader_without_a_server_sees_what_is_durable(tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("orders")
        log.append("orders", "durable")
        partition_of(broker_of(log)).append(bytearray(batch(b"not yet")))
        with foldlog.open(tmp_path / "data", "r") as reader:
            assert reader.offsets("orders") == {0: (0, 1)}
