"""Topics as the console shows them: start and end of each partition, size, segments, settings.

On a worker thread: it may open partitions, which accesses the disk.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from foldlog.broker.topics.names import is_internal
from foldlog.errors import CorruptLog, FoldlogError
from foldlog.limits import CONSOLE_SEGMENTS_MAX
from foldlog.log.partition import Partition
from foldlog.records.batch import MAX_INT64
from foldlog.server.console.api_errors import ApiError

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.broker.storage import PartitionOverview
    from foldlog.broker.topics.catalog import CatalogTopic
    from foldlog.clock import Clock
    from foldlog.log.reading import LogView
    from foldlog.log.segment import Segment
    from foldlog.server.console.rates import Rates

_OPENING_MS: Final = 100
"""How long one overview may spend on opening partitions that are not open yet, to show their sizes."""

_OPENING_MAX: Final = 256
"""Above this number they are not opened: an open partition takes memory, and this is only a look."""


def overview_topics(broker: Broker, rates: Rates, clock: Clock) -> list[dict[str, Any]]:
    """Every topic with its partitions. Opens some of those that are not open yet, for their sizes."""
    found = broker.overview()
    resting = [at for at, seen in enumerate(found) if not seen.is_open and seen.refusal is None]
    deadline_ms = clock.monotonic_ms() + _OPENING_MS
    for at in resting if len(resting) <= _OPENING_MAX else ():
        if clock.monotonic_ms() > deadline_ms:
            break
        found[at] = _opened(broker, found[at])
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for seen in found:
        by_topic.setdefault(seen.topic, []).append(_partition(broker, seen))
    topics = broker.catalog.topics
    return [_topic(topics[name], numbers, rates) for name, numbers in by_topic.items() if name in topics]


def topic_details(broker: Broker, name: str, rates: Rates) -> dict[str, Any]:
    """One topic with its settings, and the newest of its segments."""
    topic = broker.topic(name)
    left = CONSOLE_SEGMENTS_MAX
    partitions: list[dict[str, Any]] = []
    for number in range(topic.partition_count):
        partition, shown = _open_details(broker, name, number)
        segments: list[dict[str, Any]] = []
        if partition is not None:
            segments = partition.look(partial(_segments, most=left))
        left -= len(segments)
        counted = {"segment_count": shown["segments"], "segments": segments, "store": _stored(partition)}
        partitions.append({**shown, **counted})
    effective = topic.config.effective()
    configs = [
        {"name": setting, "value": effective[setting], "is_default": setting not in topic.config.settings}
        for setting in sorted(effective)
    ]
    return {**_topic(topic, partitions, rates), "configs": configs}


def open_partition(broker: Broker, topic: str, number: int) -> Partition:
    """The partition. Raises UnknownTopic, UnknownPartition; 503 for a damaged one."""
    try:
        partition = broker.partition(topic, number)
    except CorruptLog as error:
        raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
    if not isinstance(partition, Partition):
        raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "the console reads the log of a writer, and this is a reader's")
    return partition


def _open_details(broker: Broker, name: str, number: int) -> tuple[Partition | None, dict[str, Any]]:
    try:
        partition = open_partition(broker, name, number)
    except ApiError as error:
        return None, {
            **dict.fromkeys(("start", "end", "durable"), 0),
            "partition": number,
            "size_bytes": None,
            "segments": None,
            "error": str(error),
        }
    return partition, _opened_partition(number, partition)


def _opened(broker: Broker, seen: PartitionOverview) -> PartitionOverview:
    try:
        partition = broker.partition(seen.topic, seen.number)
        return seen._replace(
            log_start_offset=partition.log_start_offset,
            log_end_offset=partition.log_end_offset,
            high_watermark=partition.high_watermark,
            size_bytes=partition.size_bytes,
            segment_count=partition.segment_count,
        )
    except CorruptLog as error:
        return seen._replace(refusal=error)
    except FoldlogError:
        return seen  # deleted meanwhile, or too many open files: the rest is shown


def _partition(broker: Broker, seen: PartitionOverview) -> dict[str, Any]:
    partition = broker.opened_partition(seen.topic, seen.number)
    # One that is not open was closed cleanly, or recovery will decide about the bytes above.
    durable = partition.durable_offset if isinstance(partition, Partition) else seen.high_watermark
    problem = str(seen.refusal) if seen.refusal is not None else None
    if seen.is_poisoned:
        problem = "a sync failed, and it takes no more records until the broker is restarted"
    return {
        "partition": seen.number,
        "start": min(seen.log_start_offset, seen.high_watermark),
        "end": seen.high_watermark,
        "durable": durable,
        "size_bytes": seen.size_bytes,
        "segments": seen.segment_count,
        "error": problem,
    }


def _opened_partition(number: int, partition: Partition) -> dict[str, Any]:
    end = partition.acknowledged_end()
    return {
        "partition": number,
        "start": min(partition.log_start_offset, end),
        "end": end,
        "durable": partition.durable_offset,
        "size_bytes": partition.size_bytes,
        "segments": partition.segment_count,
        "error": "a sync failed; restart the broker" if partition.is_poisoned else None,
    }


def _stored(partition: Partition | None) -> dict[str, Any] | None:
    """What the store has of a partition, as far as it is known; None for a topic that uses none."""
    tiering = None if partition is None else partition.tiering
    standing = None if tiering is None else tiering.standing()
    if partition is None or standing is None or not (partition.config.remote or standing.segments):
        return None
    return {
        "start": partition.log_start_offset,
        "end": standing.end_offset,
        "local_start": partition.local_start_offset,
        "segments": standing.segments,
        "size_bytes": standing.size_bytes,
        "waiting_segments": standing.waiting_segments,
        "waiting_bytes": standing.waiting_bytes,
    }


def _topic(topic: CatalogTopic, partitions: list[dict[str, Any]], rates: Rates) -> dict[str, Any]:
    config = topic.config.log
    return {
        "name": topic.name,
        "id": topic.topic_id,
        "is_internal": is_internal(topic.name),
        "partitions": partitions,
        **rates.of(topic.name),
        "cleanup_policy": topic.config.effective()["cleanup.policy"],
        "retention_ms": config.retention_ms,
        "retention_bytes": config.retention_bytes,
    }


def _segments(view: LogView, most: int) -> list[dict[str, Any]]:
    """The newest `most` segments, oldest first."""
    segments = view.segments[max(0, len(view.segments) - most) :] if most > 0 else ()
    ends = [segment.base_offset for segment in segments[1:]] + [view.end_offset]
    return [
        {
            "base_offset": segment.base_offset,
            "next_offset": max(next_offset, segment.base_offset),
            "size_bytes": segment.size,
            "first_ms": _first_ms(segment),
            "last_ms": _known(segment.largest_timestamp()),
            "is_active": segment is view.segments[-1],
        }
        for segment, next_offset in zip(segments, ends, strict=True)
    ]


def _first_ms(segment: Segment) -> int | None:
    """The time of its first batch, by the header; if compaction replaced the base timestamp, the largest one."""
    found = segment.find(segment.base_offset, MAX_INT64) if segment.size else None
    if found is None:
        return None
    header = found[1]
    is_base_known = not (header.has_delete_horizon or header.is_log_append_time)
    return _known(header.base_timestamp if is_base_known else header.max_timestamp)


def _known(timestamp_ms: int) -> int | None:
    return timestamp_ms if timestamp_ms >= 0 else None
