"""What a producer hands back, and what runs for every record: compiled if built, else Python twins.

No warning here: `foldlog.records.loops` gives the one that matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foldlog.environment import PURE_PYTHON

if TYPE_CHECKING or PURE_PYTHON:
    from foldlog.client.handles_py import BatchAck, OpenBatches, RecordMetadata, SendFuture, queue_for, wall_ms
else:
    try:
        from foldlog.client.handles import BatchAck, OpenBatches, RecordMetadata, SendFuture, queue_for, wall_ms
    except ImportError:
        from foldlog.client.handles_py import BatchAck, OpenBatches, RecordMetadata, SendFuture, queue_for, wall_ms


def remake_metadata(topic: str, partition: int, offset: int, timestamp_ms: int) -> RecordMetadata:
    """Called by pickles, so that they can be read where the other twin is in use."""
    return RecordMetadata(topic, partition, offset, timestamp_ms)


__all__ = ["BatchAck", "OpenBatches", "RecordMetadata", "SendFuture", "queue_for", "remake_metadata", "wall_ms"]
