"""Sealed segments go to the store and are read from there; the disk keeps what the settings say, and whatever the store
does not have for certain."""

from __future__ import annotations

import pytest

from faults.one_partition import PATH
from foldlog.errors import CorruptLog, InvalidArgument, ObjectMissing, OffsetOutOfRange, StoreError
from foldlog.files.memory import MemoryFiles
from foldlog.files.objects import DirectoryObjects
from foldlog.log.checkpoint import Checkpoint
from foldlog.log.config import LogConfig
from foldlog.log.follower import FollowedPartition
from foldlog.log.reading import without_aborted
from foldlog.log.tier.boundary import WaitsForStore
from foldlog.log.tier.partition import TieredPartition
from foldlog.log.tier.tier import Tier
from foldlog.records.batch import Compression
from foldlog.records.loops import decode, pack
from log.tier.faulty_store import FaultyStore
from log.tier.tiered_log import FOLDER, OF, PREFIX, STORE, TieredLog, new_log, tier_config


def faulty_log(**settings: object) -> tuple[TieredLog, FaultyStore]:
    files = MemoryFiles()
    store = FaultyStore(DirectoryObjects(files, STORE))
    return new_log(files, store=store, **settings), store


def filled(log: TieredLog, batches: int = 5) -> TieredLog:
    """Five batches of two records: each but the last is a sealed segment."""
    for number in range(batches):
        log.send(f"a{number}", f"b{number}")
    log.clock.advance(1)
    return log


def expected(batches: int = 5) -> list[str]:
    return [f"{letter}{number}" for number in range(batches) for letter in "ab"]


def test_segments_leave_the_disk_and_are_read_from_the_store() -> None:
    log = filled(new_log(MemoryFiles()))
    assert log.work() == (4, 4, 0)
    assert (log.partition.log_start_offset, log.partition.local_start_offset) == (0, 8)
    assert log.partition.segment_count == 1
    assert log.values() == expected()
    assert len(log.objects()) == 4
    log.reopen(cleanly=True)
    assert (log.partition.log_start_offset, log.partition.local_start_offset) == (0, 8)
    assert log.values() == expected()
    assert log.work() == (0, 0, 0)


def test_a_read_that_may_not_wait_says_that_it_would_wait_for_the_store() -> None:
    log = filled(new_log(MemoryFiles()))
    log.work()
    with pytest.raises(WaitsForStore):
        log.partition.read(3, nowait=True)
    log.read_at(8)
    assert log.partition.read(8, nowait=True).next_offset == 10


def test_segments_stay_until_local_retention_says_otherwise() -> None:
    log = filled(new_log(MemoryFiles(), local_retention_ms=1000, local_retention_bytes=-1))
    assert log.work() == (4, 0, 0)
    assert log.partition.local_start_offset == 0
    log.clock.advance(1000)
    assert log.work() == (0, 4, 0)
    assert log.values() == expected()


def test_local_retention_by_size_keeps_the_newest() -> None:
    log = filled(new_log(MemoryFiles(), local_retention_ms=-1, local_retention_bytes=200))
    assert log.work().freed > 0
    assert sum(segment.size_bytes for segment in log.partition.segments()) >= 200
    assert log.values() == expected()


def test_retention_ends_objects_too_the_manifest_first() -> None:
    log, store = faulty_log(retention_ms=10_000)
    filled(log).work()
    log.clock.advance(20_000)
    log.send("young", "younger")
    store.steps.clear()
    assert log.work().expired == 4
    assert log.partition.log_start_offset == 8
    kinds = [step.partition(" ")[0] for step in store.steps if "/segments/" in step or "/manifests/" in step]
    assert kinds.index("create") < kinds.index("delete")
    with pytest.raises(OffsetOutOfRange, match=r"expired by retention\.ms"):
        log.partition.read(3)
    assert len(log.objects()) == len(list(log.tier.entries(8)))


def test_deleted_records_leave_the_store() -> None:
    log = filled(new_log(MemoryFiles()))
    log.work()
    log.delete_records(5)
    assert log.values() == expected()[5:]
    assert log.work().expired == 2
    assert len(log.objects()) == 2
    assert log.tier.manifest().log_start_offset == 5


def test_a_transaction_that_was_aborted_later_is_known_to_the_object_it_began_in() -> None:
    log = new_log(MemoryFiles(), segment_records=2)
    partition = log.partition
    row = [(log.clock.now_ms(), None, b"never", ())]
    batch = pack(row, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    partition.append(batch, begins_transaction=True)
    for number in range(4):
        partition.append(pack([(log.clock.now_ms(), None, b"plain%d" % number, ())]))
    partition.sync()
    log.clock.advance(1)
    assert log.work().copied == 0  # nothing is decided yet
    partition.append_marker(7, 0, 0, commit=False, transaction_version=1)
    partition.sync()
    partition.roll()
    log.clock.advance(1)
    assert log.work().freed == 3
    log.close()
    log._open()  # what was in memory is gone
    values: list[bytes | None] = []
    offset = 0
    while offset < log.partition.high_watermark:
        found = log.partition.read(offset, committed=True)
        assert (offset > 0) or [one.producer_id for one in found.aborted] == [7]
        records, _ = decode(without_aborted(found).data, "events", 0, start_offset=offset)
        values += [record.value for record in records]
        offset = found.next_offset
    assert values == [b"plain0", b"plain1", b"plain2", b"plain3"]


def test_a_store_that_refuses_costs_nothing_but_time() -> None:
    log, store = faulty_log()
    filled(log)
    store.refuse("put")
    with pytest.raises(StoreError, match="503 Slow Down"):
        log.work()
    log.send("more")
    assert log.partition.local_start_offset == 0
    store.heal()
    assert log.work().freed >= 4
    assert log.values() == [*expected(), "more"]


def test_a_lost_answer_to_a_manifest_is_no_second_writer() -> None:
    log, store = faulty_log()
    filled(log)
    lost: list[str] = []

    def lose(step: str, key: str) -> None:
        if step == "create" and not lost:
            lost.append(key)
            raise StoreError("the answer got lost")

    store.after = lose
    assert log.work() == (4, 4, 0)
    assert lost


def test_whoever_had_the_store_before_learns_that_another_has_it_now() -> None:
    one, store = faulty_log(local_retention_ms=-1)
    filled(one).work()
    other = new_log(MemoryFiles(), store=store, local_retention_ms=-1)
    filled(other, batches=8).work()
    for number in range(5, 9):
        one.send(f"a{number}", f"b{number}")
    for _ in range(2):
        with pytest.raises(StoreError, match="two brokers use one store"):
            one.work()
    other.send("more", "more")
    assert other.work().copied == 1


def test_an_older_copy_of_the_directory_does_not_go_on_with_its_store() -> None:
    log, store = faulty_log(local_retention_ms=-1)
    filled(log, batches=8).work()
    older = new_log(MemoryFiles(), store=store)
    filled(older, batches=3)
    with pytest.raises(StoreError, match="it is an older copy"):
        older.work()
    for number in range(3, 9):
        older.send(f"other {number}", f"records {number}")
    older.clock.advance(1)
    with pytest.raises(StoreError, match="it stays on the disk"):
        older.work()
    assert older.partition.local_start_offset == 0
    assert older.values()[6] == "other 3"


def test_what_is_in_the_store_is_not_rewritten() -> None:
    log = filled(new_log(MemoryFiles()))
    for rewrite in (lambda: log.partition.compact(force=True), lambda: log.recompress(Compression.ZSTD)):
        with pytest.raises(InvalidArgument, match="never rewritten"):
            rewrite()


def test_nothing_leaves_the_disk_that_the_store_gives_back_otherwise() -> None:
    log, store = faulty_log()
    filled(log)
    store.reads = lambda key, data: data[:-1] + bytes([data[-1] ^ 1]) if key.endswith(".segment") else data
    with pytest.raises(CorruptLog, match="is damaged at byte"):
        log.work()
    assert log.partition.local_start_offset == 0
    store.heal()
    assert log.work() == (0, 4, 0)


def test_an_object_that_is_gone_keeps_the_file() -> None:
    log, store = faulty_log(local_retention_ms=1000)
    filled(log).work()
    store.delete(list(store.keys(f"{FOLDER}0/segments/"))[:1])
    log.clock.advance(2000)
    with pytest.raises(ObjectMissing):
        log.work()
    assert log.partition.local_start_offset == 0


def test_wrong_bytes_are_read_again() -> None:
    log, store = faulty_log()
    filled(log).work()
    left = [2]

    def flip(key: str, data: bytes) -> bytes:
        if key.endswith(".segment") and left[0] and len(data) > 70:
            left[0] -= 1
            return data[:70] + bytes([data[70] ^ 4]) + data[71:]
        return data

    store.reads = flip
    assert log.values() == expected()
    assert not left[0]


def test_answers_that_are_cut_are_asked_for_again() -> None:
    log, store = faulty_log()
    filled(log).work()
    cut: set[str] = set()

    def once(key: str, data: bytes) -> bytes:
        if key in cut or not key.endswith(".segment"):
            return data
        cut.add(key)
        return data[: len(data) // 2]

    store.reads = once
    assert log.values() == expected()
    assert len(cut) == 4


def test_damage_in_the_store_is_one_sentence_and_the_rest_is_read() -> None:
    log, store = faulty_log()
    filled(log).work()
    first = log.objects()[0]
    store.reads = lambda key, data: data[:70] + b"\xff" + data[71:] if key.endswith(first) and len(data) > 71 else data
    with pytest.raises(CorruptLog, match="the store gave other bytes than it was given"):
        log.partition.read(0)
    assert log.read_at(2)[0][0].value == b"a1"
    store.heal()
    assert log.values() == expected()


def test_a_lost_object_is_named_with_its_offsets() -> None:
    log, store = faulty_log()
    filled(log).work()
    store.lose(log.objects()[1])
    with pytest.raises(ObjectMissing, match="is gone from the store, and with it offsets 2 to 3"):
        log.partition.read(2)
    assert log.read_at(0)[0][0].value == b"a0"


def test_objects_that_nothing_names_are_swept() -> None:
    log, store = faulty_log()
    filled(log)
    store.after = lambda step, key: _fail_once(step)
    with pytest.raises(StoreError):
        log.work()
    store.heal()
    orphans = log.objects()
    assert len(orphans) == 1
    assert log.work() == (4, 4, 0)
    assert orphans[0] not in log.objects()
    assert len(log.objects()) == 4


def _fail_once(step: str) -> None:
    if step == "put":
        raise StoreError("cut off behind the last byte")


def test_a_lost_slot_does_not_lose_what_is_in_the_store() -> None:
    log = filled(new_log(MemoryFiles()))
    log.work()
    log.close()
    checkpoint = Checkpoint.open(log.files, "data/checkpoint", write=True)
    checkpoint.clear(0)
    checkpoint.close()
    log.reopen(cleanly=False)
    assert log.partition.log_start_offset == 8  # as far as the disk knows
    log.tiering.work(log.clock.now_ms())
    assert (log.partition.log_start_offset, log.partition.local_start_offset) == (0, 8)
    assert log.values() == expected()
    assert len(log.objects()) == 4


def test_leaving_the_store_deletes_it_and_the_log_starts_on_the_disk() -> None:
    log = filled(new_log(MemoryFiles()))
    log.work()
    log.partition.reconfigure(tier_config(remote=False, deletes_remote=True))
    assert log.work().expired == 4
    assert log.partition.log_start_offset == 8
    assert log.objects() == log.objects("manifests/") == []
    assert log.work() == (0, 0, 0)


def test_no_more_copies_and_what_is_there_is_read() -> None:
    log = filled(new_log(MemoryFiles()))
    log.work()
    log.partition.reconfigure(tier_config(copies=False, local_retention_ms=-2))
    log.send("x", "y")
    log.send("z", "z")
    log.clock.advance(1)
    assert log.work() == (0, 0, 0)
    assert log.values() == [*expected(), "x", "y", "z", "z"]


def test_another_process_reads_below_what_is_on_the_disk() -> None:
    log = filled(new_log(MemoryFiles()))
    log.work()
    checkpoint = Checkpoint.open(log.files, "data/checkpoint", write=False)
    reader = FollowedPartition.open(log.files, PATH, checkpoint.slot(0), label=("events", 0))
    with pytest.raises(StoreError, match="has its older records in a store"):
        reader.read(0)
    reader.tier = TieredPartition(Tier(f"file://{STORE}", log.files, store=log.store), log.files, FOLDER, OF)
    assert (reader.log_start_offset, reader.local_start_offset) == (0, 8)
    assert reader.read(3).next_offset == 4
    assert reader.read(3, committed=True).next_offset == 4
    assert reader.offset_at_time(0) == (0, log.clock.now_ms() - 1)
    log.send("more", "and more")
    log.send("still more")
    log.clock.advance(1)
    log.delete_records(4)
    log.work()
    with pytest.raises(OffsetOutOfRange):
        reader.read(3)
    assert reader.read(8).next_offset == 10  # it left the disk since the reader's manifest


def test_entries_move_into_chunks_and_are_found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foldlog.log.tier.tiering.CHUNK_ENTRIES", 3)
    log = filled(new_log(MemoryFiles()), batches=12)
    assert log.work() == (11, 11, 0)
    manifest = log.tier.manifest()
    assert [chunk.segments for chunk in manifest.chunks] == [3, 3]
    assert manifest.segment_count == 11
    log.reopen(cleanly=True)
    assert log.values() == expected(12)
    log.delete_records(8)
    assert log.work().expired == 4
    log.reopen(cleanly=True)
    assert log.values() == expected(12)[8:]
    assert (len(log.objects("chunks/")), len(log.objects())) == (1, 7)
    assert log.work() == (0, 0, 0)


def test_a_topic_without_the_setting_is_left_alone() -> None:
    files = MemoryFiles()
    log = new_log(files)
    log.partition.reconfigure(LogConfig(segment_records=3))
    filled(log)
    assert log.work() == (0, 0, 0)
    assert not files.exists(STORE)


def test_a_store_whose_newest_manifest_is_lost_is_left_alone() -> None:
    """The one before names less than is in the store alone: what it does not name is no rubbish."""
    log = filled(new_log(MemoryFiles()))
    log.work()
    assert log.partition.local_start_offset == 8
    *_, newest = log.objects("manifests/")
    log.store.delete([f"{PREFIX}manifests/{newest}"])
    before = log.objects()
    log.tier.committed(None)
    for _ in range(2):
        with pytest.raises(StoreError, match="its newest manifest is lost"):
            log.work()
    assert log.objects() == before
