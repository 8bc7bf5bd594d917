"""Whatever the bytes: a message or MalformedBytes, and no more memory than the bytes justify.

Every version of every message that is served is cut at every byte, with and without what comes after it in the buffer,
and has hostile numbers written over every place where a length or a count could stand. Random bytes come on top.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from types import FunctionType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import MalformedBytes
from foldlog.limits import REQUEST_ITEMS_MAX, RESPONSE_ITEMS_MAX
from foldlog.wire import frames
from foldlog.wire.codec import decode, decoder, encode
from foldlog.wire.messages import APIS
from foldlog.wire.messages.describe_groups import DescribeGroupsRequest
from foldlog.wire.messages.fetch import FetchRequest
from foldlog.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from foldlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from foldlog.wire.messages.offset_commit import OffsetCommitRequest
from foldlog.wire.schema import ApiMessage, Request
from wire.filled import filled
from wire.kio_values import VERSIONS, version_id

HOSTILE = [
    struct.pack(">i", (1 << 31) - 1),
    struct.pack(">i", -1),
    struct.pack(">i", -(1 << 31)),
    struct.pack(">h", (1 << 15) - 1),
    b"\xff\xff\xff\xff\x0f",  # the largest varint
    b"\xff\xff\xff\xff\xff\xff",  # a varint that does not end
]

EDGES = sorted({
    (api.key, version)
    for api in APIS.values()
    for version in ((api.flexible_from or api.last + 1) - 1, api.last)
    if version >= api.first
})  # fmt: skip
"""The last version with plain types, and the last with compact ones."""


def messages(pair: tuple[int, int]) -> Iterator[tuple[type[ApiMessage], bytes]]:
    api_key, version = pair
    for cls in (frames.request_class(api_key), frames.response_class(api_key)):
        message = filled(cls, version)
        data = encode(message, version)
        assert decode(cls, version, data) == message
        yield cls, data


def refused(call: Callable[..., object], *arguments: object) -> bool:
    """Whether it raises MalformedBytes. Anything else that it raises fails the test."""
    try:
        call(*arguments)
    except MalformedBytes:
        return True
    return False


@pytest.mark.parametrize("pair", VERSIONS, ids=version_id)
def test_a_message_cut_at_any_byte_is_refused(pair: tuple[int, int]) -> None:
    for cls, data in messages(pair):
        read = decoder(cls, pair[1])
        for cut in range(len(data)):
            assert refused(read, data[:cut], 0, cut), f"{cls.__name__}, {cut} of {len(data)} bytes"
            # What comes after it in a connection's buffer does not make it whole.
            assert refused(read, data, 0, cut), f"{cls.__name__}, {cut} of {len(data)} bytes in a buffer"


@pytest.mark.parametrize("pair", VERSIONS, ids=version_id)
def test_bytes_after_a_response_are_refused_and_after_a_request_passed_over(pair: tuple[int, int]) -> None:
    for cls, data in messages(pair):
        if issubclass(cls, Request):
            assert decode(cls, pair[1], data + b"\0\1\2") == decode(cls, pair[1], data)
        else:
            assert refused(decode, cls, pair[1], data + b"\0")


def test_librdkafka_asks_for_all_topics_with_three_bytes_too_many() -> None:
    request = decode(MetadataRequest, 13, bytes.fromhex("00000000010000"))
    assert request == MetadataRequest(topics=None, allow_auto_topic_creation=False)


def without_lines(read: Callable[..., object]) -> Callable[..., object]:
    """Its instructions, with no line numbers: tracemalloc looks up the line of every allocation, and in a long
    generated function that took fourteen times as long as the reading."""
    assert isinstance(read, FunctionType)
    return FunctionType(read.__code__.replace(co_linetable=b""), read.__globals__, read.__name__)


@pytest.mark.parametrize("pair", EDGES, ids=version_id)
def test_hostile_numbers_anywhere_cost_no_memory(pair: tuple[int, int]) -> None:
    for cls, data in messages(pair):
        read = without_lines(decoder(cls, pair[1]))
        tracemalloc.start()
        try:
            for place in range(len(data)):
                for number in HOSTILE:
                    broken = data[:place] + number + data[place + len(number) :]
                    refused(read, broken, 0, len(broken))
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < 100_000 + 100 * len(data), f"{cls.__name__}: {peak_bytes} bytes for {len(data)}"


def assert_says_the_same_again(message: ApiMessage, version: int) -> None:
    """What was written is read as the same. Bytes are compared: a tagged struct of defaults is read and not written."""
    written = encode(message, version)
    assert encode(decode(type(message), version, written), version) == written


@given(data=st.data())
def test_random_bytes_are_a_message_or_refused(data: st.DataObject) -> None:
    api_key, version = data.draw(st.sampled_from(VERSIONS))
    cls = data.draw(st.sampled_from([frames.request_class(api_key), frames.response_class(api_key)]))
    noise = data.draw(st.binary(max_size=200))
    try:
        message = decode(cls, version, noise)
    except MalformedBytes:
        return
    assert_says_the_same_again(message, version)


@given(data=st.data())
def test_mutated_messages_are_a_message_or_refused(data: st.DataObject) -> None:
    pair = data.draw(st.sampled_from(VERSIONS))
    cls, whole = data.draw(st.sampled_from([message for message in messages(pair) if message[1]]))
    broken = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = decode(cls, pair[1], broken)
    except MalformedBytes:
        return
    assert_says_the_same_again(message, pair[1])


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def test_a_count_is_held_to_what_its_smallest_items_could_be() -> None:
    """Four bytes are too few for two partitions of 15 bytes, and are refused before the first is made."""
    topic = MetadataRequestTopic(name="ab")
    whole = encode(MetadataRequest(topics=[topic]), 0)
    assert whole[:4] == struct.pack(">i", 1)
    assert refused(decode, MetadataRequest, 0, struct.pack(">i", 3) + whole[4:])
    with pytest.raises(MalformedBytes, match="more items than what is left"):
        decode(MetadataRequest, 0, struct.pack(">i", 3) + whole[4:])


def test_a_large_frame_of_tiny_items_makes_no_million_objects() -> None:
    count = 4 * REQUEST_ITEMS_MAX
    data = varint(count + 1) + b"\1" * count + b"\0\0"
    tracemalloc.start()
    try:
        with pytest.raises(MalformedBytes, match="more items than a message may have"):
            decode(DescribeGroupsRequest, 5, data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000


def test_the_bound_on_items_is_for_all_arrays_together() -> None:
    # Topics of 64 KB of empty partitions each: no single count is over the bound.
    version, partitions = 8, 1 << 13
    request = encode(OffsetCommitRequest(topics=[]), version)
    partition = struct.pack(">iqi", 0, 0, 0) + b"\0\0"
    topic = b"\1" + varint(partitions + 1) + partition * partitions + b"\0"
    topics = REQUEST_ITEMS_MAX // partitions
    start = request[:-2]
    assert request.endswith(b"\1\0")
    with pytest.raises(MalformedBytes, match="more items than a message may have"):
        decode(OffsetCommitRequest, version, start + varint(topics + 1) + topic * topics + b"\0")
    fewer = topics - 1
    read = decode(OffsetCommitRequest, version, start + varint(fewer + 1) + topic * fewer + b"\0")
    assert len(read.topics) == fewer


def test_a_response_may_have_more_items_than_a_request() -> None:
    assert RESPONSE_ITEMS_MAX > REQUEST_ITEMS_MAX
    count = REQUEST_ITEMS_MAX + 1
    listed = encode(ListGroupsResponse(groups=[ListedGroup()]), 0)
    assert listed == struct.pack(">hi", 0, 1) + bytes(4)
    read = decode(ListGroupsResponse, 0, struct.pack(">hi", 0, count) + bytes(4 * count))
    assert len(read.groups) == count


def test_tagged_fields_are_walked_and_not_kept_and_bounded_like_items() -> None:
    start = encode(DescribeGroupsRequest(), 5)[:-1]
    count = 1000
    data = start + varint(count) + b"\x63\0" * count
    decoder(DescribeGroupsRequest, 5)
    tracemalloc.start()
    try:
        assert decode(DescribeGroupsRequest, 5, data) == DescribeGroupsRequest()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 10_000
    with pytest.raises(MalformedBytes, match="middle of a field"):
        decode(DescribeGroupsRequest, 5, start + varint(count + 1) + b"\x63\0" * count)
    for cls, version in ((DescribeGroupsRequest, 5), (FetchRequest, 17)):  # knows no tags, and knows some
        count = REQUEST_ITEMS_MAX + 1
        with pytest.raises(MalformedBytes, match="more items than a message may have"):
            decode(cls, version, encode(cls(), version)[:-1] + varint(count) + b"\x63\0" * count)
