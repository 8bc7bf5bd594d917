"""Kafka's ConsumerProtocol: the formats of subscriptions and assignments.

Subscription, carried as join metadata:

    int16 version · [string topic] · bytes? userData
    · (1+) [string topic · [int32 partition]] owned · (2+) int32 generation · (3+) string? rack

Assignment, carried through SyncGroup:

    int16 version · [string topic · [int32 partition]] · bytes? userData

Pure functions. A version above 3 is read as 3, whose fields come first in any later one; the rest is skipped. Raises
`MalformedBytes` for anything else: the bytes come from other processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from foldlog.broker.kafka_files.bytes import BytesReader, BytesWriter
from foldlog.errors import InvalidArgument, MalformedBytes

PROTOCOL_TYPE = "consumer"
VERSION_MAX = 3
NO_GENERATION = -1

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics that one member wants, and what it holds from `generation`.

    `group_instance_id` is not part of the bytes: the leader sets it from the JoinGroup answer, so that
    assignors order static members the same way across their restarts.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    rack: str | None = None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions that one member should read."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    """The join metadata for `subscription`; fields that `version` does not have are left out.

    >>> encode_subscription(Subscription(("t",)), version=0).hex()
    '000000000001000174ffffffff'
    """
    if not 0 <= version <= VERSION_MAX:
        raise InvalidArgument(f"ConsumerProtocol version {version} is not known; use 0 to {VERSION_MAX}")
    writer = BytesWriter().int16(version).int32(len(subscription.topics))
    for topic in subscription.topics:
        writer.string(topic)
    writer.bytes_(subscription.user_data)
    if version >= 1:
        _write_partitions(writer, subscription.owned)
    if version >= 2:
        writer.int32(subscription.generation)
    if version >= 3:
        writer.string(subscription.rack)
    return writer.done()


def decode_subscription(data: bytes) -> Subscription:
    """Decode a member's join metadata, of any version.

    >>> decode_subscription(encode_subscription(Subscription(("orders",), (("orders", 2),), 7))).owned
    (('orders', 2),)
    """
    reader = BytesReader(data, "consumer subscription")
    version = _read_version(reader)
    topics = tuple(reader.string() for _ in range(reader.array_count(item_bytes_min=2)))
    user_data = reader.nullable_bytes()
    owned = _read_partitions(reader) if version >= 1 else ()
    generation = reader.int32() if version >= 2 else NO_GENERATION
    rack = reader.nullable_string() if version >= 3 else None
    if version <= VERSION_MAX:
        reader.end()
    return Subscription(topics, owned, generation, user_data, rack)


def encode_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    """The bytes a member gets from SyncGroup; all versions look alike.

    >>> decode_assignment(encode_assignment(Assignment((("orders", 0), ("orders", 2))))).partitions
    (('orders', 0), ('orders', 2))
    """
    if not 0 <= version <= VERSION_MAX:
        raise InvalidArgument(f"ConsumerProtocol version {version} is not known; use 0 to {VERSION_MAX}")
    writer = BytesWriter().int16(version)
    _write_partitions(writer, assignment.partitions)
    return writer.bytes_(assignment.user_data).done()


def decode_assignment(data: bytes) -> Assignment:
    """Decode an assignment; no bytes are an empty one, which a member gets if the leader left it out."""
    if not data:
        return Assignment(())
    reader = BytesReader(data, "consumer assignment")
    version = _read_version(reader)
    partitions = _read_partitions(reader)
    user_data = reader.nullable_bytes()
    if version <= VERSION_MAX:
        reader.end()
    return Assignment(partitions, user_data)


def encode_sticky_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """The user data of Kafka's own "sticky" assignor: the previous assignment and its generation.

    Sent beside `owned`, so that another client, if it leads, keeps our partitions where they are.
    """
    writer = BytesWriter()
    _write_partitions(writer, owned)
    return writer.int32(generation).done()


def decode_sticky_user_data(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """The previous assignment and its generation, -1 if that is missing."""
    reader = BytesReader(data, "sticky assignor user data")
    owned = _read_partitions(reader)
    # The first version of the format had no generation.
    generation = reader.int32() if reader.remaining else NO_GENERATION
    reader.end()
    return owned, generation


def _read_version(reader: BytesReader) -> int:
    version = reader.int16()
    if version < 0:
        raise reader.malformed(f"version {version} cannot exist")
    return version


def _write_partitions(writer: BytesWriter, partitions: Iterable[TopicPartition]) -> None:
    by_topic = [
        (topic, [number for _, number in group]) for topic, group in groupby(sorted(partitions), lambda item: item[0])
    ]
    writer.int32(len(by_topic))
    for topic, numbers in by_topic:
        writer.string(topic).int32(len(numbers))
        for number in numbers:
            writer.int32(number)


def _read_partitions(reader: BytesReader) -> tuple[TopicPartition, ...]:
    partitions: list[TopicPartition] = []
    for _ in range(reader.array_count(item_bytes_min=6)):
        topic = reader.string()
        partitions.extend((topic, reader.int32()) for _ in range(reader.array_count(item_bytes_min=4)))
    for topic, number in partitions:
        if number < 0:
            raise _no_such_partition(topic, number, reader)
    return tuple(partitions)


def _no_such_partition(topic: str, number: int, reader: BytesReader) -> MalformedBytes:
    return reader.malformed(f"partition {number} of {topic!r} cannot exist")
