"""Fetch and ListOffsets of a partition whose older segments are in a store."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from foldlog.limits import TIER_CHECK_MS
from foldlog.log.tier.tier import Tier
from foldlog.records.loops import decode, pack
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from foldlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from server.small_node import SmallNode

EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -2, -4, -5, -6


@pytest.fixture
def tiered() -> Iterator[SmallNode]:
    node = SmallNode(settings={"foldlog.tier": "file:///store"})
    settings = {"remote.storage.enable": "true", "local.retention.ms": "0", "foldlog.segment.records": "2"}
    node.broker.create_topic("events", 1, settings)
    partition = node.node.partition("events", 0)
    for number in range(5):
        rows = [(1000 * number + at, None, b"%d" % (2 * number + at), ()) for at in range(2)]
        partition.wait_acknowledged(partition.append(pack(rows)).next_offset)
    yield node
    node.close()


def tier(small: SmallNode) -> None:
    small.clock.advance(TIER_CHECK_MS)
    small.broker.run_due()


def listed(small: SmallNode, timestamp_ms: int) -> tuple[int, int, int]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms, current_leader_epoch=-1)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name="events", partitions=[asked])]
    )
    ((found,),) = (topic.partitions for topic in small.ask(request, 11).topics)
    return found.error_code, found.offset, found.leader_epoch


def fetched(small: SmallNode, offset: int, isolation: int = 0) -> tuple[int, int, list[bytes | None]]:
    """(error code, log start offset, values)."""
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation,
        topics=[FetchTopic(topic="events", partitions=[asked])],
    )
    ((found,),) = (topic.partitions for topic in small.ask(request, 12).responses)
    records, _ = decode(found.records or b"", "events", 0, start_offset=offset)
    return found.error_code, found.log_start_offset, [record.value for record in records]


def test_the_special_offsets_before_and_after_segments_are_copied(tiered: SmallNode) -> None:
    assert listed(tiered, EARLIEST_LOCAL) == (0, 0, 0)
    assert listed(tiered, LATEST_TIERED) == (0, -1, -1)
    assert listed(tiered, EARLIEST_PENDING_UPLOAD) == (0, 0, 0)
    tier(tiered)
    assert listed(tiered, EARLIEST) == (0, 0, 0)
    assert listed(tiered, EARLIEST_LOCAL) == (0, 8, 0)
    assert listed(tiered, LATEST_TIERED) == (0, 7, 0)
    assert listed(tiered, EARLIEST_PENDING_UPLOAD) == (0, 8, 0)


@pytest.mark.parametrize("isolation", [0, 1], ids=["uncommitted", "committed"])
def test_a_fetch_below_the_disk_is_answered_from_the_store(tiered: SmallNode, isolation: int) -> None:
    before = [fetched(tiered, offset, isolation) for offset in range(10)]
    tier(tiered)
    assert [fetched(tiered, offset, isolation)[:2] for offset in range(10)] == [(0, 0)] * 10
    found = [fetched(tiered, offset, isolation)[2][0] for offset in range(10)]
    assert found == [values[0] for _, _, values in before]


def test_times_are_looked_up_in_the_store(tiered: SmallNode) -> None:
    before = [listed(tiered, time_ms) for time_ms in (0, 1, 1000, 2500, 4001, 5000)]
    tier(tiered)
    assert [listed(tiered, time_ms) for time_ms in (0, 1, 1000, 2500, 4001, 5000)] == before
    assert listed(tiered, -3) == (0, 9, 0)


def test_the_loop_never_reads_from_the_store(tiered: SmallNode, monkeypatch: pytest.MonkeyPatch) -> None:
    tier(tiered)
    read, threads = Tier.read, []

    def noted(self: Tier, key: str, start: int, length: int) -> bytes:
        threads.append(threading.current_thread().name)
        return read(self, key, start, length)

    monkeypatch.setattr(Tier, "read", noted)
    assert fetched(tiered, 2)[2] == [b"2", b"3"]
    listed(tiered, 500)
    assert threads
    assert all(name.startswith("foldlog-") for name in threads)


def test_a_store_that_fails_is_an_error_of_that_fetch_alone(tiered: SmallNode, monkeypatch: pytest.MonkeyPatch) -> None:
    tier(tiered)
    tiered.broker.partition("events", 0)._core.tier.tier.store._root = "/nowhere"  # type: ignore[union-attr]
    assert fetched(tiered, 2)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert fetched(tiered, 8) == (0, 0, [b"8", b"9"])
    partition = tiered.node.partition("events", 0)
    partition.wait_acknowledged(partition.append(pack([(9000, None, b"more", ())])).next_offset)
    assert fetched(tiered, 10)[2] == [b"more"]
