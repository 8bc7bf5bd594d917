"""Which head segments are beyond the topic's limits. Pure functions; cleanup.py removes the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foldlog.log.checkpoint import StartReason
from foldlog.log.config import LogConfig


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """What retention needs to know of a segment."""

    size_bytes: int
    largest_timestamp_ms: int  # below 0: none of its records has one


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """Remove the first `count` segments; if that includes the active one, roll first."""

    count: int
    reason: StartReason


def plan_retention(segments: Sequence[SegmentAge], config: LogConfig, now_ms: int) -> RetentionPlan:
    """Plan retention by size, then by time; whole segments from the head only.

    Time is measured from a segment's largest timestamp, so a clock that goes backward only delays.
    """
    if not config.delete:
        return RetentionPlan(0, StartReason.WRITTEN)
    by_size = _over_size(segments, config.retention_bytes)
    by_time = _over_age(segments[by_size:], config.retention_ms, now_ms)
    reason = StartReason.RETENTION_TIME if by_time else StartReason.RETENTION_SIZE
    return RetentionPlan(by_size + by_time, reason)


def outlived_on_arrival(newest_ms: int, config: LogConfig, now_ms: int) -> bool:
    """Whether records that are appended now, the newest of them of `newest_ms`, are past retention.ms already."""
    return (
        config.retention_ms >= 0
        and config.delete
        and not config.log_append_time
        and newest_ms >= 0
        and now_ms - newest_ms > config.retention_ms
    )


def outlived_text(topic: str, retention_ms: int) -> str:
    """The warning for writers of such records."""
    return (
        f"topic {topic!r} gets records that are older than its retention.ms ({retention_ms}), by their own times:"
        " retention deletes them soon; to keep them, set retention.ms=-1"
    )


def _over_size(segments: Sequence[SegmentAge], retention_bytes: int) -> int:
    """How many segments can go with at least `retention_bytes` left: retention never gets below the limit."""
    if retention_bytes < 0:
        return 0
    excess = sum(segment.size_bytes for segment in segments) - retention_bytes
    count = 0
    for segment in segments:
        if segment.size_bytes > excess or segment.size_bytes == 0:
            break
        excess -= segment.size_bytes
        count += 1
    return count


def _over_age(segments: Sequence[SegmentAge], retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if segment.size_bytes == 0 or segment.largest_timestamp_ms < 0:
            break
        if now_ms - segment.largest_timestamp_ms <= retention_ms:
            break
        count += 1
    return count
