"""What batches become in a copy, byte by byte: holes, producers, transactions, and times that a log has set."""

from __future__ import annotations

import foldlog
from client.copy.copies import contents, copy
from foldlog.client.backends.directory import broker_of
from foldlog.client.copy.batches import as_sent, as_stored, count_below, count_from, records_in, stand_ins
from foldlog.log.partition import Partition
from foldlog.records import batch as fmt
from foldlog.records.loops import BatchHeader, KeyMap, assign_offsets, compact, control_batch, pack, walk
from foldlog.records.stamping import stamp_producer

FAR = 5_000_000_000
"""An offset that no single batch without records reaches."""


def stored(batch: bytearray, base_offset: int, append_time_ms: int = -1) -> tuple[memoryview, BatchHeader]:
    """The batch as a log holds it at that offset."""
    assign_offsets(batch, walk(batch).headers, base_offset, 3, append_time_ms)
    return memoryview(batch), walk(batch).headers[0]


def some(count: int, **fields: bool | int) -> bytearray:
    records = [(1_000 + number, b"k%d" % (number % 2), b"%d" % number, [("h", b"1")]) for number in range(count)]
    return pack(records, **fields)  # type: ignore[arg-type]


def test_stand_ins_take_every_offset_of_a_hole_once() -> None:
    at = 7
    for placed in stand_ins(7, FAR):
        header = walk(placed.data).headers[0]
        assert (placed.base_offset, header.base_offset, header.record_count) == (at, at, 0)
        at = header.next_offset
    assert at == FAR
    assert list(stand_ins(7, 7)) == []


def test_a_directory_gets_the_same_bytes_but_for_who_produced_them() -> None:
    plain, header = stored(some(4), 10)
    (placed,) = as_stored(plain, header, 10)
    assert (placed.base_offset, bytes(placed.data)) == (10, bytes(plain))
    data, header = stored(some(4, producer_id=9, producer_epoch=1, base_sequence=5, transactional=True), 10)
    (placed,) = as_stored(data, header, 10)
    copied = walk(placed.data)
    assert copied.problem is None
    assert (copied.headers[0].producer_id, copied.headers[0].is_transactional) == (fmt.NO_PRODUCER_ID, False)
    assert placed.data[fmt.RECORDS_AT :] == data[fmt.RECORDS_AT :]


def test_what_is_left_of_a_batch_keeps_its_offsets_and_its_time() -> None:
    data, header = stored(some(6, compression=2), 10, append_time_ms=77)
    keys = KeyMap(10)
    newest = some(1)
    assign_offsets(newest, walk(newest).headers, 13, 3)
    keys.add(newest)  # k0 is newer at 13 than what the batch has at 10 and 12
    held, _ = compact(data, keys, now_ms=0, delete_retention_ms=0, mapped_end=14)
    view, header = memoryview(held), walk(held).headers[0]
    assert [record.offset for record in records_in(view, 0, 99)] == [11, 13, 14, 15]
    assert (count_from(view, header, 12), count_below(view, header, 12)) == (3, 1)
    placed = as_stored(view, header, 12)
    assert [one.base_offset for one in placed] == [13]
    batch = placed[0].data
    assign_offsets(batch, walk(batch).headers, 13, 3)
    left = records_in(memoryview(batch), 0, 99)
    assert [(one.offset, one.timestamp_ms, one.timestamp_type, one.value) for one in left] == [
        (13, 77, 1, b"3"),
        (14, 77, 1, b"4"),
        (15, 77, 1, b"5"),
    ]


def test_a_broker_gets_what_a_client_may_send() -> None:
    raw, whole = stored(some(4, compression=1), 10)
    (sent,) = as_sent(raw, whole, 10, 1 << 20)
    assert sent[fmt.RECORDS_AT :] == raw[fmt.RECORDS_AT :]
    assert walk(sent, check_crc=False).headers[0].base_offset == 0
    for data, header in (
        stored(some(4, transactional=True, producer_id=9, producer_epoch=0, base_sequence=0), 10),
        stored(some(4), 10, append_time_ms=77),
    ):
        (sent,) = as_sent(data, header, 10, 1 << 20)
        stamp_producer(sent, 5, 0, 0)
        found = walk(sent)
        assert found.problem is None
        assert found.headers[0].attributes == 0
        times = [77] * 4 if header.is_log_append_time else [1_000, 1_001, 1_002, 1_003]
        assert [record.timestamp_ms for record in records_in(memoryview(sent), 0, 99)] == times
    parts = as_sent(raw, whole, 12, 1 << 20)
    assert [record.value for part in parts for record in records_in(memoryview(part), 0, 99)] == [b"2", b"3"]


def test_markers_of_transactions_are_left_out_and_their_offsets_stay_taken() -> None:
    with foldlog.open(":memory:", background=False) as source, foldlog.open(":memory:", background=False) as target:
        source.create_topic("t")
        log = broker_of(source).writable_partition("t", 0)
        assert isinstance(log, Partition)
        log.append(some(2), stored=True)
        log.append(control_batch(fmt.CONTROL_COMMIT, 0, 9, 0, 5), stored=True)
        log.wait_acknowledged(log.append(some(1), stored=True).next_offset)
        copy(source, target, "t")
        assert list(contents(target, "t")) == [0, 1, 3]
        assert target.offsets("t") == source.offsets("t") == {0: (0, 4)}


def test_a_log_that_begins_very_late_is_copied_where_it_is() -> None:
    with foldlog.open(":memory:", background=False) as source, foldlog.open(":memory:", background=False) as target:
        source.create_topic("t")
        log = broker_of(source).writable_partition("t", 0)
        assert isinstance(log, Partition)
        for placed in stand_ins(0, FAR):
            log.wait_acknowledged(log.append(placed.data, stored=True).next_offset)
        source.append("t", "a", timestamp_ms=1)
        for placed in stand_ins(FAR + 1, 2 * FAR):
            log.append(placed.data, stored=True)
        source.append("t", "b", timestamp_ms=2)
        source.delete_records("t", {0: FAR})
        copy(source, target, "t")
        assert target.offsets("t") == {0: (FAR, 2 * FAR + 1)}
        assert contents(target, "t") == contents(source, "t")
        assert target.offsets_at("t", 2) == {0: 2 * FAR}
