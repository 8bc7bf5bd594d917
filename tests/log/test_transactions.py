"""Transactions in one partition: what is open holds the last stable offset, what was aborted is named to readers of
committed records, and a restart forgets neither."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from foldlog.errors import (
    CorruptLog,
    InvalidBatch,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    StaleCoordinatorEpoch,
    TransactionNotOpen,
    TransactionOpen,
)
from foldlog.log.checkpoint import Checkpoint, SlotState
from foldlog.log.config import LogConfig
from foldlog.log.doctor.inspection import inspect
from foldlog.log.doctor.repair import rebuild
from foldlog.log.follower import FollowedPartition
from foldlog.log.partition import Appended, Partition
from foldlog.log.producers import EXPIRATION_MS, OpenTransaction, ProducerInfo
from foldlog.log.reading import without_aborted
from foldlog.log.transactions import AbortedTransaction, format_transaction_index, read_transaction_index
from foldlog.records.batch import ATTRIBUTES_AT, CONTROL, CRC_AT
from foldlog.records.loops import decode, pack, walk
from log.small_partition import DIRECTORY, PATH, SmallPartition, read_all


class Producer:
    """One transactional producer; numbers its batches."""

    def __init__(self, small: SmallPartition, producer_id: int = 7, epoch: int = 0) -> None:
        self.small = small
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0

    def send(self, *values: bytes, begins: bool = False, transactional: bool = True, sync: bool = True) -> Appended:
        now_ms = self.small.clock.now_ms()
        batch = pack(
            [(now_ms, None, value, ()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=transactional,
        )
        appended = self.small.partition.append(batch, foreign=True, begins_transaction=begins)
        self.sequence += len(values)
        if sync:
            self.small.partition.wait_acknowledged(appended.next_offset)
        return appended

    def begin(self, *values: bytes, sync: bool = True) -> Appended:
        return self.send(*values, begins=True, sync=sync)

    def end(self, *, commit: bool, version: int = 2, sync: bool = True, coordinator_epoch: int = 0) -> Appended:
        if version == 2:
            self.epoch += 1
            self.sequence = 0
        appended = self.small.partition.append_marker(
            self.producer_id, self.epoch, coordinator_epoch, commit=commit, transaction_version=version
        )
        if sync:
            self.small.partition.wait_acknowledged(appended.next_offset)
        return appended


def committed(partition: Partition | FollowedPartition, max_bytes: int = 1 << 20) -> list[bytes | None]:
    """What a reader of committed records sees."""
    values: list[bytes | None] = []
    offset = partition.log_start_offset
    while offset < partition.last_stable_offset:
        found = partition.read(offset, max_bytes, committed=True)
        assert found.next_offset > offset
        values += [record.value for record in decode(without_aborted(found).data, "events", 0, start_offset=offset)[0]]
        offset = found.next_offset
    return values


def test_an_open_transaction_holds_the_last_stable_offset() -> None:
    small = SmallPartition()
    small.write(b"plain")
    producer = Producer(small)
    producer.begin(b"a", b"b")
    small.write(b"behind")
    partition = small.partition
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 4)
    assert committed(partition) == [b"plain"]
    assert [record.value for record in read_all(partition)] == [b"plain", b"a", b"b", b"behind"]
    producer.end(commit=True)
    assert partition.last_stable_offset == partition.high_watermark == 5
    assert committed(partition) == [b"plain", b"a", b"b", b"behind"]


def test_a_transaction_is_undecided_until_its_marker_may_be_read() -> None:
    small = SmallPartition()
    producer = Producer(small)
    producer.begin(b"a")
    marker = producer.end(commit=True, sync=False)
    assert small.partition.last_stable_offset == 0
    moved: list[int] = []
    small.partition.watch(lambda: moved.append(small.partition.last_stable_offset))
    small.partition.wait_acknowledged(marker.next_offset)
    assert small.partition.last_stable_offset == 2
    assert moved[-1] == 2


def test_batches_of_aborted_transactions_are_named() -> None:
    small = SmallPartition()
    one, two = Producer(small, 1), Producer(small, 2)
    one.begin(b"lost")
    two.begin(b"kept")
    one.send(b"lost, too")
    small.write(b"plain")
    one.end(commit=False)
    two.end(commit=True)
    partition = small.partition
    aborted = AbortedTransaction(1, 0, 4, 1)
    assert partition.read(0, committed=True).aborted == (aborted,)
    assert partition.read(3, committed=True).aborted == (aborted,)
    assert partition.read(5, committed=True).aborted == ()
    assert partition.read(0).aborted == ()
    assert committed(partition) == committed(partition, 1) == [b"kept", b"plain"]


def test_a_batch_of_a_transaction_that_is_not_open_is_refused_and_nothing_is_kept() -> None:
    small = SmallPartition()
    producer = Producer(small)
    with pytest.raises(TransactionNotOpen, match="producer 7"):
        producer.send(b"a")
    assert small.partition.log_end_offset == 0
    producer.begin(b"a")
    producer.send(b"b")
    producer.end(commit=True)
    with pytest.raises(TransactionNotOpen):
        producer.send(b"c")
    producer.begin(b"c")
    producer.epoch += 1
    producer.sequence = 0
    with pytest.raises(TransactionNotOpen):  # the open one is of an older epoch
        producer.send(b"d")


def test_a_plain_batch_inside_a_transaction_is_refused() -> None:
    small = SmallPartition()
    producer = Producer(small)
    producer.begin(b"a")
    with pytest.raises(TransactionOpen, match="from offset 0 is open"):
        producer.send(b"b", transactional=False)
    assert small.partition.log_end_offset == 1


def test_a_batch_that_is_sent_again_after_its_transaction_ended_is_a_duplicate() -> None:
    small = SmallPartition()
    producer = Producer(small)
    first = producer.begin(b"a")
    producer.end(commit=True, version=1)
    producer.sequence = 0
    again = producer.send(b"a")
    assert (again.is_duplicate, again.base_offset) == (True, first.base_offset)


def test_the_epoch_of_a_marker_takes_over() -> None:
    small = SmallPartition()
    producer = Producer(small)
    producer.begin(b"a")
    producer.end(commit=False)
    producer.epoch, producer.sequence = 0, 1
    with pytest.raises(InvalidProducerEpoch):
        producer.begin(b"zombie")
    producer.epoch = 1
    with pytest.raises(OutOfOrderSequence):
        producer.begin(b"b")
    producer.sequence = 0
    producer.begin(b"b")
    assert small.partition.open_transactions() == [OpenTransaction(7, 1, 2, small.clock.now_ms())]


def test_markers_that_come_too_late_are_refused() -> None:
    small = SmallPartition()
    producer = Producer(small, epoch=4)
    producer.begin(b"a")
    partition = small.partition
    with pytest.raises(InvalidProducerEpoch):
        partition.append_marker(7, 3, 0, commit=True, transaction_version=1)
    with pytest.raises(InvalidProducerEpoch):  # of the transaction before
        partition.append_marker(7, 4, 0, commit=True, transaction_version=2)
    partition.append_marker(7, 4, 5, commit=True, transaction_version=1)
    with pytest.raises(StaleCoordinatorEpoch, match="but 5 has taken over"):
        partition.append_marker(7, 5, 4, commit=True, transaction_version=2)
    again = partition.append_marker(7, 4, 5, commit=True, transaction_version=2)  # the coordinator tries again
    assert again.base_offset == 2
    partition.sync()
    assert partition.last_stable_offset == 3
    assert committed(partition) == [b"a"]


def test_a_coordinator_writes_without_sequence_numbers() -> None:
    small = SmallPartition()
    for value in (b"a", b"b"):
        batch = pack([(small.clock.now_ms(), b"k", value, ())], producer_id=7, producer_epoch=3, transactional=True)
        small.partition.append(batch, begins_transaction=True)
    small.partition.sync()
    assert small.partition.last_stable_offset == 0
    assert small.partition.producers_info() == [ProducerInfo(7, 3, -1, small.clock.now_ms(), -1, 0)]
    small.partition.append_marker(7, 3, 1, commit=True, transaction_version=1)
    small.partition.sync()
    assert committed(small.partition) == [b"a", b"b"]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_records", [0, 3])
def test_a_restart_knows_what_is_open_and_what_was_aborted(clean: bool, segment_records: int) -> None:
    small = SmallPartition(segment_records=segment_records)
    one, two = Producer(small, 1), Producer(small, 2)
    one.begin(b"lost")
    small.write(b"plain")
    one.end(commit=False)
    two.begin(b"open")
    small.write(b"behind")
    before = small.partition.producers_info()
    if clean:
        small.close()
    partition = small.reopen(segment_records=segment_records)
    assert partition.last_stable_offset == 3
    assert committed(partition) == [b"plain"]
    assert [(one.producer_id, one.first_offset) for one in partition.open_transactions()] == [(2, 3)]
    assert [info[:3] + info[4:] for info in partition.producers_info()] == [info[:3] + info[4:] for info in before]
    two.send(b"more")
    two.end(commit=True)
    assert committed(partition) == [b"plain", b"open", b"behind", b"more"]


def test_the_flag_of_transactions_is_durable_before_the_first_one() -> None:
    small = SmallPartition()
    small.write(b"plain")
    assert not slot_of(small).has_transactions
    Producer(small).begin(b"a", sync=False)
    assert slot_of(small).has_transactions


def slot_of(small: SmallPartition) -> SlotState:
    state = Checkpoint.open(small.files, f"{DIRECTORY}/checkpoint", write=False).slot(0).load()
    assert state is not None
    return state


def test_a_log_that_lost_its_checkpoint_knows_what_is_open() -> None:
    small = SmallPartition()
    Producer(small).begin(b"a")
    small.close()
    small.files.unlink(f"{DIRECTORY}/checkpoint")
    assert small.reopen().last_stable_offset == 0


def test_the_index_of_aborted_transactions_has_kafkas_bytes() -> None:
    small = SmallPartition(segment_records=4)
    for number in range(4):
        producer = Producer(small, number)
        producer.begin(b"lost")
        producer.end(commit=number % 2 == 1)
    assert small.names(".txnindex") == ["00000000000000000000.txnindex", "00000000000000000004.txnindex"]
    assert index_of(small, 0) == bytes.fromhex("00000000000000000000000000000000000000000000000000010000000000000002")
    assert read_transaction_index(index_of(small, 4)) == ([AbortedTransaction(2, 4, 5, 6)], "")


def index_of(small: SmallPartition, base_offset: int) -> bytes:
    file = small.files.open(f"{PATH}/{base_offset:020d}.txnindex")
    return file.read(0, file.size())


@pytest.mark.parametrize("damage", ["removed", "torn", "wrong", "stale"])
def test_an_index_without_a_snapshot_that_vouches_for_it_is_made_again(damage: str) -> None:
    small = SmallPartition()
    producer = Producer(small)
    for _ in range(3):
        producer.begin(b"lost")
        producer.end(commit=False)
    before, path = index_of(small, 0), f"{PATH}/{0:020d}.txnindex"
    if damage == "removed":
        small.files.unlink(path)
    else:
        file = small.files.open(path, write=True)
        if damage == "torn":
            file.truncate(50)
        elif damage == "wrong":
            file.write(34, [b"\xff\xff"])
        else:
            file.write(len(before), [before[:10] + (90).to_bytes(8, "big") + (91).to_bytes(8, "big") * 2])
    partition = small.reopen()
    assert committed(partition) == []
    assert len(partition.read(0, committed=True).aborted) == 3
    producer.begin(b"kept")
    producer.end(commit=True)
    small.close()  # writes a snapshot, which vouches for the index
    assert index_of(small, 0) == before
    partition = small.reopen()
    assert len(partition.read(0, committed=True).aborted) == 3
    assert committed(partition) == [b"kept"]


def test_a_kill_after_a_damaged_index_was_cut_off_leaves_no_snapshot_that_vouches_for_it() -> None:
    """A power cut tears an entry behind the snapshot; the open that finds it is killed before it has written anything.
    Found by the simulator, seed 7."""
    small = SmallPartition(segment_records=4)
    producer = Producer(small)
    for _ in range(3):
        producer.begin(b"lost")
        producer.end(commit=False)
    assert small.names(".snapshot")
    oldest = min(small.names(".txnindex"))
    file = small.files.open(f"{PATH}/{oldest}", write=True)
    file.write(file.size(), [b"\xff" * 34])
    for _ in range(3):
        partition = small.reopen(segment_records=4)
        assert committed(partition) == []
        assert len(partition.read(0, committed=True).aborted) > 0


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    small = SmallPartition()
    Producer(small, 1).begin(b"a")
    Producer(small, 2).send(b"b", transactional=False)
    small.clock.advance(2 * EXPIRATION_MS)
    small.partition.roll()
    assert [info.producer_id for info in small.partition.producers_info()] == [1]
    small.close()
    assert small.reopen().last_stable_offset == 0


def test_committed_records_by_time() -> None:
    small = SmallPartition()
    small.write(b"early", timestamp_ms=1000)
    producer = Producer(small)
    small.clock.advance(5000)
    later_ms = small.clock.now_ms()
    producer.begin(b"open")
    partition = small.partition
    assert partition.offset_at_time(2000) == (1, later_ms)
    assert partition.offset_at_time(2000, committed=True) is None
    assert partition.max_timestamp_offset() == (1, later_ms)
    assert partition.max_timestamp_offset(committed=True) == (0, 1000)
    producer.end(commit=True)
    assert partition.offset_at_time(2000, committed=True) == (1, later_ms)
    assert partition.max_timestamp_offset(committed=True) == (1, later_ms)


def test_records_may_be_deleted_below_an_open_transaction_and_inside_it() -> None:
    small = SmallPartition()
    small.write(b"plain")
    producer = Producer(small)
    producer.begin(b"a", b"b")
    small.partition.delete_records(2)
    assert small.partition.last_stable_offset == 2
    assert not small.partition.read(2, committed=True).data
    producer.end(commit=True)
    assert committed(small.partition) == [b"b"]


def test_a_copied_transaction_keeps_its_end() -> None:
    small, copy = SmallPartition(), SmallPartition()
    one = Producer(small)
    one.begin(b"lost")
    one.end(commit=False)
    small.write(b"plain")
    one.begin(b"open")
    found = small.partition.read(0)
    copy.partition.append(bytes(found.data), stored=True)
    copy.partition.sync()
    assert committed(copy.partition) == [b"plain"]
    assert copy.partition.last_stable_offset == small.partition.last_stable_offset == 3


def test_a_marker_that_cannot_be_read_is_refused_before_it_is_written() -> None:
    small = SmallPartition()
    broken = pack([(0, b"\x00", b"", ())], producer_id=7, producer_epoch=0, transactional=True)
    broken[ATTRIBUTES_AT + 1] |= CONTROL
    broken[CRC_AT:ATTRIBUTES_AT] = crc32c(bytes(broken[ATTRIBUTES_AT:])).to_bytes(4, "big")
    with pytest.raises(InvalidBatch, match="control record"):
        small.partition.append(broken, stored=True)
    assert small.partition.log_end_offset == 0


def keyed(small: SmallPartition, producer: Producer, key: bytes, value: bytes | None, *, begins: bool = True) -> None:
    batch = pack(
        [(small.clock.now_ms(), key, value, ())],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
        transactional=True,
    )
    producer.sequence += 1
    small.partition.append(batch, begins_transaction=begins)
    small.partition.sync()


def left(small: SmallPartition) -> list[tuple[int, str]]:
    """Each batch: its offset, and what is in it."""
    found: list[tuple[int, str]] = []
    partition = small.partition
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        data, offset, _ = partition.read(offset)
        for header in walk(data).headers:
            kind = "marker" if header.is_control else "data"
            found.append((header.base_offset, kind if header.record_count else f"empty {kind}"))
    return found


def test_compaction_drops_what_was_aborted_and_then_its_marker() -> None:
    small = SmallPartition(segment_records=2, compact=True, delete=False, delete_retention_ms=1000)
    producer = Producer(small)
    keyed(small, producer, b"k", b"kept")
    producer.end(commit=True)
    keyed(small, producer, b"k", b"aborted")
    producer.end(commit=False)
    keyed(small, producer, b"other", b"newer")
    producer.end(commit=True)
    small.write(b"x", key=b"x")
    partition = small.partition
    partition.compact(force=True)
    assert committed(partition) == [b"kept", b"newer", b"x"]
    assert (2, "data") not in left(small)
    assert (3, "marker") in left(small)
    assert len(partition.read(0, committed=True).aborted) == 1  # until the marker has no batches left
    partition.compact(force=True)  # the marker gets its delete horizon
    assert (3, "marker") in left(small)
    assert partition.read(0, committed=True).aborted == ()
    assert small.names(".txnindex") == [] or index_of(small, 0) == b""
    small.clock.advance(1001)
    partition.compact(force=True)
    assert (3, "marker") not in left(small)
    assert (1, "marker") in left(small)  # its transaction has a record
    assert committed(partition) == [b"kept", b"newer", b"x"]
    small.close()
    assert committed(small.reopen()) == [b"kept", b"newer", b"x"]


def test_compaction_stops_at_an_open_transaction() -> None:
    small = SmallPartition(segment_records=2, compact=True, delete=False)
    for number in range(4):
        small.write(b"%d" % number, key=b"k")
    producer = Producer(small)
    keyed(small, producer, b"k", b"open")
    for number in range(4):
        small.write(b"%d" % number, key=b"k")
    small.partition.compact(force=True)
    assert [record.offset for record in read_all(small.partition)] == [3, 4, 5, 6, 7, 8]
    producer.end(commit=False)
    small.partition.compact(force=True)
    assert [record.offset for record in read_all(small.partition)] == [8]


def test_compaction_keeps_a_marker_that_alone_has_a_producers_epoch() -> None:
    small = SmallPartition(segment_records=2, compact=True, delete=False, delete_retention_ms=0)
    producer = Producer(small)
    keyed(small, producer, b"k", b"aborted")
    producer.end(commit=False)
    small.write(b"x", key=b"x")
    for _ in range(3):
        small.clock.advance(10)
        small.partition.compact(force=True)
    small.close()
    for name in small.names(".snapshot"):
        small.files.unlink(f"{PATH}/{name}")
    small.reopen()
    producer.epoch, producer.sequence = 0, 1
    with pytest.raises(InvalidProducerEpoch):
        producer.begin(b"zombie")


@pytest.mark.parametrize("is_missing", [True, False])
def test_compaction_refuses_an_index_that_contradicts_the_markers(is_missing: bool) -> None:
    small = SmallPartition(segment_records=2, compact=True, delete=False)
    producer = Producer(small)
    keyed(small, producer, b"k", b"kept")
    producer.end(commit=True)
    keyed(small, producer, b"k", b"aborted")
    producer.end(commit=False)
    small.write(b"x", key=b"x")
    small.write(b"x", key=b"x")
    small.close()
    entries = [] if is_missing else [AbortedTransaction(7, 0, 1, 2), AbortedTransaction(7, 2, 3, 4)]
    for base in (0, 2):
        mine = [entry for entry in entries if base <= entry.last_offset < base + 2]
        file = small.files.open(f"{PATH}/{base:020d}.txnindex", write=True, create=True)
        file.truncate(0)
        file.write(0, [format_transaction_index(mine)])
    before = left(small) if not small.reopen(segment_records=2, compact=True, delete=False).is_poisoned else []
    with pytest.raises(CorruptLog, match="contradicts the index of aborted transactions"):
        small.partition.compact(force=True)
    assert left(small) == before


def test_segments_that_become_one_have_one_index() -> None:
    small = SmallPartition(segment_records=2, compact=True, delete=False)
    producer = Producer(small)
    for _ in range(4):
        keyed(small, producer, b"k", b"aborted")
        producer.end(commit=False)
    small.write(b"x", key=b"x")
    small.partition.reconfigure(LogConfig(compact=True, delete=False))
    small.partition.compact(force=True)
    assert small.partition.segment_count == 2
    assert small.names(".txnindex") == ["00000000000000000000.txnindex"]
    assert [entry.first_offset for entry in read_transaction_index(index_of(small, 0))[0]] == [0, 2, 4, 6]
    small.close()
    assert committed(small.reopen()) == [b"x"]


@pytest.mark.parametrize("is_missing", [True, False])
def test_check_finds_a_wrong_index_and_repair_makes_it_anew(is_missing: bool) -> None:
    small = SmallPartition(segment_records=2)
    producer = Producer(small)
    for commit in (True, False, True):
        producer.begin(b"x")
        producer.end(commit=commit)
    small.close()
    state = slot_of(small)
    assert inspect(small.files, PATH, state).notes == ()
    before = index_of(small, 2)
    if is_missing:
        small.files.unlink(f"{PATH}/{2:020d}.txnindex")
    else:
        entry = format_transaction_index([AbortedTransaction(7, 0, 1, 2)])
        small.files.open(f"{PATH}/{0:020d}.txnindex", write=True, create=True).write(0, [entry])
    assert [note.rpartition("/")[2][:10] for note in inspect(small.files, PATH, state).notes]
    checkpoint = Checkpoint.open(small.files, f"{DIRECTORY}/checkpoint", write=True)
    rebuild(small.files, PATH, checkpoint.slot(0), LogConfig(), clock=small.clock, label=("events", 0))
    checkpoint.close()
    assert inspect(small.files, PATH, state).notes == ()
    assert index_of(small, 2) == before
    assert committed(small.reopen()) == [b"x", b"x"]


def test_indexes_go_with_their_segments() -> None:
    small = SmallPartition(segment_records=2)
    producer = Producer(small)
    for _ in range(4):
        producer.begin(b"x")
        producer.end(commit=False)
    assert len(small.names(".txnindex")) == 4
    small.partition.delete_records(6)
    assert small.names(".txnindex") == [f"{6:020d}.txnindex"]
    assert [entry.first_offset for entry in small.partition.read(6, committed=True).aborted] == [6]
    small.partition.roll()
    assert committed(small.partition) == []


def test_a_reading_process_knows_what_is_committed() -> None:
    small = SmallPartition(segment_records=3)
    reader = small.reader()
    one, two = Producer(small, 1), Producer(small, 2)
    assert reader.last_stable_offset == 0
    one.begin(b"lost")
    two.begin(b"kept")
    small.write(b"plain")
    one.end(commit=False)
    for log in (reader, small.reader()):
        assert log.last_stable_offset == small.partition.last_stable_offset == 1
        assert log.read(0, committed=True).aborted == small.partition.read(0, committed=True).aborted
    two.end(commit=True)
    for log in (reader, small.reader()):
        assert committed(log) == [b"kept", b"plain"]
        assert log.offset_at_time(0, committed=True) == (0, small.clock.now_ms())


def test_reads_of_committed_records_do_not_wait() -> None:
    small = SmallPartition()
    producer = Producer(small)
    producer.begin(b"a")
    producer.end(commit=True)
    small.close()
    partition = small.reopen()
    assert partition.last_stable_offset == 2
    partition.read(0, committed=True)  # opens the file
    assert partition.read(0, committed=True, nowait=True).data


def test_an_abort_that_a_power_cut_took_does_not_stay_in_the_index() -> None:
    small = SmallPartition()
    producer = Producer(small)
    producer.begin(b"kept")
    stale = format_transaction_index([AbortedTransaction(7, 0, 1, 2)])
    small.files.open(f"{PATH}/{0:020d}.txnindex", write=True, create=True).write(0, [stale])
    small.reopen()
    producer.end(commit=True)
    small.close()  # writes a snapshot, which vouches for the index
    assert committed(small.reopen()) == [b"kept"]
