"""The last batch that each query has written to a cluster: a compacted topic, `__foldlog_commits`.

A record is written in the transaction that writes the batch, so it is there exactly if the rows are:

    key     the sender: the id of a query, or "application:" and a txnAppId
    value   JSON: version (the batch id, or txnVersion), records (how many were written)

Not the committed offset of a group, since that expires (offsets.retention.minutes) when a query is stopped for a week.

It has one partition, and is read from its end backwards. It is read uncommitted, and the markers are looked at here:
who asks is the sender's one producer, so each of the sender's transactions is decided, while transactions of other
queries may be open before them, and would hide them from a reader of committed records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from foldlog.client.wire.cluster import COMMITS_TOPIC, Cluster
from foldlog.errors import StorageError
from foldlog.limits import COMMITS_FIRST_OFFSETS, COMMITS_SEGMENT_BYTES
from foldlog.log.transactions import end_marker
from foldlog.records.batch import CONTROL_ABORT
from foldlog.records.loops import BatchHeader, decode, pack, walk
from foldlog.spark.sink.rows import Packed

COMMITS_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(COMMITS_SEGMENT_BYTES),
    "segment.ms": str(24 * 3600 * 1000),
    "delete.retention.ms": str(3600 * 1000),
}
_PARTITION: Final = 0
_STEP: Final = 8
"""How many times more is read when the sender was not found."""


def ensure_commits(cluster: Cluster) -> None:
    """Make the topic unless it exists."""
    cluster.ensure_topic(COMMITS_TOPIC, 1, COMMITS_CONFIG)


def commit_record(sender: str, version: int, record_count: int, now_ms: int) -> Packed:
    """The record, to be written in the transaction that writes the rows."""
    value = json.dumps({"version": version, "records": record_count}, separators=(",", ":")).encode()
    return Packed(COMMITS_TOPIC, _PARTITION, 1, pack([(now_ms, sender.encode(), value, None)]))


def last_version(cluster: Cluster, sender: str) -> int | None:
    """The last one that the sender has committed; None if it has none. To be asked by its one producer, so that all of
    its transactions are decided; `cluster` must read uncommitted."""
    bounds = cluster.bounds(COMMITS_TOPIC, [_PARTITION], written=True)[_PARTITION]
    span = COMMITS_FIRST_OFFSETS
    while True:
        begin = max(bounds.start, bounds.end - span)
        found = _committed_in(cluster, begin, bounds.end, sender.encode())
        if found is not None or begin == bounds.start:
            return found
        span *= _STEP


def _committed_in(cluster: Cluster, begin: int, end: int, key: bytes) -> int | None:
    """The sender's last committed version among these offsets."""
    found: int | None = None
    undecided: dict[int, tuple[int, int]] = {}  # version and offset by producer
    for header, batch in _batches(cluster, begin, end):
        if not header.is_control:
            for record in decode(batch, COMMITS_TOPIC, _PARTITION)[0]:
                if record.key == key and record.value is not None:
                    version = _version_in(record.value, record.offset)
                    if header.is_transactional:
                        undecided[header.producer_id] = version, record.offset
                    else:
                        found = version  # written by hand
            continue
        marker = end_marker(batch, header)
        decided = None if marker is None else undecided.pop(header.producer_id, None)
        if marker is not None and decided is not None and marker.kind != CONTROL_ABORT:
            found = decided[0]
    for _, offset in undecided.values():
        raise StorageError(
            f"offset {offset} of topic {COMMITS_TOPIC!r} belongs to a transaction that nobody ends, so it is not known"
            " whether the batch before was written; end it with `foldlog transaction abort`, and start the query again"
        )
    return found


def _version_in(value: bytes, offset: int) -> int:
    try:
        plain: dict[str, Any] = json.loads(value)
        return int(plain["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"offset {offset} of topic {COMMITS_TOPIC!r} does not say which batch was written last; write the record"
            ' again, with the same key and a value such as {"version":7}'
        ) from error


def _batches(cluster: Cluster, begin: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    for fetched in cluster.fetch_range(COMMITS_TOPIC, _PARTITION, begin, end):
        for piece in fetched.pieces:
            for header in walk(piece, check_crc=False, gaps_below=end).headers:
                yield header, piece[header.position : header.position + header.size]
