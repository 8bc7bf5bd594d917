"""Answers come out whole, whatever pieces they came in and however large they are, and hostile ones are refused.

The other end of a socket pair sends what hypothesis makes up, cut where it likes; a frame that declares too much is
refused before its bytes come.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.client.wire.connection import AnswerStream, FrameMemory, WireConnection
from foldlog.errors import MalformedBytes, RefusedByBroker
from foldlog.wire.frames import encode_response
from foldlog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from foldlog.wire.messages.fetch import FetchRequest
from foldlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

FRAME_BYTES_MAX = 5_000_000
SOON_S = 30.0
"""Nothing takes this long."""

NOW_S = 0.001


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


sizes = st.one_of(st.integers(0, 40), st.sampled_from([65_531, 65_532, 65_533, 65_536, 200_000, 1_200_000, 5_000_000]))


@given(sizes=st.lists(sizes, max_size=4), cuts=st.lists(st.integers(0, 6_000_000), max_size=6))
def test_frames_come_out_whole_whatever_pieces_they_came_in(sizes: list[int], cuts: list[int]) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = framed(*bodies)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pieces = [stream[start:stop] for start, stop in pairwise(edges)]
        sending = threading.Thread(target=lambda: deque(map(theirs.sendall, pieces), maxlen=0))
        sending.start()
        answers, memory = AnswerStream(ours, FRAME_BYTES_MAX), FrameMemory()
        assert [bytes(answers.next(SOON_S, memory)) for _ in bodies] == bodies
        sending.join()


def test_what_has_come_of_a_frame_is_kept_when_the_time_is_up(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    answers = AnswerStream(ours, FRAME_BYTES_MAX)
    body = bytes(range(256)) * 400  # more than the window
    stream = framed(b"small", body)
    for start, stop in pairwise([0, 3, 7, 9, 70_000, 70_001]):
        theirs.sendall(stream[start:stop])
        if stop == 9:
            assert bytes(answers.next(SOON_S)) == b"small"
        with pytest.raises(TimeoutError):
            answers.next(NOW_S)
    theirs.sendall(stream[70_001:])
    assert bytes(answers.next(SOON_S)) == body


def test_a_large_frame_stands_in_the_memory_that_was_given(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    answers, memory = AnswerStream(ours, FRAME_BYTES_MAX), FrameMemory()
    sending = threading.Thread(target=theirs.sendall, args=(framed(b"a" * 100_000, b"b" * 90_000),))
    sending.start()
    first = answers.next(SOON_S, memory)
    assert bytes(first[:3]) == b"aaa"
    second = answers.next(SOON_S, memory)
    assert bytes(first[:3]) == b"bbb"
    assert len(second) == 90_000
    sending.join()


def test_memory_grows_with_the_bytes_that_come_and_not_with_what_is_declared(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    declared_bytes = 100 << 20
    answers, memory = AnswerStream(ours, declared_bytes), FrameMemory()
    theirs.sendall(declared_bytes.to_bytes(4, "big") + bytes(70_000))
    with pytest.raises(TimeoutError):
        answers.next(NOW_S, memory)
    assert memory.size_bytes < 2 << 20


@pytest.mark.parametrize("size", [-1, FRAME_BYTES_MAX + 1, -(1 << 31), (1 << 31) - 1])
def test_a_frame_that_declares_too_much_is_refused_before_it_comes(
    ends: tuple[socket.socket, socket.socket], size: int
) -> None:
    ours, theirs = ends
    theirs.sendall(struct.pack(">i", size))
    with pytest.raises(MalformedBytes, match="frame"):
        AnswerStream(ours, FRAME_BYTES_MAX).next(SOON_S)


def test_an_end_in_the_middle_of_a_frame_is_a_lost_connection(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(framed(b"whole") + framed(b"torn")[:6])
    theirs.close()
    answers = AnswerStream(ours, FRAME_BYTES_MAX)
    assert bytes(answers.next(SOON_S)) == b"whole"
    with pytest.raises(ConnectionError):
        answers.next(SOON_S)


# --- versions ---------------------------------------------------------------------------------------------------------


def negotiated(ends: tuple[socket.socket, socket.socket], first: int, last: int) -> WireConnection:
    """A connection to a broker that serves Fetch in these versions, and nothing else."""
    ours, theirs = ends
    known = ApiVersion(api_key=FetchRequest.API_KEY, min_version=first, max_version=last)
    theirs.sendall(b"".join(encode_response(ApiVersionsResponse(api_keys=[known]), 0, 1)))
    connection = WireConnection(ours, "kafka:9092")
    connection.negotiate(SOON_S)
    return connection


@pytest.mark.parametrize(
    ("first", "last", "at_most", "chosen"), [(0, 11, None, 11), (4, 99, None, 18), (4, 17, 12, 12), (18, 30, None, 18)]
)
def test_the_newest_version_that_both_ends_know_is_spoken(
    ends: tuple[socket.socket, socket.socket], first: int, last: int, at_most: int | None, chosen: int
) -> None:
    assert negotiated(ends, first, last).version_of(FetchRequest, at_most) == chosen


@pytest.mark.parametrize(("first", "last", "at_most"), [(0, 3, None), (19, 22, None), (13, 17, 12)])
def test_a_broker_with_no_version_in_common_is_told_of_in_a_sentence(
    ends: tuple[socket.socket, socket.socket], first: int, last: int, at_most: int | None
) -> None:
    connection = negotiated(ends, first, last)
    with pytest.raises(RefusedByBroker, match=f"kafka:9092 serves Fetch in versions {first} to {last}"):
        connection.version_of(FetchRequest, at_most)
    with pytest.raises(RefusedByBroker, match="kafka:9092 does not serve Heartbeat"):
        connection.version_of(HeartbeatRequest)


def test_an_answer_to_another_request_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(b"".join(encode_response(HeartbeatResponse(), 0, 77)))
    with pytest.raises(MalformedBytes, match="another request"):
        WireConnection(ours, "kafka:9092").call_in(HeartbeatRequest(), HeartbeatResponse, 0)


def test_a_connection_that_was_closed_while_idle_is_known_for_it(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    connection = WireConnection(ours, "kafka:9092")
    assert not connection.is_closed_there()
    theirs.close()
    assert connection.is_closed_there()
