"""DeleteRecords moves the log start and says where it is: by offset, to the high watermark, and never past it."""

from __future__ import annotations

import pytest

from broker.small_broker import at, read, write
from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.topics.names import OFFSETS_TOPIC
from foldlog.files.memory import MemoryFiles
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from server.small_node import Denies, SmallNode


def delete(
    small: SmallNode, topic: str, *wanted: tuple[int, int], version: int = 2
) -> list[tuple[int, int, ErrorCode]]:
    """(partition, log start, error) for each (partition, offset)."""
    partitions = [DeleteRecordsPartition(partition_index=number, offset=offset) for number, offset in wanted]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)])
    (answer,) = small.ask(request, version).topics
    assert answer.name == topic
    return [(one.partition_index, one.low_watermark, ErrorCode(one.error_code)) for one in answer.partitions]


@pytest.mark.parametrize("version", range(3))
def test_every_version_moves_the_log_start_of_each_partition(small: SmallNode, version: int) -> None:
    small.broker.create_topic("orders", 3)
    for number in range(3):
        for value in (b"a", b"b", b"c"):
            write(small.broker, "orders", number, value)
    assert delete(small, "orders", (0, 1), (1, -1), (2, 0), version=version) == [
        (0, 1, ErrorCode.NONE),
        (1, 3, ErrorCode.NONE),
        (2, 0, ErrorCode.NONE),
    ]
    assert [read(small.broker, "orders", number) for number in range(3)] == [[b"b", b"c"], [], [b"a", b"b", b"c"]]


def test_what_was_deleted_stays_deleted_and_a_lower_offset_changes_nothing() -> None:
    files = MemoryFiles()
    small = SmallNode(files)
    small.broker.create_topic("orders")
    write(small.broker, "orders", 0, b"a", b"b", b"c")
    assert delete(small, "orders", (0, 2)) == [(0, 2, ErrorCode.NONE)]
    assert delete(small, "orders", (0, 1)) == [(0, 2, ErrorCode.NONE)]
    small.close()
    again = SmallNode(files)
    assert again.broker.partition("orders", 0).log_start_offset == 2
    assert write(again.broker, "orders", 0, b"d") == 4
    again.close()


@pytest.mark.parametrize("offset", [4, -2, 1 << 62])
def test_an_offset_outside_the_log_is_refused(small: SmallNode, offset: int) -> None:
    small.broker.create_topic("orders")
    write(small.broker, "orders", 0, b"a", b"b", b"c")
    assert delete(small, "orders", (0, offset)) == [(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)]
    assert small.broker.partition("orders", 0).log_start_offset == 0


def test_where_there_is_nothing_to_delete_it_is_told(small: SmallNode) -> None:
    small.broker.create_topic("orders")
    small.broker.create_topic("users", config={"cleanup.policy": "compact"})
    small.broker.create_topic("both", config={"cleanup.policy": "compact,delete"})
    small.broker.commit_offsets("fraud", {("orders", 0): at(0)})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(small, "orders", (0, -1), (1, -1), (-1, 0)) == [
        (0, 0, ErrorCode.NONE),
        (1, -1, unknown),
        (-1, -1, unknown),
    ]
    assert delete(small, "none", (0, 0)) == [(0, -1, unknown)]
    assert delete(small, OFFSETS_TOPIC, (0, -1)) == [(0, -1, ErrorCode.INVALID_TOPIC_EXCEPTION)]
    # Compaction alone decides there.
    assert delete(small, "users", (0, -1)) == [(0, -1, ErrorCode.POLICY_VIOLATION)]
    assert delete(small, "both", (0, -1)) == [(0, 0, ErrorCode.NONE)]


def test_who_may_not_delete_deletes_nothing() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.DELETE, ResourceType.TOPIC)))
    small.broker.create_topic("orders")
    write(small.broker, "orders", 0, b"a")
    assert delete(small, "orders", (0, -1)) == [(0, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    assert read(small.broker, "orders") == [b"a"]
    small.close()
