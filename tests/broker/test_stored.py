"""A log is read straight from its store, without its directory."""

from __future__ import annotations

import pytest

import foldlog
from broker.small_broker import read, writable
from broker.test_restore import moved, tiered
from broker.test_tiers import URL, TieredBroker, values
from foldlog.broker.broker import Broker
from foldlog.errors import InvalidArgument, LogNotFound, OffsetOutOfRange, ReadOnly
from foldlog.files.memory import MemoryFiles
from foldlog.log.reading import without_aborted
from foldlog.log.tier.stored import LOOK_AGAIN_MS
from foldlog.records.loops import decode

__all__ = ["tiered"]


def stored(files: MemoryFiles, tiered: TieredBroker) -> Broker:
    return Broker.open(URL, mode="r", files=files, clock=tiered.clock)


def test_topics_records_and_offsets_are_those_of_the_log(tiered: TieredBroker) -> None:
    broker = stored(moved(tiered), tiered)
    assert broker.topics() == ["orders", "other"]
    assert broker.directory_id == tiered.broker.directory_id
    assert read(broker, "orders") == values()[:6]
    partition, written = broker.partition("orders", 1), writable(tiered.broker, "orders", 1)
    assert (partition.log_start_offset, partition.high_watermark) == (0, 9)
    assert partition.leader_epoch == written.leader_epoch
    assert partition.offset_at_time(0) == written.offset_at_time(0)
    assert partition.offset_at_time(1 << 60) is None
    assert partition.read(9).next_offset == 9
    with pytest.raises(OffsetOutOfRange):
        partition.read(10)
    found = partition.read(6, committed=True)
    assert not decode(without_aborted(found).data, "orders", 1, start_offset=6)[0]
    assert [row.log_end_offset for row in broker.overview()] == [6, 9, 4]


def test_what_is_copied_later_is_read_later(tiered: TieredBroker) -> None:
    broker = Broker.open(URL, mode="r", files=tiered.files, clock=tiered.clock)
    assert len(read(broker, "orders")) == 6
    tiered.fill()
    tiered.work()
    tiered.clock.advance(int(LOOK_AGAIN_MS))
    assert len(read(broker, "orders")) > 6
    tiered.broker.delete_topic("other")
    tiered.work()
    tiered.clock.advance(int(LOOK_AGAIN_MS))
    broker.look_again()
    assert broker.topics() == ["orders"]


def test_it_is_only_read(tiered: TieredBroker) -> None:
    files = moved(tiered)
    with pytest.raises(InvalidArgument, match="is only read: open it with mode='r'"):
        Broker.open(URL, files=files)
    broker = stored(files, tiered)
    with pytest.raises(ReadOnly, match="store of segments"):
        broker.writable_partition("orders", 0)
    with pytest.raises(LogNotFound, match="there is no log in"):
        Broker.open("file:///elsewhere", mode="r", files=files)


def test_the_library_reads_and_consumes_it(tiered: TieredBroker) -> None:
    with foldlog.open(URL, mode="r", files=moved(tiered), clock=tiered.clock) as log:
        assert [record.value for record in log.read("orders", 0)] == values()[:6]
        committed = [record.value for record in log.read("orders", 1, isolation="read_committed")]
        assert committed == [*(b"once %d" % number for number in range(6)), b"last"]
        with log.consumer(["other"], auto_offset_reset="earliest") as consumer:
            assert [record.value for record in consumer.poll(max_records=10)] == values()[:4]
