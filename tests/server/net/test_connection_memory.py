"""What a connection holds is counted, whatever it is: frames that have begun, requests put aside, answers that wait.

Raw sockets hold on purpose what a broker has to keep for them. What was sent has arrived once the broker has counted
its bytes, which is what the tests wait for by asking something on another connection.
"""

from __future__ import annotations

import socket
import struct
import threading
from pathlib import Path

import pytest

from foldlog.broker.broker import Broker
from foldlog.files.posix import PosixFiles
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from foldlog.testing.faulty_files import Fault, FaultyFiles, Kind, Operation
from foldlog.wire.messages.api_versions import ApiVersionsRequest
from foldlog.wire.messages.fetch import FetchResponse
from foldlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from foldlog.wire.messages.produce import ProduceResponse
from server.conftest import Connect
from server.raw_client import RawClient, batch, fetch, fetched, produce, produced

LONG_MS = 60_000


def wait_until_received(server: Server, other: RawClient, size_bytes: int) -> None:
    """Until the broker has got that many bytes and has looked at them."""
    while server.metrics.bytes_in < size_bytes:
        other.ask(ApiVersionsRequest(), 0)
        size_bytes += len(other.frame(ApiVersionsRequest(), 0))
    other.ask(ApiVersionsRequest(), 0)


def test_the_beginning_of_a_frame_is_counted(server: Server, connect: Connect) -> None:
    client, other = connect(), connect()
    frame = client.frame(produce(batch(b"x" * 500_000)), 9)
    client.socket.sendall(frame[:50_000])
    wait_until_received(server, other, 50_000)
    assert server.memory_used_bytes >= 50_000
    client.socket.sendall(frame[50_000:])
    assert produced(client.receive(ProduceResponse, 9)[1]) == (0, 0)


@pytest.fixture
def many(broker: Broker) -> MetadataRequest:
    """A short question with a long answer."""
    broker.create_topic("many", 1000)
    return MetadataRequest(topics=[MetadataRequestTopic(name="many")])


def test_answers_that_wait_behind_another_are_counted_and_bounded(
    server: Server, connect: Connect, broker: Broker, many: MetadataRequest
) -> None:
    client, other = connect(), connect()
    answer_bytes = len(b"".join(_answer(other, many)))
    client.send(fetch(0, max_wait_ms=LONG_MS), 11)
    questions = b"".join(client.frame(many, 1) for _ in range(60))
    client.socket.sendall(questions)
    wait_until_received(server, other, len(questions))
    for _ in range(90):  # longer than the other's answers take
        other.ask(many, 1)
    # So many that the client's next requests are not looked at, and not all sixty answers.
    assert 256 << 10 < server.memory_used_bytes < (512 << 10) + 2 * answer_bytes < 25 * answer_bytes
    assert produced(other.ask(produce(batch(b"one")), 9)) == (0, 0)
    assert fetched(client.receive(FetchResponse, 11)[1]) == [b"one"]
    for _ in range(60):
        assert len(client.receive(MetadataResponse, 1)[1].topics[0].partitions) == 1000


def _answer(client: RawClient, request: MetadataRequest) -> list[bytes]:
    client.send(request, 1)
    return [client.receive_frame()]


def test_an_answer_that_nobody_is_there_for_any_more_is_not_counted(tmp_path: Path) -> None:
    gate, files = threading.Event(), FaultyFiles(PosixFiles())

    def wait_at_sync(operation: Operation) -> int:
        if operation.kind is Kind.SYNC and "orders-0" in operation.path:
            assert gate.wait(30)
        return 0

    with Broker.open(str(tmp_path / "data"), files=files) as broker:
        broker.create_topic("orders", 2)
        with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
            client, other = RawClient(server.addresses[0]), RawClient(server.addresses[0])
            assert produced(client.ask(produce(batch(b"one")), 9)) == (0, 0)
            files.fault = Fault(wait_at_sync)
            client.send(produce(batch(b"two")), 9)
            while broker.partition("orders", 0).log_end_offset < 2:
                other.ask(ApiVersionsRequest(), 0)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            while server.metrics.connections_open > 1:
                other.ask(ApiVersionsRequest(), 0)
            gate.set()
            assert produced(other.ask(produce(batch(b"three")), 9)) == (0, 2)  # so the answer before it was known
            other.ask(ApiVersionsRequest(), 0)
            assert server.memory_used_bytes == 0
            other.close()
