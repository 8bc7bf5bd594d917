"""Produce requests are read and answered as the codec does it, or left to it: in every version and shape."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgets import times
from foldlog.wire.codec import decoder
from foldlog.wire.frames import encode_request, parse_request_header
from foldlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

frames_module = pytest.importorskip("foldlog.wire.produce_frames", reason="it was not built")

VERSIONS = range(3, 14)
MOST = 1 << 30
ASCII = st.text(st.characters(max_codepoint=127), max_size=140)
INT32 = st.integers(-(2**31), 2**31 - 1)
PARTITIONS = st.lists(
    st.builds(PartitionProduceData, index=INT32, records=st.binary(min_size=0, max_size=300)), min_size=1, max_size=4
)
TOPICS = st.lists(
    st.builds(
        TopicProduceData,
        name=st.text(max_size=130),
        topic_id=st.binary(min_size=16, max_size=16),
        partition_data=PARTITIONS,
    ),
    min_size=1,
    max_size=12,
)
REQUESTS = st.builds(
    ProduceRequest,
    acks=st.integers(-1, 1),
    timeout_ms=INT32,
    transactional_id=st.none() | ASCII,
    topic_data=TOPICS,
)


def frame_of(
    request: ProduceRequest, version: int, client_id: str | None = "me", correlation_id: int = 7
) -> memoryview:
    return memoryview(bytearray(b"".join(encode_request(request, version, correlation_id, client_id))))


def read(frame: memoryview, frames_max: int = 100) -> tuple[Any, int, list[bytes]]:
    """The run, with what is in its batches."""
    frames = frames_module.ProduceFrames()
    count = frames.read(frame, 0, len(frame), MOST, frames_max, MOST)
    return frames, count, [bytes(frame[slice(*frames.batches.span(at))]) for at in range(frames.batches.count)]


def is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20, deadline=None)
@given(request=REQUESTS, client_id=st.none() | ASCII, correlation_id=INT32)
def test_a_request_is_read_as_the_codec_reads_it(
    version: int, request: ProduceRequest, client_id: str | None, correlation_id: int
) -> None:
    frames, count, batches = read(frame_of(request, version, client_id, correlation_id))
    assert count == 1
    assert batches == [one.records for topic in request.topic_data for one in topic.partition_data]
    assert (frames.version, frames.acks, frames.timeout_ms) == (version, request.acks, request.timeout_ms)
    named = None if request.transactional_id is None else request.transactional_id.encode()
    assert (frames.transactional_id, frames.correlation_id) == (named, correlation_id)
    topics = {topic.topic_id if version >= 13 else topic.name.encode() for topic in request.topic_data}
    assert set(frames.topics) == topics


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_that_differ_in_what_a_run_has_in_common_are_not_read_together(version: int) -> None:
    def request(**changes: object) -> memoryview:
        topics = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"r")])]
        return frame_of(ProduceRequest(**{"acks": 1, "timeout_ms": 5, "topic_data": topics, **changes}), version)  # type: ignore[arg-type]

    first = bytes(request())
    assert read(memoryview(bytearray(first * 3)))[1] == 3
    assert read(memoryview(bytearray(first * 3)), frames_max=2)[1] == 2
    assert read(memoryview(bytearray(first + first[:-1])))[1] == 1, "the second is not whole"
    for changes in ({"acks": -1}, {"timeout_ms": 6}, {"transactional_id": "tx"}):
        assert read(memoryview(bytearray(first + bytes(request(**changes)))))[1] == 1
    other = bytes(frame_of(ProduceRequest(topic_data=[]), version))
    assert read(memoryview(bytearray(first + other)))[1] == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_other_shapes_are_left_to_the_codec(version: int) -> None:
    for topics in ([], [TopicProduceData(name="t", partition_data=[])]):
        assert read(frame_of(ProduceRequest(topic_data=topics), version))[1] == 0
    usual = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"r")])]
    assert read(frame_of(ProduceRequest(topic_data=usual), version))[1] == 1
    assert read(frame_of(ProduceRequest(topic_data=usual), version, "\u00fc"))[1] == 0, "it may be no text at all"
    assert read(frame_of(ProduceRequest(topic_data=usual, transactional_id="\u00fc"), version))[1] == 0
    null = [PartitionProduceData(index=0, records=None)]
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=null)])
    assert read(frame_of(request, version))[1] == 0


@pytest.mark.parametrize("examples", times(40, 200))
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_read_of_broken_bytes_is_what_the_codec_reads(version: int, examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(request=REQUESTS, at=st.integers(4, 400), change=st.integers(1, 255), cut=st.integers(0, 8))
    def check(request: ProduceRequest, at: int, change: int, cut: int) -> None:
        frame = bytearray(frame_of(request, version))
        frame[4 + at % (len(frame) - 4)] ^= change
        frame = frame[: len(frame) - cut]
        struct.pack_into(">i", frame, 0, len(frame) - 4)
        frames, count, batches = read(memoryview(frame))
        if not count:
            return
        header, position = parse_request_header(memoryview(frame), 4, len(frame))
        assert (header.api_key, header.api_version) == (0, frames.version)
        if not all(is_text(topic) for topic in frames.topics) and version < 13:
            return  # names are looked up as bytes, and such a one is not found
        found = decoder(ProduceRequest, header.api_version)(memoryview(frame), position, len(frame))
        assert [bytes(one.records or b"") for topic in found.topic_data for one in topic.partition_data] == batches
        assert (found.acks, found.timeout_ms) == (frames.acks, frames.timeout_ms)

    check()
