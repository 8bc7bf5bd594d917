"""A record to be sent: what is checked before anything is sent, and the choice of its partition.

The partition is the given one, else by key, else by the keyless rule. By key: `murmur2(key) % partitions`, as in Java
clients, so that embedded and remote producers agree. Keyless records stay with one partition until its batch closes
(large batches are cheap), or go round-robin record by record if asked. A callable `(topic, key, partition_count) ->
partition` replaces both rules; a given partition still wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from foldlog.client.serializers import Serializer, serialized
from foldlog.errors import (
    FoldlogError,
    InvalidArgument,
    RecordTooLarge,
    SerializationError,
    UnknownPartition,
    brief_repr,
)
from foldlog.records.batch import MAX_INT64
from foldlog.records.loops import BatchBuilder, murmur2

Headers = Iterable[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]
"""Headers as callers may give them: pairs, or a mapping if no name occurs twice."""

Partitioner = Callable[[str, bytes | None, int], int]

FRAME_BYTES_MAX = 128
"""A batch header and the lengths and deltas of a record without headers are less than this."""

_ARGUMENTS = frozenset({"value", "key", "headers", "partition", "timestamp_ms"})


class TransactionalProducer(NamedTuple):
    """Who writes a transaction: batches carry id and epoch."""

    transactional_id: str
    producer_id: int
    epoch: int


class Outgoing(NamedTuple):
    """A record in bytes. `partition` is None if the key or the keyless rule decides."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None


def checked_headers(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    """Pairs of str and bytes (or None); text becomes UTF-8.

    >>> checked_headers({"trace": "abc", "none": None})
    (('trace', b'abc'), ('none', None))
    """
    checked: list[tuple[str, bytes | None]] = []
    given: Any = headers
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise SerializationError(f"headers are pairs of a name and bytes, or a dict, not {brief_repr(given)}")
    for pair in given.items() if isinstance(given, Mapping) else given:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise SerializationError(f"headers are pairs of a name and bytes, not {brief_repr(pair)}")
        name, value = pair
        if not isinstance(name, str):
            raise SerializationError(f"a header's name is a str, not {type(name).__name__}")
        if not name.isascii():
            _header_text(name, "name")
        if isinstance(value, str):
            value = _header_text(value, "value")
        elif value is not None and type(value) is not bytes:
            if not isinstance(value, (bytes, bytearray, memoryview)):
                raise SerializationError(
                    f"the value of header {brief_repr(name)} is bytes, str or None, not {brief_repr(value)}"
                )
            value = bytes(value)
        checked.append((name, value))
    return tuple(checked)


def _header_text(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise SerializationError(
            f"a header's {what} {brief_repr(text)} holds half a surrogate pair, which UTF-8 cannot express"
        ) from None


def checked_timestamp(timestamp_ms: object) -> int:
    """Milliseconds since 1970.

    >>> checked_timestamp(1700000000000)
    1700000000000
    """
    if type(timestamp_ms) is int and 0 <= timestamp_ms < MAX_INT64:
        return timestamp_ms
    raise InvalidArgument(
        f"timestamp_ms {brief_repr(timestamp_ms)} is not a count of milliseconds since 1970:"
        " an int of 0 or more, and below 2**63 - 1"
    )


def check_size(record: Outgoing, limit_bytes: int, setting: str = "max.message.bytes") -> None:
    """Raises RecordTooLarge if the record alone, before compression, makes a batch over the limit of a setting."""
    payload_bytes = len(record.key or b"") + len(record.value or b"")
    if not record.headers and payload_bytes + FRAME_BYTES_MAX <= limit_bytes:
        return
    builder = BatchBuilder(max(limit_bytes, 1), 1)
    builder.append(record.timestamp_ms, record.key, record.value, record.headers)
    if builder.size_bytes > limit_bytes:
        raise RecordTooLarge(builder.size_bytes, limit_bytes, setting)


def checked_batch(
    topic: str,
    records: Iterable[Mapping[str, Any]],
    key_serializer: Serializer | None,
    value_serializer: Serializer | None,
    now_ms: int,
) -> list[Outgoing]:
    """Every dict of a `send_batch` in bytes; an error names the first bad one by index."""
    outgoing: list[Outgoing] = []
    given: Any = records
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise InvalidArgument(
            f"a batch is a list of dicts, such as [{{'value': b'paid', 'key': b'tx_001'}}], not {brief_repr(given)}"
        )
    for index, fields in enumerate(records):
        if not isinstance(fields, Mapping):
            raise InvalidArgument(
                f"record {index} of the batch is a {type(fields).__name__}, not a dict; nothing was sent"
            )
        for name in fields:
            if name not in _ARGUMENTS:
                raise InvalidArgument(
                    f"record {index} of the batch has the unknown key {name!r}; nothing was sent;"
                    f" known are {', '.join(sorted(_ARGUMENTS))}"
                )
        try:
            timestamp_ms = fields.get("timestamp_ms")
            outgoing.append(
                Outgoing(
                    now_ms if timestamp_ms is None else checked_timestamp(timestamp_ms),
                    serialized(key_serializer, fields.get("key"), "key", topic),
                    serialized(value_serializer, fields.get("value"), "value", topic),
                    checked_headers(fields.get("headers") or ()),
                    fields.get("partition"),
                )
            )
        except FoldlogError as error:
            raise in_batch(error, index) from error
    return outgoing


def in_batch(error: FoldlogError, index: int) -> FoldlogError:
    """An error of the same type that names the record of the batch."""
    if isinstance(error, SerializationError | InvalidArgument):
        return type(error)(f"record {index} of the batch: {error}; nothing was sent")
    error.add_note(f"record {index} of the batch; nothing was sent")
    return error


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition that Java clients choose for this key.

    >>> partition_for_key(b"tx_001", 1)
    0
    """
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def partition_named_or_by_key(topic: str, partition: int | None, key: bytes | None, partition_count: int) -> int | None:
    """The partition that the record names, else the one of its key; None if the keyless rule decides.

    Raises UnknownPartition if the topic does not have the named one.

    >>> partition_named_or_by_key("orders", 2, b"tx_001", 3), partition_named_or_by_key("orders", None, None, 3)
    (2, None)
    """
    if partition is not None:
        return checked_partition(topic, partition, partition_count)
    return None if key is None else partition_for_key(key, partition_count)


def checked_partition(topic: str, partition: int, partition_count: int) -> int:
    """`partition` if the topic has it; else raises UnknownPartition, for negatives, bools and other types too.

    >>> checked_partition("orders", 2, 3)
    2
    """
    if type(partition) is int and 0 <= partition < partition_count:
        return partition
    raise UnknownPartition(topic, partition, partition_count)


def keyless_rule(partitioner: Partitioner | str | None) -> tuple[Partitioner | None, bool]:
    """The meaning of `partitioner=`: the caller's own callable, and whether keyless records go round-robin.

    "roundrobin" is Kafka's spelling of the assignor; a name that works in one place works in the other.

    >>> keyless_rule(None), keyless_rule("round_robin"), keyless_rule("roundrobin")
    ((None, False), (None, True), (None, True))
    """
    if partitioner is None or partitioner == "sticky":
        return None, False
    if partitioner in ("round_robin", "roundrobin"):
        return None, True
    if callable(partitioner):
        return partitioner, False
    raise InvalidArgument(
        f"no partitioner {brief_repr(partitioner)};"
        " give 'sticky', 'round_robin' or a callable(topic, key, partition_count)"
    )


def emptiest(end_offsets: Sequence[int]) -> int:
    """Where keyless records begin: the partition with the lowest end offset, the first of several.

    Deterministic, and short-lived producers that each send a little still fill all partitions.

    >>> emptiest([5, 2, 2])
    1
    """
    return min(range(len(end_offsets)), key=end_offsets.__getitem__)
