"""Attacks by who has not logged in: what it sends is not decoded, and it keeps nobody out who may come in."""

from __future__ import annotations

import select
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from foldlog.broker.broker import Broker
from foldlog.server.access import logins
from foldlog.server.net import connection, memory
from foldlog.server.produce_fast_path import ProduceFastPath
from foldlog.server.server import Server
from foldlog.wire.frames import parse_request_header
from foldlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from foldlog.wire.messages.sasl_handshake import SaslHandshakeRequest
from server.access.sasl_broker import PASSWORD, SIMPLE_USER, sasl_broker
from server.raw_client import TIMEOUT_S, RawClient, batch, produce, produced

INTRUDERS = 1000
COUNT_MAX = struct.pack(">i", 2**31 - 1)
ZSTD = 4


@pytest.fixture
def served() -> Iterator[tuple[Broker, Server]]:
    with sasl_broker() as both:
        yield both


def frame(api_key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api_key, version, 1, -1)
    return struct.pack(">i", len(header + body)) + header + body


def known(server: Server) -> RawClient:
    """A client that has logged in."""
    client = RawClient(server.addresses[0])
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    shown = SaslAuthenticateRequest(auth_bytes=f"\0{SIMPLE_USER}\0{PASSWORD}".encode())
    assert client.ask(shown, 1).error_code == 0
    return client


def bomb() -> bytes:
    """A Produce of 300 MiB in a few kilobytes."""
    records = batch(*[bytes(1 << 20)] * 300, compression=ZSTD)
    assert len(records) < 100_000
    return frame(
        0, 3, struct.pack(">hhii", -1, -1, 1000, 1) + struct.pack(">h6sii", 6, b"orders", 1, 0) + blob(records)
    )


def blob(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


COUNTS = {
    "Produce of partitions": frame(0, 3, struct.pack(">hhii", -1, -1, 1000, 1) + b"\0\6orders" + COUNT_MAX),
    "Fetch of topics": frame(1, 11, struct.pack(">iiiibii", -1, 500, 1, 1 << 20, 0, 0, -1) + COUNT_MAX),
    "Metadata of topics": frame(3, 1, COUNT_MAX),
    "CreateTopics": frame(19, 2, COUNT_MAX),
    "an API that is not there": frame(999, 0, COUNT_MAX),
}


@pytest.mark.parametrize("attack", [*COUNTS, "bomb"])
def test_requests_are_not_decoded_before_a_login(
    served: tuple[Broker, Server], attack: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The same bytes are decoded once the client is known: the spies can see."""
    sent = COUNTS.get(attack) or bomb()
    broker, server = served
    intruder, honest = RawClient(server.addresses[0]), known(server)
    decoded: list[str] = []
    watch(monkeypatch, decoded)
    with caplog.at_level("WARNING"):
        intruder.socket.sendall(sent)
        assert intruder.is_closed_by_peer()
    assert decoded == []
    assert "before it logged in" in caplog.text
    honest.socket.sendall(sent)
    if attack == "bomb":
        honest.receive_frame()
    else:
        assert honest.is_closed_by_peer()
    assert decoded
    assert broker.partition("orders", 0).log_end_offset == 0
    for client in (intruder, honest):
        client.close()


def watch(monkeypatch: pytest.MonkeyPatch, decoded: list[str]) -> None:
    """Note each time that one of the two ways into a request is taken."""
    append = ProduceFastPath.append

    def noted_parse(*arguments: Any) -> Any:
        decoded.append("header")
        return parse_request_header(*arguments)

    def noted_append(*arguments: Any) -> Any:
        decoded.append("fast path")
        return append(*arguments)

    monkeypatch.setattr(connection, "parse_request_header", noted_parse)
    monkeypatch.setattr(ProduceFastPath, "append", noted_append)


@pytest.mark.parametrize(
    "sent",
    [
        frame(17, 1, struct.pack(">h", 32767)),
        frame(36, 1, COUNT_MAX),
        frame(36, 2, b"\0" + b"\xff\xff\xff\xff\x0f"),
        frame(18, 3, b"\0" + b"\xff\xff\xff\xff\x0f"),
    ],
    ids=["a mechanism", "a token", "a compact token", "a name of software"],
)
def test_what_may_be_asked_before_a_login_ends_at_a_length_that_is_not_there(
    served: tuple[Broker, Server], sent: bytes
) -> None:
    _, server = served
    intruder = RawClient(server.addresses[0])
    intruder.socket.sendall(sent)
    assert intruder.is_closed_by_peer()
    intruder.close()
    known(server).close()


def test_many_that_never_log_in_keep_nobody_out_and_are_closed(
    served: tuple[Broker, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent ones, some in the middle of a frame, some that have named a mechanism and show no token."""
    _, server = served
    monkeypatch.setattr(logins, "LOGIN_S", 600.0)
    before = known(server)
    intruders = [RawClient(server.addresses[0]) for _ in range(INTRUDERS)]
    for number, intruder in enumerate(intruders):
        if number % 3 == 1:
            intruder.socket.sendall(struct.pack(">i", 400_000) + bytes(100))
        elif number % 3 == 2:
            assert intruder.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1).error_code == 0
    after = known(server)
    for offset, honest in enumerate((before, after)):
        assert produced(honest.ask(produce(batch(b"honest")), 9)) == (0, offset)
    # Their time is over now.
    monkeypatch.setattr(logins, "LOGIN_S", 0.0)
    for intruder in intruders:
        assert intruder.is_closed_by_peer()
        intruder.close()
    for offset, honest in enumerate((before, after)):
        assert produced(honest.ask(produce(batch(b"honest")), 9)) == (0, 2 + offset)
        honest.close()


def await_true(is_so: Callable[[], bool]) -> None:
    """What happens on the broker's loop is not told to who causes it."""
    deadline, pause = time.monotonic() + TIMEOUT_S, threading.Event()
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that"
        pause.wait(0.001)


def begun(server: Server, size: int, sent: int) -> RawClient:
    """A client that has not logged in, and has sent the beginning of a frame."""
    client = RawClient(server.addresses[0])
    client.socket.sendall(struct.pack(">i", size) + bytes(sent))
    return client


def test_strangers_hold_memory_of_their_own_and_none_of_those_who_logged_in() -> None:
    """Common memory for two frames: as many as fit into it several times over have begun, and nobody notices."""
    with sasl_broker({"queued.max.request.bytes": 1 << 20, "socket.request.max.bytes": 600_000}) as (_, server):
        honest = known(server)
        intruders = [begun(server, 500_000, 300_000) for _ in range(20)]
        await_true(lambda: server.strangers_used_bytes >= 20 * 300_000)
        assert server.memory_used_bytes < 300_000
        sent = honest.frame(produce(batch(bytes(400_000))), 9)
        honest.socket.sendall(sent[:200_000])
        await_true(lambda: server.memory_used_bytes >= 200_000)
        honest.socket.sendall(sent[200_000:])
        assert honest.receive_frame()
        for client in (*intruders, honest):
            client.close()
        await_true(lambda: server.strangers_used_bytes == 0)


def test_who_holds_most_of_the_strangers_memory_is_closed_and_small_ones_log_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory.StrangersBudget.__init__, "__defaults__", (1 << 20,))
    with sasl_broker() as (_, server):
        slow = RawClient(server.addresses[0])
        sent = slow.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        slow.socket.sendall(sent[:9])  # a login that comes in pieces, over a bad line
        intruders = [begun(server, 500_000, 400_000) for _ in range(20)]
        await_true(lambda: len(select.select([one.socket for one in intruders], (), (), 0)[0]) >= 18)
        assert server.strangers_used_bytes <= 1 << 20
        slow.socket.sendall(sent[9:])
        assert slow.receive_frame()
        assert "held most of the memory" in caplog.text
        known(server).close()
        for client in (*intruders, slow):
            client.close()


def test_a_frame_before_the_login_is_small(served: tuple[Broker, Server], caplog: pytest.LogCaptureFixture) -> None:
    _, server = served
    intruder = begun(server, 524_289, 0)
    assert intruder.is_closed_by_peer()
    assert "a request of 524289 bytes; it has 8 to sasl.server.max.receive.size=524288" in caplog.text
    intruder.close()
    honest = known(server)
    honest.socket.sendall(struct.pack(">i", 524_289) + bytes(100))
    await_true(lambda: server.memory_used_bytes > 0)
    honest.close()


def test_what_was_held_before_the_login_is_counted_with_everybodys_after_it(served: tuple[Broker, Server]) -> None:
    _, server = served
    client = known(server)
    client.socket.sendall(struct.pack(">i", 300_000) + bytes(100_000))
    await_true(lambda: server.memory_used_bytes >= 100_000)
    assert server.strangers_used_bytes == 0
    client.close()
    await_true(lambda: server.memory_used_bytes == 0)
