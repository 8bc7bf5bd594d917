"""Windows, sessions and measures with a state, folded by Spark: by tasks, near and the long way, they are the plain
recompute of the whole log, whatever came late; and sessions are Spark's own.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import foldlog
import foldlog.spark as fl
from foldlog.errors import FoldError
from foldlog.spark.folds import runner
from foldlog.spark.folds.counting import aggregating
from foldlog.spark.folds.counting.recounting import _hash
from foldlog.spark.folds.declaration import Fold
from foldlog.testing.folds import FoldTester
from foldlog.views.counters.windows import WINDOW_START
from views.counters.measures_model import counted, shown

SCHEMA = "user STRING, at TIMESTAMP, page STRING, bytes BIGINT, took DOUBLE"
BERLIN, KOLKATA = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata")
SPRING = dt.datetime(2026, 3, 28, 20, tzinfo=dt.UTC)
"""The night in which Berlin's clocks leave out an hour; in the autumn, they repeat one."""
AUTUMN = dt.datetime(2026, 10, 24, 20, tzinfo=dt.UTC)

PLAIN = {"rows": fl.count(), "bytes": fl.sum("bytes")}
STATES = {
    "rows": fl.count(),
    "pages": fl.count_distinct("page"),
    "about": fl.approx_count_distinct("page"),
    "median": fl.quantile("took", 0.5),
    "entry": fl.first("page", order_by="at"),
    "exit": fl.last("page", order_by="at"),
    "largest": fl.top("page", 2, order_by="bytes"),
}
CLICKS = fl.topic("clicks", key="id", schema=SCHEMA)
Row = dict[str, Any]


def _clicks(chance: random.Random, count: int) -> list[Row]:
    return [
        {
            "user": chance.choice(["ann", "bob", None]),
            "at": chance.choice([SPRING, AUTUMN]) + dt.timedelta(seconds=chance.randrange(0, 12 * 3600)),
            "page": chance.choice([None, "home", "cart", "a page with a name of more than thirty-two bytes", "é"]),
            "bytes": chance.choice([None, chance.randrange(-5, 5), chance.randrange(10**12)]),
            "took": chance.choice([None, chance.uniform(-1, 1000)]),
        }
        for _ in range(count)
    ]


def _append(directory: Path, rows: list[Row], first: int) -> None:
    with foldlog.open(directory) as log:
        if "clicks" not in log.topics():
            log.create_topic("clicks", partitions=3)
        for number, row in enumerate(rows, first):
            log.append("clicks", json.dumps(row, default=str).encode(), key=str(number).encode())


def _folds(home: Path) -> dict[str, Fold]:
    windows: dict[str, tuple[Any, dict[str, Any]]] = {
        "hopping": (fl.window("at", "2 hours", every="30 minutes"), PLAIN),
        "nights": (fl.window("at", "6 hours", zone="Europe/Berlin"), PLAIN),
        "half_hours": (fl.window("at", "1 hour", every="30 minutes", zone="Europe/Berlin"), STATES),
        "days": (fl.window("at", "1 day", zone="Asia/Kolkata"), STATES),
        "weeks": (fl.window("at", "1 week", zone="Asia/Kolkata"), PLAIN),
        "quarters": (fl.window("at", "1 quarter", zone="Europe/Berlin"), PLAIN),
        "sessions": (fl.sessions("at", "40 minutes"), PLAIN),
        "visits": (fl.sessions("at", "40 minutes"), STATES),
        "totals": (None, STATES),
    }
    return {
        name: fl.fold(
            CLICKS,
            into=fl.counters(home / "live.db", by=["user"], window=window, measures=measures, name=name),
            name=name,
        )(lambda rows: rows)
        for name, (window, measures) in windows.items()
    }


def _starts(name: str, at: dt.datetime) -> list[dt.datetime]:
    """The windows of an event, found by trying: from four days before to its own time, in steps of half an hour."""
    if name == "hopping":
        return [one for one in _steps(at, dt.UTC) if one <= at < one + dt.timedelta(hours=2)]
    if name in ("nights", "half_hours"):
        wall = at.astimezone(BERLIN).replace(tzinfo=None)
        width = dt.timedelta(hours=6 if name == "nights" else 1)
        walls = {one.replace(tzinfo=None) for one in _steps(wall.replace(tzinfo=dt.UTC), dt.UTC)}
        found = [
            one for one in walls if one <= wall < one + width and (name != "nights" or one.hour % 6 == one.minute == 0)
        ]
        return [one.replace(tzinfo=BERLIN).astimezone(dt.UTC) for one in found]
    if name == "quarters":
        day = at.astimezone(BERLIN).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        return [day.replace(month={1: 1, 2: 4, 3: 7, 4: 10}[(day.month + 2) // 3], day=1).astimezone(dt.UTC)]
    day = at.astimezone(KOLKATA).replace(hour=0, minute=0, second=0, microsecond=0)
    return [(day - dt.timedelta(days=day.weekday() if name == "weeks" else 0)).astimezone(dt.UTC)]


def _steps(at: dt.datetime, zone: dt.tzinfo) -> list[dt.datetime]:
    start = (at - dt.timedelta(days=1)).astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    return [start + number * dt.timedelta(minutes=30) for number in range(97)]


def _expected(fold: Fold, rows: list[Row]) -> list[Row]:
    aggregation = fold.view.aggregation
    assert aggregation is not None
    if fold.name in ("sessions", "visits", "totals"):
        return counted(aggregation, rows)
    groups: dict[tuple[Any, Any], list[Row]] = {}
    for row in rows:
        for start in _starts(fold.name, row["at"]) if row["at"] is not None else [None]:
            groups.setdefault((row["user"], start), []).append(row)
    return [
        {"user": user, WINDOW_START: start, **{name: shown(one, some) for name, one in aggregation.measures.items()}}
        for (user, start), some in groups.items()
    ]


def _in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row, default=str))


def _held(fold: Fold) -> list[Row]:
    rows = [row for batch in fold.view.scan().batches for row in batch.to_pylist()]
    fold.view.close()
    return _in_order(rows)


@pytest.mark.parametrize(
    "names", [["visits", "nights"], pytest.param([], id="all", marks=pytest.mark.faults)], ids=lambda names: names[0]
)
def test_every_window_and_measure_is_the_recompute_of_the_whole_log(
    names: list[str], tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    folds = {name: fold for name, fold in _folds(tmp_path).items() if name in names or not names}
    rows: list[Row] = []
    chance = random.Random(5)
    for is_near in (False, True) if names else (False, True, True):
        more = [*_clicks(chance, 40), {"user": "ann", "at": None, "page": "x", "bytes": 1, "took": 2.5}]
        _append(tmp_path / "data", more, len(rows))
        rows += more
        with monkeypatch.context() as patched:
            if not is_near:
                patched.setattr(runner, "FOLD_NEAR_OFFSETS", 0)
            fl.run(list(folds.values()), tmp_path / "data", once=True, spark=spark)
        for name, fold in folds.items():
            assert _held(fold) == _in_order(_expected(fold, rows)), name
    for name in ("visits",) if names else ("half_hours", "visits", "quarters", "totals"):
        assert fl.verify(folds[name], tmp_path / "data", spark=spark).answer == "equal"
    if not names:
        fl.rebuild(folds["visits"], tmp_path / "data", spark=spark)
        assert _held(folds["visits"]) == _in_order(_expected(folds["visits"], rows))
        _check_sparks_own_sessions(spark, folds["sessions"], rows)


def _check_sparks_own_sessions(spark: SparkSession, fold: Fold, rows: list[Row]) -> None:
    given = [(row["user"], row["at"], row["bytes"]) for row in rows]
    frame = spark.createDataFrame(given, "user STRING, at TIMESTAMP, b BIGINT")
    grouped = frame.groupBy("user", F.session_window("at", "40 minutes").alias("s")).agg(F.count("*"), F.sum("b"))
    found = grouped.select("user", "s.start", "s.end", "count(1)", "sum(b)").toArrow()
    utc = pa.timestamp("us", "UTC")
    kinds = {"user": pa.string(), "start": utc, "end": utc, "count(1)": pa.int64(), "sum(b)": pa.int64()}
    found = found.cast(pa.schema(list(kinds.items())))
    theirs = {tuple(row.values()) for row in found.to_pylist()}
    assert {tuple(row.values()) for row in _held(fold) if row["window_start"] is not None} == theirs


def test_the_hash_of_the_long_way_is_sparks(spark: SparkSession) -> None:
    values = ["", "a", "é" * 3, "x" * 31, "x" * 32, "y" * 100]
    frame = spark.createDataFrame([(one,) for one in values], "v STRING").selectExpr(
        "v", "xxhash64(v)", "unhex(hex(v))", "xxhash64(unhex(hex(v)))"
    )
    for text, of_text, data, of_data in frame.collect():
        assert (_hash(text), _hash(bytes(data))) == (of_text % 2**64, of_data % 2**64)
    expression = "xxhash64(-5L), xxhash64(CAST(-1.50 AS DECIMAL(38, 2))), xxhash64(TIMESTAMP '2026-01-01 00:00:00Z')"
    ((long, decimal, moment),) = spark.sql(f"SELECT {expression}").collect()
    assert long % 2**64 == _hash(-5)
    assert decimal % 2**64 == _hash(Decimal("-1.50"))
    assert moment % 2**64 == _hash(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))


PLANTED: dict[str, tuple[str, Callable[..., Any]]] = {
    "an event counts in its first window only": (
        "_starts",
        lambda window: f"array({aggregating._start(window)})",
    ),
    "a session ends with its last event": (
        "_session_end",
        lambda window: f"`{window.column}` + INTERVAL 1 SECOND",
    ),
}


@pytest.mark.faults
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught_by_the_trial(
    bug: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, planted = PLANTED[bug]
    monkeypatch.setattr(aggregating, name, planted)
    _append(tmp_path / "data", _clicks(random.Random(1), 40), 0)
    fold = _folds(tmp_path)["hopping" if name == "_starts" else "sessions"]
    with pytest.raises(FoldError, match="gave other rows than the plain one"):
        fl.run([fold], tmp_path / "data", once=True, spark=spark)


@pytest.mark.faults
def test_sessions_and_states_can_be_tested_like_every_fold(tmp_path: Path, spark: SparkSession) -> None:
    fold = _folds(tmp_path)["visits"]
    rows = _clicks(random.Random(3), 6)
    given = [{"id": str(number), **row, "at": str(row["at"])} for number, row in enumerate(rows)]
    assert _in_order(FoldTester(lambda: spark)(fold, given)) == _in_order(_expected(fold, rows))
