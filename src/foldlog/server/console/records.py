"""Records as the console shows them: a strip of cells, one record, the time at an offset, the place that a text names;
and appending one record.

On a worker thread. Every look begins with a search in the index and ends at a number of records or bytes, so it costs
the same at offset 10 and at offset 10 million.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from foldlog.broker.topics.names import KAFKA_OWN_TOPICS
from foldlog.client.fold_bulletin import FOLDS_TOPIC
from foldlog.client.outgoing import emptiest, partition_named_or_by_key
from foldlog.client.places import parse_points, resolve
from foldlog.client.schemas.lookups import RegisteredSchema
from foldlog.client.schemas.values import ValueDecoder, resolved
from foldlog.errors import OffsetOutOfRange
from foldlog.limits import CONSOLE_EXPANDED_BYTES_MAX, CONSOLE_FIELD_BYTES_MAX, CONSOLE_READ_BYTES_MAX
from foldlog.log.reading import LogView, batch_location
from foldlog.records.batch import MAX_INT64, Compression, TimestampType
from foldlog.records.decoding import AUTO, REGISTRY, Decoder, Guessing, How, decoder_named, document_of, readable
from foldlog.records.loops import BatchBuilder, Record, decode, walk
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.parameters import Bytes, JsonBody, bad_request
from foldlog.server.console.topics import open_partition

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.broker.topics.catalog import CatalogTopic
    from foldlog.log.partition import Partition
    from foldlog.server.node import BrokerNode

LAST: Final = -1
"""In place of a first offset: the strip ends with the log."""

_CHUNK_BYTES: Final = 256 << 10
_WIDER: Final = 4
_WIDER_TRIES: Final = 4
"""If compaction left few of the last offsets, the strip at the end begins further back: by this factor, this many
times."""

_HOLDERS_SHOWN: Final = 10


def strip(partition: Partition, from_offset: int, count: int) -> dict[str, Any]:
    """Up to `count` records from an offset on. Every offset from `from` to before `next` is a cell or in a gap."""
    window = _last_window(partition, count) if from_offset == LAST else _window(partition, from_offset, count)
    start, end = bounds(partition)
    return {
        "start": start,
        "end": end,
        "from": window.first,
        "next": window.next_offset,
        "cells": [_cell(record, batch) for record, batch in window.records],
        "gaps": window.gaps,
        "edge": edge(partition),
    }


def bounds(partition: Partition) -> tuple[int, int]:
    """The log start, and the end of all acknowledged records: those between them can be read."""
    end = partition.acknowledged_end()
    return min(partition.log_start_offset, end), end


class _Window:
    """Records in order, each with the base offset of its batch, and the gaps between them.

    With `keep`, only that many of the last ones: `first` is then the first of these.
    """

    def __init__(self, first: int, keep: int | None = None) -> None:
        self.first = self.next_offset = first
        self.records: deque[tuple[Record, int]] = deque(maxlen=keep)
        self._gaps: list[list[int]] = []

    def add(self, record: Record, batch: int) -> None:
        self.skip_to(record.offset)
        is_full = len(self.records) == self.records.maxlen
        self.records.append((record, batch))
        if is_full:
            self.first = self.records[0][0].offset
        self.next_offset = record.offset + 1

    def skip_to(self, offset: int) -> None:
        """Note a gap up to `offset`. Adjacent gaps are joined: a read ended between them."""
        if offset > self.next_offset:
            if self._gaps and self._gaps[-1][1] == self.next_offset:
                self._gaps[-1][1] = offset
            else:
                self._gaps.append([self.next_offset, offset])
            self.next_offset = offset

    @property
    def gaps(self) -> list[list[int]]:
        return [gap for gap in self._gaps if gap[1] > self.first]


def _last_window(partition: Partition, count: int) -> _Window:
    """The last records of the log, from further back if compaction left few of the last offsets."""
    start, end = bounds(partition)
    width = count
    found = _window(partition, end - width, keep=count)
    for _ in range(_WIDER_TRIES):
        if len(found.records) >= count or found.first <= start:
            break
        width *= _WIDER
        wider = _window(partition, end - width, keep=count)
        if wider.next_offset < end:
            break  # more than one look may read
        found = wider
    return found


def _window(partition: Partition, from_offset: int, stop_after: int = MAX_INT64, *, keep: int | None = None) -> _Window:
    start, end = bounds(partition)
    window = _Window(min(max(from_offset, start), end), keep)
    left_bytes, left_expanded = CONSOLE_READ_BYTES_MAX, CONSOLE_EXPANDED_BYTES_MAX
    while len(window.records) < stop_after and window.next_offset < end and left_bytes > 0 and left_expanded > 0:
        try:
            piece = partition.read(window.next_offset, min(_CHUNK_BYTES, left_bytes))
        except OffsetOutOfRange:
            if window.next_offset != window.first or partition.log_start_offset <= window.first:
                raise
            # Retention was faster: the strip begins at the new log start.
            window = _Window(partition.log_start_offset, keep)
            continue
        if not piece.data:
            break
        left_bytes -= len(piece.data)
        records, next_offset = decode(
            piece.data,
            *partition.label,
            start_offset=window.next_offset,
            end_offset=end,
            max_records=stop_after - len(window.records),
            decompressed_limit=partition.decompressed_limit,
            enough_bytes=left_expanded,
        )
        left_expanded -= sum(map(_size_of, records))
        bases = [header.base_offset for header in walk(piece.data, gaps_below=MAX_INT64, check_crc=False).headers]
        for record in records:
            window.add(record, bases[bisect_right(bases, record.offset) - 1])
        window.skip_to(next_offset)
    return window


def _size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _cell(record: Record, batch: int) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": short_key(record.key),
        "value_size": 0 if record.value is None else len(record.value),
        "is_tombstone": record.value is None,
        "batch": batch,
    }


def edge(partition: Partition) -> dict[str, Any]:
    """The log start, its age, and when retention.ms removes the oldest segment; null if it does not."""
    start, _ = bounds(partition)
    oldest = next_record(partition, start)
    config = partition.config
    expires_ms = None
    if oldest is not None and config.delete and config.retention_ms >= 0:
        largest_ms = partition.look(lambda view: view.segments[view.segment_at(start)].largest_timestamp())
        # Retention removes it once it is older than that: from the next millisecond on.
        expires_ms = largest_ms + config.retention_ms + 1 if largest_ms >= 0 else None
    oldest_ms = oldest.timestamp_ms if oldest is not None else None
    return {"start": start, "oldest_ms": oldest_ms, "expires_ms": expires_ms}


def held(broker: Broker, partition: Partition) -> dict[str, Any] | None:
    """Where readers of committed records stop, and the open transactions that they wait for, oldest first; null if they
    may read everything."""
    _, end = bounds(partition)
    stable = partition.last_stable_offset
    if stable >= end:
        return None
    return {
        "offset": stable,
        "by": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer_id,
                "first_offset": one.first_offset,
                "last_ms": one.last_timestamp_ms,
            }
            for one in broker.transactions.open_at(*partition.label)[:_HOLDERS_SHOWN]
        ],
    }


def next_record(partition: Partition, offset: int) -> Record | None:
    """The record at an offset, or the first after it; None if there is none within what one look may read."""
    left_bytes = CONSOLE_READ_BYTES_MAX
    while offset < partition.high_watermark and left_bytes > 0:
        piece = partition.read(offset, 1)
        if not piece.data:
            return None
        records, offset = decode(
            piece.data,
            *partition.label,
            start_offset=offset,
            max_records=1,
            decompressed_limit=partition.decompressed_limit,
        )
        if records:
            return records[0]
        left_bytes -= len(piece.data)
    return None


def time_at(partition: Partition, offset: int) -> dict[str, Any]:
    """Offset and time of the record there, or of the next one; no time if there is none yet."""
    start, end = bounds(partition)
    found = next_record(partition, min(max(offset, start), end))
    if found is None:
        return {"offset": end, "timestamp": None}
    return {"offset": found.offset, "timestamp": found.timestamp_ms}


def offset_at(partition: Partition, time_ms: int) -> int:
    """The first record at or after a time; the end if there is none."""
    found = partition.offset_at_time(time_ms)
    return partition.acknowledged_end() if found is None else found[0]


def record_at(partition: Partition, offset: int, decoder: How = AUTO) -> dict[str, Any]:
    """One record, and where it is stored. Raises 404 if it does not exist, with the reason."""
    topic, number = partition.label
    end = partition.acknowledged_end()
    if offset == end:
        raise ApiError(
            HTTPStatus.NOT_FOUND, f"offset {offset} of {topic}-{number} is not written yet; the last is {end - 1}"
        )

    def look(view: LogView) -> dict[str, Any] | None:
        location = batch_location(view, offset)
        if location is None or location.header.base_offset > offset:
            return None
        records, _ = decode(
            location.data,
            topic,
            number,
            start_offset=offset,
            end_offset=offset + 1,
            decompressed_limit=partition.decompressed_limit,
        )
        if not records:
            return None
        header = location.header
        return {
            **fields(records[0], decoder=decoder),
            "batch": {
                "base_offset": header.base_offset,
                "last_offset": header.last_offset,
                "records": header.record_count,
                "codec": Compression(header.compression).name.lower(),
                "size_bytes": header.size,
                "producer_id": header.producer_id,
                "leader_epoch": header.leader_epoch,
            },
            "segment": location.segment.log_path.rpartition("/")[2],
            "position": location.position,
        }

    found = partition.look(look, offset)
    if found is None:
        following = next_record(partition, offset)
        hint = f"; the next one is at {following.offset}" if following is not None else ""
        raise ApiError(
            HTTPStatus.NOT_FOUND,
            f"there is no record at offset {offset} of {topic}-{number}: it was compacted away{hint}",
            {"next": None if following is None else following.offset},
        )
    return found


def fields(record: Record, most_bytes: int = CONSOLE_FIELD_BYTES_MAX, decoder: How = AUTO) -> dict[str, Any]:
    """A record, with at most so many bytes of its key and value."""
    kind = TimestampType(record.timestamp_type)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": "LogAppendTime" if kind is TimestampType.LOG_APPEND_TIME else "CreateTime",
        "key": decoded_key(record.key, most_bytes, decoder),
        "value": decoded(record.value, most_bytes, decoder),
        "headers": [[name, shown(value, most_bytes)] for name, value in record.headers],
    }


def decoder_for(node: BrokerNode, name: str) -> How:
    """How to decode values, and with `registry` keys too, by the name that a request gives. Raises InvalidArgument if
    there is no such way."""
    decoder_named(name)
    if name not in (AUTO, REGISTRY):
        return name

    def lookup(schema_id: int) -> RegisteredSchema | None:
        with node.schemas.lock:
            return resolved(node.schemas.state(), schema_id)

    by_schema = ValueDecoder(lookup)
    return by_schema if name == REGISTRY else Guessing(by_schema)


def schemas_of(decoder: How) -> Decoder | None:
    """The part of a decoder that reads what names its schema, as keys may; None if it has none."""
    return None if isinstance(decoder, str) else decoder.by_schema if isinstance(decoder, Guessing) else decoder


# --- bytes as JSON shows them -----------------------------------------------------------------------------------------

KEY_CHARS_MAX: Final = 40
"""For a key in a cell: as much as fits a label."""

_KEY_BYTES: Final = 4 * KEY_CHARS_MAX
_UTF8_BYTES_MAX: Final = 4


def shown(data: bytes | None, most_bytes: int = CONSOLE_FIELD_BYTES_MAX) -> dict[str, Any] | None:
    """The text if it is UTF-8, else base64; `size` is in bytes, and `is_cut` is set if not all of it is shown.

    >>> shown(b"paid"), shown(b"\\xff"), shown(None)
    ({'text': 'paid', 'size': 4}, {'base64': '/w==', 'size': 1}, None)
    """
    if data is None:
        return None
    is_cut = len(data) > most_bytes
    piece = data[:most_bytes] if is_cut else data
    text = _text_of(piece, is_cut)
    found: dict[str, Any] = {"base64": base64.b64encode(piece).decode()} if text is None else {"text": text}
    found["size"] = len(data)
    if is_cut:
        found["is_cut"] = True
    return found


def decoded(data: bytes | None, most_bytes: int, decoder: How) -> dict[str, Any] | None:
    """As `shown`; with `decoded`, a text to read, if a decoder was asked for, or if the bytes are not text and `auto`
    knows what they are.

    >>> decoded(bytes([0x81, 0xA1, 0x6E, 0x01]), 100, "auto")
    {'base64': 'gaFuAQ==', 'size': 4, 'decoded': '{"n": 1}'}
    """
    found = shown(data, most_bytes)
    if isinstance(decoder, Guessing):
        decoder = AUTO if document_of(data, decoder.by_schema) is None else decoder.by_schema
    if data is None or found is None or (decoder == AUTO and "text" in found) or len(data) > CONSOLE_FIELD_BYTES_MAX:
        return found
    if decoder != AUTO or document_of(data) is not None:
        found["decoded"] = readable(data, decoder)[: 4 * most_bytes]
    return found


def decoded_key(key: bytes | None, most_bytes: int, decoder: How) -> dict[str, Any] | None:
    """As `shown`; with `decoded` if it names a known schema. A decoder without schemas is for the value: most keys are
    text, whatever the values are."""
    by_schema = schemas_of(decoder)
    if by_schema is None or document_of(key, by_schema) is None:
        return shown(key, most_bytes)
    return decoded(key, most_bytes, by_schema)


def short_key(key: bytes | None) -> str | None:
    """A key as a label: at most KEY_CHARS_MAX characters, with an ellipsis if that is not all; hex if it is not UTF-8.

    >>> short_key(b"u1"), short_key(b"x" * 50)[-2:], short_key(b"\\xff\\x00"), short_key(None)
    ('u1', 'x…', '0xff00', None)
    """
    if key is None:
        return None
    piece = key[:_KEY_BYTES]
    text = _text_of(piece, len(key) > len(piece))
    if text is None:
        text = "0x" + piece[:KEY_CHARS_MAX].hex()
    is_all = len(key) == len(piece) and len(text) <= KEY_CHARS_MAX
    return text if is_all else text[: KEY_CHARS_MAX - 1] + "…"


def _text_of(piece: bytes, is_cut: bool) -> str | None:
    """The text, without a last character that was cut; None if it is not UTF-8."""
    try:
        return piece.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.reason == "unexpected end of data" and len(piece) - error.start < _UTF8_BYTES_MAX:
            return piece[: error.start].decode()
        return None


# --- places as typed by a user ----------------------------------------------------------------------------------------


def place_in_topic(broker: Broker, topic: str, text: str, zone: str | None, now_ms: int) -> dict[str, Any]:
    """The offsets of a place in a topic. Raises InvalidArgument if the text is no place; UnknownTopic."""
    spec = parse_points(text, zone=zone or None, now_ms=now_ms)
    opened = OpenedTopic(broker, topic)
    bounds = opened.offsets(topic)
    spans = resolve(spec, opened, topic, bounds=bounds, now_ms=now_ms)
    found: dict[str, dict[str, Any]] = {}
    for number, span in spans.items():
        kind, value = spec.point(number)
        is_record = span.start < bounds[number][1] and (kind != "offset" or value == span.start)
        found[str(number)] = {"offset": span.start, "kind": kind, "is_record": is_record}
    return {"place": spec.portable, "note": spec.note, "partitions": found}


class OpenedTopic:
    """The interface that `resolve` needs, for the partitions of a topic. A damaged one is left out, and does not affect
    the others."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._partitions: dict[int, Partition] = {}
        for number in range(broker.topic(topic).partition_count):
            with suppress(ApiError):
                self._partitions[number] = open_partition(broker, topic, number)

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        return {number: bounds(partition) for number, partition in self._partitions.items()}

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        return {number: offset_at(partition, timestamp_ms) for number, partition in self._partitions.items()}


# --- a record as typed by a user: appended, and durable on return -----------------------------------------------------


class NewRecord:
    """A record to append, from the body of a request. Raises ApiError if the body is invalid."""

    def __init__(self, body: JsonBody) -> None:
        self.key = body.data("key")
        self.value = body.data("value")
        self.headers: list[tuple[str, Bytes]] = body.headers("headers")
        self.partition: int | None = body.integer("partition", 0, default=None)
        body.end()


def is_writable(name: str, node: BrokerNode) -> bool:
    """Whether a record typed in the page could be appended to the topic."""
    refusal = node.fold_guard.change_refusal(name) or node.schema_guard.refusal(name)
    return name not in KAFKA_OWN_TOPICS and refusal is None


def produce(node: BrokerNode, name: str, record: NewRecord) -> dict[str, Any]:
    """Append it, and return where it went, once it is acknowledged as with acks=all."""
    broker, clock = node.broker, node.clock
    topic = broker.topic(name)
    kept = node.schema_guard.refusal(name)
    if kept is not None:
        raise ApiError(HTTPStatus.FORBIDDEN, kept)
    if name in KAFKA_OWN_TOPICS:
        raise ApiError(HTTPStatus.FORBIDDEN, f"topic {name!r} is written by the log itself")
    number = _partition_for(broker, topic, record)
    partition = open_partition(broker, name, number)
    if record.key is None and partition.config.compact:
        raise bad_request(f"topic {name!r} keeps the newest record of each key, so a record needs a key there")
    builder = BatchBuilder(partition.config.max_message_bytes)
    now_ms = clock.now_ms()
    if builder.append(now_ms, record.key, record.value, record.headers) < 0:
        # Too large for one batch: build it all the same, so that the log's own error is raised.
        builder = BatchBuilder(1 << 30)
        builder.append(now_ms, record.key, record.value, record.headers)
    batch = builder.build()
    refusal = node.fold_guard.refusal(batch) if name == FOLDS_TOPIC else None
    if refusal is not None:
        raise ApiError(HTTPStatus.FORBIDDEN, refusal)
    if partition.config.validates_schemas:
        node.schema_guard.check(name, partition.config, batch)
    appended = partition.append(batch)
    partition.wait_acknowledged(appended.next_offset)
    timestamp = appended.append_time_ms if partition.config.log_append_time else now_ms
    return {"partition": number, "offset": appended.base_offset, "timestamp": timestamp}


def _partition_for(broker: Broker, topic: CatalogTopic, record: NewRecord) -> int:
    """The given one, else by the key as in all clients, else the one with the fewest records."""
    number = partition_named_or_by_key(topic.name, record.partition, record.key, topic.partition_count)
    if number is not None:
        return number
    ends = [open_partition(broker, topic.name, number).log_end_offset for number in range(topic.partition_count)]
    return emptiest(ends)
