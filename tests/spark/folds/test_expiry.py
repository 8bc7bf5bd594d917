"""Rows that expire, by the log's own time: whatever the split, a view holds the newest rows of each key whose time is
not further before the latest time told than the ttl. Compared with a recompute in plain Python.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.errors import FoldError, InvalidArgument
from folds_model import records_of

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN_MS = int(BEGIN.timestamp() * 1000)


def expected(directory: Path) -> list[tuple[str, datetime | None]]:
    newest: dict[str, datetime | None] = {}
    latest = BEGIN
    for record in records_of(directory, "seen"):
        assert record.key is not None
        key = record.key.decode()
        newest.pop(key, None)
        if record.value is None:
            continue
        at = json.loads(record.value)["at"]
        newest[key] = None if at is None else datetime.fromisoformat(at)
        if at is not None:
            stamped = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
            latest = max(latest, min(datetime.fromisoformat(at), stamped))
    return sorted(
        ((key, at) for key, at in newest.items() if at is None or at >= latest - timedelta(hours=2)), key=repr
    )


@pytest.mark.faults
def test_a_table_is_a_function_of_the_log_s_own_times(tmp_path: Path, spark: SparkSession) -> None:
    directory = tmp_path / "data"
    chance = random.Random(3)
    with foldlog.open(directory) as log:
        log.create_topic("seen", partitions=2)
    view = fl.table(tmp_path / "shop.db", "seen", ttl=("at", "2 hours"))
    topic = fl.topic("seen", key="id", schema="at TIMESTAMP")
    seen = fl.fold(topic, into=view, name="seen")(lambda rows: rows)

    def check() -> None:
        rows = [(row["id"], row["at"]) for batch in view.scan().batches for row in batch.to_pylist()]
        assert sorted(rows, key=repr) == expected(directory)

    for hour in (0, 3):
        with foldlog.open(directory) as log, log.producer(linger_ms=5) as producer:
            for minute in range(60):
                now = BEGIN + timedelta(hours=hour, minutes=minute)
                at = now - timedelta(minutes=chance.choice([0, 0, 5, 90, 150]))  # late ones, too
                told: dict[str, Any] = {"at": at.isoformat() if chance.random() > 0.05 else None}
                if minute == 7:
                    told = {"at": "2999-01-01T00:00:00Z"}  # dated far ahead: it expires nobody
                value = None if chance.random() < 0.1 else told
                producer.send("seen", value, f"k{chance.randint(0, 30)}", timestamp_ms=int(now.timestamp() * 1000))
        fl.run([seen], directory, once=True, spark=spark, range_bytes=700)
        check()
    assert 3 < len(expected(directory)) < 31
    fl.rewind(seen, directory, "0=5,1=9")
    fl.run([seen], directory, once=True, spark=spark)
    check()
    assert fl.verify(seen, directory, spark=spark).answer == "equal"
    fl.rebuild(seen, directory, spark=spark)
    check()
    longer = fl.fold(topic, into=fl.table(tmp_path / "shop.db", "seen", ttl=("at", "1 day")), name="seen")(lambda r: r)
    with pytest.raises(FoldError, match=r"its rows expire after 2h by 'at', and the fold's after 1d by 'at'"):
        fl.run([longer], directory, once=True, spark=spark)
    wrong = fl.fold(topic, into=fl.table(tmp_path / "shop.db", "other", ttl=("id", "1 day")), name="wrong")(lambda r: r)
    with pytest.raises(FoldError, match=r"goes by 'id', which is not a TIMESTAMP among the fold's columns"):
        fl.run([wrong], directory, once=True, spark=spark)


def join_into(view: fl.View) -> object:
    left, right = (fl.topic(name, key="id", schema="a INT") for name in ("left", "right"))
    return fl.fold(left, right, into=view, name="joined")(lambda rows, others: fl.join(rows, others, on="id"))


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: fl.table("a.db", "t", ttl="1 day"), "ttl= is a column of times and a duration"),  # type: ignore[arg-type]
    (lambda: fl.table("a.db", "t", ttl=("at", "soon")), "'soon' in ttl= is not a duration; write '30 days'"),
    (lambda: fl.table("a.duckdb", "t", mode="append", ttl=("at", "1d")), "a table in DuckDB has no ttl="),
    (
        lambda: join_into(fl.table("a.db", "t", ttl=("at", "1d"))),
        "the table of a join of two topics, which has no ttl=",
    ),
    (lambda: join_into(fl.table("a.db", "t", mode="append")), "which has no mode='append'; leave it out"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_a_mistake_is_told_in_one_sentence(mistake: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        mistake()
