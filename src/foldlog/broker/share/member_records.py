"""A share group's records in `__consumer_offsets`, in Kafka's own formats; its keys are in `groups/offsets_format.py`.

Every value begins with int16 0, its version, and is compact, with tagged fields at the end of each structure:

    group          int32 epoch · int64 hash of the subscribed topics
    member         string? rackId · string clientId · string clientHost · [string] topics
    target epoch   int32 epoch
    target         [uuid topicId · [int32 partition]]
    current        int32 epoch · int32 previousEpoch · int8 state · [uuid topicId · [int32 partition]]

Pure functions. Anything that is not such a record raises `CorruptGroupRecord`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from foldlog.broker.groups.consumer.messages import MemberState, TopicIdPartition
from foldlog.broker.groups.consumer.records import read_partitions, write_partitions
from foldlog.broker.groups.offsets_format import ShareKey, ShareRecord, encode_share_key
from foldlog.broker.kafka_files.bytes import BytesReader, BytesWriter
from foldlog.errors import CorruptGroupRecord, MalformedBytes

Record = tuple[bytes, bytes | None]

_VERSION: Final = 0


class StoredShareEpoch(NamedTuple):
    """A group's epoch as stored, and the hash of the topics it was made for."""

    epoch: int
    topics_hash: int


class StoredShareMember(NamedTuple):
    """What a member told of itself, as stored."""

    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]


class StoredShareProgress(NamedTuple):
    """What a member was told last, as stored."""

    epoch: int
    previous_epoch: int
    assigned: frozenset[TopicIdPartition]


StoredShareValue = StoredShareEpoch | StoredShareMember | StoredShareProgress | int | frozenset[TopicIdPartition]


def group_record(group: str, epoch: int, topics_hash: int) -> Record:
    return _key(ShareRecord.GROUP, group), _begin().int32(epoch).int64(topics_hash).tagged_fields().done()


def member_record(group: str, member_id: str, member: StoredShareMember) -> Record:
    writer = _begin()
    for text in (member.rack_id, member.client_id, member.client_host):
        writer.string(text, compact=True)
    writer.uvarint(len(member.topics) + 1)
    for topic in member.topics:
        writer.string(topic, compact=True)
    return _key(ShareRecord.MEMBER, group, member_id), writer.tagged_fields().done()


def target_epoch_record(group: str, epoch: int) -> Record:
    return _key(ShareRecord.TARGET_EPOCH, group), _begin().int32(epoch).tagged_fields().done()


def target_record(group: str, member_id: str, target: Iterable[TopicIdPartition]) -> Record:
    writer = _begin()
    write_partitions(writer, dict.fromkeys(target, 0), with_epochs=False)
    return _key(ShareRecord.TARGET, group, member_id), writer.tagged_fields().done()


def current_record(group: str, member_id: str, progress: StoredShareProgress) -> Record:
    writer = _begin().int32(progress.epoch).int32(progress.previous_epoch).int8(MemberState.STABLE)
    write_partitions(writer, dict.fromkeys(progress.assigned, 0), with_epochs=False)
    return _key(ShareRecord.CURRENT, group, member_id), writer.tagged_fields().done()


def member_tombstones(group: str, member_id: str) -> list[Record]:
    kinds = (ShareRecord.CURRENT, ShareRecord.TARGET, ShareRecord.MEMBER)
    return [(_key(kind, group, member_id), None) for kind in kinds]


def group_tombstones(group: str, member_ids: Iterable[str]) -> list[Record]:
    """Everything of the group, the group itself last: Kafka reads the log in order, and wants its parts gone first."""
    records = [record for member_id in member_ids for record in member_tombstones(group, member_id)]
    return [*records, (_key(ShareRecord.TARGET_EPOCH, group), None), (_key(ShareRecord.GROUP, group), None)]


def _key(record: ShareRecord, group: str, name: str = "") -> bytes:
    return encode_share_key(ShareKey(record, group, name))


def _begin() -> BytesWriter:
    return BytesWriter().int16(_VERSION)


def decode_share_value(raw_key: bytes, key: ShareKey, value: bytes) -> StoredShareValue:
    """The value of a record with that key; `raw_key` only names the record in an error."""
    reader = BytesReader(value, "share group record")
    try:
        version = reader.int16()
        if version != _VERSION:
            raise reader.malformed(f"value version {version} is not known here")
        decoded = _DECODERS[key.record](reader)
        reader.tagged_fields()
        reader.end()
    except MalformedBytes as error:
        raise CorruptGroupRecord(raw_key, str(error)) from None
    return decoded


def _decode_group(reader: BytesReader) -> StoredShareEpoch:
    return StoredShareEpoch(reader.int32(), reader.int64())


def _decode_member(reader: BytesReader) -> StoredShareMember:
    rack_id, client_id, client_host = reader.nullable_string(True), reader.string(True), reader.string(True)
    topics = tuple(reader.string(True) for _ in range(reader.array_count(1, compact=True)))
    return StoredShareMember(rack_id, client_id, client_host, tuple(sorted(topics)))


def _decode_target_epoch(reader: BytesReader) -> int:
    return reader.int32()


def _decode_target(reader: BytesReader) -> frozenset[TopicIdPartition]:
    return frozenset(read_partitions(reader, epoch=0))


def _decode_current(reader: BytesReader) -> StoredShareProgress:
    epoch, previous_epoch, _ = reader.int32(), reader.int32(), reader.int8()
    return StoredShareProgress(epoch, previous_epoch, frozenset(read_partitions(reader, epoch)))


_DECODERS: Final[dict[ShareRecord, Callable[[BytesReader], StoredShareValue]]] = {
    ShareRecord.GROUP: _decode_group,
    ShareRecord.MEMBER: _decode_member,
    ShareRecord.TARGET_EPOCH: _decode_target_epoch,
    ShareRecord.TARGET: _decode_target,
    ShareRecord.CURRENT: _decode_current,
}
