"""The records of `__consumer_offsets`, in Kafka's own formats.

A key begins with an int16 that says what the record is: 0 and 1 are a committed offset, 2 is a group's metadata, and
those of ConsumerRecord and ShareRecord belong to a consumer or a share group (`consumer/records.py` and
`share/member_records.py` have their values). A value begins with the version of its own format; a null value is a
tombstone. Of the first three we write key versions 1 and 2 and value version 3, which every Kafka since 2.3 reads, and
read value versions 0 to 4.

    offset key      int16 1 · string group · string topic · int32 partition
    offset value    int16 3 · int64 offset · int32 leaderEpoch · string metadata · int64 commitTimestamp
    group key       int16 2 · string group
    group value     int16 3 · string protocolType · int32 generation · string? protocol · string? leader
                    · int64 currentStateTimestamp · [string memberId · string? groupInstanceId · string clientId
                    · string clientHost · int32 rebalanceTimeout · int32 sessionTimeout · bytes subscription
                    · bytes assignment]

Pure functions. Anything that is not such a record raises `CorruptGroupRecord`; nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from foldlog.broker.kafka_files.bytes import BytesReader, BytesWriter
from foldlog.errors import CorruptGroupRecord, MalformedBytes

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
KEY_VERSION_BYTES = 2
OFFSET_VALUE_VERSION = 3
GROUP_VALUE_VERSION = 3
VALUE_VERSION_MAX = 4
FLEXIBLE_VERSION = 4
TOPIC_ID_TAG = 0
TOPIC_ID_BYTES = 16

NO_EPOCH = -1
NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """Names a committed offset."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Names a group's metadata."""

    group: str


class ConsumerRecord(IntEnum):
    """The key versions of a consumer group's records (KIP-848)."""

    GROUP = 3
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


class ShareRecord(IntEnum):
    """The key versions of a share group's records (KIP-932)."""

    MEMBER = 10
    GROUP = 11
    TARGET_EPOCH = 12
    TARGET = 13
    CURRENT = 14


_CONSUMER_VERSIONS = frozenset(map(int, ConsumerRecord))
_SHARE_VERSIONS = frozenset(map(int, ShareRecord))
_NAMED_RECORDS = (ConsumerRecord.MEMBER, ConsumerRecord.TARGET, ConsumerRecord.CURRENT, ConsumerRecord.REGEX)
_NAMED_SHARE_RECORDS = (ShareRecord.MEMBER, ShareRecord.TARGET, ShareRecord.CURRENT)


@dataclass(frozen=True, slots=True)
class ConsumerKey:
    """Names a part of a consumer group: `name` is the member's id or the regular expression, if it is one's."""

    record: ConsumerRecord
    group: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class ShareKey:
    """Names a part of a share group: `name` is the member's id, if it is one's."""

    record: ShareRecord
    group: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a group has committed for one partition, as stored.

    `expire_timestamp_ms` exists only in value version 1, `topic_id` only in 4.
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: bytes | None = None


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member as stored, with its metadata for the chosen protocol only."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as stored: stable with its members, or empty without."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...]


def encode_offset_key(key: OffsetKey) -> bytes:
    writer = BytesWriter().int16(OFFSET_KEY_VERSION)
    return writer.string(key.group).string(key.topic).int32(key.partition).done()


def encode_group_key(group: str) -> bytes:
    return BytesWriter().int16(GROUP_KEY_VERSION).string(group).done()


def encode_consumer_key(key: ConsumerKey) -> bytes:
    writer = BytesWriter().int16(key.record).string(key.group)
    return writer.string(key.name).done() if key.record in _NAMED_RECORDS else writer.done()


def encode_share_key(key: ShareKey) -> bytes:
    writer = BytesWriter().int16(key.record).string(key.group)
    return writer.string(key.name).done() if key.record in _NAMED_SHARE_RECORDS else writer.done()


def decode_key(key: bytes) -> OffsetKey | GroupKey | ConsumerKey | ShareKey:
    """Decode the key: the group, for an offset the topic and partition, for a consumer or share group which part.

    >>> decode_key(encode_offset_key(OffsetKey("fraud", "orders", 2)))
    OffsetKey(group='fraud', topic='orders', partition=2)
    """
    reader = BytesReader(key, "__consumer_offsets key")
    try:
        version = reader.int16()
        decoded: OffsetKey | GroupKey | ConsumerKey | ShareKey
        if 0 <= version <= OFFSET_KEY_VERSION:
            decoded = OffsetKey(reader.string(), reader.string(), reader.int32())
        elif version == GROUP_KEY_VERSION:
            decoded = GroupKey(reader.string())
        elif version in _CONSUMER_VERSIONS:
            record = ConsumerRecord(version)
            decoded = ConsumerKey(record, reader.string(), reader.string() if record in _NAMED_RECORDS else "")
        elif version in _SHARE_VERSIONS:
            part = ShareRecord(version)
            decoded = ShareKey(part, reader.string(), reader.string() if part in _NAMED_SHARE_RECORDS else "")
        else:
            raise reader.malformed(f"key version {version} is not known here")
        reader.end()
    except MalformedBytes as error:
        raise CorruptGroupRecord(key, str(error)) from None
    if isinstance(decoded, OffsetKey) and decoded.partition < 0:
        raise CorruptGroupRecord(key, f"partition {decoded.partition} cannot exist")
    return decoded


def is_newer_group_key(key: bytes) -> bool:
    """Whether it is of a kind that came with Kafka 4's newer protocols (consumer, share, streams); only some are read.

    >>> is_newer_group_key(bytes([0, 3])), is_newer_group_key(encode_group_key("fraud"))
    (True, False)
    """
    return len(key) >= KEY_VERSION_BYTES and int.from_bytes(key[:KEY_VERSION_BYTES], "big") > GROUP_KEY_VERSION


def encode_offset_value(value: CommittedOffset) -> bytes:
    writer = BytesWriter().int16(OFFSET_VALUE_VERSION).int64(value.offset).int32(value.leader_epoch)
    return writer.string(value.metadata).int64(value.commit_timestamp_ms).done()


def decode_offset_value(key: bytes, value: bytes) -> CommittedOffset:
    """`key` only names the record in an error."""
    reader = BytesReader(value, "committed offset")
    try:
        version = _value_version(reader)
        compact = version >= FLEXIBLE_VERSION
        offset = reader.int64()
        leader_epoch = reader.int32() if version >= 3 else NO_EPOCH
        metadata = reader.string(compact)
        commit_timestamp_ms = reader.int64()
        expire_timestamp_ms = reader.int64() if version == 1 else NO_TIMESTAMP
        topic_id = reader.tagged_fields().get(TOPIC_ID_TAG) if compact else None
        reader.end()
        if topic_id is not None and len(topic_id) != TOPIC_ID_BYTES:
            raise reader.malformed(f"a topic id has {len(topic_id)} bytes")
    except MalformedBytes as error:
        raise CorruptGroupRecord(key, str(error)) from None
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id)


def encode_group_value(group: StoredGroup) -> bytes:
    writer = BytesWriter().int16(GROUP_VALUE_VERSION).string(group.protocol_type).int32(group.generation)
    writer.string(group.protocol).string(group.leader).int64(group.state_timestamp_ms)
    writer.int32(len(group.members))
    for member in group.members:
        writer.string(member.member_id).string(member.group_instance_id)
        writer.string(member.client_id).string(member.client_host)
        writer.int32(member.rebalance_timeout_ms).int32(member.session_timeout_ms)
        writer.bytes_(member.subscription).bytes_(member.assignment)
    return writer.done()


def decode_group_value(key: bytes, value: bytes) -> StoredGroup:
    """`key` only names the record in an error."""
    reader = BytesReader(value, "group metadata")
    try:
        version = _value_version(reader)
        compact = version >= FLEXIBLE_VERSION
        protocol_type = reader.string(compact)
        generation = reader.int32()
        protocol = reader.nullable_string(compact)
        leader = reader.nullable_string(compact)
        state_timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
        count = reader.array_count(_member_bytes_min(version), compact)
        members = tuple(_decode_member(reader, version) for _ in range(count))
        if compact:
            reader.tagged_fields()
        reader.end()
    except MalformedBytes as error:
        raise CorruptGroupRecord(key, str(error)) from None
    if len({member.member_id for member in members}) != len(members):
        raise CorruptGroupRecord(key, "two members have the same id")
    return StoredGroup(protocol_type, generation, protocol, leader, state_timestamp_ms, members)


def _value_version(reader: BytesReader) -> int:
    version = reader.int16()
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise reader.malformed(f"value version {version} is not known here")
    return version


def _member_bytes_min(version: int) -> int:
    """The size of a member whose every string and bytes field is empty."""
    if version >= FLEXIBLE_VERSION:
        return 4 + 4 + 4 + 2 + 1
    return 3 * 2 + 4 + 2 * 4 + (4 if version >= 1 else 0) + (2 if version >= 3 else 0)


def _decode_member(reader: BytesReader, version: int) -> StoredMember:
    compact = version >= FLEXIBLE_VERSION
    member_id = reader.string(compact)
    group_instance_id = reader.nullable_string(compact) if version >= 3 else None
    client_id = reader.string(compact)
    client_host = reader.string(compact)
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription = reader.bytes_(compact)
    assignment = reader.bytes_(compact)
    if compact:
        reader.tagged_fields()
    return StoredMember(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        # Version 0 knew one timeout for both purposes.
        rebalance_timeout_ms if version >= 1 else session_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )
