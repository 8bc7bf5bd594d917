"""What generated values of kio cannot show: tags that nobody knows, buffers that are not copied, nulls that may not be.

Bytes are built by hand here, from the protocol's own description of compact types and tagged fields.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from foldlog.errors import InvalidArgument, MalformedBytes
from foldlog.limits import RECORDS_INLINE_BYTES_MAX
from foldlog.wire import frames
from foldlog.wire.codec import decode, decoder, encode, encode_chunks
from foldlog.wire.layout import layout_of
from foldlog.wire.messages import APIS
from foldlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from foldlog.wire.messages.describe_groups import DescribeGroupsRequest
from foldlog.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from foldlog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from foldlog.wire.messages.heartbeat import HeartbeatRequest
from foldlog.wire.messages.metadata import MetadataRequest
from foldlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from foldlog.wire.schema import ZERO_UUID, Message

LARGE = bytes(range(256)) * 64


def tagged(*fields: tuple[int, bytes]) -> bytes:
    """Tagged fields as they stand at the end of a struct; all numbers here fit one byte of a varint."""
    return bytes([len(fields)]) + b"".join(bytes([tag, len(value)]) + value for tag, value in fields)


def fetch_request(*tags: tuple[int, bytes]) -> bytes:
    """A Fetch v17 of nothing, with these tagged fields."""
    assert encode(FetchRequest(), 17).endswith(b"\0")
    return encode(FetchRequest(), 17)[:-1] + tagged(*tags)


def fetch_response(*records: bytes | bytearray | memoryview) -> FetchResponse:
    partitions = [PartitionData(partition_index=index, records=each) for index, each in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=partitions)])


def test_tagged_fields_that_are_not_known_are_skipped() -> None:
    data = fetch_request((0, b"\x04abc"), (5, b"?"), (99, b"from a later version"), (100, b""))
    assert decode(FetchRequest, 17, data) == FetchRequest(cluster_id="abc")


def test_tagged_fields_are_skipped_in_structs_that_know_none() -> None:
    written = encode(ApiVersionsRequest(client_software_name="a", client_software_version="b"), 3)
    data = written[:-1] + tagged((7, b"new"))
    assert decode(ApiVersionsRequest, 3, data).client_software_version == "b"


def test_tags_may_come_in_any_order_and_the_last_of_two_holds() -> None:
    """As Kafka reads them; it writes them in order and once."""
    data = fetch_request((1, struct.pack(">iq", 3, 9) + b"\0"), (0, b"\x02a"), (0, b"\x02b"))
    message = decode(FetchRequest, 17, data)
    assert message.cluster_id == "b"
    assert message.replica_state is not None
    assert (message.replica_state.replica_id, message.replica_state.replica_epoch) == (3, 9)
    assert encode(message, 17) == fetch_request((0, b"\x02b"), (1, struct.pack(">iq", 3, 9) + b"\0"))


def test_a_tagged_field_that_declares_more_than_there_is_is_refused() -> None:
    with pytest.raises(MalformedBytes, match="a tagged field is longer than what is left"):
        decode(FetchRequest, 17, fetch_request()[:-1] + b"\x01\x00\x64\x04abc")
    with pytest.raises(MalformedBytes, match="a tagged field is longer than what is left"):
        decode(ApiVersionsRequest, 3, encode(ApiVersionsRequest(), 3)[:-1] + b"\x01\x00\x64abc")


@pytest.mark.parametrize("value", [b"\x04abc?", b"\x04ab", b""])
def test_a_tagged_field_is_as_long_as_it_declares(value: bytes) -> None:
    with pytest.raises(MalformedBytes):
        decode(FetchRequest, 17, fetch_request((0, value)))


def test_a_tagged_struct_with_only_defaults_is_left_out() -> None:
    plain = fetch_response(b"")
    filled = fetch_response(b"")
    filled.responses[0].partitions[0].current_leader = LeaderIdAndEpoch()
    assert encode(filled, 12) == encode(plain, 12)
    filled.responses[0].partitions[0].current_leader = LeaderIdAndEpoch(leader_id=4)
    assert len(encode(filled, 12)) > len(encode(plain, 12))


def test_an_empty_tagged_array_is_left_out_whatever_sequence_it_is() -> None:
    assert encode(ApiVersionsResponse(supported_features=[]), 3) == encode(
        ApiVersionsResponse(supported_features=()), 3
    )


def test_a_nullable_struct_is_there_or_is_not() -> None:
    for cursor in (None, Cursor(topic_name="orders", partition_index=7)):
        request = DescribeTopicPartitionsRequest(cursor=cursor)
        assert decode(DescribeTopicPartitionsRequest, 0, encode(request, 0)) == request
    data = bytearray(encode(DescribeTopicPartitionsRequest(cursor=None), 0))
    data[data.index(255)] = 2
    with pytest.raises(MalformedBytes, match="neither there nor null"):
        decode(DescribeTopicPartitionsRequest, 0, data)


def test_records_are_views_into_the_frame() -> None:
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="orders", partition_data=[PartitionProduceData(records=LARGE)])]
    )
    for version in (7, 9):
        frame = bytearray(b"before" + encode(request, version) + b"after")
        message = decoder(ProduceRequest, version)(frame, 6, len(frame) - 5)
        records = message.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert records.obj is frame
        assert records == LARGE
        records[0] = 99  # the log writes offsets into the frame
        assert frame[frame.index(LARGE[1:]) - 1] == 99


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_large_records_are_chunks_of_their_own_and_the_buffers_given(version: int) -> None:
    first, second = memoryview(LARGE), bytearray(LARGE)
    chunks = encode_chunks(fetch_response(first, b"small", second), version)
    assert [chunk for chunk in chunks if chunk is first or chunk is second] == [first, second]
    # Between them what is small, and after the last one the tags, in versions that have them.
    assert len(chunks) == (5 if version >= 12 else 4)
    joined = b"".join(chunks)
    assert joined == encode(fetch_response(first, b"small", second), version)
    read = decode(FetchResponse, version, joined).responses[0].partitions
    assert [partition.records for partition in read] == [LARGE, b"small", LARGE]


def test_small_records_are_copied() -> None:
    assert len(encode_chunks(fetch_response(b"x" * RECORDS_INLINE_BYTES_MAX, b""), 12)) == 1
    assert len(encode_chunks(fetch_response(b"x" * (RECORDS_INLINE_BYTES_MAX + 1)), 12)) == 3


def test_no_records_and_null_records_are_told_apart() -> None:
    for version in (11, 12):
        for records in (None, b""):
            response = FetchResponse(
                responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])],
            )
            (topic,) = decode(FetchResponse, version, encode(response, version)).responses
            assert topic.partitions[0].records == records


def test_a_field_that_the_version_has_not_keeps_its_default() -> None:
    written = encode(FetchResponse(responses=[FetchableTopicResponse(topic="orders", topic_id=b"i" * 16)]), 12)
    (topic,) = decode(FetchResponse, 12, written).responses
    assert (topic.topic, topic.topic_id) == ("orders", ZERO_UUID)


def test_null_is_refused_where_it_may_not_be() -> None:
    for version, null in ((0, struct.pack(">i", -1)), (0, struct.pack(">i", -2)), (9, b"\0")):
        start = encode(MetadataRequest(topics=[]), version)
        count = struct.pack(">i", 0) if version == 0 else b"\1"
        assert start.startswith(count)
        data = null + start[len(count) :]
        if version == 9:
            assert decode(MetadataRequest, version, data).topics is None
        else:
            with pytest.raises(MalformedBytes, match="topics"):
                decode(MetadataRequest, version, data)
    for version, null in ((0, b"\xff\xff"), (4, b"\0")):
        empty = encode(HeartbeatRequest(), version)
        with pytest.raises(MalformedBytes, match="group_id"):
            decode(HeartbeatRequest, version, null + empty[len(null) :])


def test_a_negative_length_other_than_null_is_refused() -> None:
    data = encode(MetadataRequest(topics=None), 1)
    assert decode(MetadataRequest, 1, data).topics is None
    with pytest.raises(MalformedBytes, match="negative"):
        decode(MetadataRequest, 1, struct.pack(">i", -2) + data[4:])


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize(("field", "value"), [("transactional_id", b"tx"), ("name", b"orders"), ("records", b"batch")])
def test_a_length_beyond_the_message_is_refused_whatever_comes_after_it(version: int, field: str, value: bytes) -> None:
    topic = TopicProduceData(name="orders", partition_data=[PartitionProduceData(records=b"batch")])
    data = bytearray(encode(ProduceRequest(transactional_id="tx", topic_data=[topic]), version))
    data[data.index(value) - 1] = 100
    with pytest.raises(MalformedBytes, match=f"{field} is longer than what is left"):
        decoder(ProduceRequest, version)(data + bytes(200), 0, len(data))


def test_a_string_that_is_not_utf_8_is_refused() -> None:
    for version in (0, 4):
        data = encode(HeartbeatRequest(group_id="x"), version).replace(b"x", b"\xff")
        with pytest.raises(MalformedBytes, match="UTF-8"):
            decode(HeartbeatRequest, version, data)


def test_a_compact_string_is_no_longer_than_kafka_allows() -> None:
    longest = HeartbeatRequest(group_id="x" * 32767)
    assert decode(HeartbeatRequest, 4, encode(longest, 4)) == longest
    data = encode(longest, 4).replace(b"\x80\x80\x02", b"\x81\x80\x02", 1).replace(b"x", b"xx", 1)
    with pytest.raises(MalformedBytes, match="longer than a string may be"):
        decode(HeartbeatRequest, 4, data)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 129, 16381, 16382, 16383, 16384, 32767])
def test_compact_lengths_take_another_byte_where_kafka_does(size: int) -> None:
    length = 1 if size + 1 < 1 << 7 else 2 if size + 1 < 1 << 14 else 3
    text = HeartbeatRequest(group_id="x" * size)
    assert len(encode(text, 4)) == len(encode(HeartbeatRequest(), 4)) + size + length - 1
    assert decode(HeartbeatRequest, 4, encode(text, 4)) == text

    array = DescribeGroupsRequest(groups=["g"] * size)
    assert len(encode(array, 5)) == len(encode(DescribeGroupsRequest(), 5)) + 2 * size + length - 1
    assert decode(DescribeGroupsRequest, 5, encode(array, 5)) == array

    response = fetch_response(b"r" * size)
    assert len(encode(response, 12)) == len(encode(fetch_response(b""), 12)) + size + length - 1
    assert decode(FetchResponse, 12, encode(response, 12)) == response


@pytest.mark.parametrize("varint", [b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x7f", b"\xff" * 9])
def test_a_varint_has_five_bytes_and_32_bits_at_most(varint: bytes) -> None:
    with pytest.raises(MalformedBytes, match="varint"):
        decode(HeartbeatRequest, 4, varint + bytes(16))


@pytest.mark.parametrize(
    "request_",
    [
        HeartbeatRequest(group_id=None),  # type: ignore[arg-type]
        HeartbeatRequest(generation_id=1 << 31),
        HeartbeatRequest(group_id="x" * 32768),
        HeartbeatRequest(group_id="\ud800"),
        HeartbeatRequest(group_id=b"x"),  # type: ignore[arg-type]
    ],
    ids=["null", "number", "long", "surrogate", "type"],
)
@pytest.mark.parametrize("version", [0, 4])
def test_what_a_version_cannot_say_is_an_error_of_the_caller(request_: HeartbeatRequest, version: int) -> None:
    with pytest.raises(InvalidArgument):
        encode(request_, version)


@pytest.mark.parametrize("version", [-1, 5])
def test_a_version_that_there_is_not_is_an_error_of_the_caller(version: int) -> None:
    with pytest.raises(InvalidArgument, match="versions 0 to 4"):
        encode(HeartbeatRequest(), version)
    with pytest.raises(InvalidArgument, match="versions 0 to 4"):
        decode(HeartbeatRequest, version, b"")


def test_messages_compare_by_value_and_show_their_fields() -> None:
    assert HeartbeatRequest(group_id="a") == HeartbeatRequest(group_id="a") != HeartbeatRequest(group_id="b")
    assert MetadataRequest(topics=[]) == MetadataRequest(topics=())
    assert HeartbeatRequest() != ApiVersionsRequest()
    assert "group_id='a'" in repr(HeartbeatRequest(group_id="a"))


def test_every_item_of_an_array_takes_a_byte_at_least() -> None:
    """A count is bounded by the bytes that are left only if no item is free."""

    def structs(top: type[Message]) -> list[type[Message]]:
        inner: list[Any] = [field.item for field in top.SCHEMA if field.item is not None]
        return [top, *(found for item in inner for found in structs(item))]

    for api in APIS.values():
        for version in range(api.first, api.last + 1):
            for top in (frames.request_class(api.key), frames.response_class(api.key)):
                layout = layout_of(top, version)
                for struct_ in structs(top):
                    for field in layout.fields(struct_):
                        if field.is_array and field.item is not None:
                            assert layout.size_min(field.item) >= 1, f"{layout.what} {field.name}"
