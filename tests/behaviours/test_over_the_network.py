"""What the texts promise of a log that many services reach: shown with real clients and raw connections to a broker.

The broker is `foldlog.open(..., listen=True)` on a directory of its own; what comes through the network is compared
with what the same directory says, embedded. Clients in all their ways are the subject of tests/clients.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import foldlog
from behaviours.steps import WAIT_S, numbered, partition_files, put_many, values
from foldlog.broker.broker import Broker
from foldlog.server.config.settings import ServerSettings
from foldlog.server.net.memory import RECEIVE_BYTES
from foldlog.server.server import Server
from foldlog.wire.messages.produce import ProduceResponse
from server.raw_client import RawClient, batch, fetch, fetched, produce, produced

MIB = 1 << 20


@pytest.fixture
def served(directory: Path) -> Iterator[foldlog.Log]:
    with foldlog.open(directory, listen=True) as log:
        yield log


def address_of(log: foldlog.Log) -> tuple[str, int]:
    assert log.bootstrap is not None
    host, _, port = log.bootstrap.rpartition(":")
    return host, int(port)


def send(log: foldlog.Log, topic: str, sent: list[bytes]) -> None:
    """Send them with a Kafka client; all are acknowledged on return."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": log.bootstrap, "acks": "all"})
    for value in sent:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert errors == [None] * len(sent)


def member(log: foldlog.Log, topic: str, group: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": log.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    return consumer


def take(consumer: Consumer, count: int) -> list[bytes | None]:
    """The next so many values."""
    found: list[bytes | None] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            found.append(message.value())
    return found


def test_what_a_client_sends_is_read_embedded_and_the_other_way_around(served: foldlog.Log) -> None:
    served.create_topic("orders")
    send(served, "orders", numbered(100))
    assert values(served.read("orders")) == numbered(100)
    put_many(served, "orders", numbered(100, first=100), partition=0)
    consumer = member(served, "orders", "warehouse")
    assert take(consumer, 200) == numbered(200)
    consumer.close()


def test_a_fetch_is_a_slice_of_the_segment(served: foldlog.Log, directory: Path) -> None:
    served.create_topic("orders")
    client = RawClient(address_of(served))
    for compression in (0, 3):
        assert produced(client.ask(produce(batch(*numbered(50), compression=compression)), 9))[0] == 0
    answer = client.ask(fetch(0), 11)
    client.close()
    (segment,) = partition_files(directory, "orders", ".log")
    assert bytes(answer.responses[0].partitions[0].records) == segment.read_bytes()


def test_reading_removes_nothing_and_a_new_use_is_a_new_group(served: foldlog.Log) -> None:
    served.create_topic("payments")
    send(served, "payments", numbered(50))
    for group in ("fraud", "analytics", "a team that joins six months later"):
        consumer = member(served, "payments", group)
        assert take(consumer, 50) == numbered(50)
        consumer.commit(asynchronous=False)
        consumer.close()
    assert values(served.read("payments")) == numbered(50)


def test_a_consumer_that_ends_before_its_commit_leaves_the_records_to_the_next(served: foldlog.Log) -> None:
    served.create_topic("payments")
    send(served, "payments", numbered(10))
    ending = member(served, "payments", "fraud")
    assert take(ending, 10) == numbered(10)
    ending.close()  # nothing was committed
    following = member(served, "payments", "fraud")
    assert take(following, 10) == numbered(10)
    following.close()


def test_a_producer_never_waits_for_a_reader_that_does_not_read(served: foldlog.Log) -> None:
    served.create_topic("payments")
    idle = RawClient(address_of(served), receive_buffer_bytes=4096)
    put_many(served, "payments", [b"x" * 1000] * 2000, partition=0)
    for _ in range(10):
        idle.send(fetch(0, partition_max_bytes=MIB), 11)  # asked for and never taken
    send(served, "payments", numbered(100))
    assert values(served.read("payments", start=2000)) == numbered(100)
    idle.close()


LIMIT_BYTES = 4 * MIB
LOAD = 12
FRAMES = 40
RECORDS = 256


def test_a_burst_of_twelve_times_the_load_grows_the_log_and_not_the_memory(directory: Path) -> None:
    """Twelve senders for one, as fast as they can and ahead of the answers; nobody reads meanwhile."""
    properties = {
        "listeners": "127.0.0.1:0",
        "queued.max.request.bytes": LIMIT_BYTES,
        "socket.request.max.bytes": LIMIT_BYTES,
    }
    records = batch(*[b"x" * 1000] * RECORDS)
    with Broker.open(str(directory)) as broker:
        broker.create_topic("orders")
        with Server.start(broker, ServerSettings.parse(properties)) as server:
            senders = [Sender(server.addresses[0], records) for _ in range(LOAD)]
            peak_bytes = 0
            for sender in senders:
                while sender.is_alive():
                    peak_bytes = max(peak_bytes, server.memory_used_bytes)
                    sender.join(0.001)
            assert [sender.answers for sender in senders] == [FRAMES] * LOAD
            assert broker.partition("orders", 0).high_watermark == LOAD * FRAMES * RECORDS
            # Above the limit each connection takes what it has received, and the frame that this begins, and no more.
            bound_bytes = LIMIT_BYTES + LOAD * (RECEIVE_BYTES + 2 * len(records))
            assert 0 < peak_bytes < bound_bytes < LOAD * FRAMES * len(records) / 4
            assert drained(server) == LOAD * FRAMES * RECORDS


class Sender(threading.Thread):
    """Sends all its batches without waiting; what comes back is read by another thread of its own."""

    def __init__(self, address: tuple[str, int], records: bytes) -> None:
        super().__init__(daemon=True)
        self._client = RawClient(address)
        self._frames = [self._client.frame(produce(records), 9) for _ in range(FRAMES)]
        self.answers = 0
        self.start()

    def run(self) -> None:
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        for frame in self._frames:
            self._client.socket.sendall(frame)
        reader.join()
        self._client.close()

    def _read(self) -> None:
        for _ in self._frames:
            assert produced(self._client.receive(ProduceResponse, 9)[1])[0] == 0
            self.answers += 1


def drained(server: Server) -> int:
    """Read on from the start until nothing more comes; how many records there were."""
    client = RawClient(server.addresses[0])
    offset = 0
    while found := fetched(client.ask(fetch(offset, partition_max_bytes=MIB), 11)):
        offset += len(found)
    client.close()
    return offset
