"""Every API and version that is served, both directions, byte for byte what kio writes and reads.

kio's serializers are generated from Kafka's own definitions and share nothing with the codec but those. Generated
values of kio's classes are serialized by kio, decoded by us, compared field by field, encoded again; and encoded by us,
parsed by kio. Requests and responses alike, since the broker needs one direction and a client the other.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.static.constants import EntityType

from foldlog.wire import frames
from foldlog.wire.codec import decode, encode
from foldlog.wire.messages import APIS
from foldlog.wire.messages.fetch import FetchResponse
from foldlog.wire.schema import Message
from wire.kio_values import (
    VERSIONS,
    as_default,
    as_message,
    draw_entity,
    kio_bytes,
    kio_class,
    kio_parsed,
    request_and_response,
    shapes,
    version_id,
)

# Versions are many and the fields in which they differ are few: a share of the examples for each.
FEW = settings(max_examples=settings().max_examples // 10)


@pytest.mark.parametrize("pair", VERSIONS, ids=version_id)
@FEW
@given(data=st.data())
def test_what_kio_writes_is_read_and_written_again(pair: tuple[int, int], data: st.DataObject) -> None:
    api_key, version = pair
    ours = frames.request_class(api_key), frames.response_class(api_key)
    for kio_type, our_type in zip(request_and_response(api_key, version), ours, strict=True):
        entity = draw_entity(data.draw, kio_type)
        written = kio_bytes(entity)
        message = as_message(entity, our_type)

        assert decode(our_type, version, written) == message
        assert encode(message, version) == written
        assert encode(decode(our_type, version, bytearray(written)), version) == written
        assert kio_parsed(kio_type, encode(message, version)) == entity


@pytest.mark.parametrize("pair", VERSIONS, ids=version_id)
def test_defaults_are_those_of_kafka(pair: tuple[int, int]) -> None:
    api_key, version = pair
    ours = frames.request_class(api_key), frames.response_class(api_key)
    for kio_type, our_type in zip(request_and_response(api_key, version), ours, strict=True):
        assert_same_defaults(kio_type, our_type)


def assert_same_defaults(kio_type: type[Any], our_type: type[Message]) -> None:
    """Wherever kio declares one; and so for the structs inside."""
    message = our_type()
    items = {field.name: field.item for field in our_type.SCHEMA if field.item is not None}
    for field in dataclasses.fields(kio_type):
        item = items.get(field.name)
        inner = shapes(kio_type)[field.name].inner
        if item is not None:
            assert_same_defaults(inner, item)
        if field.default is dataclasses.MISSING:
            continue
        name, default = as_default(field, our_type)
        assert getattr(message, name) == default, f"{our_type.__name__}.{name}"


def test_every_served_version_of_kio_is_known() -> None:
    for api in APIS.values():
        request = frames.request_class(api.key)
        assert (api.first, api.last) == request.VERSIONS == frames.response_of(request).VERSIONS
        assert api.flexible_from == request.FLEXIBLE_FROM == frames.response_of(request).FLEXIBLE_FROM


def test_the_oracle_would_notice_a_wrong_byte() -> None:
    """Planted: one byte of what we write is turned, and kio's reading differs from what was said."""
    kio_type = kio_class(1, 12, EntityType.response)
    written = bytearray(encode(FetchResponse(session_id=7), 12))
    written[9] ^= 1
    assert kio_parsed(kio_type, bytes(written)) != kio_parsed(kio_type, encode(FetchResponse(session_id=7), 12))
