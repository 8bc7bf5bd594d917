"""Messages in steps: the same bytes and values as in one go, and a pause after every STEP_ITEMS items."""

from __future__ import annotations

from typing import Any

import pytest
from bench.many_items import apis, request_with, version_of

from foldlog.errors import InvalidArgument, MalformedBytes
from foldlog.limits import STEP_ITEMS, STRUCT_TAGS_MAX
from foldlog.wire.codec import decode, encode, encode_after, encode_after_in_steps, step_decoder
from foldlog.wire.frames import encode_response, encode_response_in_steps, request_class, response_class
from foldlog.wire.messages import APIS
from foldlog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from foldlog.wire.messages.find_coordinator import FindCoordinatorRequest
from wire.filled import filled


def stepped(steps: Any) -> tuple[Any, int]:
    """The result, and how many pauses there were."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


@pytest.mark.parametrize("api_key", sorted(APIS))
def test_in_steps_is_read_and_written_what_is_in_one_go(api_key: int) -> None:
    api = APIS[api_key]
    for version in {api.first, api.last}:  # one with plain lengths, one with tags; between them only fields differ
        for cls in (request_class(api_key), response_class(api_key)):
            message = filled(cls, version)
            data = encode(message, version)
            chunks, _ = stepped(encode_after_in_steps(bytearray(b"abc"), message, version))
            assert chunks == encode_after(bytearray(b"abc"), message, version)
            assert stepped(step_decoder(cls, version)(data, 0, len(data)))[0] == decode(cls, version, data)
        answer = filled(response_class(api_key), version)
        assert stepped(encode_response_in_steps(answer, version, 7))[0] == encode_response(answer, version, 7)


@pytest.mark.parametrize("api_key", apis())
def test_a_request_of_many_items_pauses(api_key: int) -> None:
    version, count = version_of(api_key), 2 * STEP_ITEMS - 50
    data = encode(request_with(api_key, count), version)
    request, pauses = stepped(step_decoder(request_class(api_key), version)(data, 0, len(data)))
    assert request == decode(request_class(api_key), version, data)
    assert pauses >= 1, "all of it in one turn of the loop"


def test_there_are_at_most_so_many_items_between_two_pauses() -> None:
    count = 10 * STEP_ITEMS
    data = encode(FindCoordinatorRequest(coordinator_keys=["g"] * count), 4)
    _, pauses = stepped(step_decoder(FindCoordinatorRequest, 4)(data, 0, len(data)))
    assert pauses >= count // (STEP_ITEMS + 1)
    answer = DescribeGroupsResponse(groups=[DescribedGroup() for _ in range(count)])
    _, pauses = stepped(encode_after_in_steps(bytearray(), answer, 5))
    assert pauses >= count // (STEP_ITEMS + 1)


def test_unknown_tagged_fields_of_one_struct_are_few() -> None:
    start = encode(DescribeGroupsRequest(), 5)[:-1]
    data = (
        start + bytes([STRUCT_TAGS_MAX + 1 & 127 | 128, STRUCT_TAGS_MAX + 1 >> 7]) + b"\x63\0" * (STRUCT_TAGS_MAX + 1)
    )
    with pytest.raises(MalformedBytes, match="more items than a message may have"):
        stepped(step_decoder(DescribeGroupsRequest, 5)(data, 0, len(data)))


def test_what_cannot_be_said_is_refused_in_steps_too() -> None:
    with pytest.raises(InvalidArgument, match="cannot say this"):
        stepped(encode_after_in_steps(bytearray(), DescribeGroupsResponse(throttle_time_ms=1 << 40), 5))
