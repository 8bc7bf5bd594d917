"""A directory is made from its store alone, and goes on where the store ends."""

from __future__ import annotations

import pytest

from broker.small_broker import DIRECTORY, read, writable, write
from broker.test_tiers import SETTINGS, URL, TieredBroker, values
from foldlog.broker.broker import Broker
from foldlog.broker.restore import RestoredPartition, restore
from foldlog.errors import LogNotFound, OutOfOrderSequence, StorageError, StoreError, UnknownTopic
from foldlog.files.memory import MemoryFiles
from foldlog.log.doctor.inspection import inspect
from foldlog.records.loops import pack


@pytest.fixture
def tiered() -> TieredBroker:
    """Two topics in the store, with an idempotent producer and an aborted transaction in the first."""
    tiered = TieredBroker()
    tiered.broker.create_topic("orders", 2, {**SETTINGS, "retention.ms": "86400000"})
    tiered.broker.create_topic("other", 1, SETTINGS)
    tiered.fill()
    tiered.fill("other", 3)
    partition = writable(tiered.broker, "orders", 1)
    now_ms = tiered.clock.now_ms()
    for sequence in range(6):
        rows = [(now_ms, None, b"once %d" % sequence, ())]
        partition.append(pack(rows, producer_id=77, producer_epoch=0, base_sequence=sequence))
    batch = pack([(now_ms, None, b"never", ())], producer_id=78, producer_epoch=0, base_sequence=0, transactional=True)
    partition.append(batch, begins_transaction=True)
    partition.append_marker(78, 0, 0, commit=False, transaction_version=1)
    partition.append(pack([(now_ms, None, b"last", ())]))
    partition.sync()
    partition.roll()
    tiered.work()
    return tiered


def moved(tiered: TieredBroker) -> MemoryFiles:
    """Another disk, on which the store is, and nothing else."""
    files = MemoryFiles()
    for key in tiered.store.keys(""):
        path = f"/store/{key}"
        files.make_directory(path.rpartition("/")[0])
        files.open(path, write=True, create=True).write(0, [tiered.store.get(key)])
    return files


def opened(files: MemoryFiles, tiered: TieredBroker, tier: str | None = None) -> Broker:
    return Broker.open("restored", files=files, clock=tiered.clock, background=False, tier=tier)


def made(files: MemoryFiles, *, stays: bool = False, topic: str | None = None) -> list[RestoredPartition]:
    return list(restore(URL, files, "restored", stays=stays, topic=topic))


@pytest.mark.parametrize("stays", [False, True], ids=["downloaded", "tiered"])
def test_records_offsets_settings_and_producers_come_back(tiered: TieredBroker, stays: bool) -> None:
    files = moved(tiered)
    found = {(one.topic, one.number): (one.start_offset, one.end_offset) for one in made(files, stays=stays)}
    assert found == {("orders", 0): (0, 6), ("orders", 1): (0, 9), ("other", 0): (0, 4)}
    broker = opened(files, tiered)
    assert read(broker, "orders") == values()[:6]
    assert read(broker, "other") == values()[:4]
    before, after = tiered.broker.topic("orders"), broker.topic("orders")
    assert (after.topic_id, after.config.settings) == (before.topic_id, before.config.settings)
    assert broker.directory_id == tiered.broker.directory_id
    partition = writable(broker, "orders", 1)
    found_there = partition.read(6, committed=True)
    assert [one.producer_id for one in found_there.aborted] == [78]
    again = pack([(0, None, b"once 5", ())], producer_id=77, producer_epoch=0, base_sequence=5)
    assert partition.append(again).is_duplicate
    with pytest.raises(OutOfOrderSequence):
        partition.append(pack([(0, None, b"gap", ())], producer_id=77, producer_epoch=0, base_sequence=9))
    assert partition.leader_epoch == tiered.broker.partition("orders", 1).leader_epoch + 1
    assert write(broker, "orders", 0, b"goes on") == 7
    assert (partition.local_start_offset > 0) == stays


def test_a_downloaded_directory_is_whole_and_needs_no_store(tiered: TieredBroker) -> None:
    files = moved(tiered)
    made(files)
    for name in [*files.entries("/store")]:
        files.rename(f"/store/{name.name}", f"/store/gone-{name.name}")
    broker = opened(files, tiered)
    assert broker._written is not None
    assert broker._written.tier is None
    assert read(broker, "orders") == values()[:6]
    broker.close()
    for directory in ("orders-0", "orders-1", "other-0"):
        assert not inspect(files, f"restored/{directory}", None).damages


def test_a_tiered_restore_goes_on_with_the_store(tiered: TieredBroker) -> None:
    files = moved(tiered)
    made(files, stays=True)
    broker = opened(files, tiered)
    for number in range(4):
        write(broker, "orders", 0, b"c%d" % number, b"d%d" % number)
    tiered.clock.advance(40_000)
    broker.enforce_retention()
    assert broker.partition("orders", 0).local_start_offset > 6
    assert len(read(broker, "orders")) == 14
    assert not broker.warnings()


def test_one_topic_alone(tiered: TieredBroker) -> None:
    files = moved(tiered)
    made(files, topic="other")
    assert opened(files, tiered).topics() == ["other"]
    with pytest.raises(UnknownTopic):
        made(moved(tiered), topic="ordres")


def test_nothing_is_made_of_a_damaged_store_or_where_something_is(tiered: TieredBroker) -> None:
    files = moved(tiered)
    key = next(key for key in tiered.keys(".segment"))
    files.open(f"/store/{key}", write=True).write(70, [b"\xff\xff"])
    with pytest.raises(StoreError, match="is damaged"):
        made(files)
    assert not files.exists("restored")
    assert not files.exists("restored.restoring")
    files = moved(tiered)
    files.make_directory("restored/something")
    with pytest.raises(StorageError, match="is not empty"):
        made(files)
    with pytest.raises(LogNotFound, match="there is no log in"):
        list(restore("file:///elsewhere", files, DIRECTORY))
