"""Headers and frames in both directions: against kio's headers, and against broken bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseHeaderV0
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseHeaderV1
from kio.static.primitive import i16, i32

from foldlog.errors import InvalidArgument, MalformedBytes
from foldlog.limits import HEADER_TAGS_MAX
from foldlog.wire import frames
from foldlog.wire.codec import decoder, encode
from foldlog.wire.frames import RequestHeader
from foldlog.wire.messages import APIS, NAMES
from foldlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from foldlog.wire.messages.heartbeat import HeartbeatResponse
from foldlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.filled import filled
from wire.kio_values import VERSIONS, kio_bytes, request_and_response, version_id

LARGE = b"batch" * 2000


def unframed(chunks: list[bytes | bytearray | memoryview]) -> bytes:
    """The frame without its length, which has to be right."""
    frame = b"".join(chunks)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    return frame[4:]


@pytest.mark.parametrize("pair", VERSIONS, ids=version_id)
def test_a_request_begins_with_the_header_that_kio_says(pair: tuple[int, int]) -> None:
    api_key, version = pair
    kio_request, _ = request_and_response(api_key, version)
    kio_header = kio_request.__header_schema__
    assert kio_header in {KioHeaderV1, KioHeaderV2}
    request = filled(frames.request_class(api_key), version)
    for client_id in (None, "", "rdkafka é"):
        fields = {"request_api_key": i16(api_key), "request_api_version": i16(version), "correlation_id": i32(77)}
        header = kio_bytes(kio_header(**fields, client_id=client_id))
        frame = unframed(frames.encode_request(request, version, 77, client_id))
        assert frame == header + encode(request, version)

        within = b"before" + frame + b"after"
        parsed, body = frames.parse_request_header(within, 6, 6 + len(frame))
        assert parsed == RequestHeader(api_key, version, 77, client_id)
        assert body == 6 + len(header)
        assert decoder(type(request), version)(within, body, 6 + len(frame)) == request


@pytest.mark.parametrize("pair", VERSIONS, ids=version_id)
def test_a_response_begins_with_the_header_that_kio_says(pair: tuple[int, int]) -> None:
    api_key, version = pair
    _, kio_response = request_and_response(api_key, version)
    kio_header = kio_response.__header_schema__
    assert kio_header in {KioResponseHeaderV0, KioResponseHeaderV1}
    response = filled(frames.response_class(api_key), version)
    frame = unframed(frames.encode_response(response, version, -5))
    assert frame == kio_bytes(kio_header(correlation_id=i32(-5))) + encode(response, version)
    assert frames.response_correlation_id(frame) == -5
    assert frames.decode_response(type(response), version, frame) == (-5, response)


def test_the_header_of_an_api_versions_response_never_has_tags() -> None:
    """Its reader does not know yet which version the broker speaks."""
    frame = unframed(frames.encode_response(ApiVersionsResponse(error_code=35), 3, 1))
    assert frame[:6] == struct.pack(">ih", 1, 35)


def test_records_in_a_frame_are_the_buffers_given() -> None:
    records = memoryview(LARGE)
    topic = TopicProduceData(name="orders", partition_data=[PartitionProduceData(records=records)])
    chunks = frames.encode_request(ProduceRequest(topic_data=[topic]), 9, 1, "me")
    assert any(chunk is records for chunk in chunks)
    header, body = frames.parse_request_header(unframed(chunks), 0, len(unframed(chunks)))
    assert header.client_id == "me"
    assert body == 8 + 2 + 2 + 1


def test_of_an_api_that_is_not_known_enough_is_read_to_answer() -> None:
    assert 9999 not in NAMES
    data = struct.pack(">hhi", 9999, 3, 42) + b"whatever comes"
    assert frames.parse_request_header(data, 0, len(data)) == (RequestHeader(9999, 3, 42, None), 8)
    data = struct.pack(">hhi", -1, -1, 42)
    assert frames.parse_request_header(data, 0, len(data)) == (RequestHeader(-1, -1, 42, None), 8)


@pytest.mark.parametrize("version", [APIS[18].last + 1, 99, -1])
def test_of_a_version_that_is_not_known_enough_is_read_to_answer(version: int) -> None:
    data = struct.pack(">hhi", 18, version, 42) + b"\xff"
    assert frames.parse_request_header(data, 0, len(data)) == (RequestHeader(18, version, 42, None), 8)


def test_a_version_below_the_first_one_has_the_old_header() -> None:
    """Produce 0 to 2 are advertised, so that old clients compress, and have to be answered."""
    data = struct.pack(">hhih", 0, 1, 42, 2) + b"me" + b"body"
    assert frames.parse_request_header(data, 0, len(data)) == (RequestHeader(0, 1, 42, "me"), 12)


def test_tags_of_a_header_are_skipped() -> None:
    start = struct.pack(">hhih", 12, 4, 42, -1)
    data = start + b"\x02\x00\x01a\x07\x00" + b"body"
    assert frames.parse_request_header(data, 0, len(data)) == (RequestHeader(12, 4, 42, None), len(data) - 4)
    response = struct.pack(">i", 42) + b"\x01\x00\x03abc" + encode(HeartbeatResponse(), 4)
    assert frames.decode_response(HeartbeatResponse, 4, response) == (42, HeartbeatResponse())


@pytest.mark.parametrize(
    "tail",
    [
        b"\xff\xfe",  # a length of -2
        b"\x7f\xffabc",
        b"\x00\x01\xff\x00",  # not UTF-8
        b"\x00\x00\x01\x00\x7f",
        b"\x00\x00\x01",
        b"\x00\x00" + b"\xff" * 6,
        b"\x00\x00" + bytes([HEADER_TAGS_MAX + 1]) + b"\x00\x00" * (HEADER_TAGS_MAX + 1),
        b"\x00",
        b"",
    ],
)
def test_a_broken_header_is_refused(tail: bytes) -> None:
    data = struct.pack(">hhi", 12, 4, 42) + tail
    with pytest.raises(MalformedBytes, match="request header"):
        frames.parse_request_header(data, 0, len(data))
    # Bytes of the next request, in the same buffer, are not this one's.
    with pytest.raises(MalformedBytes, match="request header"):
        frames.parse_request_header(data + (b"" if tail else b"\xff\xff\x00"), 0, len(data))


@given(st.binary(max_size=40))
def test_random_headers_are_parsed_or_refused(noise: bytes) -> None:
    buffer = noise + b"\0" * 20
    try:
        _, body = frames.parse_request_header(buffer, 0, len(noise))
    except MalformedBytes:
        return
    assert 8 <= body <= len(noise)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\x2a", b"\0\0\0\x2a\x01", b"\0\0\0\x2a\x7f"])
def test_a_broken_response_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedBytes):
        frames.decode_response(HeartbeatResponse, 4, frame)


def test_an_api_without_messages_is_an_error_of_the_caller() -> None:
    with pytest.raises(InvalidArgument, match="API key 38"):
        frames.load(38)
    assert frames.load(18).REQUEST is ApiVersionsRequest
    assert frames.response_of(ApiVersionsRequest) is ApiVersionsResponse
