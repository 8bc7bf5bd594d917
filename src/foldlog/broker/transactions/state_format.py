"""The records of `__transaction_state`, in Kafka's own format.

A key names a transactional id, the value is its state; a null value is a tombstone. We write value version 1, which
every Kafka since 4.0 reads, and read 0 and 1.

    key       int16 0 · string transactionalId
    value     int16 1 · int64 producerId · int16 producerEpoch · int32 timeoutMs · int8 state
              · compact [compact string topic · compact [int32 partition] · tags] or null · int64 updated · int64 start
              · tags: 0 int64 previousProducerId, 1 int64 nextProducerId, 2 int16 clientTransactionVersion
    (0)       the same without tags, and with lengths of fixed size

Pure functions. Anything that is not such a record raises `CorruptTransactionRecord`; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from foldlog.broker.kafka_files.bytes import BytesReader, BytesWriter
from foldlog.errors import CorruptTransactionRecord, MalformedBytes

TopicPartition = tuple[str, int]

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1
FLEXIBLE_VERSION: Final = 1
PREVIOUS_PRODUCER_ID_TAG: Final = 0
NEXT_PRODUCER_ID_TAG: Final = 1
CLIENT_VERSION_TAG: Final = 2

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1


class TransactionState(IntEnum):
    """Where a transactional id stands, with Kafka's numbers. 6 and 7 are never stored: Kafka passes through them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def title(self) -> str:
        """Kafka's name of it.

        >>> TransactionState.PREPARE_COMMIT.title
        'PrepareCommit'
        """
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the end is decided, and markers may be missing."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """A transactional id: its producer, and the transaction that is open or was the last one.

    Each change makes a new one. `last_producer_epoch` is the epoch that a repeated request may still have; as in Kafka
    it is not stored. `next_producer_id`: takes over when the prepared transaction is complete.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_committing(self) -> bool:
        return self.state is TransactionState.PREPARE_COMMIT


def encode_key(transactional_id: str) -> bytes:
    return BytesWriter().int16(KEY_VERSION).string(transactional_id).done()


def decode_key(key: bytes | None) -> str:
    """The transactional id.

    >>> decode_key(encode_key("orders-etl"))
    'orders-etl'
    """
    if key is None:
        raise CorruptTransactionRecord(key, "it has no key")
    reader = BytesReader(key, "__transaction_state key")
    try:
        version = reader.int16()
        if version != KEY_VERSION:
            raise reader.malformed(f"key version {version} is not known here")
        transactional_id = reader.string()
        reader.end()
    except MalformedBytes as error:
        raise CorruptTransactionRecord(key, str(error)) from None
    return transactional_id


def encode_value(metadata: TransactionMetadata) -> bytes:
    writer = BytesWriter().int16(VALUE_VERSION).int64(metadata.producer_id).int16(metadata.producer_epoch)
    writer.int32(metadata.timeout_ms).int8(metadata.state)
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(metadata.partitions):
        by_topic.setdefault(topic, []).append(number)
    # As Kafka writes it: an id whose producer has only been initialised has no list, and after that it may be empty.
    writer.array_count(None if metadata.state is TransactionState.EMPTY else len(by_topic), compact=True)
    for topic, numbers in by_topic.items():
        writer.string(topic, compact=True).array_count(len(numbers), compact=True)
        for number in numbers:
            writer.int32(number)
        writer.tagged_fields({})
    writer.int64(metadata.updated_ms).int64(metadata.start_ms)
    tags = {}
    if metadata.previous_producer_id != NO_PRODUCER_ID:
        tags[PREVIOUS_PRODUCER_ID_TAG] = BytesWriter().int64(metadata.previous_producer_id).done()
    if metadata.next_producer_id != NO_PRODUCER_ID:
        tags[NEXT_PRODUCER_ID_TAG] = BytesWriter().int64(metadata.next_producer_id).done()
    if metadata.client_version:
        tags[CLIENT_VERSION_TAG] = BytesWriter().int16(metadata.client_version).done()
    return writer.tagged_fields(tags).done()


def decode_value(key: bytes, value: bytes) -> TransactionMetadata:
    """The state of the transactional id that `key` names."""
    transactional_id = decode_key(key)
    reader = BytesReader(value, "state of a transaction")
    try:
        version = reader.int16()
        if not 0 <= version <= VALUE_VERSION:
            raise reader.malformed(f"value version {version} is not known here")
        compact = version >= FLEXIBLE_VERSION
        producer_id, producer_epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
        state = _state(reader)
        partitions = _partitions(reader, compact)
        updated_ms, start_ms = reader.int64(), reader.int64()
        tags = reader.tagged_fields() if compact else {}
        reader.end()
        return TransactionMetadata(
            transactional_id,
            producer_id,
            producer_epoch,
            timeout_ms,
            state,
            partitions,
            updated_ms,
            start_ms,
            _tag(tags, PREVIOUS_PRODUCER_ID_TAG, BytesReader.int64, NO_PRODUCER_ID),
            _tag(tags, NEXT_PRODUCER_ID_TAG, BytesReader.int64, NO_PRODUCER_ID),
            _tag(tags, CLIENT_VERSION_TAG, BytesReader.int16, 0),
        )
    except MalformedBytes as error:
        raise CorruptTransactionRecord(key, str(error)) from None


def _state(reader: BytesReader) -> TransactionState:
    number = reader.int8()
    try:
        return TransactionState(number)
    except ValueError:
        raise reader.malformed(f"there is no state {number} of a transaction") from None


def _partitions(reader: BytesReader, compact: bool) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    # The smallest item: an empty name, no numbers, no tags.
    for _ in range(reader.array_count(3 if compact else 6, compact, nullable=True)):
        topic = reader.string(compact)
        found.update((topic, reader.int32()) for _ in range(reader.array_count(4, compact)))
        if compact:
            reader.tagged_fields()
    return frozenset(found)


def _tag(tags: dict[int, bytes], tag: int, read: Callable[[BytesReader], int], default: int) -> int:
    raw = tags.get(tag)
    if raw is None:
        return default
    reader = BytesReader(raw, "state of a transaction")
    value = read(reader)
    reader.end()
    return value
