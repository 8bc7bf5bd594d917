"""What librdkafka gives and takes, as the library's own values: records, and what groups commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.records.loops import Record

if TYPE_CHECKING:
    from confluent_kafka import Message, TopicPartition

_LOG_APPEND_TIME: Final = 2
"""librdkafka's number for it; 1 is the producer's time, and 0 is no time at all."""


def record_of(message: Message[Any, Any]) -> Record:
    """What the log's own reader would make of the bytes."""
    kind, timestamp_ms = message.timestamp()
    headers: Any = message.headers()  # a list of pairs: the dict of its type is what a producer may give
    epoch = message.leader_epoch()
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp_ms if kind else -1,
        1 if kind == _LOG_APPEND_TIME else 0,
        message.key(),
        message.value(),
        tuple(headers) if headers else (),
        -1 if epoch is None else epoch,
    )


def offset_to_commit(partition: tuple[str, int], committed: OffsetAndMetadata) -> TopicPartition:
    """What a group commits, as librdkafka takes it."""
    from confluent_kafka import TopicPartition

    if committed.leader_epoch < 0:
        return TopicPartition(*partition, committed.offset, committed.metadata)
    return TopicPartition(*partition, committed.offset, committed.metadata, committed.leader_epoch)


def committed_in(committed: TopicPartition) -> OffsetAndMetadata:
    """What a group has committed, as librdkafka gives it."""
    epoch: Any = committed.leader_epoch  # None where the broker has none, whatever its type says
    return OffsetAndMetadata(committed.offset, -1 if epoch is None else epoch, committed.metadata or "")


def append_time_of(message: Message[Any, Any]) -> int:
    """The time that the broker set, -1 if the producer's holds."""
    kind, timestamp_ms = message.timestamp()
    return timestamp_ms if kind == _LOG_APPEND_TIME else -1
