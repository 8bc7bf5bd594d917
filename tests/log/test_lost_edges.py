"""Reading processes beside files that lost an edge, and beside files that did not.

Hypothesis makes a history: appends, rolls, compaction, retention, deletions. Then whole batches or files are taken away
at an edge, and a reader gets exactly what the slot promises or an error that names the place; never less, in silence.
And the same histories without harm: the reader looks at every single step of the writer, and the writer goes on at
every single step of the reader. That is never an error, and never a gap that compaction did not make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldlog.errors import CorruptLog, OffsetOutOfRange, StorageError
from foldlog.files.memory import MemoryFiles
from foldlog.log import follower
from foldlog.log.checkpoint import Checkpoint, StartReason
from foldlog.log.follower import FollowedPartition
from foldlog.records.loops import Record, decode, pack, walk
from log.small_partition import DIRECTORY, LABEL, PATH, SmallPartition, read_all

SETTINGS = {"segment_bytes": 700, "index_interval_bytes": 100, "retention_bytes": 2500, "compact": True}

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.sampled_from([b"a", b"b", b"c"])),
    st.tuples(st.just("append"), st.integers(1, 4), st.sampled_from([b"a", b"b", b"c"])),
    st.tuples(st.just("roll")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("retain")),
    st.tuples(st.just("delete"), st.floats(0, 1)),
)
HISTORIES = st.lists(STEPS, min_size=1, max_size=25)


class Written(SmallPartition):
    """Carries out a history, and keeps every record that was ever acknowledged."""

    def __init__(self, files: Any = None) -> None:
        self.sent: dict[int, tuple[bytes, bytes]] = {}
        self.acknowledged = 0
        super().__init__(files, **SETTINGS)

    def carry_out(self, step: Sequence[Any]) -> None:
        kind, *arguments = step
        partition = self.partition
        if kind == "append":
            count, key = arguments
            first = partition.log_end_offset
            rows = [(1000 + first + at, key, b"v%d" % (first + at) + b"." * 60, ()) for at in range(count)]
            self.sent.update({first + at: (key, row[2]) for at, row in enumerate(rows)})
            appended = partition.append(pack(rows))
            partition.wait_acknowledged(appended.next_offset)
            self.acknowledged = appended.next_offset
        elif kind == "roll":
            partition.roll()
        elif kind == "compact":
            partition.compact(force=True)
        elif kind == "retain":
            partition.enforce_retention()
        else:
            start, end = partition.log_start_offset, partition.high_watermark
            partition.delete_records(start + int(arguments[0] * (end - start)))

    def check(self, records: Sequence[Record], start: int, end: int) -> None:
        """Each is what was sent, they ascend, and one that is missing was superseded by a later one of its key."""
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        assert all(start <= offset < end for offset in offsets)
        assert all(self.sent[record.offset] == (record.key, record.value) for record in records)
        for offset in set(range(start, end)) - set(offsets):
            key = self.sent[offset][0]
            assert any(self.sent[later][0] == key for later in range(offset + 1, len(self.sent))), f"{offset} is gone"


def read_until_error(reader: FollowedPartition) -> tuple[list[Record], Exception | None]:
    records: list[Record] = []
    try:
        offset, end = reader.log_start_offset, reader.high_watermark
        while offset < end:
            found = reader.read(offset, 1)
            records += decode(found.data, *LABEL, start_offset=offset)[0]
            assert found.next_offset > offset
            offset = found.next_offset
    except (CorruptLog, OffsetOutOfRange) as error:
        return records, error
    return records, None


@settings(max_examples=80)
@given(history=HISTORIES, files_lost=st.integers(0, 3), part=st.floats(0, 1), unsynced=st.booleans())
def test_a_lost_end_is_never_passed_over(history: list[Any], files_lost: int, part: float, unsynced: bool) -> None:
    small = Written()
    for step in history:
        small.carry_out(step)
    promised = read_all(small.partition)
    first_at = {ms: small.partition.offset_at_time(ms) for ms in (0, *(record.timestamp_ms for record in promised))}
    if unsynced:
        small.partition.append(pack([(1, b"k", b"not synced", ())]))
    names = small.names(".log")
    for name in names[max(0, len(names) - files_lost) :]:
        small.files.unlink(f"{PATH}/{name}")
    if names[files_lost:]:
        # The file that is now the last one loses whole batches, too.
        file = small.files.open(f"{PATH}/{small.names('.log')[-1]}", write=True)
        ends = [
            0,
            *(header.position + header.size for header in walk(file.read(0, file.size()), gaps_below=1 << 40).headers),
        ]
        file.truncate(ends[int(part * (len(ends) - 1))])
    reader = small.reader()
    records, error = read_until_error(reader)
    assert records == promised[: len(records)]
    if error is None:
        assert records == promised
    else:
        assert isinstance(error, CorruptLog)
        assert error.path.startswith(PATH)
    for timestamp_ms, truth in first_at.items():
        with suppress(CorruptLog):
            assert reader.offset_at_time(timestamp_ms) == truth


@settings(max_examples=50)
@given(history=HISTORIES, count=st.integers(1, 3), is_open=st.booleans())
def test_a_removed_head_moves_the_start_and_nothing_else(history: list[Any], count: int, is_open: bool) -> None:
    small = Written()
    for step in history:
        small.carry_out(step)
    promised, start = read_all(small.partition), small.partition.log_start_offset
    reader = small.reader()
    if is_open:
        assert read_all(reader) == promised
    names = small.names(".log")
    removed = names[: min(count, len(names) - 1)]
    for name in removed:
        small.files.unlink(f"{PATH}/{name}")
    if is_open:
        assert read_all(reader) == promised  # through the files that it has open
        return
    first = int(names[len(removed)].removesuffix(".log"))
    assert reader.log_start_offset == max(start, first)
    assert read_all(reader) == [record for record in promised if record.offset >= first]
    if first > start:
        assert reader.start_reason is StartReason.MISSING
        with pytest.raises(OffsetOutOfRange, match="removed by hand"):
            reader.read(start)
        # As the next writer says.
        assert small.reopen(**SETTINGS).log_start_offset == first


class Stepped(MemoryFiles):
    """Calls `between` before every operation, and again in what that does: once at a time."""

    def __init__(self, below: MemoryFiles) -> None:
        super().__init__(below.root)
        self.between: Callable[[], object] | None = None

    def step(self) -> None:
        between, self.between = self.between, None
        if between is not None:
            try:
                between()
            finally:
                self.between = between

    def open(self, path: str, **how: bool) -> Any:
        self.step()
        return _SteppedFile(self, super().open(path, **how))

    def entries(self, directory: str) -> Any:
        self.step()
        found = super().entries(directory)
        self.step()
        return found

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self.step()
        super().unlink(path)

    def sync_directory(self, path: str) -> None:
        self.step()
        super().sync_directory(path)


class _SteppedFile:
    def __init__(self, owner: Stepped, file: Any) -> None:
        self._owner, self._file = owner, file

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._file, name)
        if name not in ("read", "read_into", "write", "truncate", "sync", "size"):
            return found

        def stepped(*arguments: Any, **more: Any) -> Any:
            self._owner.step()
            return found(*arguments, **more)

        return stepped


@settings(max_examples=25, deadline=None)
@given(history=HISTORIES)
def test_a_reader_that_looks_at_every_step_of_the_writer_sees_a_whole_log(history: list[Any]) -> None:
    disk = MemoryFiles()
    stepped = Stepped(disk)
    small = Written(stepped)
    reader = _reader(disk)
    old = reader_by_time = _reader(disk)

    def look() -> None:
        try:
            _look(small, _reader(disk))
            _look(small, old)
            reader_by_time.offset_at_time(1000 + small.acknowledged)
        except StorageError as error:
            if "in the middle of a change" not in str(error):
                raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower, "_TRIES", 2)  # names may be changing, and the writer stands still
        patch.setattr(follower, "_PAUSE_S", 0)
        stepped.between = look
        for step in history:
            small.carry_out(step)
    small.check(read_all(reader), small.partition.log_start_offset, small.partition.high_watermark)


@settings(max_examples=50, deadline=None)
@given(before=HISTORIES, meanwhile=HISTORIES, pauses=st.lists(st.integers(0, 6), min_size=1, max_size=10))
def test_a_writer_that_goes_on_at_every_step_of_a_reader_does_not_trouble_it(
    before: list[Any], meanwhile: list[Any], pauses: list[int]
) -> None:
    disk = MemoryFiles()
    small = Written(disk)
    for step in before:
        small.carry_out(step)
    stepped = Stepped(disk)
    reader = _reader(stepped)
    left = iter(meanwhile)
    waits = _counting_down(pauses)

    def go_on() -> None:
        if next(waits):
            small.carry_out(next(left, ("roll",)))

    stepped.between = go_on
    for _ in range(4):
        _look(small, reader)
        reader.offset_at_time(1000 + small.acknowledged // 2)
    stepped.between = None
    small.check(read_all(reader), small.partition.log_start_offset, small.partition.high_watermark)


@pytest.mark.parametrize("step", [("delete", 1.0), ("retain",)])
def test_a_start_that_moves_while_names_are_listed_was_not_moved_by_hand(step: Sequence[Any]) -> None:
    disk = MemoryFiles()
    small = Written(disk)
    for _ in range(12):
        small.carry_out(("append", 4, b"a"))
    steps = [step]

    class Listing(MemoryFiles):
        def entries(self, directory: str) -> Any:
            if steps:
                small.carry_out(steps.pop())
            return super().entries(directory)

    reader = _reader(Listing(disk.root))
    assert reader.start_reason is not StartReason.MISSING
    assert reader.log_start_offset == small.partition.log_start_offset > 0


def _counting_down(pauses: Sequence[int]) -> Iterator[bool]:
    while True:
        for pause in pauses:
            yield from [False] * pause
            yield True


def _reader(files: MemoryFiles) -> FollowedPartition:
    checkpoint = Checkpoint.open(files, f"{DIRECTORY}/checkpoint", write=False)
    return FollowedPartition.open(files, PATH, checkpoint.slot(0), label=LABEL)


def _look(small: Written, reader: FollowedPartition) -> None:
    """One pass over what there is. Where retention or a deletion is faster, the log begins later, and says why."""
    offset, end = reader.log_start_offset, reader.high_watermark
    records: list[Record] = []
    start = offset
    while offset < end:
        try:
            found = reader.read(offset, 200)
        except OffsetOutOfRange as error:
            if error.start <= offset or "removed by hand" in str(error):
                raise
            records, start, offset = [], error.start, error.start
            continue
        records += decode(found.data, *LABEL, start_offset=offset)[0]
        assert found.next_offset > offset
        offset = found.next_offset
    small.check([record for record in records if record.offset < end], start, max(start, end))
