"""The event loop asks the coordinator itself where that waits for nothing, and a thread where it may wait."""

from __future__ import annotations

import threading

from foldlog.broker.topics.names import OFFSETS_TOPIC
from foldlog.files.memory import MemoryFiles
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles, Kind, Operation
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from server.small_node import SmallNode

MONTH_MS = 30 * 24 * 3600 * 1000
"""Longer than a segment is written to."""


def commit(small: SmallNode, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id="readers",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])],
    )
    answer = small.ask(request, 8)
    return int(answer.topics[0].partitions[0].error_code)


def test_a_commit_that_begins_a_segment_is_not_the_loops_work() -> None:
    files = FaultyFiles(MemoryFiles())
    loop_thread = threading.current_thread()
    on_the_loop: list[Operation] = []

    def note(operation: Operation) -> int:
        if operation.kind is not Kind.WRITE and threading.current_thread() is loop_thread:
            on_the_loop.append(operation)
        return 0

    small = SmallNode(files)
    small.broker.create_topic("orders", 1)
    files.fault = Fault(note)
    for offset in range(4):
        assert commit(small, offset) == ErrorCode.NONE
        assert commit(small, offset) == ErrorCode.NONE
        small.clock.advance(MONTH_MS)
    files.fault = NO_FAULT
    assert small.node.partition(OFFSETS_TOPIC, 0).segment_count > 2
    small.close()
    assert on_the_loop == []
