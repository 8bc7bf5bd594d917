"""A fold that says by itself what is deleted: the same view on every engine, however the log is split.

A random history of few keys: records with a status, without one, cancelled ones, tombstones and poison. What a view has
to hold is worked out here, from the records alone. `verify`, which goes another way, has to find the same.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 as everybody calls it

import foldlog
import foldlog.spark as fl
from foldlog import Record
from foldlog.spark.folds.declaration import Fold
from foldlog.views.contract import View
from folds_model import append, records_of

SCHEMA = "status STRING, paise BIGINT"


def left_open(rows: DataFrame) -> DataFrame:
    """Null where there is no status: in tombstones, and in some records."""
    return rows.withColumn("_deleted", F.expr("status = 'cancelled'"))


def settled(rows: DataFrame) -> DataFrame:
    """Never null, and false of every tombstone."""
    return rows.withColumn("_deleted", F.expr("coalesce(status, '') = 'cancelled'"))


def hidden(rows: DataFrame) -> DataFrame:
    """Under keys of its own, so that a record's rows are found by its digest."""
    return left_open(rows).withColumn("id", F.expr("upper(id)"))


def lines(rows: DataFrame) -> DataFrame:
    """Two rows of each record; one of them is deleted where the other is not."""
    twice = rows.withColumn("line", F.explode(F.array(F.lit(1), F.lit(2))))
    return twice.withColumn("_deleted", F.expr("status = 'cancelled' OR (status = 'half' AND line = 2)"))


def happenings(chance: random.Random, count: int) -> Iterator[tuple[str, bytes | None]]:
    for number in range(count):
        key = f"k{chance.randint(0, 7)}"
        what = chance.choice(["paid", "half", "cancelled", "open", "tombstone", "poison"])
        record: dict[str, Any] = {"paise": number}
        if what not in ("open", "tombstone", "poison"):
            record["status"] = what
        yield key, None if what == "tombstone" else b"{" if what == "poison" else json.dumps(record).encode()


def contents(records: list[Record]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Key and content of what parses; None of a tombstone."""
    for one in records:
        assert one.key is not None
        if one.value != b"{":
            yield one.key.decode(), None if one.value is None else json.loads(one.value)


def live(records: list[Record]) -> dict[str, dict[str, Any]]:
    newest = dict(contents(records))
    return {key: one for key, one in newest.items() if one is not None and one.get("status") != "cancelled"}


def expected(kind: str, records: list[Record]) -> Counter[tuple[Any, ...]]:
    if kind == "counted":
        good = [one for _, one in contents(records) if one is not None and one.get("status") != "cancelled"]
        by_status = Counter(one.get("status") for one in good)
        return Counter((status, count) for status, count in by_status.items())
    if kind == "appended":
        return Counter(
            (key, (one or {}).get("paise"), one is None or one.get("status") == "cancelled")
            for key, one in contents(records)
        )
    rows = live(records)
    if kind == "lines":
        return Counter(
            (key, one["paise"], line)
            for key, one in rows.items()
            for line in ((1,) if one.get("status") == "half" else (1, 2))
        )
    return Counter((key.upper() if kind == "hidden" else key, one["paise"]) for key, one in rows.items())


COLUMNS = {
    "counted": ("status", "n"),
    "appended": ("id", "paise", "_deleted"),
    "lines": ("id", "paise", "line"),
    "hidden": ("id", "paise"),
    "open": ("id", "paise"),
    "settled": ("id", "paise"),
}


def folds_in(base: Path) -> list[Fold]:
    topic = fl.topic("payments", key="id", schema=SCHEMA)
    engines: dict[str, Callable[[str], View]] = {
        "sqlite": lambda kind: fl.table(base / "shop.db", kind),
        "fts5": lambda kind: fl.search(base / f"{kind}-fts5.db", text="status", engine="fts5"),
        "tantivy": lambda kind: fl.search(base / f"{kind}-tantivy", text="status", engine="tantivy"),
        "delta": lambda kind: fl.lake(base / f"{kind}-delta", mode="merge"),
    }
    made = [("open", left_open, engine, view("open")) for engine, view in engines.items()]
    made += [("settled", settled, engine, engines[engine]("settled")) for engine in ("sqlite", "delta")]
    made += [("hidden", hidden, engine, engines[engine]("hidden")) for engine in ("sqlite", "fts5")]
    made += [
        ("lines", lines, "sqlite", fl.table(base / "shop.db", "lines", key=["id", "line"])),
        ("lines", lines, "delta", fl.lake(base / "lines-delta", mode="merge", key=["id", "line"])),
        ("counted", left_open, "sqlite", fl.counters(base / "live.db", by=["status"], measures={"n": fl.count()})),
        ("counted", left_open, "duckdb", fl.counters(base / "live.duckdb", by=["status"], measures={"n": fl.count()})),
        ("appended", settled, "parquet", fl.lake(base / "all", format="parquet")),
        ("appended", left_open, "delta", fl.lake(base / "all-delta")),
    ]
    return [fl.fold(topic, into=view, name=f"{kind}_{engine}")(function) for kind, function, engine, view in made]


def check(folds: list[Fold], directory: Path) -> None:
    records = records_of(directory, "payments")
    for fold in folds:
        kind = fold.name.partition("_")[0]
        rows = (row for batch in fold.view.scan().batches for row in batch.to_pylist())
        found = Counter(tuple(row[name] for name in COLUMNS[kind]) for row in rows)
        assert found == expected(kind, records), fold.name


@pytest.mark.faults
def test_what_a_fold_says_is_deleted_is_so_on_each_kind_of_engine(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    """One history in small ranges; the longer ones, with every engine and function, are among the long runs."""
    kinds = {"open_sqlite", "open_fts5", "open_delta", "hidden_sqlite", "counted_sqlite"}
    folds = [fold for fold in folds_in(tmp_path / "views") if fold.name in kinds]
    append(directory, *happenings(random.Random(1), 12))
    fl.run(folds, directory, once=True, spark=spark, range_bytes=250)
    check(folds, directory)
    assert fl.verify(folds[0], directory, spark=spark).answer == "equal"


@pytest.mark.faults
@pytest.mark.parametrize("seed", [1, 2])
def test_what_a_fold_says_is_deleted_is_so_in_every_view_and_split(
    directory: Path, tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    chance = random.Random(seed)
    folds = folds_in(tmp_path / "views")
    for _ in range(2):
        append(directory, *happenings(chance, chance.choice([12, 40])))
        fl.run(folds, directory, once=True, spark=spark, range_bytes=chance.choice([150, 400, 1 << 20]))
        check(folds, directory)
    for fold in chance.sample(folds, 4):
        assert fl.verify(fold, directory, spark=spark).answer == "equal", fold.name
    rebuilt = chance.sample([fold for fold in folds if fold.name.endswith(("sqlite", "delta"))], 2)
    for fold in rebuilt:
        fl.rebuild(fold, directory, spark=spark)
    check(folds, directory)


def test_a_cancelled_record_of_which_a_function_of_arrow_says_nothing_is_as_it_was(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    """What happens inside of mapInArrow shows in no plan."""

    def forgetful(rows: DataFrame) -> DataFrame:
        def forget(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            for batch in batches:
                at = batch.schema.get_field_index("_deleted")
                yield batch.set_column(at, "_deleted", pa.nulls(batch.num_rows, pa.bool_()))

        return rows.mapInArrow(
            forget,
            "id STRING, status STRING, paise BIGINT, _topic STRING, _partition INT,"
            " _offset BIGINT, _timestamp TIMESTAMP, _deleted BOOLEAN",
        )

    append(directory, ("a", b'{"paise": 1}'), ("b", b'{"paise": 2}'), ("a", None))
    topic = fl.topic("payments", key="id", schema=SCHEMA)
    fold = fl.fold(topic, into=fl.table(tmp_path / "shop.db", "t"), name="forgetful")(forgetful)
    fl.run([fold], directory, once=True, spark=spark)
    assert [row["id"] for batch in fold.view.scan().batches for row in batch.to_pylist()] == ["b"]
    with foldlog.open(directory, mode="r") as log:
        assert "forgetful.dead" not in log.topics()
