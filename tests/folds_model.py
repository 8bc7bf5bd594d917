"""What a view has to hold, computed in plain Python from the log: no Spark, no folds, no ranges.

`rows_of` decodes records; `mirror`, `history` and `counted` are the folds of those rows into a view that keeps the
newest row of each key, one that keeps every row, and one that counts. A view that has read up to its bookmark holds
the fold of `below(records, bookmark)`, whatever ranges it was given.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import foldlog
from foldlog import Log, Record
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import META

Row = dict[str, Any]
SCHEMA = "merchant STRING, amount_paise BIGINT, note STRING"
SHOP_SCHEMA = f"{SCHEMA}, at TIMESTAMP"
SHOP_COLUMNS: Final[Mapping[str, type]] = {"merchant": str, "amount_paise": int, "note": str, "at": datetime}
NUMBER: Final = "n"
"""The header that says which record came when: keys move to other partitions when a topic grows."""


def payment(merchant: str = "tea", amount_paise: int = 100, note: str | None = None) -> bytes:
    return json.dumps({"merchant": merchant, "amount_paise": amount_paise, "note": note}).encode()


def fill(log: Log, topic: str, records: list[tuple[str | None, bytes | None]]) -> None:
    """Append records of a key and a value, in order."""
    with log.producer(linger_ms=5) as producer:
        for key, value in records:
            producer.send(topic, value=value, key=key)


def append(directory: Path, *records: tuple[str | None, bytes | None]) -> None:
    """Payments of a key and a value, in order."""
    with foldlog.open(directory) as log:
        fill(log, "payments", list(records))


def records_of(directory: Path, topic: str, isolation: str | None = None) -> list[Record]:
    """Everything the topic holds. Order holds within a partition only, which is where a key's records are."""
    with foldlog.open(directory, mode="r") as log:
        return [record for number in log.offsets(topic) for record in log.read(topic, number, isolation=isolation)]


def mirror_of(directory: Path, topic: str, keep: Callable[[Row], bool] = lambda row: True) -> Mapping[str, Row]:
    """The newest row of each key, if it is to be kept; a tombstone deletes; poison and keyless ones are not there."""
    rows: dict[str, Row] = {}
    for record in records_of(directory, topic):
        if record.key is None:
            continue
        key = record.key.decode()
        if record.value is None:
            rows.pop(key, None)
            continue
        try:
            found = json.loads(record.value)
        except ValueError:
            continue
        row = {"tx_id": key, **{name: found.get(name) for name in ("merchant", "amount_paise", "note")}}
        rows.pop(key, None)
        if keep(row):
            rows[key] = row
    return rows


# --- what a record means --------------------------------------------------------------------------------------------


def below(records: Iterable[Record], bookmark: Bookmark) -> list[Record]:
    """What a view with this bookmark has read."""
    return [one for one in records if one.offset < (bookmark.offset(one.partition) or 0)]


def rows_of(records: Iterable[Record], columns: Mapping[str, type] = SHOP_COLUMNS) -> list[Row]:
    """The records that parse, as rows with META, each key's in the order in which they were written."""
    found = [_row(record, columns) for record in sorted(records, key=_number)]
    return [row for row in found if row is not None]


def _number(record: Record) -> int:
    """Records without the header stay in the order of their partition, which is where a key is as long as none grew."""
    return next((int(value) for name, value in record.headers if name == NUMBER and value is not None), 0)


def _row(record: Record, columns: Mapping[str, type]) -> Row | None:
    content: Row | None = {} if record.value is None else _content(record.value, columns)
    try:
        key = None if record.key is None else record.key.decode()
    except UnicodeDecodeError:
        return None
    if content is None:
        return None
    return {
        "tx_id": key,
        **{name: content.get(name) for name in columns},
        "_topic": record.topic,
        "_partition": record.partition,
        "_offset": record.offset,
        "_timestamp": datetime.fromtimestamp(record.timestamp_ms / 1000, UTC),
        "_deleted": record.value is None,
    }


def _content(value: bytes, columns: Mapping[str, type]) -> Row | None:
    """The columns of a value; None for poison."""
    try:
        given = json.loads(value)
    except ValueError:
        return None
    if not isinstance(given, dict):
        return None
    content: Row = {}
    for name, kind in columns.items():
        one = given.get(name)
        if one is not None and kind is datetime:
            one = datetime.fromisoformat(one)
        elif one is not None and type(one) is not kind:
            return None
        content[name] = one
    return content


# --- what a view makes of rows --------------------------------------------------------------------------------------


def mirror(rows: Iterable[Row]) -> list[Row]:
    """The newest row of each key; a tombstone deletes; a row without a key is a dead letter and not there."""
    newest: dict[str, Row] = {row["tx_id"]: row for row in rows if row["tx_id"] is not None}
    return [_without(row, META) for row in newest.values() if not row["_deleted"]]


def history(rows: Iterable[Row]) -> list[Row]:
    """Every row, tombstones too, and where it comes from."""
    return [_without(row, ("_topic",)) for row in rows]


def counted(
    rows: Iterable[Row], window: timedelta = timedelta(minutes=1), keep: Callable[[Row], bool] | None = None
) -> list[Row]:
    """Payments above zero, by merchant and window of event time: how many, their sum, extremes and mean."""
    keep = keep or (lambda row: row["amount_paise"] is not None and row["amount_paise"] > 0)
    groups: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for row in rows:
        if not row["_deleted"] and keep(row):
            groups[row["merchant"], _window_start(row["at"], window)].append(row["amount_paise"])
    return [
        {
            "merchant": merchant,
            "window_start": start,
            "payments": len(amounts),
            "paise": sum(amounts),
            "lowest": min(amounts),
            "highest": max(amounts),
            "mean": sum(amounts) / len(amounts),
        }
        for (merchant, start), amounts in groups.items()
    ]


def stepped(rows: Iterable[Row]) -> list[Row]:
    """Of each key how many payments came and a number that tells which, and in which order; a tombstone ends it."""
    states: dict[str, Row] = {}
    for row in rows:
        key = row["tx_id"]
        if row["_deleted"]:
            states.pop(key, None)
        elif key is not None:
            payments, chain = (states[key]["payments"], states[key]["chain"]) if key in states else (0, 7)
            chain = (chain * 31 + (row["amount_paise"] or 0)) % 1_000_003
            states[key] = {"tx_id": key, "payments": payments + 1, "chain": chain}
    return list(states.values())


def _window_start(at: datetime | None, window: timedelta) -> datetime | None:
    return None if at is None else at - (at - datetime(1970, 1, 1, tzinfo=UTC)) % window


def _without(row: Row, names: Sequence[str]) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def in_order(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Sorted, so that rows in any order compare."""
    return sorted((dict(row) for row in rows), key=lambda row: [(name, _sortable(row[name])) for name in sorted(row)])


def _sortable(value: object) -> str:
    """An instant sorts the same, whatever zone it is told in."""
    return repr(value.astimezone(UTC) if isinstance(value, datetime) else value)
