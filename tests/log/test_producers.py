"""Idempotent producers: what is sent twice is kept once, what is skipped is refused, and a restart forgets nothing."""

from __future__ import annotations

import pytest

from foldlog.errors import InvalidProducerEpoch, LogClosed, OutOfOrderSequence, StorageError, StorageFull
from foldlog.files.memory import MemoryFiles
from foldlog.log.checkpoint import Slot, SlotState
from foldlog.log.partition import Appended
from foldlog.log.producers import EXPIRATION_MS, ProducerInfo, ProducerState
from foldlog.records.loops import BatchBuilder, walk
from foldlog.testing.faulty_files import Fault, FaultyFiles
from log.small_partition import PATH, SmallPartition, read_all

SEQUENCE_MAX = 2**31 - 1


def batch(sequence: int, *values: bytes, producer_id: int = 7, epoch: int = 0, timestamp_ms: int = 0) -> bytearray:
    builder = BatchBuilder(1 << 20)
    for value in values:
        builder.append(timestamp_ms, None, value)
    return builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def send(small: SmallPartition, sequence: int, *values: bytes, producer_id: int = 7, epoch: int = 0) -> Appended:
    now_ms = small.clock.now_ms()
    sent = batch(sequence, *values, producer_id=producer_id, epoch=epoch, timestamp_ms=now_ms)
    appended = small.partition.append(sent)
    small.partition.wait_acknowledged(appended.next_offset)
    return appended


def test_a_batch_sent_twice_is_answered_with_its_first_offset() -> None:
    small = SmallPartition()
    first = send(small, 0, b"a", b"b")
    send(small, 2, b"c")
    again = send(small, 0, b"a", b"b")
    assert (again.base_offset, again.next_offset, again.is_duplicate) == (first.base_offset, first.next_offset, True)
    assert [record.value for record in read_all(small.partition)] == [b"a", b"b", b"c"]


def test_the_last_five_batches_are_remembered() -> None:
    small = SmallPartition()
    for sequence in range(6):
        send(small, sequence, b"x")
    assert send(small, 1, b"x").is_duplicate
    with pytest.raises(OutOfOrderSequence):
        send(small, 0, b"x")


def test_a_skipped_sequence_is_refused_and_nothing_is_kept() -> None:
    small = SmallPartition()
    send(small, 0, b"a")
    with pytest.raises(OutOfOrderSequence, match="1 comes next"):
        send(small, 2, b"c")
    assert small.partition.log_end_offset == 1
    assert not send(small, 1, b"b").is_duplicate


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero() -> None:
    small = SmallPartition()
    send(small, 0, b"a", epoch=3)
    with pytest.raises(InvalidProducerEpoch, match="3 has taken over"):
        send(small, 1, b"b", epoch=2)
    with pytest.raises(OutOfOrderSequence):
        send(small, 1, b"b", epoch=4)
    assert send(small, 0, b"b", epoch=4).base_offset == 1


def test_sequences_wrap_around() -> None:
    small = SmallPartition()
    send(small, SEQUENCE_MAX - 1, b"a", b"b")
    assert send(small, 0, b"c").base_offset == 2


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_knows_what_was_sent(clean: bool) -> None:
    small = SmallPartition(segment_records=3)
    for sequence in range(8):
        send(small, sequence, b"x")
    if clean:
        small.close()
    small.reopen(segment_records=3)
    assert send(small, 7, b"x").is_duplicate
    with pytest.raises(OutOfOrderSequence):
        send(small, 9, b"x")
    assert send(small, 8, b"x").base_offset == 8


def test_a_damaged_snapshot_is_made_again_from_the_log() -> None:
    small = SmallPartition(segment_records=3)
    for sequence in range(8):
        send(small, sequence, b"x")
    small.close()
    for name in small.names(".snapshot"):
        small.damage(name, 12)
    small.reopen(segment_records=3)
    assert send(small, 7, b"x").is_duplicate


def test_a_log_that_lost_its_checkpoint_still_knows_what_was_sent() -> None:
    small = SmallPartition()
    send(small, 0, b"a")
    small.close()
    small.files.unlink("data/checkpoint")
    small.reopen()
    assert send(small, 0, b"a").is_duplicate


def test_snapshots_are_kafkas_format_and_only_the_newest_are_kept() -> None:
    small = SmallPartition(segment_records=2)
    for sequence in range(10):
        send(small, sequence, b"x")
    small.close()
    names = small.names(".snapshot")
    assert len(names) == 2
    file = small.files.open(f"{PATH}/{names[-1]}")
    data = file.read(0, file.size())
    assert data[:2] == b"\x00\x01"
    assert int.from_bytes(data[6:10], "big") == 1
    assert int.from_bytes(data[10:18], "big") == 7
    assert len(data) == 10 + 46


def test_a_batch_that_could_not_be_written_is_not_taken_for_sent() -> None:
    files = FaultyFiles(MemoryFiles())
    small = SmallPartition(files)
    send(small, 0, b"a")
    files.fault = Fault.full_from(0)
    with pytest.raises(StorageFull):
        send(small, 1, b"b")
    files.fault = Fault(lambda _: 0)
    again = send(small, 1, b"b")
    assert (again.base_offset, again.is_duplicate) == (1, False)


def test_silent_producers_are_forgotten_after_a_day() -> None:
    state = ProducerState()
    state.note(walk(batch(0, b"a", timestamp_ms=1000)).headers[0])
    state.expire(1000)
    state.note(walk(batch(0, b"a", producer_id=8, timestamp_ms=2000)).headers[0])
    state.expire(2000)
    state.expire(1001 + EXPIRATION_MS)
    assert len(state) == 1


def test_a_log_without_such_producers_writes_no_snapshots() -> None:
    small = SmallPartition(segment_records=2)
    for _ in range(6):
        small.write(b"plain")
    small.close()
    assert small.names(".snapshot") == []


def test_producers_are_described_with_the_last_batch_of_each() -> None:
    small = SmallPartition()
    assert small.partition.producers_info() == []
    small.clock.set_wall(5_000)
    send(small, 0, b"a", b"b", producer_id=9, epoch=2)
    small.clock.set_wall(6_000)
    send(small, 0, b"c", producer_id=7)
    send(small, 1, b"d", producer_id=7)
    assert small.partition.producers_info() == [ProducerInfo(7, 0, 1, 6_000), ProducerInfo(9, 2, 1, 5_000)]
    small.close()
    with pytest.raises(LogClosed):
        small.partition.producers_info()
    partition = small.reopen()
    known = [(info.producer_id, info.producer_epoch, info.last_sequence) for info in partition.producers_info()]
    assert known == [(7, 0, 1), (9, 2, 1)]


def test_a_state_that_cannot_be_read_is_an_error_of_ours() -> None:
    small = SmallPartition()
    send(small, 0, b"a")
    small.close()
    small.reopen()
    name = small.names(".snapshot")[-1]
    small.files.unlink(f"{PATH}/{name}")
    small.files.make_directory(f"{PATH}/{name}")
    with pytest.raises(StorageError, match="cannot be read"):
        small.partition.producers_info()


def test_a_snapshot_knows_a_batch_whose_sequences_wrap_around() -> None:
    """A snapshot has the last sequence and how many there are: the first one is before the wrap."""
    small = SmallPartition()
    first = send(small, SEQUENCE_MAX - 1, b"a", b"b", b"c", b"d")
    small.close()
    small.reopen()
    again = send(small, SEQUENCE_MAX - 1, b"a", b"b", b"c", b"d")
    assert (again.is_duplicate, again.base_offset) == (True, first.base_offset)
    assert send(small, 2, b"e").base_offset == 4


def test_an_epoch_that_begins_within_an_append_begins_at_zero_too() -> None:
    small = SmallPartition()
    small.partition.append(batch(0, b"a", epoch=0), batch(0, b"b", epoch=1))
    with pytest.raises(OutOfOrderSequence):
        small.partition.append(batch(1, b"c", epoch=1), batch(1, b"d", epoch=2))
    assert small.partition.append(batch(1, b"c", epoch=1), batch(0, b"d", epoch=2)).base_offset == 2


def test_that_there_are_producers_is_stored_firmly_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each firm store is a sync of its own."""
    small = SmallPartition()
    stored: list[SlotState] = []
    store_firmly = Slot.store_firmly

    def noted(self: Slot, state: SlotState) -> None:
        stored.append(state)
        store_firmly(self, state)

    monkeypatch.setattr(Slot, "store_firmly", noted)
    for sequence in range(4):
        send(small, sequence, b"a")
    assert [(state.has_producers, state.has_transactions) for state in stored] == [(True, False)]
