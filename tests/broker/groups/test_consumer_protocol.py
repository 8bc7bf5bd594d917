"""ConsumerProtocol bytes: ours against kio's schemas and against aiokafka's structs, in both directions, and broken.

kio is generated from Kafka's own definitions (versions 0 to 3); aiokafka is an independent implementation of
version 0.
"""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.groups.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_sticky_user_data,
    encode_subscription,
)
from foldlog.errors import InvalidArgument, MalformedBytes

TOPICS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
PARTITIONS = st.sets(st.tuples(TOPICS, st.integers(0, (1 << 31) - 1)), max_size=8).map(
    lambda found: tuple(sorted(found))
)
USER_DATA = st.none() | st.binary(max_size=20)
SUBSCRIPTIONS = st.builds(
    Subscription,
    st.lists(TOPICS, max_size=5).map(tuple),
    PARTITIONS,
    st.integers(-1, (1 << 31) - 1),
    USER_DATA,
    st.none() | TOPICS,
)
ASSIGNMENTS = st.builds(Assignment, PARTITIONS, USER_DATA)
VERSIONS = st.integers(0, 3)


def known_to(version: int, subscription: Subscription) -> Subscription:
    """What of it the version can carry."""
    return Subscription(
        subscription.topics,
        subscription.owned if version >= 1 else (),
        subscription.generation if version >= 2 else -1,
        subscription.user_data,
        subscription.rack if version >= 3 else None,
    )


def by_topic(partitions: tuple[tuple[str, int], ...]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, number in partitions:
        grouped.setdefault(topic, []).append(number)
    return grouped


def kio_module(kind: str, version: int) -> Any:
    return importlib.import_module(f"kio.schema.consumer_protocol_{kind}.v{version}.data")


def kio_encode(entity: Any, version: int) -> bytes:
    from kio.serial import entity_writer

    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return version.to_bytes(2, "big") + buffer.getvalue()


def kio_decode(kind: Any, data: bytes) -> Any:
    from kio.serial import entity_reader

    entity, size = entity_reader(kind)(memoryview(data), 2)
    assert 2 + size == len(data)
    return entity


def kio_subscription(subscription: Subscription, version: int) -> Any:
    module = kio_module("subscription", version)
    fields: dict[str, Any] = {"topics": subscription.topics, "user_data": subscription.user_data}
    if version >= 1:
        fields["owned_partitions"] = tuple(
            module.TopicPartition(topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic(subscription.owned).items()
        )
    if version >= 2:
        fields["generation_id"] = subscription.generation
    if version >= 3:
        fields["rack_id"] = subscription.rack
    return module.ConsumerProtocolSubscription(**fields)


@given(SUBSCRIPTIONS, VERSIONS)
def test_subscriptions_are_kafkas_bytes_in_both_directions(subscription: Subscription, version: int) -> None:
    entity = kio_subscription(subscription, version)
    encoded = kio_encode(entity, version)
    assert encode_subscription(subscription, version) == encoded
    assert decode_subscription(encoded) == known_to(version, subscription)
    assert kio_decode(type(entity), encode_subscription(subscription, version)) == entity


@given(ASSIGNMENTS, VERSIONS)
def test_assignments_are_kafkas_bytes_in_both_directions(assignment: Assignment, version: int) -> None:
    module = kio_module("assignment", version)
    entity = module.ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            module.TopicPartition(topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic(assignment.partitions).items()
        ),
        user_data=assignment.user_data,
    )
    encoded = kio_encode(entity, version)
    assert encode_assignment(assignment, version) == encoded
    assert decode_assignment(encoded) == assignment
    assert kio_decode(type(entity), encode_assignment(assignment, version)) == entity


@given(SUBSCRIPTIONS, ASSIGNMENTS)
def test_aiokafka_reads_ours_and_we_read_aiokafkas(subscription: Subscription, assignment: Assignment) -> None:
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

    theirs = ConsumerProtocolMemberMetadata(0, list(subscription.topics), subscription.user_data)
    assert theirs.encode() == encode_subscription(subscription, version=0)
    read = ConsumerProtocolMemberMetadata.decode(encode_subscription(subscription, version=3))
    assert (tuple(read.subscription), read.user_data) == (subscription.topics, subscription.user_data)

    grouped = list(by_topic(assignment.partitions).items())
    their_assignment = ConsumerProtocolMemberAssignment(0, grouped, assignment.user_data)
    assert decode_assignment(their_assignment.encode()) == assignment
    read_assignment = ConsumerProtocolMemberAssignment.decode(encode_assignment(assignment, version=0))
    assert [tuple(partition) for partition in read_assignment.partitions()] == list(assignment.partitions)


def test_a_later_version_is_read_as_far_as_we_know_it() -> None:
    known = Subscription(("t",), (("t", 1),), 4, b"u", "rack-1")
    later = b"\x00\x09" + encode_subscription(known, version=3)[2:] + b"fields of the future"
    assert decode_subscription(later) == known
    assert decode_assignment(b"\x00\x09" + encode_assignment(Assignment((("t", 1),)))[2:] + b"!") == Assignment(
        (("t", 1),)
    )


def test_no_bytes_are_an_empty_assignment() -> None:
    assert decode_assignment(b"") == Assignment(())


@given(PARTITIONS, st.integers(-1, 1000))
def test_sticky_user_data_comes_back(owned: tuple[tuple[str, int], ...], generation: int) -> None:
    encoded = encode_sticky_user_data(owned, generation)
    assert decode_sticky_user_data(encoded) == (owned, generation)
    assert decode_sticky_user_data(encoded[:-4]) == (owned, -1), "its first form has no generation"


@pytest.mark.parametrize("version", [-1, 4])
def test_a_version_we_do_not_know_is_not_written(version: int) -> None:
    with pytest.raises(InvalidArgument):
        encode_subscription(Subscription(()), version)
    with pytest.raises(InvalidArgument):
        encode_assignment(Assignment(()), version)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("", "needs 2 bytes"),
        ("ffff 00000000 ffffffff", "version -1"),
        ("0000 7fffffff ffffffff", "2147483647 items cannot fit"),
        ("0000 ffffffff ffffffff", "count -1"),
        ("0000 00000001 ffff ffffffff", "null where none may be"),
        ("0000 00000000 7fffffff", "needs 2147483647 bytes"),
        ("0000 00000000 fffffffe", "length -2"),
        ("0000 00000000 ffffffff 00", "1 bytes follow the end"),
        ("0001 00000000 ffffffff 20000000", "536870912 items cannot fit"),
        ("0001 00000000 ffffffff 00000001 0001 74 7fffffff", "2147483647 items cannot fit"),
        ("0001 00000000 ffffffff 00000001 0001 74 00000001 ffffffff", "partition -1"),
    ],
)
def test_a_malformed_subscription_is_refused_with_its_reason(raw: str, reason: str) -> None:
    with pytest.raises(MalformedBytes, match=reason):
        decode_subscription(bytes.fromhex(raw))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_and_never_anything_else(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment, decode_sticky_user_data):
        for version in (b"", b"\x00\x00", b"\x00\x01", b"\x00\x03"):
            try:
                decode(version + data)
            except MalformedBytes:
                pass
