"""What each view has to hold, computed from the log's records in plain Python: no Spark, no folds, no ranges.

This is the other way to the same result, and shares no code with the first: it decodes with `json`, keeps a dictionary
by key, and adds up. A view that has read the whole log has to hold exactly this.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from foldlog import Record

Row = dict[str, Any]
_KINDS: Final[Mapping[str, type]] = {"merchant": str, "amount_paise": int, "note": str, "at": datetime}
_MINUTE: Final = timedelta(minutes=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def decoded(value: bytes) -> Row | None:
    """The columns of a payment; None for poison."""
    try:
        given = json.loads(value)
    except ValueError:
        return None
    if not isinstance(given, dict):
        return None
    row: Row = {}
    for name, kind in _KINDS.items():
        one = given.get(name)
        if one is not None and kind is datetime:
            one = datetime.fromisoformat(one)
        elif one is not None and type(one) is not kind:
            return None
        row[name] = one
    return row


def rows_of(records: Iterable[Record]) -> list[tuple[Record, str, Row | None]]:
    """Each record that is not poison, with its key and its columns; None for a refund."""
    found: list[tuple[Record, str, Row | None]] = []
    for record in records:
        key = (record.key or b"").decode()
        if record.value is None:
            found.append((record, key, None))
        elif (row := decoded(record.value)) is not None:
            found.append((record, key, row))
    return found


def mirrored(records: Iterable[Record]) -> list[Row]:
    """The newest row of each key; a refund deletes."""
    newest: dict[str, Row] = {}
    for _, key, row in rows_of(records):
        if row is None:
            newest.pop(key, None)
        else:
            newest[key] = {"tx_id": key, **row}
    return list(newest.values())


def counted(records: Iterable[Record]) -> list[Row]:
    """Payments by merchant and minute of their own time: how many, their sum, the highest."""
    amounts: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for _, _, row in rows_of(records):
        if row is not None and row["amount_paise"] is not None and row["amount_paise"] > 0:
            start = row["at"] - (row["at"] - _EPOCH) % _MINUTE
            amounts[row["merchant"], start].append(row["amount_paise"])
    return [
        {
            "merchant": merchant,
            "window_start": start,
            "payments": len(paid),
            "paise": sum(paid),
            "highest": max(paid),
        }
        for (merchant, start), paid in amounts.items()
    ]


def kept(records: Iterable[Record]) -> list[Row]:
    """Every record, refunds too, and where it stands in the log."""
    return [
        {
            "tx_id": key,
            **(row if row is not None else dict.fromkeys(_KINDS)),
            "_partition": record.partition,
            "_offset": record.offset,
            "_timestamp": datetime.fromtimestamp(record.timestamp_ms / 1000, UTC),
            "_deleted": row is None,
        }
        for record, key, row in rows_of(records)
    ]


def poison_in(records: Iterable[Record]) -> int:
    """How many records are neither payments nor refunds."""
    return sum(record.value is not None and decoded(record.value) is None for record in records)


def is_same(rows: Iterable[Row], wanted: Iterable[Row]) -> bool:
    """Whether both hold the same rows, in whatever order."""
    return sorted(map(_comparable, rows)) == sorted(map(_comparable, wanted))


def _comparable(row: Row) -> str:
    """The same instant is the same text, whatever zone it is told in."""
    told = {
        name: value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
        for name, value in sorted(row.items())
    }
    return json.dumps(told, default=repr)
