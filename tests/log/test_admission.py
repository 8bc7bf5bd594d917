"""What may be appended, and in whose memory: batches are sent as a network server has them, as slices of a larger
buffer, and every batch that only a log may write is refused from a client, with nothing kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from foldlog.errors import InvalidBatch, InvalidTimestamp
from foldlog.log.partition import Partition
from foldlog.records.batch import Compression
from foldlog.records.loops import KeyMap, assign_offsets, compact, control_batch, pack, walk
from log.small_partition import SmallPartition, read_all

BEFORE, BEHIND = b"request header", b"the next partition's data"


def framed(batch: bytes | bytearray) -> tuple[bytearray, memoryview]:
    """The frame of a request, and the slice of it that is the batch."""
    frame = bytearray(BEFORE + batch + BEHIND)
    return frame, memoryview(frame)[len(BEFORE) : len(BEFORE) + len(batch)]


def some(*values: bytes, **fields: Any) -> bytearray:
    return pack([(1_000, b"k", value, ()) for value in values], **fields)


@pytest.mark.parametrize("foreign", [False, True])
def test_a_slice_of_a_frame_is_stamped_in_place_and_nothing_around_it_is_touched(foreign: bool) -> None:
    small = SmallPartition()
    small.write(b"first", b"second")
    frame, batch = framed(some(b"a", b"b"))
    appended = small.partition.append(batch, foreign=foreign)
    assert (appended.base_offset, appended.next_offset) == (2, 4)
    header = walk(batch).headers[0]
    assert (header.base_offset, header.leader_epoch) == (2, small.partition.leader_epoch)
    assert frame.startswith(BEFORE)
    assert frame.endswith(BEHIND)
    small.partition.sync()
    assert bytes(small.partition.read(2).data) == bytes(batch)


def test_the_memory_is_the_callers_again_once_append_returns() -> None:
    small = SmallPartition()
    frame, batch = framed(some(b"kept"))
    appended = small.partition.append(batch, foreign=True)
    batch.release()
    frame[:] = bytes(len(frame))  # what a server does when it reads the next request into the same memory
    frame.clear()  # fails if anything still looks at it
    small.partition.wait_acknowledged(appended.next_offset)
    assert [record.value for record in read_all(small.partition)] == [b"kept"]


def test_the_memory_is_the_callers_again_after_a_refusal() -> None:
    small = SmallPartition()
    frame, batch = framed(some(b"a"))
    batch[-1] ^= 0xFF
    with pytest.raises(InvalidBatch, match="CRC-32C"):
        small.partition.append(batch, foreign=True)
    batch.release()
    frame.clear()


@pytest.mark.parametrize("given", [bytes, lambda data: memoryview(bytes(data)), lambda data: memoryview(data)[::1]])
def test_any_kind_of_buffer_gives_the_same_log(given: Callable[[bytearray], Any]) -> None:
    small = SmallPartition()
    small.write(b"first")
    sent = given(some(b"a", b"b"))
    small.partition.wait_acknowledged(small.partition.append(sent, foreign=True).next_offset)
    assert [(record.offset, record.value) for record in read_all(small.partition)] == [
        (0, b"first"),
        (1, b"a"),
        (2, b"b"),
    ]


def test_memory_that_cannot_be_written_is_left_as_it_was() -> None:
    small = SmallPartition()
    small.write(b"first")
    sent = bytes(some(b"a"))
    before = bytes(bytearray(sent))
    small.partition.append(sent, foreign=True)
    small.partition.append(memoryview(sent), foreign=True)
    assert sent == before


def test_a_slice_whose_items_are_not_bytes_is_written_whole() -> None:
    small = SmallPartition()
    batch = some(b"x" * 30)
    while len(batch) % 4:
        batch = some(b"x" * (30 + len(batch) % 4))
    small.partition.append(memoryview(batch).cast("I"), foreign=True)
    small.partition.sync()
    assert len(small.partition.read(0).data) == len(batch)


def test_a_slice_is_recompressed_where_the_topic_wants_a_codec() -> None:
    small = SmallPartition(compression=int(Compression.LZ4))
    frame, batch = framed(some(b"a" * 500, b"b"))
    before = bytes(frame)
    small.partition.wait_acknowledged(small.partition.append(batch, foreign=True).next_offset)
    assert walk(small.partition.read(0).data).headers[0].compression == Compression.LZ4
    assert [record.value for record in read_all(small.partition)] == [b"a" * 500, b"b"]
    assert frame == before, "the recompressed batch stands elsewhere"


def test_a_slice_gets_the_time_of_the_append_where_the_topic_wants_it() -> None:
    small = SmallPartition(log_append_time=True)
    small.clock.set_wall(77_000)
    _, batch = framed(some(b"a"))
    small.partition.wait_acknowledged(small.partition.append(batch, foreign=True).next_offset)
    record = read_all(small.partition)[0]
    assert (record.timestamp_ms, record.timestamp_type) == (77_000, 1)


def with_append_time() -> bytearray:
    batch = some(b"a")
    assign_offsets(batch, walk(batch).headers, 0, 0, 5_000)
    return batch


def with_delete_horizon() -> bytearray:
    """As compaction leaves a tombstone: with the time after which it may go."""
    batch = pack([(1_000, b"k", None, ())])
    keys = KeyMap(10)
    end = keys.add(batch)
    kept, _ = compact(batch, keys, now_ms=2_000, delete_retention_ms=1_000, mapped_end=end)
    assert walk(kept).headers[0].has_delete_horizon
    return kept


@pytest.mark.parametrize(
    ("batch", "error", "words"),
    [
        (bytearray, InvalidBatch, "no records"),
        (lambda: some(b"a") + some(b"b"), InvalidBatch, "2 batches were sent"),
        (lambda: control_batch(1, 0, 7, 0, 1_000), InvalidBatch, "control batch"),
        (
            lambda: some(b"a", transactional=True),
            InvalidBatch,
            "no producer id",
        ),
        (lambda: some(b"a", producer_id=7, producer_epoch=0), InvalidBatch, "sequence -1"),
        (lambda: some(b"a", producer_id=7, base_sequence=0), InvalidBatch, "epoch -1"),
        (with_append_time, InvalidTimestamp, "LogAppendTime"),
        (with_delete_horizon, InvalidBatch, "delete horizon"),
    ],
)
@pytest.mark.parametrize("topic_sets_time", [False, True])
def test_what_only_a_log_may_write_is_refused_from_a_client(
    batch: Callable[[], bytearray], error: type[Exception], words: str, topic_sets_time: bool
) -> None:
    small = SmallPartition(log_append_time=topic_sets_time)
    with pytest.raises(error, match=words):
        small.partition.append(memoryview(batch()), foreign=True)
    assert small.partition.log_end_offset == 0
    assert accepts(small.partition, some(b"next"))


def accepts(partition: Partition, batch: bytearray) -> bool:
    return partition.append(memoryview(batch), foreign=True).base_offset == 0


def test_a_client_cannot_have_its_batch_trusted() -> None:
    small = SmallPartition()
    batch = some(b"a")
    batch[-1] ^= 0xFF
    with pytest.raises(InvalidBatch, match="CRC-32C"):
        small.partition.append(batch, trusted=True, foreign=True)


def test_an_idempotent_client_is_answered_once_for_a_batch_sent_twice() -> None:
    small = SmallPartition()
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    first = small.partition.append(framed(some(b"a", b"b", **fields))[1], foreign=True)
    again = small.partition.append(framed(some(b"a", b"b", **fields))[1], foreign=True)
    assert (again.base_offset, again.next_offset, again.is_duplicate) == (0, first.next_offset, True)


def test_what_another_log_stored_keeps_its_holes_its_codec_and_its_size() -> None:
    """A compacted topic that compresses anew, and takes nothing so large from a client, gets batches as they were."""
    source = SmallPartition()
    batch = pack([(1_000, b"k%d" % (number % 2), b"v" * 100, ()) for number in range(9)], Compression.GZIP)
    source.partition.append(batch)
    source.partition.sync()
    keys = KeyMap(10)
    keys.add(source.partition.read(0).data)
    held, _ = compact(
        source.partition.read(0).data, keys, now_ms=2_000, delete_retention_ms=0, mapped_end=9, keep_last=True
    )
    target = SmallPartition(compact=True, compression=int(Compression.ZSTD), max_message_bytes=70)
    appended = target.partition.append(bytearray(held), stored=True)
    target.partition.wait_acknowledged(appended.next_offset)
    assert appended.next_offset == 9
    assert [record.offset for record in read_all(target.partition)] == [7, 8]
    assert walk(target.partition.read(0).data).headers[0].compression == Compression.GZIP
    for damaged, why in ((held[:-1], "cut off"), (held[:-1] + bytes([held[-1] ^ 1]), "CRC-32C")):
        with pytest.raises(InvalidBatch, match=why):
            target.partition.append(bytearray(damaged), stored=True)
    assert target.partition.log_end_offset == 9
