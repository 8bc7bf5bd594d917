"""ListOffsets and OffsetForLeaderEpoch: both ends, times inside batches, and which epoch wrote what.

Epochs are made as they come in life: a broker that ends without closing, and another that opens what it left.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.files.memory import MemoryFiles
from foldlog.records.loops import pack
from foldlog.testing.power_loss import Fate, PowerLossFiles
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from foldlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from foldlog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from server.small_node import Denies, SmallNode

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
NOTHING = (ErrorCode.NONE, -1, -1, -1)


def append(small: SmallNode, *timestamps_ms: int) -> None:
    """One batch with a record at each of these times."""
    partition = small.node.partition("events", 0)
    appended = partition.append(pack([(timestamp_ms, None, b"value", ()) for timestamp_ms in timestamps_ms]))
    partition.wait_acknowledged(appended.next_offset)


def list_offset(
    small: SmallNode, timestamp_ms: int, version: int = 11, number: int = 0, epoch: int = -1, topic: str = "events"
) -> tuple[int, int, int, int]:
    """(error code, offset, timestamp, leader epoch)."""
    asked = ListOffsetsPartition(partition_index=number, timestamp=timestamp_ms, current_leader_epoch=epoch)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    ((found,),) = (topic.partitions for topic in small.ask(request, version).topics)
    return found.error_code, found.offset, found.timestamp, found.leader_epoch


def epoch_end(
    small: SmallNode, epoch: int, current: int = -1, number: int = 0, version: int = 4
) -> tuple[int, int, int]:
    """(error code, epoch, end offset)."""
    asked = OffsetForLeaderPartition(partition=number, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="events", partitions=[asked])])
    ((found,),) = (topic.partitions for topic in small.ask(request, version).topics)
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.fixture
def small() -> Iterator[SmallNode]:
    """Three batches: offsets 0 to 2 at 100, 300, 200; 3 and 4 at 500, 400; 5 at 450."""
    node = SmallNode()
    node.broker.create_topic("events", 2)
    append(node, 100, 300, 200)
    append(node, 500, 400)
    append(node, 450)
    yield node
    node.close()


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_finds_both_ends_and_times_inside_batches(small: SmallNode, version: int) -> None:
    epoch = 0 if version >= 4 else -1
    assert list_offset(small, LATEST, version) == (0, 6, -1, epoch)
    assert list_offset(small, EARLIEST, version) == (0, 0, -1, epoch)
    assert list_offset(small, 150, version) == (0, 1, 300, epoch)
    assert list_offset(small, 300, version) == (0, 1, 300, epoch)
    assert list_offset(small, 301, version) == (0, 3, 500, epoch)
    assert list_offset(small, 0, version) == (0, 0, 100, epoch)
    assert list_offset(small, 501, version) == (0, -1, -1, -1)


def test_the_record_with_the_largest_timestamp_is_found(small: SmallNode) -> None:
    assert list_offset(small, MAX_TIMESTAMP) == (0, 3, 500, 0)
    assert list_offset(small, MAX_TIMESTAMP, number=1) == NOTHING


def test_without_tiers_all_is_local_and_nothing_waits_for_upload(small: SmallNode) -> None:
    small.node.partition("events", 0).delete_records(3)
    assert list_offset(small, EARLIEST) == (0, 3, -1, 0)
    assert list_offset(small, EARLIEST_LOCAL) == (0, 3, -1, 0)
    assert list_offset(small, LATEST_TIERED) == NOTHING
    assert list_offset(small, EARLIEST_PENDING_UPLOAD) == NOTHING


@pytest.mark.parametrize(
    ("timestamp_ms", "first"),
    [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING_UPLOAD, 11)],
)
def test_what_a_version_does_not_know_is_refused(small: SmallNode, timestamp_ms: int, first: int) -> None:
    assert list_offset(small, timestamp_ms, first - 1) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)
    assert list_offset(small, timestamp_ms, first)[0] == ErrorCode.NONE


def test_a_time_that_no_version_knows_is_refused(small: SmallNode) -> None:
    assert list_offset(small, -7) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)


def test_an_empty_partition_has_ends_and_no_times(small: SmallNode) -> None:
    assert list_offset(small, LATEST, number=1) == list_offset(small, EARLIEST, number=1) == (0, 0, -1, 0)
    assert list_offset(small, 0, number=1) == NOTHING


def test_partitions_that_are_not_there_and_those_asked_for_twice_are_told(small: SmallNode) -> None:
    assert list_offset(small, LATEST, number=2)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(small, LATEST, number=-1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(small, LATEST, topic="../events")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = [ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in (0, 1, 0)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="events", partitions=asked)])
    (topic,) = small.ask(request, 11).topics
    assert [(found.partition_index, found.error_code) for found in topic.partitions] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.NONE),
        (0, ErrorCode.INVALID_REQUEST),
    ]


def test_who_may_not_describe_a_topic_hears_neither_offsets_nor_epochs() -> None:
    is_broker = (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    small = SmallNode(authorizer=Denies((AclOperation.DESCRIBE, ResourceType.TOPIC), is_broker))
    small.broker.create_topic("events", 1)
    assert list_offset(small, LATEST)[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert epoch_end(small, 0) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1)
    small.close()


def test_a_damaged_partition_is_told_and_the_others_answered() -> None:
    files = MemoryFiles()
    small = SmallNode(files)
    small.broker.create_topic("events", 2)
    append(small, 100)
    small.close()
    log = files.open("data/events-0/00000000000000000000.log", write=True)
    log.truncate(0)
    log.close()
    again = SmallNode(files)
    assert list_offset(again, LATEST)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert list_offset(again, LATEST, number=1) == (0, 0, -1, 0)
    assert epoch_end(again, 0)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    again.close()


# --- epochs ----------------------------------------------------------------------------------------------------------


def some_epochs() -> SmallNode:
    """Epoch 0 wrote offsets 0 and 1, epoch 1 offset 2, epoch 2 offsets 3 to 5; the current one is 3, and empty."""
    files = PowerLossFiles()
    node = SmallNode(files)
    node.broker.create_topic("events", 1)
    for timestamps_ms in ((100, 200), (300,), (400, 500, 600)):
        append(node, *timestamps_ms)
        # Killed: what it wrote is there, and it never said that it was done.
        files = PowerLossFiles(files.image([Fate.KEPT] * len(files.unsynced()), random.Random(0)))
        node.close()
        node = SmallNode(files)
    return node


@pytest.fixture
def epochs() -> Iterator[SmallNode]:
    node = some_epochs()
    yield node
    node.close()


def test_an_offset_comes_with_the_epoch_that_wrote_it(epochs: SmallNode) -> None:
    assert list_offset(epochs, EARLIEST) == (0, 0, -1, 0)
    assert [list_offset(epochs, timestamp_ms) for timestamp_ms in (200, 300, 301, 600)] == [
        (0, 1, 200, 0),
        (0, 2, 300, 1),
        (0, 3, 400, 2),
        (0, 5, 600, 2),
    ]
    assert list_offset(epochs, MAX_TIMESTAMP) == (0, 5, 600, 2)
    assert list_offset(epochs, LATEST) == (0, 6, -1, 3)
    epochs.node.partition("events", 0).delete_records(2)
    assert list_offset(epochs, EARLIEST) == (0, 2, -1, 1)
    epochs.node.partition("events", 0).delete_records(6)
    assert list_offset(epochs, EARLIEST) == (0, 6, -1, 3)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_epochs_end_where_the_next_began_and_the_current_one_where_reading_does(
    epochs: SmallNode, version: int
) -> None:
    ends = [epoch_end(epochs, epoch, version=version) for epoch in range(4)]
    assert ends == [(0, 0, 2), (0, 1, 3), (0, 2, 6), (0, 3, 6)]


def test_epochs_that_never_were_end_nowhere(epochs: SmallNode) -> None:
    assert epoch_end(epochs, 4) == epoch_end(epochs, -1) == (0, -1, -1)


def test_an_epoch_that_begins_to_write_ends_the_one_before_it_where_it_ended(epochs: SmallNode) -> None:
    append(epochs, 700)
    assert [epoch_end(epochs, epoch) for epoch in (2, 3)] == [(0, 2, 6), (0, 3, 7)]


def test_who_knows_another_epoch_than_the_current_one_is_told(epochs: SmallNode) -> None:
    assert list_offset(epochs, LATEST, epoch=2) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1, -1)
    assert list_offset(epochs, LATEST, epoch=4) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1, -1)
    assert list_offset(epochs, LATEST, epoch=3)[0] == ErrorCode.NONE
    assert epoch_end(epochs, 0, current=2) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert epoch_end(epochs, 0, current=4) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert epoch_end(epochs, 0, current=3) == (0, 0, 2)
    assert epoch_end(epochs, 0, number=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


# --- what a fetch says of epochs ---

DIVERGENCES = {
    # (epoch of the last record that was read, next offset): where the log and the reader part, if they do
    (0, 1): None,
    (0, 2): None,
    (0, 3): (0, 2),
    (1, 2): None,
    (1, 3): None,
    (1, 4): (1, 3),
    (2, 5): None,
    (2, 6): None,
    (2, 7): (2, 6),
}


def divergence(node: SmallNode, epoch: int, offset: int) -> tuple[int, int] | None:
    wanted = FetchPartition(partition=0, fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=1 << 20)
    request = FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(topic="events", partitions=[wanted])])
    found = node.ask(request, 12).responses[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    diverging = found.diverging_epoch
    return None if diverging is None else (diverging.epoch, diverging.end_offset)


@pytest.mark.parametrize(("epoch", "offset"), DIVERGENCES)
def test_a_fetch_is_told_of_a_cut_exactly_where_its_epoch_ended(epochs: SmallNode, epoch: int, offset: int) -> None:
    assert divergence(epochs, epoch, offset) == DIVERGENCES[epoch, offset]


def test_an_epoch_ends_exactly_where_the_next_one_began(epochs: SmallNode) -> None:
    assert [epoch_end(epochs, epoch) for epoch in range(3)] == [(0, 0, 2), (0, 1, 3), (0, 2, 6)]
