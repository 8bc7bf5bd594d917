"""`Partition.append(nowait=True)` writes to the page cache or raises BlockingIOError: an event loop may call it.

Files that list every operation tell what an append did. Whenever it may not wait it has written and nothing else: no
sync, no new file, no second thread waited for. What was refused is then appended by the same call without `nowait`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.files.base import Buffer
from foldlog.files.memory import MemoryFiles
from foldlog.limits import QUICK_DECOMPRESSED_BYTES_MAX
from foldlog.records.batch import Compression
from foldlog.records.loops import BatchBuilder
from foldlog.testing.faulty_files import FaultyFiles, Kind
from foldlog.testing.sim_clock import SimClock
from log.small_partition import SmallPartition, read_all

LATER_MS = SimClock().now_ms() + 1_800_000
"""After the clock of the partition: a segment that is found at open counts as begun now, and not as old."""


def batch(value: bytes, producer_id: int = -1, sequence: int = -1, codec: int = Compression.NONE) -> bytes:
    builder = BatchBuilder(4 << 20)
    builder.append(LATER_MS, None, value)
    epoch = 0 if producer_id >= 0 else -1
    return bytes(builder.build(codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


class Watched:
    """A partition, and what its appends ask of the disk."""

    def __init__(self, **config: object) -> None:
        self.files = FaultyFiles(MemoryFiles())
        self.small = SmallPartition(self.files, **config)
        self.refused = 0

    def append(self, data: bytes) -> None:
        """Without waiting if that is possible, which is looked at, and else as a thread does it."""
        before = len(self.files.operations)
        try:
            self.small.partition.append(data, nowait=True)
        except BlockingIOError:
            assert self.files.operations[before:] == []
            self.refused += 1
            self.small.partition.append(data)
        else:
            assert {operation.kind for operation in self.files.operations[before:]} == {Kind.WRITE}

    def values(self) -> list[bytes | None]:
        self.small.partition.sync()
        return [record.value for record in read_all(self.small.partition)]


def test_only_the_first_append_of_many_has_to_wait() -> None:
    watched = Watched()
    for number in range(5):
        watched.append(batch(b"%d" % number))
    assert watched.refused == 1
    assert watched.values() == [b"0", b"1", b"2", b"3", b"4"]


def test_an_append_that_begins_a_segment_waits() -> None:
    watched = Watched(segment_bytes=1024)
    for number in range(10):
        watched.append(batch(b"%d" % number * 300))
    assert watched.refused == watched.small.partition.segment_count > 1
    assert watched.values() == [b"%d" % number * 300 for number in range(10)]


def test_the_first_producer_with_an_id_waits_and_so_does_the_first_after_a_restart() -> None:
    watched = Watched()
    watched.append(batch(b"plain"))
    watched.append(batch(b"first", 7, 0))
    watched.append(batch(b"second", 7, 1))
    assert watched.refused == 2
    watched.small.close()
    watched.small.reopen()
    watched.append(batch(b"third", 7, 2))
    watched.append(batch(b"fourth", 7, 3))
    assert watched.refused == 3
    assert watched.values() == [b"plain", b"first", b"second", b"third", b"fourth"]


def test_nobody_waits_for_another_who_appends() -> None:
    watched = Watched()
    watched.append(batch(b"first"))
    partition = watched.small.partition
    is_writing, may_end = threading.Event(), threading.Event()

    log = partition._core.segments[-1].log()
    write = log.write

    def slow_write(position: int, buffers: Sequence[Buffer]) -> int:
        is_writing.set()
        assert may_end.wait(30)
        return write(position, buffers)

    log.write = slow_write  # type: ignore[method-assign]
    other = threading.Thread(target=partition.append, args=(batch(b"slow"),))
    other.start()
    assert is_writing.wait(30)
    assert partition.append_may_wait(100)
    with pytest.raises(BlockingIOError):
        partition.append(batch(b"third"), nowait=True)
    may_end.set()
    other.join()
    log.write = write  # type: ignore[method-assign]
    assert not partition.append_may_wait(100)
    watched.append(batch(b"third"))
    assert watched.values() == [b"first", b"slow", b"third"]


def test_a_batch_that_expands_to_much_is_left_to_one_who_may_wait() -> None:
    watched = Watched()
    watched.append(batch(b"first"))
    few, many = Random(7).randbytes(QUICK_DECOMPRESSED_BYTES_MAX // 4), bytes(2 * QUICK_DECOMPRESSED_BYTES_MAX)
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        refused = watched.refused
        watched.append(batch(few, codec=codec))
        assert watched.refused == refused
        watched.append(batch(many, codec=codec))
        assert watched.refused == refused + 1
    assert watched.values() == [b"first", *([few, many] * 4)]


def test_few_bytes_that_expand_to_many_are_left_to_one_who_may_wait() -> None:
    watched = Watched()
    watched.append(batch(b"first"))
    for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
        refused = watched.refused
        watched.append(batch(bytes(QUICK_DECOMPRESSED_BYTES_MAX // 2), codec=codec))
        assert watched.refused == refused + 1


@given(
    appends=st.lists(st.tuples(st.integers(1, 400), st.sampled_from([-1, 1, 2])), max_size=30),
    segment_bytes=st.sampled_from([1024, 2048, 1 << 20]),
    flush_messages=st.sampled_from([1, 1000]),
)
def test_whatever_is_appended_a_look_before_tells_whether_it_waits(
    appends: list[tuple[int, int]], segment_bytes: int, flush_messages: int
) -> None:
    watched = Watched(segment_bytes=segment_bytes, flush_messages=flush_messages)
    sequences = {1: 0, 2: 0}
    written: list[bytes] = []
    for size, producer_id in appends:
        value = bytes([65 + len(written) % 26]) * size
        sequence = -1
        if producer_id >= 0:
            sequence, sequences[producer_id] = sequences[producer_id], sequences[producer_id] + 1
        data = batch(value, producer_id, sequence)
        may_wait, refused = watched.small.partition.append_may_wait(len(data)), watched.refused
        watched.append(data)
        if producer_id < 0:
            assert may_wait == (watched.refused > refused)
        written.append(value)
    assert watched.values() == written
