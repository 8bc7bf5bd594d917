"""The first commit of a directory is seen by a reading process at once, though it also makes the topic it is in."""

from __future__ import annotations

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.files.memory import MemoryFiles
from foldlog.testing.sim_clock import SimClock


def test_a_reader_sees_the_very_first_commit_without_a_moment_passing() -> None:
    files, clock = MemoryFiles(), SimClock()
    with Broker.open("data", files=files, clock=clock, background=False) as writer:
        writer.create_topic("orders")
        with Broker.open("data", files=files, clock=clock, mode="r") as reader:
            assert reader.committed("fraud") == {}
            writer.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(0)})
            assert reader.committed("fraud") == {("orders", 0): OffsetAndMetadata(0)}
