"""Answers that are known together leave together: one write for a sync, so what the client sends next shares the next.

A connection on a loop that the test turns by hand, with a transport that notes every write.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest

from foldlog.server.net.connection import ClientConnection, CoalescedCall
from foldlog.wire.frames import encode_request
from foldlog.wire.messages.produce import ProduceRequest
from server.raw_client import batch, produce
from server.small_node import ENDPOINT, SmallNode

VERSION = 9


class NotedTransport:
    """As much of a transport as a connection uses."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("127.0.0.1", 1), "held_memory": None}.get(name, self)

    def fileno(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def writelines(self, chunks: Iterable[bytes]) -> None:
        self.writes.append(b"".join(chunks))


def correlation_ids(data: bytes) -> list[int]:
    """Of the answers in one write."""
    found = []
    while data:
        size, correlation_id = struct.unpack_from(">ii", data)
        found.append(correlation_id)
        data = data[4 + size :]
    return found


@pytest.fixture
def small() -> Iterator[SmallNode]:
    small = SmallNode()
    small.broker.create_topic("orders")
    yield small
    small.close()


def connected(small: SmallNode) -> tuple[ClientConnection, NotedTransport]:
    connection, transport = ClientConnection(small.node, ENDPOINT), NotedTransport()
    connection.connection_made(cast(asyncio.BaseTransport, transport))
    return connection, transport


def send(small: SmallNode, connection: ClientConnection, *requests: tuple[int, ProduceRequest]) -> None:
    """All of them in one receive."""
    data = b"".join(b"".join(encode_request(request, VERSION, number, "test")) for number, request in requests)
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def wait_for_answers(small: SmallNode, transport: NotedTransport, count: int) -> None:
    until = time.monotonic() + 30
    while sum(len(correlation_ids(write)) for write in transport.writes) < count:
        assert time.monotonic() < until
        small.turn()


def test_what_one_sync_acknowledges_is_one_write(small: SmallNode) -> None:
    connection, transport = connected(small)
    send(small, connection, (0, produce(batch(b"opens the partition"))))
    wait_for_answers(small, transport, 1)
    transport.writes.clear()
    send(small, connection, *((number, produce(batch(b"%d" % number))) for number in range(1, 6)))
    wait_for_answers(small, transport, 5)
    assert [correlation_ids(write) for write in transport.writes] == [[1, 2, 3, 4, 5]]
    connection.connection_lost(None)


def test_it_acts_once_for_all_who_ask_in_one_turn_and_again_in_the_next(small: SmallNode) -> None:
    acts: list[str] = []
    soon = CoalescedCall(small.loop.call_soon, lambda: acts.append("first"), lambda: acts.append("second"))
    soon()
    soon()
    assert acts == []
    small.turn()
    assert acts == ["first", "second"]
    soon()
    small.turn()
    assert acts == ["first", "second"] * 2
