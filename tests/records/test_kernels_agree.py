"""The compiled loops and their Python twins give the same values and refuse the same input with the same words.

Compared on generated logs of all codecs, with headers, nulls, both timestamp types, gaps, control markers and empty
batches; then on the same bytes broken: every byte changed, every length cut, random edits, with the CRC left wrong
and with the CRC made right so that the checks behind it are reached.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foldlog.errors import SerializationError
from foldlog.records import kernels_py as python
from foldlog.records import loops as chosen
from foldlog.records.varint import encode
from records.generated import CODECS, batches, item_lists, items, logs, outcome, told, with_right_crc

ALL_COLUMNS = 63
LIMITS = {"max_batch_bytes": 4096, "decompressed_limit": 1 << 16}


def readings(loops: ModuleType, data: Any, start: int = 0, end: int = 1 << 62) -> dict[str, Callable[[], Any]]:
    """Every loop that reads batches, on the same bytes."""

    def compacted() -> Any:
        known = loops.KeyMap(5)
        noted = known.add(data)
        return loops.compact(
            data, known, now_ms=1_700_000_000_170, delete_retention_ms=100, mapped_end=noted, keep_last=True
        )

    def checked() -> Any:
        known = loops.KeyMap(1000)
        noted = known.add(data, start_offset=start, end_offset=end)
        times = {"now_ms": 1_700_000_000_170, "mapped_end": noted}
        left, _ = loops.compact(data, known, delete_retention_ms=100, **times)
        found = known.newest_offsets()
        dropped = loops.DroppedSample(3, 5, 7)
        outcomes = [
            outcome(
                partial(
                    loops.check_compacted, data, made, known, found, 0, mapped_start=start, dropped=dropped, **times
                )
            )
            for made in (left, bytes(left).replace(b"v", b"w"))
        ]
        return outcomes, dropped.seen, dropped.records()

    return {
        "check_compacted": checked,
        "walk": lambda: loops.walk(data),
        "walk in order": lambda: loops.walk(data, expected_offset=start, gaps_below=start + 50, before_offset=end),
        "validate": lambda: loops.validate(data, **LIMITS),
        "decode": lambda: loops.decode(data, "t", 3, start_offset=start, end_offset=end, max_records=7),
        "decode all": lambda: loops.decode(data, "t", 3, decompressed_limit=1 << 16),
        "gather": lambda: loops.gather(data, ALL_COLUMNS, start_offset=start, end_offset=end),
        "gather enough": lambda: loops.gather(data, ALL_COLUMNS, start_offset=start, end_offset=end, enough_bytes=99),
        "beginnings": lambda: loops.beginnings(data, 2, decompressed_limit=1 << 16),
        "offset_at_time": lambda: loops.offset_at_time(data, 1_700_000_000_100, start),
        "compact": compacted,
        "key_at": lambda: [loops.key_at(data, start + offset, decompressed_limit=1 << 16) for offset in range(8)],
        "recompress": lambda: loops.recompress(data, 4),
    }


def assert_same(compiled: ModuleType, data: Any, start: int = 0, end: int = 1 << 62) -> None:
    ours, theirs = readings(compiled, data, start, end), readings(python, data, start, end)
    for name in ours:
        assert outcome(ours[name]) == outcome(theirs[name]), name


@given(log=logs(), start=st.integers(0, 60), length=st.integers(0, 60))
def test_both_read_the_same_from_any_log(compiled: ModuleType, log: bytearray, start: int, length: int) -> None:
    base = python.walk(log).headers[0].base_offset if log else 0
    assert_same(compiled, log, base + start, base + start + length)
    assert_same(compiled, memoryview(bytes(log)))


@given(log=logs(), offset=st.integers(0, 1 << 40), append_time_ms=st.sampled_from([-1, 1_700_000_000_900]))
def test_a_slice_of_writable_memory_is_read_and_stamped_as_a_buffer_of_its_own(
    compiled: ModuleType, log: bytearray, offset: int, append_time_ms: int
) -> None:
    for loops in (compiled, python):
        alone, frame = bytearray(log), bytearray(b"before" + log + b"behind")
        part = memoryview(frame)[6 : 6 + len(log)]
        for name, read in readings(loops, part).items():
            assert outcome(read) == outcome(readings(loops, alone)[name]), name
        ends = [
            loops.assign_offsets(data, loops.walk(data).headers, offset, 3, append_time_ms) for data in (alone, part)
        ]
        assert ends[0] == ends[1]
        part.release()
        assert frame == b"before" + alone + b"behind"
        frame.clear()  # fails if a loop still holds the slice


@given(batch=batches(), edits=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3))
def test_both_judge_edited_batches_alike(compiled: ModuleType, batch: bytearray, edits: list[tuple[int, int]]) -> None:
    for position, byte in edits:
        batch[position % len(batch)] = byte
    assert_same(compiled, batch)
    assert_same(compiled, with_right_crc(batch))


@given(batch=batches(), start=st.integers(0, 300), size=st.integers(0, 9), insert=st.binary(max_size=9))
def test_both_judge_spliced_batches_alike(
    compiled: ModuleType, batch: bytearray, start: int, size: int, insert: bytes
) -> None:
    start %= len(batch) + 1
    batch[start : start + size] = insert
    assert_same(compiled, batch)
    if len(batch) >= 61:
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        assert_same(compiled, with_right_crc(batch))


@given(body=st.binary(max_size=60), count=st.integers(-2, 9), delta=st.integers(-2, 9), attributes=st.integers(0, 127))
def test_both_judge_bodies_of_noise_alike(
    compiled: ModuleType, body: bytes, count: int, delta: int, attributes: int
) -> None:
    batch = python.pack([(5, None, b"v", ())])[:61] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = attributes.to_bytes(2, "big")
    batch[23:27] = delta.to_bytes(4, "big", signed=True)
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    assert_same(compiled, with_right_crc(batch))


SMALL = [
    (1_700_000_000_000, b"k", b"value", (("h", b"1"), ("é", None))),
    (1_700_000_000_400, None, b"x" * 70, ()),
    (1_700_000_000_100, b"k", None, ()),
]


@pytest.mark.parametrize("codec", CODECS)
def test_both_judge_every_changed_byte_alike(compiled: ModuleType, codec: int) -> None:
    whole = python.pack(SMALL, codec)
    for position in range(len(whole)):
        for change in (0x01, 0x80, 0xFF):
            broken = bytearray(whole)
            broken[position] ^= change
            assert_same(compiled, broken)
            assert_same(compiled, with_right_crc(broken))


@pytest.mark.parametrize("codec", CODECS)
def test_both_judge_every_cut_alike(compiled: ModuleType, codec: int) -> None:
    whole = python.pack(SMALL, codec)
    for size in range(len(whole)):
        assert_same(compiled, whole[:size])
        assert_same(compiled, whole + whole[:size])


@pytest.mark.parametrize("codec", CODECS)
def test_no_changed_byte_passes_walk_but_where_the_format_has_no_checksum(codec: int) -> None:
    """The CRC covers everything from the attributes on; length, magic and CRC are checked; offset and epoch are not."""
    whole = python.pack(SMALL, codec)
    for position in range(len(whole)):
        broken = bytearray(whole)
        broken[position] ^= 0x10
        found = python.walk(broken, expected_offset=0)
        is_epoch = 12 <= position < 16
        assert (len(found.headers) == 1) == is_epoch, position


@given(number=st.integers(-(1 << 63), (1 << 63) - 1), tail=st.binary(max_size=3))
@example(number=(1 << 63) - 5, tail=b"\x80")  # two faults: both tell the first
def test_both_read_numbers_in_their_shortest_form_only(compiled: ModuleType, number: int, tail: bytes) -> None:
    """The timestamp delta is the only 64-bit number of a record: put one there, right, then one byte too long."""
    short = bytearray()
    encode(number, short)
    long = bytearray(short)
    long[-1] |= 0x80
    for digits in (short, long + b"\x00", long + b"\x80\x00", short + tail):
        fields = b"\x00" + digits + b"\x00\x01\x01\x00"
        body = bytearray()
        encode(len(fields), body)
        batch = python.pack([(5, None, None, ())])[:61] + body + fields
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        assert_same(compiled, with_right_crc(batch))


@given(records=item_lists, codec=st.sampled_from(CODECS), fields=st.tuples(*[st.integers(-1, 30_000)] * 3))
def test_both_build_the_same_bytes(
    compiled: ModuleType, records: list[Any], codec: int, fields: tuple[int, int, int]
) -> None:
    names = ("producer_id", "producer_epoch", "base_sequence")
    given_fields = dict(zip(names, fields, strict=True))
    made = [
        loops.pack(iter(records), codec, transactional=True, base_offset=9, **given_fields)
        for loops in (compiled, python)
    ]
    assert made[0] == made[1]


@given(records=st.lists(items, max_size=20), max_bytes=st.integers(1, 600), max_records=st.integers(1, 9))
def test_both_builders_close_a_batch_at_the_same_record(
    compiled: ModuleType, records: list[Any], max_bytes: int, max_records: int
) -> None:
    ours, theirs = compiled.BatchBuilder(max_bytes, max_records), python.BatchBuilder(max_bytes, max_records)
    for record in records:
        index = ours.append(*record)
        assert index == theirs.append(*record)
        assert (ours.count, ours.size_bytes) == (theirs.count, theirs.size_bytes)
        if index < 0:
            assert ours.build(1) == theirs.build(1)
            ours.clear()
            theirs.clear()


@given(log=logs(), first=st.integers(0, 1 << 40), epoch=st.integers(0, 99), append_time=st.sampled_from([-1, 77]))
def test_both_assign_the_same_offsets(
    compiled: ModuleType, log: bytearray, first: int, epoch: int, append_time: int
) -> None:
    given_logs = [bytearray(log), bytearray(log)]
    ends = [
        loops.assign_offsets(data, loops.walk(data).headers, first, epoch, append_time)
        for loops, data in zip((compiled, python), given_logs, strict=True)
    ]
    assert ends[0] == ends[1]
    assert given_logs[0] == given_logs[1]
    assert python.walk(given_logs[0]).problem is None


@given(
    log=logs(),
    starts=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1100)), max_size=4).map(
        lambda pairs: sorted(pairs, key=lambda pair: pair[1])
    ),
)
def test_both_find_the_same_wrong_epoch(compiled: ModuleType, log: bytearray, starts: list[tuple[int, int]]) -> None:
    assert told(compiled.check_epochs(compiled.walk(log).headers, starts)) == told(
        python.check_epochs(python.walk(log).headers, starts)
    )


@given(log=logs(), position=st.integers(-1, 400), most=st.integers(0, 600), check_crc=st.booleans())
def test_both_walk_from_anywhere_alike(
    compiled: ModuleType, log: bytearray, position: int, most: int, check_crc: bool
) -> None:
    def walked(loops: ModuleType) -> Any:
        return outcome(lambda: loops.walk(log, position, max_bytes=most, check_crc=check_crc))

    assert walked(compiled) == walked(python)


@given(key=st.binary(max_size=40))
def test_both_hash_keys_alike(compiled: ModuleType, key: bytes) -> None:
    assert compiled.murmur2(key) == python.murmur2(key)
    assert compiled.murmur2(memoryview(key)) == python.murmur2(bytearray(key))


def test_keys_hash_as_the_java_client_hashes_them(loops: ModuleType) -> None:
    """Values from the tests of Kafka's own client."""
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: loops.murmur2(key) for key in known} == known


@given(log=logs(most=2))
def test_values_compare_print_and_pickle_alike(compiled: ModuleType, log: bytearray) -> None:
    for loops in (compiled, python):
        found = loops.walk(log)
        records, _ = loops.decode(log, "t", 1)
        again_found, (again, _) = loops.walk(log), loops.decode(log, "t", 1)
        assert found == again_found
        assert records == again
        assert {hash(record) for record in records} == {hash(record) for record in again}
        thawed = pickle.loads(pickle.dumps([found, records]))
        assert told(thawed) == told([found, records])
        assert all(type(record) is chosen.Record for record in thawed[1])


def test_a_record_is_immutable_and_says_what_is_wrong_with_its_value(loops: ModuleType) -> None:
    record = loops.Record("t", 0, 5, 1, 0, b"k", b'{"a": 1}', (("h", None),), 2)
    assert record.json() == {"a": 1}
    assert record.text() == '{"a": 1}'
    other = record.replace(value={"a": 1})
    assert (other.key, other.value, other.offset, other.headers) == (b"k", {"a": 1}, 5, (("h", None),))
    assert other != record
    assert record.replace(value=None).json() is None
    assert record.replace(value=None).text() is None
    match record:
        case loops.Record(topic, partition, offset):
            assert (topic, partition, offset) == ("t", 0, 5)
    with pytest.raises(AttributeError):
        record.value = b"other"
    for broken in (b"{", b"\xff"):
        with pytest.raises(SerializationError, match="t-0 at offset 5"):
            record.replace(value=broken).json()
    with pytest.raises(SerializationError, match="not UTF-8"):
        record.replace(value=b"\xff").text()


def test_every_name_is_in_both(compiled: ModuleType) -> None:
    assert sorted(compiled.__all__) == sorted(python.__all__)
    assert all(hasattr(chosen, name) for name in python.__all__)
