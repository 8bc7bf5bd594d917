"""Compaction of batches against a model: a dict of key to newest offset over a plain list of records.

What stays, with offsets, order and readable timestamps as before; delete horizons (KIP-534); what becomes of batches
that lose all their records; and a key map that fills up, in several passes.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import InvalidArgument, InvalidBatch
from foldlog.records import batch as fmt
from foldlog.records import kernels_py
from records.generated import CODECS, keys, logs

NOW = 1_700_000_500_000
RETENTION = 1000


def batch_of(records: list[tuple[bytes | None, bytes | None]], base_offset: int = 0, codec: int = 0) -> bytearray:
    """A batch whose records are a millisecond apart, with the epoch set."""
    items = [(1_700_000_000_000 + index, key, value, ()) for index, (key, value) in enumerate(records)]
    made = kernels_py.pack(items, codec, producer_id=5, producer_epoch=1, base_sequence=40)
    kernels_py.assign_offsets(made, kernels_py.walk(made).headers, base_offset, 3)
    return made


def rows(data: Any) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Read with the Python loops: (offset, timestamp, key, value)."""
    assert kernels_py.walk(data).problem is None
    return [(r.offset, r.timestamp_ms, r.key, r.value) for r in kernels_py.decode(data, "t", 0)[0]]


def compacted(loops: ModuleType, data: Any, known: Any, mapped_end: int, now_ms: int = NOW, **more: Any) -> Any:
    return loops.compact(data, known, now_ms=now_ms, delete_retention_ms=RETENTION, mapped_end=mapped_end, **more)


def compacted_wholly(loops: ModuleType, data: Any, now_ms: int = NOW, **more: Any) -> bytearray:
    known = loops.KeyMap(1000)
    left: bytearray = compacted(loops, data, known, known.add(data), now_ms, **more)[0]
    return left


@given(log=logs())
def test_what_stays_is_the_newest_of_each_key_and_all_without_key(loops: ModuleType, log: bytearray) -> None:
    before = rows(log)
    newest = {key: offset for offset, _, key, _ in before if key is not None}
    known = loops.KeyMap(1000)
    end = known.add(log)
    assert len(known) == len(newest)
    assert {key: known.newest(key) for key in newest} == newest
    # Time zero: no horizon that an earlier compaction may have set has passed.
    left, stats = compacted(loops, log, known, end, now_ms=0)
    assert rows(left) == [row for row in before if row[2] is None or newest[row[2]] == row[0]]
    headers_in, headers_out = kernels_py.walk(log).headers, kernels_py.walk(left).headers
    assert stats.records_in == sum(header.record_count for header in headers_in)
    assert stats.records_out == sum(header.record_count for header in headers_out)
    assert (stats.batches_in, stats.batches_out) == (len(headers_in), len(headers_out))
    assert (stats.bytes_in, stats.bytes_out) == (len(log), len(left))


@given(log=logs())
def test_batches_that_stay_keep_what_is_theirs(loops: ModuleType, log: bytearray) -> None:
    before = {header.base_offset: header for header in kernels_py.walk(log).headers}
    left = compacted_wholly(loops, log, keep_batches=frozenset(before))
    after = kernels_py.walk(left).headers
    assert [header.base_offset for header in after] == list(before)
    for header in after:
        old = before[header.base_offset]
        for name in ("last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
            assert getattr(header, name) == getattr(old, name), name
        assert header.is_control == old.is_control
        assert header.is_transactional == old.is_transactional
        assert header.is_log_append_time == old.is_log_append_time
        if header.record_count:
            assert header.compression == old.compression


@given(log=logs())
def test_compacting_again_changes_nothing(loops: ModuleType, log: bytearray) -> None:
    once = compacted_wholly(loops, log, keep_last=True)
    assert compacted_wholly(loops, once, keep_last=True) == once


def test_a_batch_of_which_everything_stays_is_copied_as_it_is(loops: ModuleType) -> None:
    for codec in CODECS:
        made = batch_of([(b"a", b"1"), (b"b", b"2"), (None, b"3")], codec=codec)
        assert compacted_wholly(loops, made) == made


@pytest.mark.parametrize("codec", CODECS)
def test_a_tombstone_stays_until_its_horizon_and_then_goes(loops: ModuleType, codec: int) -> None:
    made = batch_of([(b"a", b"1"), (b"a", None), (b"b", b"2")], 10, codec)
    first = compacted_wholly(loops, made)
    [header] = kernels_py.walk(first).headers
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + RETENTION
    assert rows(first) == [(11, 1_700_000_000_001, b"a", None), (12, 1_700_000_000_002, b"b", b"2")]
    assert header.max_timestamp == 1_700_000_000_002

    just_before = compacted_wholly(loops, first, now_ms=NOW + RETENTION - 1)
    assert just_before == first, "the horizon is set once and does not move"

    after = compacted_wholly(loops, first, now_ms=NOW + RETENTION)
    assert rows(after) == [(12, 1_700_000_000_002, b"b", b"2")]
    [header] = kernels_py.walk(after).headers
    assert (header.base_offset, header.last_offset) == (10, 12)


def test_a_superseded_tombstone_sets_no_horizon(loops: ModuleType) -> None:
    made = batch_of([(b"a", None), (b"b", b"2")]) + batch_of([(b"a", b"3")], 2)
    left = compacted_wholly(loops, made)
    assert not any(header.has_delete_horizon for header in kernels_py.walk(left).headers)
    assert [row[0] for row in rows(left)] == [1, 2]


def test_a_horizon_beyond_all_time_does_not_overflow(loops: ModuleType) -> None:
    made = batch_of([(b"a", None)])
    known = loops.KeyMap(9)
    end = known.add(made)
    left, _ = loops.compact(made, known, now_ms=NOW, delete_retention_ms=fmt.MAX_INT64, mapped_end=end)
    assert kernels_py.walk(left).headers[0].base_timestamp == fmt.MAX_INT64
    assert rows(left) == rows(made)


def test_append_time_stays_what_the_log_said(loops: ModuleType) -> None:
    made = batch_of([(b"a", b"1"), (b"a", None)])
    kernels_py.assign_offsets(made, kernels_py.walk(made).headers, 0, 3, append_time_ms=1_700_000_111_111)
    left = compacted_wholly(loops, made)
    [header] = kernels_py.walk(left).headers
    assert header.is_log_append_time
    assert rows(left) == [(1, 1_700_000_111_111, b"a", None)]


def test_a_batch_without_records_goes_unless_it_is_to_be_kept(loops: ModuleType) -> None:
    first, second, third = batch_of([(b"a", b"1")]), batch_of([(b"b", b"2")], 1), batch_of([(b"b", b"3")], 2)
    known = loops.KeyMap(9)
    known.add(first + second + third)
    known.add(batch_of([(b"a", b"9"), (b"b", b"9")], 50))

    def offsets(**more: Any) -> list[tuple[int, int]]:
        left, _ = compacted(loops, first + second + third, known, 52, **more)
        return [(header.base_offset, header.record_count) for header in kernels_py.walk(left).headers]

    assert offsets() == []
    assert offsets(keep_last=True) == [(2, 0)]
    assert offsets(keep_batches=frozenset({0, 77})) == [(0, 0)]
    assert offsets(keep_batches=frozenset({1}), keep_last=True) == [(1, 0), (2, 0)]

    kept, _ = compacted(loops, first + second + third, known, 52, keep_last=True)
    [empty] = kernels_py.walk(kept).headers
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence, empty.leader_epoch) == (5, 1, 40, 3)
    assert compacted(loops, kept, known, 52)[0] == b"", "an empty batch is not kept for ever"
    assert compacted(loops, kept, known, 52, keep_last=True)[0] == kept


def test_control_markers_are_copied(loops: ModuleType) -> None:
    marker = loops.control_batch(fmt.CONTROL_COMMIT, 1, 5, 1, 1_700_000_000_000)
    assert compacted_wholly(loops, marker, now_ms=fmt.MAX_INT64 - RETENTION) == marker


def test_nothing_at_or_past_the_mapped_end_goes(loops: ModuleType) -> None:
    made = batch_of([(b"a", b"1"), (b"a", b"2"), (b"a", None), (b"a", b"4")])
    known = loops.KeyMap(9)
    known.add(made, end_offset=2)
    left, _ = compacted(loops, made, known, 2)
    assert [row[0] for row in rows(left)] == [1, 2, 3]
    assert not kernels_py.walk(left).headers[0].has_delete_horizon, "the map does not know all of that batch"


@given(
    found=st.lists(st.tuples(keys, st.just(b"v")), min_size=1, max_size=40),
    capacity=st.integers(1, 6),
    size=st.integers(1, 5),
)
def test_a_small_map_takes_several_passes_to_the_same_end(
    loops: ModuleType, found: list[tuple[bytes | None, bytes | None]], capacity: int, size: int
) -> None:
    log = bytearray()
    for start in range(0, len(found), size):
        log += batch_of(found[start : start + size], start)
    newest = {key: offset for offset, (key, _) in enumerate(found) if key is not None}
    position = 0
    while position < len(found):
        known = loops.KeyMap(capacity)
        noted = known.add(log, start_offset=position)
        assert noted > position
        assert len(known) <= capacity
        log, _ = compacted(loops, log, known, noted)
        position = noted if noted < len(found) and log else len(found)
    assert [row[0] for row in rows(log)] == [
        offset for offset, (key, _) in enumerate(found) if key is None or newest[key] == offset
    ]


def test_a_full_map_still_takes_keys_it_knows(loops: ModuleType) -> None:
    known = loops.KeyMap(2)
    made = batch_of([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (None, b"x"), (b"c", b"1"), (b"a", b"3")])
    assert known.add(made) == 4
    assert (len(known), known.capacity) == (2, 2)
    assert (known.newest(b"a"), known.newest(b"b"), known.newest(b"c")) == (2, 1, -1)


def test_a_range_of_offsets_can_be_noted(loops: ModuleType) -> None:
    made = batch_of([(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1")])
    known = loops.KeyMap(9)
    assert known.add(made, start_offset=1, end_offset=3) == 3
    assert [known.newest(key) for key in (b"a", b"b", b"c", b"d")] == [-1, 1, 2, -1]
    assert loops.KeyMap(1).add(b"", start_offset=7) == 7
    with pytest.raises(InvalidArgument):
        loops.KeyMap(0)


def test_many_keys_are_told_apart(compiled: ModuleType) -> None:
    """The compiled map keeps hashes, not keys: nearly full, every key still has its own offset."""
    count = 20_000
    known = compiled.KeyMap(count)
    for start in range(0, count, 1000):
        known.add(batch_of([(b"key-%d" % n, b"v") for n in range(start, start + 1000)], start))
    assert len(known) == count
    assert all(known.newest(b"key-%d" % n) == n for n in range(count))
    assert known.newest(b"key-20000") == -1
    assert known.add(batch_of([(b"key-20000", b"v")], count)) == count


@given(log=logs(), codec=st.sampled_from(CODECS))
def test_recompressed_batches_read_as_before(loops: ModuleType, log: bytearray, codec: int) -> None:
    made = loops.recompress(log, codec)
    assert rows(made) == rows(log)
    for old, new in zip(kernels_py.walk(log).headers, kernels_py.walk(made).headers, strict=True):
        assert new.compression == (codec if new.record_count and not new.is_control else old.compression)
        assert (new.base_offset, new.last_offset, new.producer_id) == (
            old.base_offset,
            old.last_offset,
            old.producer_id,
        )
        assert (new.base_timestamp, new.max_timestamp) == (old.base_timestamp, old.max_timestamp)


def check(loops: ModuleType, before: Any, after: Any, known: Any, mapped_end: int, now_ms: int = 0) -> int:
    seen: int = loops.check_compacted(
        before, after, known, known.newest_offsets(), 0, mapped_start=0, mapped_end=mapped_end, now_ms=now_ms
    )
    return seen


@given(log=logs(), now_ms=st.sampled_from([0, NOW, NOW + 10 * RETENTION]))
def test_the_check_accepts_what_compaction_makes_and_sees_every_key(
    loops: ModuleType, log: bytearray, now_ms: int
) -> None:
    known = loops.KeyMap(1000)
    end = known.add(log)
    left, _ = compacted(loops, log, known, end, now_ms)
    assert check(loops, log, left, known, end, now_ms) == len(known)
    assert list(memoryview(known.newest_offsets()).cast("q")) == sorted(
        {known.newest(key) for _, _, key, _ in rows(log) if key is not None}
    )


@given(log=logs(), data=st.data())
def test_the_check_refuses_a_result_without_one_of_its_records_or_with_another(
    loops: ModuleType, log: bytearray, data: st.DataObject
) -> None:
    known = loops.KeyMap(1000)
    end = known.add(log)
    left, _ = compacted(loops, log, known, end, now_ms=0)
    whole = [header for header in kernels_py.walk(left).headers if header.record_count and not header.is_control]
    if not whole:
        return
    header = data.draw(st.sampled_from(whole))
    batch = bytes(left[header.position : header.position + header.size])
    records = kernels_py.decode(batch, "t", 0)[0]
    dropped = data.draw(st.sampled_from(records))
    kept = [(r.timestamp_ms, r.key, r.value, r.headers) for r in records if r is not dropped]
    others = [bytes(kernels_py.empty_batch(header)), b""]
    if kept:
        others.append(bytes(kernels_py.pack(kept, base_offset=header.base_offset)))
    for other in others:
        spoiled = left[: header.position] + other + left[header.position + header.size :]
        with pytest.raises(InvalidBatch):
            check(loops, log, spoiled, known, end)


def test_the_check_refuses_to_lose_the_first_record_that_is_not_mapped(loops: ModuleType) -> None:
    """What comes from the map's end on makes nothing obsolete yet, not even that record itself."""
    mapped = batch_of([(b"k", b"old")], 0) + batch_of([(b"k", b"new")], 1)
    known = loops.KeyMap(10)
    for offset in (0, 1):
        known.add(batch_of([(b"k", b"v")], offset))
    left = batch_of([(b"k", b"new")], 1)
    assert check(loops, mapped, left, known, 2) == 1
    with pytest.raises(InvalidBatch):
        check(loops, mapped + batch_of([(b"k", b"newest")], 2), left, known, 2)


def test_the_newest_offsets_are_in_order_however_far_apart(loops: ModuleType) -> None:
    known = loops.KeyMap(100)
    wanted = [3, 4, 70_000, 5_000_000_000, 1 << 61]
    for at, offset in enumerate(reversed(wanted)):
        known.add(batch_of([(b"k%d" % at, b"v")], offset))
    assert list(memoryview(known.newest_offsets()).cast("q")) == wanted
