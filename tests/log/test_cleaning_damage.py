"""Cleaning never makes damage worse. Any bit of any segment flipped, any sealed segment cut anywhere: compaction and
recompression either leave what can be read as it should be, or stop with CorruptLog, and then no byte has changed and
an inspection still finds the damage.

A batch's CRC does not cover its base offset and its leader epoch, so these are where damage could pass for sound.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldlog.errors import CorruptLog, InvalidArgument, LogClosed
from foldlog.files.memory import MemoryFiles
from foldlog.log import compaction
from foldlog.log.doctor.inspection import Inspection, inspect
from foldlog.log.partition import Partition
from foldlog.records import batch as fmt
from foldlog.records import kernels_py
from foldlog.records.batch import Compression
from foldlog.records.loops import KeyMap, assign_offsets, compact, decode, empty_batch, pack, recompress, walk
from log.small_partition import PATH, SmallPartition, read_all

SETTINGS: dict[str, Any] = {"segment_bytes": 1024, "index_interval_bytes": 128, "compact": True, "delete": False}
Row = tuple[int, bytes | None, bytes | None]


def closed_log(*, compacted: bool = False, codec: Compression = Compression.NONE) -> SmallPartition:
    """Keys written again and again over several segments, then closed; `compacted`: the first part already was."""
    small = SmallPartition(**SETTINGS)
    for number in range(30):
        small.clock.advance(1)
        rows = [(small.clock.now_ms(), b"k%d" % (number * 2 % 7 + at), b"%d" % number * 30, ()) for at in range(2)]
        small.partition.append(pack(rows, codec))
        if compacted and number == 12:
            small.partition.compact(force=True)
    small.partition.roll()
    small.partition.append(pack([(small.clock.now_ms(), b"k0", b"active", ())]))
    small.partition.sync()
    small.close()
    return small


def log_bytes(small: SmallPartition) -> dict[str, bytes]:
    return {name: content(small, name) for name in small.names(".log")}


def content(small: SmallPartition, name: str) -> bytes:
    file = small.files.open(f"{PATH}/{name}")
    data = bytes(file.read(0, file.size()))
    file.close()
    return data


def put(small: SmallPartition, name: str, data: bytes) -> None:
    file = small.files.open(f"{PATH}/{name}", write=True)
    file.truncate(0)
    file.write(0, [data])
    file.close()


def flip(small: SmallPartition, name: str, bit: int) -> None:
    small.damage(name, bit // 8, 1 << bit % 8)


def rows(partition: Partition) -> list[Row]:
    return [(record.offset, record.key, record.value) for record in read_all(partition)]


def rows_in(data: dict[str, bytes]) -> list[Row]:
    """All records of some segments, as they stand in the bytes."""
    records = [record for name in sorted(data) for record in decode(data[name], "events", 0)[0]]
    return [(record.offset, record.key, record.value) for record in records]


def newest(found: list[Row], end: int) -> dict[bytes | None, Row]:
    """Of each key, of the records before `end`."""
    return {row[1]: row for row in found if row[0] < end}


def looked_at(small: SmallPartition) -> Inspection:
    return inspect(small.files, PATH, small.checkpoint.slot(0).load(), index_interval_bytes=128)


def compacted_by_force(partition: Partition) -> None:
    partition.compact(force=True)


def recompressed(partition: Partition) -> None:
    partition.recompress(Compression.ZSTD)


def batches_of(data: bytes) -> list[int]:
    return [header.position for header in walk(data, check_crc=False).headers]


@pytest.mark.parametrize("clean", [compacted_by_force, recompressed])
@pytest.mark.parametrize("compacted", [False, True])
def test_one_bit_of_a_base_offset_stops_cleaning_and_every_byte_stays(
    clean: Callable[[Partition], None], compacted: bool
) -> None:
    """Downwards, so that a key's newest record would look older than the one before it."""
    small = closed_log(compacted=compacted)
    name = small.names(".log")[-2]
    last = batches_of(content(small, name))[-1]
    small.damage(name, last + fmt.LENGTH_AT - 1, 0x10)
    before = log_bytes(small)
    small.reopen(**SETTINGS)
    with pytest.raises(CorruptLog) as raised:
        clean(small.partition)
    assert raised.value.path == f"{PATH}/{name}"
    assert {kept: content(small, kept) for kept in before} == before
    assert looked_at(small).damages


@pytest.mark.parametrize("clean", [compacted_by_force, recompressed])
def test_a_sealed_segment_that_lost_its_last_batches_is_not_merged_with_the_next(
    clean: Callable[[Partition], None],
) -> None:
    small = closed_log()
    name = small.names(".log")[1]
    whole = content(small, name)
    put(small, name, whole[: batches_of(whole)[-2]])
    before = log_bytes(small)
    small.reopen(**SETTINGS)
    with pytest.raises(CorruptLog) as raised:
        clean(small.partition)
    assert raised.value.path == f"{PATH}/{name}"
    assert {kept: content(small, kept) for kept in before} == before
    assert looked_at(small).damages
    with pytest.raises(CorruptLog):
        read_all(small.partition)


def test_a_leader_epoch_that_no_read_accepts_stops_cleaning() -> None:
    small = closed_log()
    name = small.names(".log")[0]
    small.damage(name, fmt.LEADER_EPOCH_AT + 3, 0x01)
    small.reopen(**SETTINGS)
    for clean in (compacted_by_force, recompressed):
        with pytest.raises(CorruptLog, match="leader epoch"):
            clean(small.partition)
    assert looked_at(small).damages


@pytest.mark.parametrize("compacted", [False, True])
def test_damage_before_what_is_new_is_found_before_anything_is_rewritten(compacted: bool) -> None:
    """In the part that was cleaned long ago, and that a pass only copies."""
    small = closed_log(compacted=True)
    name = small.names(".log")[0]
    small.damage(name, len(content(small, name)) - 1)
    before = log_bytes(small)
    small.reopen(**SETTINGS)
    with pytest.raises(CorruptLog):
        small.partition.compact(force=True)
    assert {kept: content(small, kept) for kept in before} == before
    assert small.names(".cleaned") == []


@given(data=st.data(), compacted=st.booleans(), codec=st.sampled_from([Compression.NONE, Compression.LZ4]))
@settings(max_examples=100)
def test_any_one_bit_or_cut_is_survived_or_stopped_at(data: st.DataObject, compacted: bool, codec: Compression) -> None:
    small = closed_log(compacted=compacted, codec=codec)
    names = small.names(".log")
    name = data.draw(st.sampled_from(names))
    size = len(content(small, name))
    truth = rows_in(log_bytes(small))
    if name != names[-1] and data.draw(st.booleans()):
        put(small, name, content(small, name)[: data.draw(st.integers(0, size - 1))])
    else:
        in_a_header = st.sampled_from(batches_of(content(small, name))).flatmap(
            lambda at: st.integers(8 * at, 8 * (at + fmt.CRC_AT) - 1)
        )
        flip(small, name, data.draw(in_a_header | st.integers(0, 8 * size - 1)))
    before = log_bytes(small)
    try:
        small.reopen(**SETTINGS)
    except CorruptLog:
        return  # the end of the log is verified at each open
    was_damaged = bool(looked_at(small).damages)
    clean = data.draw(st.sampled_from([compacted_by_force, recompressed]))
    try:
        clean(small.partition)
    except CorruptLog:
        assert {kept: content(small, kept) for kept in before} == before
        assert looked_at(small).damages
        return
    assert not was_damaged or looked_at(small).damages
    if not was_damaged:
        end = small.partition.high_watermark
        assert newest(rows(small.partition), end) == newest(truth, end)


def test_what_is_damaged_is_gone_through_once_in_the_background() -> None:
    small = closed_log()
    name = small.names(".log")[1]
    small.damage(name, 70)
    small.reopen(**SETTINGS, min_cleanable_dirty_ratio=0.0)
    with pytest.raises(CorruptLog):
        small.partition.compact()
    assert small.partition.cleaning_fault is not None
    assert name in str(small.partition.cleaning_fault)
    assert isinstance(small.files, MemoryFiles)
    before = log_bytes(small)
    for path in [f"{PATH}/{log}" for log in before]:
        small.files.open(path, write=True).truncate(0)  # whoever looked again would stumble
    assert small.partition.compact().segments_before == 0
    for log, data in before.items():
        put(small, log, data)
    with pytest.raises(CorruptLog):
        small.partition.compact(force=True)  # who asks is told again
    small.partition.delete_records(small.partition.high_watermark)
    assert small.partition.cleaning_fault is None


def test_damage_that_hides_how_old_a_segment_is_is_found_once() -> None:
    small = closed_log()
    name = small.names(".log")[1]
    small.damage(name, 70)
    put(small, name.replace(".log", ".timeindex"), b"")
    small.reopen(**SETTINGS, min_compaction_lag_ms=1)
    small.clock.advance(10)
    with pytest.raises(CorruptLog):
        small.partition.compact()
    assert small.partition.compact().segments_before == 0


def test_a_pass_that_gets_nowhere_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition(**SETTINGS)
    small.write_all([b"v"] * 10, key=b"k")
    real = compaction.map_keys

    def stuck(*given: Any) -> Any:
        keys, _ = real(*given)
        return keys, 0

    monkeypatch.setattr(compaction, "map_keys", stuck)
    with pytest.raises(CorruptLog):
        small.partition.compact(force=True)


def test_closing_ends_a_compaction_and_each_segment_is_old_or_new(monkeypatch: pytest.MonkeyPatch) -> None:
    small = closed_log()
    small.reopen(**SETTINGS)
    expected = newest(rows(small.partition), small.partition.high_watermark)
    real = compact

    def closing(*given: Any, **named: Any) -> Any:
        small.partition.interrupt()
        return real(*given, **named)

    monkeypatch.setattr("foldlog.log.compaction.compact", closing)
    with pytest.raises(LogClosed):
        small.partition.compact(force=True)
    assert small.names(".cleaned") == []
    small.close()
    small.reopen(**SETTINGS)
    assert looked_at(small).damages == ()
    assert newest(rows(small.partition), small.partition.high_watermark) == expected
    assert len(rows(small.partition)) > len(expected)


Spoil = Callable[[bytearray, Any], bytearray]


def without_its_first_batch(made: bytearray, _: Any) -> bytearray:
    return made[walk(made).headers[1].position :]


def without_its_last_batch(made: bytearray, _: Any) -> bytearray:
    return made[: walk(made).headers[-1].position]


def without_its_records(made: bytearray, _: Any) -> bytearray:
    first, *others = walk(made).headers
    rest = bytearray().join(made[one.position : one.position + one.size] for one in others)
    return bytearray(empty_batch(first)) + rest


def with_another_value(made: bytearray, _: Any) -> bytearray:
    first = walk(made).headers[0]
    records = decode(made[: first.size], "events", 0)[0]
    other = [(one.timestamp_ms, one.key, (one.value or b"") + b"!", ()) for one in records]
    changed = pack(other)
    assign_offsets(changed, walk(changed).headers, first.base_offset, first.leader_epoch)
    return changed + made[first.size :]


def with_another_offset(made: bytearray, _: Any) -> bytearray:
    made[fmt.LENGTH_AT - 1] ^= 1
    return made


@pytest.mark.parametrize(
    "spoil",
    [without_its_first_batch, without_its_last_batch, without_its_records, with_another_value, with_another_offset],
)
def test_a_compaction_that_makes_a_mistake_never_becomes_the_log(spoil: Spoil, monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition(**SETTINGS)
    for number in range(12):
        rows_made = [(small.clock.now_ms(), b"k%d" % (number * 2 + at), b"value" * 9, ()) for at in range(2)]
        small.partition.append(pack(rows_made))
    small.partition.append(pack([(small.clock.now_ms(), b"k0", b"again", ())]))
    small.partition.roll()
    before = log_bytes(small)
    expected = rows(small.partition)
    real = compact

    def mistaken(*given: Any, **named: Any) -> Any:
        made, stats = real(*given, **named)
        return spoil(made, stats), stats

    monkeypatch.setattr("foldlog.log.compaction.compact", mistaken)
    with pytest.raises(CorruptLog, match="cleaned is damaged"):
        small.partition.compact(force=True)
    assert {kept: content(small, kept) for kept in before} == before
    assert small.names(".cleaned") == []
    assert rows(small.partition) == expected
    monkeypatch.setattr("foldlog.log.compaction.compact", real)
    small.partition.compact(force=True)
    assert rows(small.partition) == expected[1:]


def test_a_key_map_that_claims_a_newer_record_than_there_is_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition(**SETTINGS)
    small.write_all([b"1", b"2", b"3"], key=b"k")
    small.write_all([b"4"], key=b"l")
    small.partition.roll()
    expected = rows(small.partition)
    real = compaction.map_keys

    def wrong(*given: Any) -> Any:
        _, mapped_end = real(*given)
        keys = KeyMap(10)
        keys.add(pack([(0, b"k", b"", ()), (0, b"l", b"", ())], base_offset=3))  # the offsets 3 and 4
        return keys, mapped_end

    monkeypatch.setattr(compaction, "map_keys", wrong)
    with pytest.raises(CorruptLog, match="rewriting lost"):
        small.partition.compact(force=True)
    assert rows(small.partition) == expected


def test_a_key_map_that_names_a_record_that_is_nowhere_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then some record that should be the newest of its key was lost, or the map is wrong: nobody knows which."""
    small = SmallPartition(**SETTINGS)
    small.write_all([b"1", b"2", b"3"], key=b"k")
    small.partition.compact(force=True)
    small.write_all([b"4", b"5"], key=b"k")
    small.partition.roll()
    expected = rows(small.partition)
    real = compaction.map_keys

    def wrong(*given: Any) -> Any:
        keys, mapped_end = real(*given)
        keys.add(pack([(0, b"ghost", b"", ())], base_offset=0))  # which compaction has left out before
        return keys, mapped_end

    monkeypatch.setattr(compaction, "map_keys", wrong)
    with pytest.raises(CorruptLog, match="rewriting lost"):
        small.partition.compact(force=True)
    assert rows(small.partition) == expected


def test_a_compaction_that_leaves_out_the_end_of_a_segment_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last record has a newer one, but without a batch at its end a missing file would look the same."""
    small = SmallPartition(**SETTINGS)
    small.write(b"a" * 700, key=b"a")
    small.write(b"old", key=b"k")
    small.partition.roll()
    small.write(b"b" * 700, key=b"b")
    small.write(b"new", key=b"k")
    small.partition.roll()
    before = log_bytes(small)
    real = compact
    monkeypatch.setattr(
        "foldlog.log.compaction.compact", lambda *given, **named: real(*given, **{**named, "keep_last": False})
    )
    with pytest.raises(CorruptLog, match="it ends at offset 1, not at 2"):
        small.partition.compact(force=True)
    assert {kept: content(small, kept) for kept in before} == before


@pytest.fixture(params=["compiled", "python"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Compaction with one set of loops after the other."""
    if request.param == "compiled":
        found = pytest.importorskip("foldlog.records.kernels", reason="python setup.py build_ext --inplace builds it")
    else:
        found = import_module("foldlog.records.kernels_py")
    for name in ("DroppedSample", "KeyMap", "check_compacted", "compact", "key_at", "walk"):
        monkeypatch.setattr(compaction, name, getattr(found, name))
    assert isinstance(found, ModuleType)
    return found


def refused_as_lost(small: SmallPartition) -> None:
    """It is not compacted, for one reason, and every byte stays."""
    before, expected = log_bytes(small), rows(small.partition)
    with pytest.raises(CorruptLog, match="rewriting lost"):
        small.partition.compact(force=True)
    assert {kept: content(small, kept) for kept in before} == before
    assert small.names(".cleaned") == []
    assert rows(small.partition) == expected


@pytest.mark.parametrize("at_once", [True, False])
def test_a_key_map_that_takes_two_keys_for_one_is_found_out(
    loops: ModuleType, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The map is of a log in which the second half of the records has the keys of the first: newest offset and number
    of keys agree with themselves, as where the hash of two keys is one."""
    small = SmallPartition(**{**SETTINGS, "segment_bytes": 1 << 20 if at_once else 1024})
    for prefix in (b"a", b"b"):
        small.partition.append(pack([(small.clock.now_ms(), prefix + b"%d" % at, b"v" * 80, ()) for at in range(10)]))
    small.partition.roll()
    real = compaction.map_keys

    def confused(*given: Any) -> Any:
        _, mapped_end = real(*given)
        keys = loops.KeyMap(100)
        for base_offset in (0, 10):
            keys.add(pack([(0, b"a%d" % at, b"", ()) for at in range(10)], base_offset=base_offset))
        return keys, mapped_end

    monkeypatch.setattr(compaction, "map_keys", confused)
    refused_as_lost(small)
    monkeypatch.setattr(compaction, "map_keys", real)
    small.partition.compact(force=True)
    assert len(rows(small.partition)) == 20


def test_a_key_map_that_looks_at_the_beginning_of_keys_only_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Short(kernels_py.KeyMap):
        def _note(self, key: bytes, offset: int) -> bool:
            return super()._note(key[:4], offset)

        def newest(self, key: bytes) -> int:
            return super().newest(key[:4])

    for name in ("DroppedSample", "check_compacted", "compact", "key_at"):
        monkeypatch.setattr(compaction, name, getattr(kernels_py, name))
    monkeypatch.setattr(compaction, "KeyMap", Short)
    small = SmallPartition(**SETTINGS)
    for turn in range(3):
        for at in range(20):
            small.write(b"%d" % turn, key=b"key%d-%d" % (at // 2, at % 2))
    small.partition.roll()
    refused_as_lost(small)


def test_a_sample_is_of_all_that_went_and_holds_no_more_than_it_may(loops: ModuleType) -> None:
    data = pack([(0, b"k" * (1 + at % 3), b"", ()) for at in range(999)])
    keys = loops.KeyMap(10)
    end = keys.add(data)
    left, _ = loops.compact(data, keys, now_ms=0, delete_retention_ms=0, mapped_end=end)
    taken: set[int] = set()
    for seed in range(40):
        sample = loops.DroppedSample(50, 2, seed)
        newest = keys.newest_offsets()
        loops.check_compacted(data, left, keys, newest, 0, mapped_start=0, mapped_end=end, now_ms=0, dropped=sample)
        assert sample.seen == 664, "the newest of each key stayed, and the keys of three bytes are too long"
        assert len(sample.records()) == 50
        assert all(key == b"k" * (1 + offset % 3) for offset, key in sample.records())
        taken |= {offset for offset, _ in sample.records()}
    assert len(taken) > 600, "the first are not preferred, nor the last"
    assert loops.key_at(data, 4) == b"kk"
    assert loops.key_at(data, 999) is None
    with pytest.raises(InvalidArgument):
        loops.DroppedSample(0, 1, 1)


def test_a_recompression_that_makes_a_mistake_never_becomes_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    small = closed_log()
    small.reopen(**SETTINGS)
    before, expected = log_bytes(small), rows(small.partition)
    real = recompress

    def mistaken(data: memoryview, codec: Compression, **named: int) -> bytearray:
        return real(with_another_value(bytearray(data), None), codec, **named)

    monkeypatch.setattr("foldlog.log.doctor.recompression.recompress", mistaken)
    with pytest.raises(CorruptLog, match="cleaned is damaged"):
        small.partition.recompress(Compression.ZSTD)
    assert {kept: content(small, kept) for kept in before} == before
    assert rows(small.partition) == expected


def test_an_interrupted_swap_whose_end_is_damaged_removes_no_other_segment() -> None:
    """Its last batch says that it reaches over all that follows."""
    small = closed_log()
    names = small.names(".log")
    swap = bytearray(content(small, names[0]))
    last = batches_of(bytes(swap))[-1]
    swap[last + fmt.LENGTH_AT - 2] ^= 0x01
    file = small.files.open(f"{PATH}/{names[0]}.swap", write=True, create=True)
    file.write(0, [swap])
    file.close()
    before = log_bytes(small)
    with pytest.raises(CorruptLog, match="where no segment begins"):
        small.reopen(**SETTINGS)
    assert log_bytes(small) == before
    small.files.unlink(f"{PATH}/{names[0]}.swap")
    small.reopen(**SETTINGS)
    assert looked_at(small).damages == ()


def test_a_read_refuses_a_compacted_batch_that_reaches_into_the_next_segment() -> None:
    """Gaps are legal there, so that only the next segment's beginning says that the offset is too large."""
    small = SmallPartition(**SETTINGS)
    for number in range(60):
        small.write(b"%d" % number * 40, key=b"k%d" % number if number % 2 else b"even")
    small.partition.compact(force=True)
    assert len(small.names(".log")) > 2
    name = small.names(".log")[0]
    last = batches_of(content(small, name))[-1]
    small.close()
    small.damage(name, last + fmt.LENGTH_AT - 1, 0x10)
    small.reopen(**SETTINGS)
    with pytest.raises(CorruptLog, match="the next segment begins"):
        read_all(small.partition)
