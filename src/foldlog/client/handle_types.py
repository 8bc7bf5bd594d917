"""RecordMetadata, SendFuture, BatchAck and `put_open`: compiled if they could be built, else their Python twins.

No warning here: `foldlog.records.loops` gives the one that matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foldlog.environment import PURE_PYTHON

if TYPE_CHECKING or PURE_PYTHON:
    from foldlog.client.handles_py import BatchAck, RecordMetadata, SendFuture, put_open
else:
    try:
        from foldlog.client.handles import BatchAck, RecordMetadata, SendFuture, put_open
    except ImportError:
        from foldlog.client.handles_py import BatchAck, RecordMetadata, SendFuture, put_open


def remake_metadata(topic: str, partition: int, offset: int, timestamp_ms: int) -> RecordMetadata:
    """Called by pickles, so that they can be read where the other twin is in use."""
    return RecordMetadata(topic, partition, offset, timestamp_ms)


__all__ = ["BatchAck", "RecordMetadata", "SendFuture", "put_open", "remake_metadata"]
