"""What a view has to hold, computed in plain Python from the log: no Spark, no folds, no ranges."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import foldlog
from foldlog import Log, Record

Row = dict[str, Any]
SCHEMA = "merchant STRING, amount_paise BIGINT, note STRING"


def payment(merchant: str = "tea", amount_paise: int = 100, note: str | None = None) -> bytes:
    return json.dumps({"merchant": merchant, "amount_paise": amount_paise, "note": note}).encode()


def fill(log: Log, topic: str, records: list[tuple[str | None, bytes | None]]) -> None:
    """Append records of a key and a value, in order."""
    with log.producer(linger_ms=5) as producer:
        for key, value in records:
            producer.send(topic, value=value, key=key)


def records_of(directory: Path, topic: str) -> list[Record]:
    """Everything the topic holds. Order holds within a partition only, which is where a key's records are."""
    with foldlog.open(directory, mode="r") as log:
        return [record for number in log.offsets(topic) for record in log.read(topic, number)]


def mirror_of(directory: Path, topic: str, keep: Callable[[Row], bool] = lambda row: True) -> Mapping[str, Row]:
    """The newest row of each key; a tombstone deletes; what does not parse and what has no key is not there."""
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
        if keep(row):
            rows[key] = row
    return rows
