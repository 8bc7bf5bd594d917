"""The fast path of Produce says what the codec says, or nothing: in every version and shape, whatever the bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldlog.errors import MalformedBytes
from foldlog.wire.codec import decoder
from foldlog.wire.frames import encode_request, encode_response, parse_request_header
from foldlog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from foldlog.wire.produce_fast_path import FastProduce, fast_answer, fast_produce

VERSIONS = range(3, 14)
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(min_size=0, max_size=130)


def frame_of(
    request: ProduceRequest, version: int, client_id: str | None = "me", correlation_id: int = 7
) -> memoryview:
    return memoryview(bytearray(b"".join(encode_request(request, version, correlation_id, client_id))))


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40, deadline=None)
@given(
    NAMES, st.binary(min_size=16, max_size=16), INT32, st.binary(min_size=0, max_size=300), INT16, INT32,
    st.none() | st.text(max_size=20), INT32,
)  # fmt: skip
def test_a_plain_request_is_read_as_the_codec_reads_it(
    version: int, name: str, topic_id: bytes, partition: int, records: bytes, acks: int, timeout_ms: int,
    client_id: str | None, correlation_id: int,
) -> None:  # fmt: skip
    data = [PartitionProduceData(index=partition, records=records)]
    topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=data)
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
    frame = frame_of(request, version, client_id, correlation_id)
    found = fast_produce(frame, 4, len(frame))
    if 9 <= version < 13 and len(name.encode()) >= 127:
        assert found is None  # the codec's
        return
    assert found is not None
    assert bytes(frame[found.records_start : found.records_end]) == records
    assert (found.version, found.correlation_id, found.acks, found.timeout_ms) == (
        version, correlation_id, acks, timeout_ms,
    )  # fmt: skip
    assert (found.topic, found.partition) == (topic_id if version >= 13 else name.encode(), partition)


@pytest.mark.parametrize("version", VERSIONS)
def test_other_shapes_are_left_to_the_codec(version: int) -> None:
    def topic(*records: bytes | None) -> TopicProduceData:
        data = [PartitionProduceData(index=number, records=one) for number, one in enumerate(records)]
        return TopicProduceData(name="orders", topic_id=b"\1" * 16, partition_data=data)

    for request in (
        ProduceRequest(topic_data=[]),
        ProduceRequest(topic_data=[topic()]),
        ProduceRequest(topic_data=[topic(b"one", b"two")]),
        ProduceRequest(topic_data=[topic(b"one"), topic(b"two")]),
        ProduceRequest(topic_data=[topic(None)]),
        ProduceRequest(topic_data=[topic(b"one")], transactional_id="tx"),
    ):
        frame = frame_of(request, version)
        assert fast_produce(frame, 4, len(frame)) is None


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_the_bytes_it_never_says_other_than_the_codec(version: int, data: st.DataObject) -> None:
    records = b"\xfe\xed" * 10
    topic = TopicProduceData(
        name="orders", topic_id=b"\1" * 16, partition_data=[PartitionProduceData(index=1, records=records)]
    )
    frame = frame_of(ProduceRequest(acks=-1, timeout_ms=5, topic_data=[topic]), version)
    # Not the key, the version and the correlation id, which are the same for both.
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(12, len(frame) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.sampled_from([len(frame), len(frame) - 1, data.draw(st.integers(12, len(frame)))]))
    found = fast_produce(frame, 4, end)
    if found is None:
        return
    try:
        header, position = parse_request_header(frame, 4, end)
        request = decoder(ProduceRequest, version)(frame, position, end)
    except MalformedBytes:
        # Text that is not UTF-8 is the one thing that it does not look at: no topic has such a name.
        with pytest.raises(UnicodeDecodeError):
            (bytes(frame[14 : 14 + max(0, struct.unpack_from(">h", frame, 12)[0])]) + b"|" + found.topic).decode()
        return
    (named,) = request.topic_data
    (only,) = named.partition_data
    assert found.topic == (named.topic_id if version >= 13 else named.name.encode())
    assert (found.acks, found.timeout_ms, found.partition) == (request.acks, request.timeout_ms, only.index)
    assert bytes(frame[found.records_start : found.records_end]) == bytes(only.records or b"")
    assert request.transactional_id is None
    assert found.correlation_id == header.correlation_id


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30, deadline=None)
@given(st.text(max_size=40), INT32, INT64, INT64, INT64)
def test_the_answer_has_the_bytes_of_the_codec(
    version: int, name: str, partition: int, base_offset: int, append_time_ms: int, log_start_offset: int
) -> None:
    topic = b"\2" * 16 if version >= 13 else name.encode()
    asked = FastProduce(version, 99, -1, 5, topic, partition, 0, 0)
    if version < 13 and len(topic) >= 127:
        return
    only = PartitionProduceResponse(
        index=partition, base_offset=base_offset, log_append_time_ms=append_time_ms, log_start_offset=log_start_offset
    )
    answer = TopicProduceResponse(name=name, topic_id=b"\2" * 16, partition_responses=[only])
    expected = b"".join(encode_response(ProduceResponse(responses=[answer]), version, 99))
    assert fast_answer(asked, base_offset, append_time_ms, log_start_offset) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_id_of_negative_length_is_left_to_the_codec_which_refuses_it(version: int) -> None:
    topic = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=1, records=b"records")])
    frame = frame_of(ProduceRequest(acks=-1, topic_data=[topic]), version, client_id=None)
    assert fast_produce(frame, 4, len(frame)) is not None
    frame[12:14] = struct.pack(">h", -2)
    assert fast_produce(frame, 4, len(frame)) is None
