"""Building, walking, validating and addressing batches: the promises that the rest of the log stands on.

Agreement of the two implementations is shown elsewhere; here it is what they do that is stated, for each of them.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import InvalidArgument, InvalidBatch, RecordTooLarge
from foldlog.records import batch as fmt
from records.generated import CODECS, item_lists, with_right_crc

LIMITS = {"max_batch_bytes": 1 << 20, "decompressed_limit": 1 << 20}


def log_of(loops: ModuleType, sizes: list[int], codec: int = 0) -> bytearray:
    """Batches of as many records, offsets one after the other, a millisecond apart."""
    log, offset = bytearray(), 0
    for size in sizes:
        log += loops.pack(
            [(1000 + offset + i, b"k%d" % (offset + i), b"v", ()) for i in range(size)], codec, base_offset=offset
        )
        offset += size
    return log


@given(records=item_lists, codec=st.sampled_from(CODECS))
def test_what_goes_in_comes_out(loops: ModuleType, records: list[Any], codec: int) -> None:
    made = loops.pack(records, codec)
    [header] = loops.validate(made, **LIMITS)
    assert (header.record_count, header.last_offset_delta, header.size) == (len(records), len(records) - 1, len(made))
    loops.assign_offsets(made, [header], 7, 1)
    found, next_offset = loops.decode(made, "t", 2)
    assert next_offset == 7 + len(records)
    assert [(r.timestamp_ms, r.key, r.value, r.headers) for r in found] == [tuple(record) for record in records]
    assert [(r.topic, r.partition, r.offset, r.leader_epoch) for r in found] == [
        ("t", 2, 7 + index, 1) for index in range(len(records))
    ]


def test_a_batch_is_closed_by_bytes_or_by_records_and_a_first_record_always_fits(loops: ModuleType) -> None:
    builder = loops.BatchBuilder(200, 3)
    assert builder.append(1, None, b"x" * 5000) == 0
    assert builder.append(1, None, b"") == -1
    builder.clear()
    assert [builder.append(1, None, b"x" * 10) for _ in range(4)] == [0, 1, 2, -1]
    assert builder.size_bytes == len(builder.build())
    builder.clear()
    assert (builder.count, builder.size_bytes) == (0, fmt.RECORDS_AT)
    with pytest.raises(InvalidArgument, match="at least one record"):
        builder.build()


def test_bytes_like_fields_are_taken_and_others_refused_by_name(loops: ModuleType) -> None:
    builder = loops.BatchBuilder(1000)
    source = bytearray(b"key")
    builder.append(1, source, memoryview(b"value"), [("a", "text"), ("b", bytearray(b"x")), ("c", None)])
    source += b" may change afterwards"
    builder.append(1, None, None, None)
    first, second = loops.decode(builder.build(), "t", 0)[0]
    assert (first.key, first.value) == (b"key", b"value")
    assert first.headers == (("a", b"text"), ("b", b"x"), ("c", None))
    assert (second.key, second.value, second.headers) == (None, None, ())
    for arguments, what in (
        ((1, "k", b"v"), "key.*not str"),
        ((1, b"k", 5), "value.*not int"),
        ((1, b"k", b"v", [(b"a", b"b")]), "header's key.*not bytes"),
        ((1, b"k", b"v", ["a"]), "header has to be a pair"),
        ((1, b"k", b"v", [("a", 5)]), "header value.*not int"),
    ):
        with pytest.raises(TypeError, match=what):
            builder.append(*arguments)
    assert builder.count == 2, "a refused record leaves no trace"


@pytest.mark.parametrize("timestamp_ms", [-2, 1 << 63, -(1 << 70), (1 << 63) - 1])
def test_a_timestamp_out_of_range_is_refused(loops: ModuleType, timestamp_ms: int) -> None:
    with pytest.raises(InvalidArgument, match="timestamp_ms"):
        loops.BatchBuilder(1000).append(timestamp_ms, None, b"v")


def test_every_kind_of_buffer_is_read(loops: ModuleType) -> None:
    made = log_of(loops, [3, 2])
    with mmap.mmap(-1, len(made)) as mapped:
        mapped[:] = bytes(made)
        for form in (bytes(made), made, memoryview(made), mapped, memoryview(made).cast("b")):
            assert len(loops.walk(form).headers) == 2
            assert len(loops.decode(form, "t", 0)[0]) == 5


def test_walking_stops_where_the_buffer_cuts_a_batch_and_says_how_much_it_needs(loops: ModuleType) -> None:
    made = log_of(loops, [3, 4])
    first, second = loops.walk(made).headers
    for size in range(len(made)):
        found = loops.walk(made[:size])
        whole = 1 if size >= first.size else 0
        assert found.problem is None
        assert (len(found.headers), found.end) == (whole, whole * first.size)
        cut = size - found.end
        wanted = (first, second)[whole].size
        assert found.needed_bytes == (wanted if cut >= fmt.RECORDS_AT else 0)


def test_walking_checks_that_offsets_are_contiguous_but_for_the_compacted_part(loops: ModuleType) -> None:
    made = (
        log_of(loops, [3])
        + loops.pack([(1, None, b"v", ())], base_offset=10)
        + loops.pack([(1, None, b"v", ())], base_offset=11)
    )
    assert loops.walk(made).problem is None
    broken = loops.walk(made, expected_offset=0)
    assert broken.problem == "its base offset is 10 where 3 was expected"
    assert len(broken.headers) == 1
    assert broken.end == broken.headers[0].size
    assert loops.walk(made, expected_offset=0, gaps_below=9).problem is not None
    assert loops.walk(made, expected_offset=0, gaps_below=10).problem is None, (
        "the gap ends where the compacted part does"
    )
    assert loops.walk(made, expected_offset=1).problem == "its base offset is 0 where 1 was expected"


def test_walking_stops_before_an_offset_without_looking_at_what_comes_after(loops: ModuleType) -> None:
    made = log_of(loops, [3, 4]) + b"half a batch that another process is still writing" * 2
    found = loops.walk(made, expected_offset=0, before_offset=7)
    assert (len(found.headers), found.problem) == (2, None)
    assert len(loops.walk(made, before_offset=3).headers) == 1
    assert len(loops.walk(made, before_offset=2).headers) == 1, "a batch that begins before the offset is taken whole"
    assert loops.walk(made, before_offset=0).headers == []


def test_walking_takes_no_more_than_wanted_but_at_least_one_batch(loops: ModuleType) -> None:
    made = log_of(loops, [3, 4, 5])
    sizes = [header.size for header in loops.walk(made).headers]
    assert len(loops.walk(made, max_bytes=0).headers) == 1
    assert len(loops.walk(made, max_bytes=sizes[0] + sizes[1] - 1).headers) == 1
    assert len(loops.walk(made, max_bytes=sizes[0] + sizes[1]).headers) == 2
    assert loops.walk(made, sizes[0], max_bytes=1).end == sizes[0] + sizes[1]


@pytest.mark.parametrize(
    ("position", "replacement", "reason"),
    [
        (8, (48).to_bytes(4, "big"), fmt.FAULT_LENGTH),
        (8, b"\xff\xff\xff\xff", fmt.FAULT_LENGTH),
        (8, b"\x7f\xff\xff\xff", fmt.FAULT_LENGTH),
        (16, b"\x01", fmt.FAULT_MAGIC),
        (22, b"\x05", fmt.FAULT_CODEC),
        (57, b"\xff\xff\xff\xff", fmt.FAULT_COUNT),
        (57, (9).to_bytes(4, "big"), fmt.FAULT_COUNT),
        (23, b"\xff\xff\xff\xff", fmt.FAULT_COUNT),
        (0, b"\xff", fmt.FAULT_OFFSETS),
        (0, b"\x7f" + b"\xff" * 7, fmt.FAULT_OFFSETS),
        (30, b"\x55", fmt.FAULT_CRC),
    ],
)
def test_walking_names_what_is_wrong_with_a_header(
    loops: ModuleType, position: int, replacement: bytes, reason: str
) -> None:
    made = log_of(loops, [2])
    broken = log_of(loops, [3])
    broken[position : position + len(replacement)] = replacement
    if reason != fmt.FAULT_CRC:
        broken = with_right_crc(broken)
    found = loops.walk(made + broken)
    assert (found.problem, found.end, len(found.headers)) == (reason, len(made), 1)


def test_epochs_are_compared_with_those_of_their_offsets(loops: ModuleType) -> None:
    made = log_of(loops, [3, 3, 3])
    headers = loops.walk(made).headers
    for header, epoch in zip(headers, (1, 1, 4), strict=True):
        header.leader_epoch = epoch
    assert loops.check_epochs(headers, [(1, 0), (4, 6)]) is None
    assert loops.check_epochs(headers, []) is None
    assert loops.check_epochs(headers, [(4, 6)]) is None, "what is before the first epoch has none"
    assert loops.check_epochs(headers, [(1, 0), (2, 3), (4, 6)]) == (headers[1], 2)
    assert loops.check_epochs(headers, [(1, 0)]) == (headers[2], 1)


def test_a_producers_batch_is_refused_for_what_is_wrong_with_it(loops: ModuleType) -> None:
    good = log_of(loops, [3])
    with pytest.raises(RecordTooLarge):
        loops.validate(good, max_batch_bytes=len(good) - 1, decompressed_limit=1 << 20)
    for broken, reason in (
        (b"", fmt.FAULT_NO_RECORDS),
        (good + b"\x00", fmt.FAULT_CUT_OFF),
        (good[:-1], fmt.FAULT_CUT_OFF),
        (loops.empty_batch(loops.walk(good).headers[0]), fmt.FAULT_NO_RECORDS),
    ):
        with pytest.raises(InvalidBatch) as caught:
            loops.validate(broken, **LIMITS)
        assert caught.value.reason == reason
    sparse, _ = loops.compact(good, known_from(loops, 1), now_ms=0, delete_retention_ms=0, mapped_end=3)
    with pytest.raises(InvalidBatch):
        loops.validate(sparse, **LIMITS)
    with pytest.raises(InvalidBatch) as caught:
        loops.validate(good + with_right_crc(good[:-1] + b"\x02"), **LIMITS)
    assert caught.value.position == len(good)


def known_from(loops: ModuleType, offset: int) -> Any:
    """A map in which the key of that offset is known from later."""
    known = loops.KeyMap(9)
    known.add(loops.pack([(1, b"k%d" % offset, b"v", ())], base_offset=99))
    return known


def test_a_count_is_compared_with_the_bytes_before_anything_is_made_of_it(loops: ModuleType) -> None:
    made = log_of(loops, [3])
    made[57:61] = (1 << 30).to_bytes(4, "big")
    made[23:27] = ((1 << 30) - 1).to_bytes(4, "big")
    made = with_right_crc(made)
    reads: list[Callable[[], Any]] = [
        lambda: loops.validate(made, **LIMITS),
        lambda: loops.decode(made, "t", 0),
        lambda: loops.gather(made, 63),
        lambda: loops.KeyMap(9).add(made),
        lambda: loops.offset_at_time(made, 0),
    ]
    for read in reads:
        with pytest.raises(InvalidBatch, match="more records than its bytes can hold"):
            read()


def test_a_false_max_timestamp_is_corrected_when_offsets_are_assigned(loops: ModuleType) -> None:
    made = log_of(loops, [3])
    made[35:43] = (5).to_bytes(8, "big")
    made = with_right_crc(made)
    headers = loops.validate(made, **LIMITS)
    assert headers[0].max_timestamp == 1002
    loops.assign_offsets(made, headers, 0, 0)
    [stored] = loops.walk(made).headers
    assert (stored.max_timestamp, stored.crc) == (1002, headers[0].crc)


def test_only_offset_and_epoch_change_in_a_right_batch(loops: ModuleType) -> None:
    made = log_of(loops, [3, 2])
    before = bytes(made)
    headers = loops.validate(made, **LIMITS)
    assert loops.assign_offsets(made, headers, 100, 6) == 105
    changed = {index for index in range(len(made)) if made[index] != before[index]}
    places = {header.position + at for header in headers for at in (*range(8), *range(12, 16))}
    assert changed <= places
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(100, 6), (103, 6)]


def test_append_time_is_set_with_a_new_crc(loops: ModuleType) -> None:
    made = log_of(loops, [3], codec=4)
    headers = loops.validate(made, **LIMITS)
    loops.assign_offsets(made, headers, 0, 0, append_time_ms=777)
    assert loops.walk(made).problem is None
    assert {(r.timestamp_ms, r.timestamp_type) for r in loops.decode(made, "t", 0)[0]} == {(777, 1)}
    assert loops.offset_at_time(made, 700, 1) == (1, 777)


def test_offsets_cannot_be_assigned_where_there_is_no_room(loops: ModuleType) -> None:
    made = log_of(loops, [3])
    headers = loops.walk(made).headers
    with pytest.raises(InvalidArgument, match="room"):
        loops.assign_offsets(made, headers, fmt.MAX_INT64 - 2, 0)
    with pytest.raises(InvalidArgument):
        loops.assign_offsets(made, headers, -1, 0)
    with pytest.raises(InvalidArgument, match="not those of the buffer"):
        loops.assign_offsets(made[:-1], headers, 0, 0)


@pytest.mark.parametrize("codec", CODECS)
def test_reading_starts_and_ends_at_any_offset_and_says_where_to_go_on(loops: ModuleType, codec: int) -> None:
    made = log_of(loops, [3, 4, 5], codec)
    for start in range(14):
        for end in range(start, 14):
            found, next_offset = loops.decode(made, "t", 0, start_offset=start, end_offset=end)
            assert [record.offset for record in found] == list(range(start, min(end, 12)))
            assert next_offset == (start if start >= 12 else min(end, 12) if end > start else start)
    found, next_offset = loops.decode(made, "t", 0, start_offset=2, max_records=3)
    assert ([record.offset for record in found], next_offset) == ([2, 3, 4], 5)
    assert loops.decode(made, "t", 0, start_offset=2, max_records=0) == ([], 2)
    assert loops.decode(b"", "t", 0, start_offset=2) == ([], 2)


def test_control_markers_are_passed_over_but_counted_in_the_offset(loops: ModuleType) -> None:
    marker = loops.control_batch(fmt.CONTROL_COMMIT, 1, 2, 3, 1000)
    loops.assign_offsets(marker, loops.walk(marker).headers, 3, 0)
    found, next_offset = loops.decode(log_of(loops, [3]) + marker, "t", 0)
    assert (len(found), next_offset) == (3, 4)
    assert loops.offset_at_time(marker, 0) is None
    with pytest.raises(InvalidArgument, match="kind 2"):
        loops.control_batch(2, 1, 2, 3, 1000)


@given(times=st.lists(st.integers(0, 50), min_size=1, max_size=20), at=st.integers(0, 60), start=st.integers(0, 20))
def test_the_first_record_at_or_after_a_time_is_found(loops: ModuleType, times: list[int], at: int, start: int) -> None:
    made = bytearray()
    for first in range(0, len(times), 6):
        made += loops.pack([(time, None, b"v", ()) for time in times[first : first + 6]], base_offset=first)
    expected = next(((i, time) for i, time in enumerate(times) if i >= start and time >= at), None)
    assert loops.offset_at_time(made, at, start) == expected


def test_an_empty_batch_keeps_the_place_of_what_was_there(loops: ModuleType) -> None:
    made = loops.pack([(5, None, b"v", ()), (9, None, b"v", ())], 4, producer_id=8, producer_epoch=2, base_sequence=30)
    headers = loops.validate(made, **LIMITS)
    loops.assign_offsets(made, headers, 60, 7)
    [empty] = loops.walk(loops.empty_batch(headers[0])).headers
    assert (empty.base_offset, empty.last_offset, empty.record_count) == (60, 61, 0)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence, empty.leader_epoch) == (8, 2, 30, 7)
    assert (empty.compression, empty.max_timestamp) == (0, 9)
    assert loops.decode(loops.empty_batch(headers[0]), "t", 0) == ([], 62)


def test_a_header_key_that_is_not_utf8_is_read_with_replacement(loops: ModuleType) -> None:
    made = loops.pack([(1, None, b"v", [("ab", b"x")])])
    at = made.index(b"ab")
    made[at : at + 2] = b"\xffb"
    made = with_right_crc(made)
    assert loops.decode(made, "t", 0)[0][0].headers == (("\ufffdb", b"x"),)
    assert bytes(loops.gather(made, 32).headers.key.data) == "\ufffdb".encode()
