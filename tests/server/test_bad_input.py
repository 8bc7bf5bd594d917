"""Whatever comes over a connection, that connection is answered or closed, and the others are served.

Random bytes, mutated frames, lengths and counts that cannot be, thousands of connections, clients that never read:
with bounds on count and time, and memory measured.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldlog.broker.broker import Broker
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import request_class
from foldlog.wire.messages import APIS
from foldlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from foldlog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from foldlog.wire.messages.produce import ProduceResponse
from server.conftest import Connect, Serve
from server.raw_client import RawClient, batch, fetch, produce, produced


@pytest.fixture(scope="module")
def hardened() -> Iterator[Server]:
    with Broker.open(":memory:") as broker:
        broker.create_topic("orders", partitions=3)
        with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
            yield server


def is_serving(server: Server) -> bool:
    client = RawClient(server.addresses[0])
    answer = client.ask(produce(batch(b"alive")), 9)
    client.close()
    return produced(answer)[0] == 0


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 7, 104_857_601, 2**31 - 1, 0x16030100, 0x47455420])
def test_a_length_that_cannot_be_ends_the_connection_with_one_line(
    server: Server, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        client = RawClient(server.addresses[0])
        client.socket.sendall(struct.pack(">i", length) + bytes(100))
        assert client.is_closed_by_peer()
        client.close()
    assert is_serving(server)
    lines = [record.message for record in caplog.records if "connection closed" in record.message]
    assert len(lines) == 1, "those that are like it are counted"
    assert ("looks like TLS" in lines[0]) == (length == 0x16030100)
    assert ("looks like HTTP" in lines[0]) == (length == 0x47455420)


def test_an_api_that_is_not_served_ends_the_connection(hardened: Server) -> None:
    for api_key, version in [(24, 3), (68, 9), (999, 0), (-1, 0), (1, 3), (1, 99), (0, -1)]:
        client = RawClient(hardened.addresses[0])
        client.socket.sendall(struct.pack(">ihhi", 14, api_key, version, 1) + b"\xff\xff" + bytes(4))
        assert client.is_closed_by_peer(), (api_key, version)
        client.close()


def test_an_api_versions_request_from_the_future_is_answered_with_what_there_is(hardened: Server) -> None:
    client = RawClient(hardened.addresses[0])
    client.socket.sendall(struct.pack(">ihhi", 9, 18, 99, 5) + b"\x00")
    correlation_id, answer = client.receive(ApiVersionsResponse, 0)
    assert (correlation_id, answer.error_code) == (5, ErrorCode.UNSUPPORTED_VERSION)
    listed = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert listed[18] == (0, 5)
    assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    client.close()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_old_produce_is_refused_in_its_own_format(hardened: Server, version: int) -> None:
    client = RawClient(hardened.addresses[0])
    body = struct.pack(">hi", 1, 1000) + struct.pack(">ih6si", 1, 6, b"orders", 2)
    for partition in (0, 1):
        body += struct.pack(">ii", partition, 5) + b"12345"
    header = struct.pack(">hhih", 0, version, 77, -1)
    client.socket.sendall(struct.pack(">i", len(header + body)) + header + body)
    answer = client.receive_frame()
    per_partition = struct.Struct(">ihqq" if version == 2 else ">ihq")
    expected = struct.pack(">iih6si", 77, 1, 6, b"orders", 2)
    for partition in (0, 1):
        values = (partition, ErrorCode.UNSUPPORTED_VERSION, -1, -1)
        expected += per_partition.pack(*values[: 4 if version == 2 else 3])
    assert answer == expected + (struct.pack(">i", 0) if version else b"")
    client.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=0, max_size=200), st.booleans())
def test_random_bytes_harm_nobody(hardened: Server, data: bytes, has_length: bool) -> None:
    client = RawClient(hardened.addresses[0])
    client.socket.sendall(struct.pack(">i", len(data)) + data if has_length else data)
    client.close()


def test_mutated_requests_of_every_api_harm_nobody(hardened: Server) -> None:
    source = random.Random(20261116)
    for api in APIS.values():
        for version in (api.first, api.last):
            client = RawClient(hardened.addresses[0])
            frame = bytearray(client.frame(request_class(api.key)(), version))
            for _ in range(12):
                mutated = bytearray(frame)
                for _ in range(source.randint(1, 4)):
                    mutated[source.randrange(4, len(mutated))] = source.randrange(256)
                cut = mutated[4 : source.randrange(12, len(mutated) + 1)] if source.random() < 0.3 else mutated[4:]
                struct.pack_into(">hh", cut, 0, api.key, version)
                one = RawClient(hardened.addresses[0])
                one.socket.sendall(struct.pack(">i", len(cut)) + cut)
                one.close()
            client.close()
    assert is_serving(hardened)


def test_counts_beyond_the_frame_end_the_connection(hardened: Server) -> None:
    client = RawClient(hardened.addresses[0])
    # Fetch v11 that declares two thousand million topics.
    body = struct.pack(">iiiibii", -1, 500, 1, 1 << 20, 0, 0, -1) + struct.pack(">i", 2**31 - 1)
    header = struct.pack(">hhih", 1, 11, 1, -1)
    client.socket.sendall(struct.pack(">i", len(header + body)) + header + body)
    assert client.is_closed_by_peer()
    client.close()
    assert is_serving(hardened)


@pytest.mark.parametrize("name", ["../../etc", "..", ".", "a/b", "a\\b", "a\0b", "", "x" * 250, "ünï", "a b"])
def test_a_topic_name_cannot_leave_the_directory(hardened: Server, name: str) -> None:
    client = RawClient(hardened.addresses[0])
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
    answer = client.ask(request, 5)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert produced(client.ask(produce(batch(b"x"), topic=name), 9))[0] in {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    client.close()


def test_damaged_batches_are_refused_and_nothing_of_them_is_kept(connect: Connect, broker: Broker) -> None:
    client = connect()
    good = batch(b"one", b"two")
    for position in range(len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 0x41
        code, _ = produced(client.ask(produce(bytes(damaged)), 9))
        # Base offset and leader epoch are the log's to write, and not covered by the CRC.
        if position < 8 or 12 <= position < 16:
            assert code == 0, position
        else:
            assert code != 0, position
    assert broker.partition("orders", 0).log_end_offset == 2 * 12


def test_records_that_are_missing_or_empty_are_refused(connect: Connect) -> None:
    client = connect()
    for records in (None, b"", b"\0" * 30, batch(b"one")[:-1], batch(b"one") + b"\0"):
        code, offset = produced(client.ask(produce(records), 9))
        assert code != 0
        assert offset == -1


def test_a_decompression_bomb_is_refused_and_others_are_served_meanwhile(connect: Connect) -> None:
    client, other = connect(), connect()
    bomb = batch(*[bytes(1 << 20)] * 300, compression=4)  # zstd: 300 MiB in a few kilobytes
    assert len(bomb) < 1 << 20
    client.send(produce(bomb), 9)
    assert produced(other.ask(produce(batch(b"one"), partition=1), 9)) == (0, 0)
    assert produced(client.receive(ProduceResponse, 9)[1])[0] != 0


def test_a_thousand_idle_connections_cost_little_and_others_are_served(serve: Serve) -> None:
    server = serve()
    idle = [RawClient(server.addresses[0]) for _ in range(1000)]
    assert is_serving(server)
    for client in idle:
        client.close()


def test_slow_senders_hold_only_what_they_have_sent(serve: Serve) -> None:
    server = serve({"queued.max.request.bytes": 8 << 20, "socket.request.max.bytes": 8 << 20})
    slow = [RawClient(server.addresses[0]) for _ in range(100)]
    for client in slow:
        client.socket.sendall(struct.pack(">i", 7 << 20) + struct.pack(">hhih", 0, 9, 1, -1))
    assert is_serving(server)
    for client in slow:
        client.close()


def test_who_never_reads_its_answers_is_not_served_further_and_others_are(serve: Serve, broker: Broker) -> None:
    server = serve({"queued.max.request.bytes": 16 << 20, "socket.request.max.bytes": 16 << 20})
    filler = RawClient(server.addresses[0])
    for _ in range(16):
        filler.ask(produce(batch(b"x" * 1_000_000)), 9)
    filler.close()
    deaf = [RawClient(server.addresses[0], receive_buffer_bytes=4096) for _ in range(20)]
    for client in deaf:
        frames = b"".join(client.frame(fetch(0, partition_max_bytes=16 << 20), 11) for _ in range(50))
        client.socket.sendall(frames)
    assert is_serving(server)
    # One answer each at most is on its way, and each later one is smaller as memory gets short.
    assert server.memory_used_bytes < (16 << 20) + 20 * (2 << 20)
    for client in deaf:
        client.close()
