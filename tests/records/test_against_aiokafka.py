"""Our batches are read by an independent implementation, and its batches by us: aiokafka, from PyPI, both directions.

Every codec it has, nulls, headers and both ends of the timestamp range; it also confirms our CRC, and we validate
its batches as a broker would.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldlog.records import batch as fmt
from records.generated import CODECS, headers, keys, values

default_records = pytest.importorskip(
    "aiokafka.record.default_records", reason="aiokafka is not installed; enable with: pip install aiokafka"
)

# It writes no record without a timestamp: None there means now.
theirs = st.lists(st.tuples(st.integers(0, 1_900_000_000_000), keys, values, headers), min_size=1, max_size=10)


def built_by_aiokafka(records: list[Any], codec: int, **fields: int) -> bytearray:
    builder = default_records.DefaultRecordBatchBuilder(
        2,
        codec,
        is_transactional=fields.get("transactional", 0),
        producer_id=fields.get("producer_id", -1),
        producer_epoch=fields.get("producer_epoch", -1),
        base_sequence=fields.get("base_sequence", -1),
        batch_size=1 << 20,
    )
    for index, (timestamp_ms, key, value, record_headers) in enumerate(records):
        builder.append(index, timestamp_ms, key, value, list(record_headers))
    return bytearray(builder.build())


def as_told(offset: int, record: Any) -> tuple[Any, ...]:
    timestamp_ms, key, value, record_headers = record
    return offset, timestamp_ms, key, value, tuple(record_headers)


@settings(max_examples=150)
@given(records=theirs, codec=st.sampled_from(CODECS))
def test_aiokafka_reads_what_we_write(loops: ModuleType, records: list[Any], codec: int) -> None:
    made = loops.pack(records, codec, producer_id=7, producer_epoch=1, base_sequence=5)
    loops.assign_offsets(made, loops.walk(made).headers, 40, 2)
    batch = default_records.DefaultRecordBatch(bytes(made))
    assert batch.validate_crc()
    assert (batch.base_offset, batch.next_offset, batch.producer_id) == (40, 40 + len(records), 7)
    assert batch.compression_type == codec
    assert batch.max_timestamp == max(record[0] for record in records)
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == [as_told(40 + index, record) for index, record in enumerate(records)]


@settings(max_examples=150)
@given(records=theirs, codec=st.sampled_from(CODECS))
def test_we_read_what_aiokafka_writes(loops: ModuleType, records: list[Any], codec: int) -> None:
    made = built_by_aiokafka(records, codec, producer_id=9, producer_epoch=2, base_sequence=11)
    [header] = loops.validate(made, max_batch_bytes=1 << 20, decompressed_limit=1 << 20)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 11)
    assert header.keyless_count == sum(record[1] is None for record in records)
    assert header.max_timestamp == max(record[0] for record in records)
    loops.assign_offsets(made, [header], 1000, 4)
    assert loops.walk(made, expected_offset=1000).problem is None
    found, next_offset = loops.decode(made, "orders", 3)
    assert next_offset == 1000 + len(records)
    assert [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in found] == [
        as_told(1000 + index, record) for index, record in enumerate(records)
    ]


@settings(max_examples=60)
@given(records=theirs, codec=st.sampled_from(CODECS), other=st.sampled_from(CODECS))
def test_aiokafka_reads_what_we_recompressed(loops: ModuleType, records: list[Any], codec: int, other: int) -> None:
    made = loops.recompress(built_by_aiokafka(records, codec), other)
    batch = default_records.DefaultRecordBatch(bytes(made))
    assert batch.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == [as_told(index, record) for index, record in enumerate(records)]


@settings(max_examples=100)
@given(records=theirs, codec=st.sampled_from(CODECS))
def test_aiokafka_reads_what_compaction_left(loops: ModuleType, records: list[Any], codec: int) -> None:
    """With a delete horizon in the place of the base timestamp, timestamps have to read as before."""
    made = loops.pack(records, codec)
    known = loops.KeyMap(100)
    end = known.add(made)
    left, _ = loops.compact(
        made, known, now_ms=1_800_000_000_000, delete_retention_ms=1000, mapped_end=end, keep_last=True
    )
    newest = {record[1]: index for index, record in enumerate(records)}
    stays = [i for i, record in enumerate(records) if record[1] is None or newest[record[1]] == i]
    batch = default_records.DefaultRecordBatch(bytes(left))
    assert batch.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == [as_told(index, records[index]) for index in stays]


def test_aiokafka_sees_a_control_marker_as_one(loops: ModuleType) -> None:
    from aiokafka.record.control_record import ABORT_MARKER, ControlRecord

    batch = default_records.DefaultRecordBatch(
        bytes(loops.control_batch(fmt.CONTROL_ABORT, 3, 17, 2, 1_700_000_000_000))
    )
    assert batch.validate_crc()
    assert batch.is_control_batch
    assert batch.is_transactional
    [record] = list(batch)
    assert ControlRecord.parse(record.key) == ABORT_MARKER
