"""A consumer group's records in `__consumer_offsets`, in Kafka's own formats; its keys are in `offsets_format.py`.

Every value begins with int16 0, its version, and is compact, with tagged fields at the end of each structure:

    group          int32 epoch · tag 0: int64 hash of the subscribed topics
    member         string? instanceId · string? rackId · string clientId · string clientHost · [string] topics
                   · string? regex · int32 rebalanceTimeout · string? assignor
                   · tag 0: int8 1 · int32 sessionTimeout · [string name · bytes metadata], of a classic member
    target epoch   int32 epoch
    target         [uuid topicId · [int32 partition]]
    current        int32 epoch · int32 previousEpoch · int8 state · [assigned] · [revoking], both
                   uuid topicId · [int32 partition] · tag 0: [int32 assignment epoch of each] (KIP-1251)
    regex          [string topic] · int64 version · int64 timestamp

Pure functions. Anything that is not such a record raises `CorruptGroupRecord`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeVar

from foldlog.broker.groups.consumer.messages import MemberState, TopicIdPartition
from foldlog.broker.groups.consumer.state import Assigned, ClassicMetadata, ConsumerGroup, ConsumerMember, ResolvedRegex
from foldlog.broker.groups.offsets_format import ConsumerKey, ConsumerRecord, encode_consumer_key
from foldlog.broker.kafka_files.bytes import BytesReader, BytesWriter
from foldlog.errors import CorruptGroupRecord, MalformedBytes

Record = tuple[bytes, bytes | None]

_VERSION: Final = 0
_TAG: Final = 0
_UUID_BYTES: Final = 16
_PRESENT: Final = 1
"""The first byte of a nullable structure that is there."""

_STATES: Final = frozenset(map(int, MemberState))

Value = TypeVar("Value")


class StoredCurrent(NamedTuple):
    """A member's current assignment as stored."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Assigned
    revoking: Assigned


class StoredEpoch(NamedTuple):
    """A group's epoch as stored, and the hash of the topics it was made for."""

    epoch: int
    topics_hash: int


# --- what is written --------------------------------------------------------------------------------------------------


def group_record(group: ConsumerGroup) -> Record:
    writer = _begin().int32(group.epoch)
    hashed = {_TAG: BytesWriter().int64(group.topics_hash).done()} if group.topics_hash else {}
    return _key(ConsumerRecord.GROUP, group.group_id), writer.tagged_fields(hashed).done()


def member_record(group_id: str, member: ConsumerMember) -> Record:
    writer = _begin().string(member.group_instance_id, compact=True).string(member.rack_id, compact=True)
    writer.string(member.client_id, compact=True).string(member.client_host, compact=True)
    _write_array(writer, member.topics, partial(writer.string, compact=True))
    writer.string(member.regex or None, compact=True).int32(member.rebalance_timeout_ms)
    writer.string(member.assignor, compact=True)
    tagged = {} if member.classic is None else {_TAG: _classic_bytes(member.classic)}
    return _key(ConsumerRecord.MEMBER, group_id, member.member_id), writer.tagged_fields(tagged).done()


def target_epoch_record(group: ConsumerGroup) -> Record:
    value = _begin().int32(group.target_epoch).tagged_fields().done()
    return _key(ConsumerRecord.TARGET_EPOCH, group.group_id), value


def target_record(group_id: str, member_id: str, target: Iterable[TopicIdPartition]) -> Record:
    writer = _begin()
    write_partitions(writer, dict.fromkeys(target, 0), with_epochs=False)
    return _key(ConsumerRecord.TARGET, group_id, member_id), writer.tagged_fields().done()


def current_record(group_id: str, member: ConsumerMember) -> Record:
    writer = _begin().int32(member.epoch).int32(member.previous_epoch).int8(member.state)
    write_partitions(writer, member.assigned, with_epochs=True)
    write_partitions(writer, member.revoking, with_epochs=True)
    return _key(ConsumerRecord.CURRENT, group_id, member.member_id), writer.tagged_fields().done()


def regex_record(group_id: str, regex: str, found: ResolvedRegex) -> Record:
    writer = _begin()
    _write_array(writer, sorted(found.topics), partial(writer.string, compact=True))
    # Kafka's version is that of its metadata log, by which it knows how old the answer is; here topics are compared.
    value = writer.int64(0).int64(found.resolved_ms).tagged_fields().done()
    return _key(ConsumerRecord.REGEX, group_id, regex), value


def regex_tombstone(group_id: str, regex: str) -> Record:
    return _key(ConsumerRecord.REGEX, group_id, regex), None


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    kinds = (ConsumerRecord.CURRENT, ConsumerRecord.TARGET, ConsumerRecord.MEMBER)
    return [(_key(kind, group_id, member_id), None) for kind in kinds]


def group_tombstones(group: ConsumerGroup) -> list[Record]:
    """Everything of the group, the group itself last: Kafka reads the log in order, and wants its parts gone first."""
    records = [record for member_id in group.members for record in member_tombstones(group.group_id, member_id)]
    records += [regex_tombstone(group.group_id, regex) for regex in group.regexes]
    records.append((_key(ConsumerRecord.TARGET_EPOCH, group.group_id), None))
    records.append((_key(ConsumerRecord.GROUP, group.group_id), None))
    return records


def group_records(group: ConsumerGroup) -> list[Record]:
    """Everything of the group, as after an upgrade from the classic protocol."""
    members = group.members.values()
    return [
        *(member_record(group.group_id, member) for member in members),
        *(regex_record(group.group_id, regex, found) for regex, found in group.regexes.items()),
        group_record(group),
        *(target_record(group.group_id, member_id, target) for member_id, target in group.targets.items()),
        target_epoch_record(group),
        *(current_record(group.group_id, member) for member in members),
    ]


def _key(record: ConsumerRecord, group: str, name: str = "") -> bytes:
    return encode_consumer_key(ConsumerKey(record, group, name))


def _begin() -> BytesWriter:
    return BytesWriter().int16(_VERSION)


def _write_array(writer: BytesWriter, items: Iterable[Value], write: Callable[[Value], object]) -> None:
    listed = list(items)
    writer.uvarint(len(listed) + 1)
    for item in listed:
        write(item)


def _classic_bytes(classic: ClassicMetadata) -> bytes:
    writer = BytesWriter().int8(_PRESENT).int32(classic.session_timeout_ms)
    _write_array(
        writer,
        classic.protocols,
        lambda protocol: writer.string(protocol[0], compact=True).bytes_(protocol[1], compact=True).tagged_fields(),
    )
    return writer.tagged_fields().done()


def write_partitions(writer: BytesWriter, partitions: Assigned, *, with_epochs: bool) -> None:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(number)
    writer.uvarint(len(by_topic) + 1)
    for topic_id, numbers in by_topic.items():
        writer.raw(topic_id)
        _write_array(writer, numbers, writer.int32)
        tagged: dict[int, bytes] = {}
        if with_epochs:
            epochs = BytesWriter()
            _write_array(epochs, [partitions[topic_id, number] for number in numbers], epochs.int32)
            tagged[_TAG] = epochs.done()
        writer.tagged_fields(tagged)


# --- what is read -----------------------------------------------------------------------------------------------------

StoredValue = StoredEpoch | ConsumerMember | int | frozenset[TopicIdPartition] | StoredCurrent | ResolvedRegex


def decode_consumer_value(raw_key: bytes, key: ConsumerKey, value: bytes) -> StoredValue:
    """The value of a record with that key; `raw_key` only names the record in an error."""
    reader = BytesReader(value, "consumer group record")
    try:
        version = reader.int16()
        if version != _VERSION:
            raise reader.malformed(f"value version {version} is not known here")
        decoded = _DECODERS[key.record](reader, key)
        reader.end()
    except MalformedBytes as error:
        raise CorruptGroupRecord(raw_key, str(error)) from None
    return decoded


def _decode_group(reader: BytesReader, key: ConsumerKey) -> StoredEpoch:
    epoch = reader.int32()
    hashed = reader.tagged_fields().get(_TAG)
    topics_hash = 0 if hashed is None else BytesReader(hashed, "hash of topics").int64()
    if epoch < 0:
        raise reader.malformed(f"epoch {epoch} cannot exist")
    return StoredEpoch(epoch, topics_hash)


def _decode_member(reader: BytesReader, key: ConsumerKey) -> ConsumerMember:
    instance_id, rack_id = reader.nullable_string(True), reader.nullable_string(True)
    client_id, client_host = reader.string(True), reader.string(True)
    topics = tuple(reader.string(True) for _ in range(reader.array_count(1, compact=True)))
    regex = reader.nullable_string(True) or ""
    rebalance_timeout_ms = reader.int32()
    assignor = reader.nullable_string(True)
    classic = reader.tagged_fields().get(_TAG)
    return ConsumerMember(
        key.name,
        instance_id,
        rack_id,
        client_id,
        client_host,
        tuple(sorted(topics)),
        regex,
        rebalance_timeout_ms,
        assignor,
        None if classic is None else _decode_classic(classic),
    )


def _decode_classic(data: bytes) -> ClassicMetadata | None:
    reader = BytesReader(data, "classic member")
    if reader.int8() != _PRESENT:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.array_count(3, compact=True)):
        protocols.append((reader.string(True), reader.bytes_(True)))
        reader.tagged_fields()
    reader.tagged_fields()
    reader.end()
    if session_timeout_ms <= 0 or not protocols:
        raise reader.malformed("it has no session timeout, or no protocol")
    return ClassicMetadata(session_timeout_ms, tuple(protocols))


def _decode_target_epoch(reader: BytesReader, key: ConsumerKey) -> int:
    epoch = reader.int32()
    reader.tagged_fields()
    return epoch


def _decode_target(reader: BytesReader, key: ConsumerKey) -> frozenset[TopicIdPartition]:
    target = frozenset(read_partitions(reader, epoch=0))
    reader.tagged_fields()
    return target


def _decode_current(reader: BytesReader, key: ConsumerKey) -> StoredCurrent:
    epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    assigned = read_partitions(reader, epoch)
    revoking = read_partitions(reader, epoch)
    reader.tagged_fields()
    known = MemberState(state) if state in _STATES else MemberState.UNKNOWN
    return StoredCurrent(epoch, previous_epoch, known, assigned, revoking)


def _decode_regex(reader: BytesReader, key: ConsumerKey) -> ResolvedRegex:
    topics = frozenset(reader.string(True) for _ in range(reader.array_count(1, compact=True)))
    reader.int64()
    resolved_ms = reader.int64()
    reader.tagged_fields()
    return ResolvedRegex(topics, resolved_ms)


def read_partitions(reader: BytesReader, epoch: int) -> dict[TopicIdPartition, int]:
    """Kafka before 4.3 stored no assignment epochs: the partitions then count as assigned at the member's epoch."""
    found: dict[TopicIdPartition, int] = {}
    for _ in range(reader.array_count(_UUID_BYTES + 2, compact=True)):
        topic_id = reader.uuid()
        numbers = [reader.int32() for _ in range(reader.array_count(4, compact=True))]
        tagged = reader.tagged_fields().get(_TAG)
        epochs = [epoch] * len(numbers)
        if tagged is not None:
            epochs_reader = BytesReader(tagged, "assignment epochs")
            epochs = [epochs_reader.int32() for _ in range(epochs_reader.array_count(4, compact=True))]
        if len(epochs) != len(numbers) or any(number < 0 for number in numbers):
            raise reader.malformed("its partitions cannot exist, or have another count of epochs")
        found.update(((topic_id, number), since) for number, since in zip(numbers, epochs, strict=True))
    return found


_DECODERS: Final[dict[ConsumerRecord, Callable[[BytesReader, ConsumerKey], StoredValue]]] = {
    ConsumerRecord.GROUP: _decode_group,
    ConsumerRecord.MEMBER: _decode_member,
    ConsumerRecord.TARGET_EPOCH: _decode_target_epoch,
    ConsumerRecord.TARGET: _decode_target,
    ConsumerRecord.CURRENT: _decode_current,
    ConsumerRecord.REGEX: _decode_regex,
}


class StoredConsumerGroup:
    """The parts of one consumer group as its records have them, in whatever order they are read."""

    def __init__(self) -> None:
        self._parts: dict[tuple[ConsumerRecord, str], StoredValue] = {}

    def put(self, key: ConsumerKey, value: StoredValue | None) -> None:
        """Take in the newest value of one part; None if it is gone."""
        if value is None:
            self._parts.pop((key.record, key.name), None)
        else:
            self._parts[key.record, key.name] = value

    def build(self, group_id: str) -> ConsumerGroup | None:
        """The group; None if it is gone. A member whose partitions another one has too is left out, and joins again."""
        stored = self._parts.get((ConsumerRecord.GROUP, ""))
        if not isinstance(stored, StoredEpoch):
            return None
        target_epoch = self._parts.get((ConsumerRecord.TARGET_EPOCH, ""), 0)
        group = ConsumerGroup(
            group_id,
            stored.epoch,
            min(target_epoch, stored.epoch) if isinstance(target_epoch, int) else 0,
            stored.topics_hash,
        )
        for (record, name), value in self._parts.items():
            if record is ConsumerRecord.REGEX and isinstance(value, ResolvedRegex):
                group.regexes[name] = value
            elif record is ConsumerRecord.MEMBER and isinstance(value, ConsumerMember):
                self._add_member(group, value)
        return group

    def _add_member(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        current = self._parts.get((ConsumerRecord.CURRENT, member.member_id))
        if isinstance(current, StoredCurrent):
            member = replace(member, **current._asdict())
        is_free = group.is_free_for(member.member_id)
        is_known = member.group_instance_id in group.static_ids
        if is_known or not all(is_free(partition) for partition in (*member.assigned, *member.revoking)):
            return
        group.put(member)
        target = self._parts.get((ConsumerRecord.TARGET, member.member_id))
        group.targets[member.member_id] = target if isinstance(target, frozenset) else frozenset()
