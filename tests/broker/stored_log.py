"""What is in a log and in its views, asked in ways that every version has.

scripts/write_stored_directory.py uses it with the source of an older version, the test with that of today. So nothing
here may be newer: `foldlog.open` and what a Log can do, and `foldlog.spark` for the views.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import foldlog
import foldlog.spark as fl

PAYMENTS: Final = "payments"
COLUMNS: Final = pa.schema([("tx_id", pa.string()), ("merchant", pa.string()), ("amount", pa.int64())])
META: Final = pa.schema(
    [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_deleted", pa.bool_()),
    ]
)
COUNTED: Final = pa.schema([("merchant", pa.string()), ("payments", pa.int64()), ("paise", pa.int64())])
ROWS: Final = fl.Shape(COLUMNS, record_key="tx_id", key=("tx_id",))
COUNTS: Final = fl.Shape(COUNTED, None, ("merchant",))


def facts_of(log: foldlog.Log) -> dict[str, Any]:
    """All that a user could ask of the log, as JSON has it."""
    return {
        "directory_id": log.directory_id,
        "topics": {name: _topic_facts(log, name) for name in log.topics()},
        "groups": {
            group: {
                f"{topic}/{partition}": [held.offset, held.metadata]
                for (topic, partition), held in sorted(log.committed(group).items())
            }
            for group in sorted(log.groups())
        },
    }


def _topic_facts(log: foldlog.Log, name: str) -> dict[str, Any]:
    topic = log.topic(name)
    return {
        "topic_id": topic.topic_id,
        "settings": {key: entry.value for key, entry in sorted(log.topic_config(name).items()) if not entry.is_default},
        "growths": [[growth.partitions, list(growth.ends)] for growth in topic.growths or ()],
        "partitions": {str(number): _partition_facts(log, name, number) for number in range(topic.partition_count)},
    }


def _partition_facts(log: foldlog.Log, name: str, number: int) -> dict[str, Any]:
    start, end = log.offsets(name)[number]
    records = list(log.read(name, number))
    middle_ms = records[len(records) // 2].timestamp_ms if records else 0
    return {
        "start": start,
        "end": end,
        "records": len(records),
        "digest": digest_of(records),
        "middle": [middle_ms, log.offsets_at(name, middle_ms)[number]],
    }


def digest_of(records: Sequence[foldlog.Record]) -> str:
    """Of everything that a reader sees of them."""
    digest = hashlib.sha256()
    for record in records:
        seen = (record.offset, record.timestamp_ms, record.timestamp_type, record.key, record.value, record.headers)
        digest.update(repr(seen).encode())
    return digest.hexdigest()


# --- views ------------------------------------------------------------------------------------------------------------


def views_in(directory: Path) -> dict[str, fl.View]:
    """The views of the payments, one of each kind that SQLite keeps."""
    return {
        "table": fl.table(directory / "views.db", PAYMENTS),
        "counters": fl.counters(
            directory / "views.db", by="merchant", measures={"payments": fl.count(), "paise": fl.sum("amount")}
        ),
        "search": fl.search(directory / "search.db", "merchant", engine="fts5"),
    }


def shape_of(view: fl.View) -> fl.Shape:
    return ROWS if view.aggregation is None else COUNTS


def start_of(log: foldlog.Log) -> fl.Bookmark:
    """The bookmark of a view that has read nothing yet."""
    return fl.Bookmark(PAYMENTS, log.topic(PAYMENTS).topic_id, {}, {}).met(dict.fromkeys(log.offsets(PAYMENTS), 0))


def fold(log: foldlog.Log, view: fl.View, stop: Mapping[int, int]) -> None:
    """Bring a view from its bookmark to these offsets, in one step, as a runner does."""
    bookmark = view.prepare(shape_of(view), start_of(log)).met(dict.fromkeys(log.offsets(PAYMENTS), 0))
    if bookmark != view.bookmark():
        stored = view.bookmark()
        assert stored is not None
        view.move(stored, bookmark)
    ranges = {part: (bookmark.positions[part].offset, end) for part, end in stop.items()}
    records = [
        record for part, (first, end) in ranges.items() for record in log.read(PAYMENTS, part, start=first, stop=end)
    ]
    rows = _newest_rows(records) if view.aggregation is None else _counted(records)
    moved = {part: type(bookmark.positions[part])(end, 0) for part, end in stop.items()}
    view.apply(fl.Delta(rows, ranges), bookmark, bookmark.advanced(moved))


def _newest_rows(records: Sequence[foldlog.Record]) -> pa.Table:
    rows = []
    for record in records:
        meta = dict(zip(META.names, (PAYMENTS, record.partition, record.offset, 0, record.value is None), strict=True))
        value = {} if record.value is None else json.loads(record.value)
        rows.append({"tx_id": record.key.decode(), **value, **meta})
    return pa.Table.from_pylist(rows, schema=pa.schema([*COLUMNS, *META]))


def _counted(records: Sequence[foldlog.Record]) -> pa.Table:
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for record in records:
        if record.value is not None:
            value = json.loads(record.value)
            totals[value["merchant"]][0] += 1
            totals[value["merchant"]][1] += value["amount"]
    rows = [{"merchant": name, "payments": count, "paise": paise} for name, (count, paise) in totals.items()]
    return pa.Table.from_pylist(rows, schema=COUNTED)


def held_by(view: fl.View) -> list[str]:
    """All rows of a view, as text, sorted."""
    batches = view.scan().batches
    return sorted(json.dumps(row, sort_keys=True) for batch in batches for row in batch.to_pylist())
