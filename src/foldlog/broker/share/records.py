"""The records of `__share_group_state`, in Kafka's own formats.

    key            int16 kind, 0 a snapshot, 1 an update · string group · uuid topicId · int32 partition
    snapshot       int16 0 · int32 snapshotEpoch · int32 stateEpoch · int32 leaderEpoch · int64 startOffset
                   · int64 createTime · int64 writeTime · [batch] · tag 0: int32 deliveries complete from the start on
    update         int16 0 · int32 snapshotEpoch · int32 leaderEpoch · int64 startOffset, -1 if as before · [batch]
                   · tag 0: as above
    batch          int64 firstOffset · int64 lastOffset · int8 state · int16 deliveryCount

Values are compact, with tagged fields at the end of each structure. A snapshot is the whole state of a partition in a
group, an update what has changed since the snapshot of its epoch; so updates may not be compacted by key, and the topic
is cut off at its head instead, below the oldest snapshot that counts. A snapshot without a value ends the state.

Pure functions. Anything that is not such a record raises `CorruptGroupRecord`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from foldlog.broker.kafka_files.bytes import BytesReader, BytesWriter
from foldlog.broker.share.messages import NO_OFFSET, RecordState, SharePartitionKey, StateBatch
from foldlog.errors import CorruptGroupRecord, MalformedBytes

Record = tuple[bytes, bytes | None]

_SNAPSHOT: Final = 0
_UPDATE: Final = 1
_VERSION: Final = 0
_COMPLETE_TAG: Final = 0
_BATCH_BYTES_MIN: Final = 8 + 8 + 1 + 2 + 1
_STORED_STATES: Final = frozenset({RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


@dataclass(frozen=True, slots=True)
class StoredShare:
    """A partition in a share group as stored. `start_offset` is -1 while nobody has read with the group."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    created_ms: int
    batches: tuple[StateBatch, ...] = field(default=())

    def updated(self, update: StoredUpdate) -> StoredShare:
        """The state after an update; one of an older snapshot's is in this one already."""
        if update.snapshot_epoch < self.snapshot_epoch:
            return self
        start_offset = self.start_offset if update.start_offset == NO_OFFSET else update.start_offset
        batches = overlaid(self.batches, update.batches, start_offset)
        return replace(self, leader_epoch=update.leader_epoch, start_offset=start_offset, batches=batches)


class StoredUpdate(NamedTuple):
    """What has changed of a partition in a share group."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]


def overlaid(older: Iterable[StateBatch], newer: Iterable[StateBatch], start_offset: int = 0) -> tuple[StateBatch, ...]:
    """Both, in the order of their offsets; where they overlap the newer count. Without what lies below the start."""
    over = sorted(newer)
    found = list(over)
    for batch in older:
        first = batch.first
        for other in over:
            if other.last < first:
                continue
            if other.first > batch.last:
                break
            if first < other.first:
                found.append(batch._replace(first=first, last=other.first - 1))
            first = other.last + 1
        if first <= batch.last:
            found.append(batch._replace(first=first))
    kept = (one for one in sorted(found) if one.last >= start_offset)
    return tuple(one._replace(first=max(one.first, start_offset)) for one in kept)


# --- what is written --------------------------------------------------------------------------------------------------


def snapshot_record(key: SharePartitionKey, share: StoredShare, complete_count: int, now_ms: int) -> Record:
    writer = BytesWriter().int16(_VERSION).int32(share.snapshot_epoch).int32(share.state_epoch)
    writer.int32(share.leader_epoch).int64(share.start_offset).int64(share.created_ms).int64(now_ms)
    return _key(_SNAPSHOT, key), _end(writer, share.batches, complete_count)


def update_record(key: SharePartitionKey, update: StoredUpdate, complete_count: int) -> Record:
    writer = BytesWriter().int16(_VERSION).int32(update.snapshot_epoch).int32(update.leader_epoch)
    return _key(_UPDATE, key), _end(writer.int64(update.start_offset), update.batches, complete_count)


def tombstone(key: SharePartitionKey) -> Record:
    return _key(_SNAPSHOT, key), None


def _key(kind: int, key: SharePartitionKey) -> bytes:
    return BytesWriter().int16(kind).string(key[0]).raw(key[1]).int32(key[2]).done()


def _end(writer: BytesWriter, batches: Iterable[StateBatch], complete_count: int) -> bytes:
    listed = list(batches)
    writer.uvarint(len(listed) + 1)
    for batch in listed:
        writer.int64(batch.first).int64(batch.last).int8(batch.state).int16(batch.delivery_count).tagged_fields()
    return writer.tagged_fields({_COMPLETE_TAG: BytesWriter().int32(complete_count).done()}).done()


# --- what is read -----------------------------------------------------------------------------------------------------


def decode_record(key: bytes, value: bytes | None) -> tuple[SharePartitionKey, StoredShare | StoredUpdate | None]:
    """Whose record it is, and what it says; None if the state has ended."""
    try:
        reader = BytesReader(key, "__share_group_state key")
        kind = reader.int16()
        if kind not in (_SNAPSHOT, _UPDATE):
            raise reader.malformed(f"kind {kind} is not known here")
        named = (reader.string(), reader.uuid(), reader.int32())
        reader.end()
        if named[2] < 0:
            raise reader.malformed(f"partition {named[2]} cannot exist")
        return named, None if value is None else _decode_value(kind, value)
    except MalformedBytes as error:
        raise CorruptGroupRecord(key, str(error)) from None


def _decode_value(kind: int, value: bytes) -> StoredShare | StoredUpdate:
    reader = BytesReader(value, "state of a share group")
    version = reader.int16()
    if version != _VERSION:
        raise reader.malformed(f"value version {version} is not known here")
    snapshot_epoch = reader.int32()
    if kind == _UPDATE:
        leader_epoch, start_offset = reader.int32(), reader.int64()
        return StoredUpdate(snapshot_epoch, leader_epoch, start_offset, _read_batches(reader))
    state_epoch, leader_epoch, start_offset = reader.int32(), reader.int32(), reader.int64()
    created_ms, _ = reader.int64(), reader.int64()
    return StoredShare(snapshot_epoch, state_epoch, leader_epoch, start_offset, created_ms, _read_batches(reader))


def _read_batches(reader: BytesReader) -> tuple[StateBatch, ...]:
    """To the end of the value."""
    batches = []
    for _ in range(reader.array_count(_BATCH_BYTES_MIN, compact=True)):
        first, last, state, count = reader.int64(), reader.int64(), reader.int8(), reader.int16()
        reader.tagged_fields()
        if not 0 <= first <= last or state not in _STORED_STATES or count < 0:
            raise reader.malformed(f"a batch of state {state} from {first} to {last} cannot exist")
        batches.append(StateBatch(first, last, RecordState(state), count))
    reader.tagged_fields()
    reader.end()
    return tuple(batches)
