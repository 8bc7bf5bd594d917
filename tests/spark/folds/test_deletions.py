"""What is deleted, on every kind of view: a random history of records, corrections, tombstones and records that a
filter drops, under keys that the fold changes, in random ranges; and a copy of the log in the middle of it.

What each view has to hold is computed here from the records alone, one after the other.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import foldlog
import foldlog.spark as fl
from foldlog import Record
from foldlog.cli.main import main
from foldlog.spark.folds.declaration import Fold
from folds_model import fill, payment, records_of

PIPELINE = """
import foldlog.spark as fl

payments = fl.topic("payments", key="tx_id", schema="merchant STRING, amount_paise BIGINT, note STRING")
URL = "{url}"

def hidden(rows):
    return rows.selectExpr("sha2(tx_id, 256) AS tx_id", "merchant", "amount_paise", *fl.META).filter("amount_paise > 0")

def lines(rows):
    many = rows.filter("amount_paise > 0").withColumn("line", fl_explode("sequence(1, amount_paise)"))
    return many.selectExpr("upper(tx_id) AS tx_id", "line", "merchant", *fl.META)

def kept(rows): return rows.filter("amount_paise > 0").select("tx_id", "merchant", "amount_paise", *fl.META)

def fl_explode(text):
    from pyspark.sql import functions as F
    return F.explode(F.expr(text))

VIEWS = {{
    "sqlite": fl.table("views/shop.db", "hidden"),
    "postgresql": fl.table(URL, "hidden"),
    "fts5": fl.search("views/fts5.db", text="merchant", engine="fts5"),
    "tantivy": fl.search("views/tantivy", text="merchant", engine="tantivy"),
    "delta": fl.lake("views/delta", mode="merge"),
}}
for name, view in VIEWS.items():
    globals()[f"hidden_{{name}}"] = fl.fold(payments, into=view, name=f"hidden_{{name}}")(hidden)

KEY = ["tx_id", "line"]
lines_sqlite = fl.fold(payments, into=fl.table("views/shop.db", "lines", key=KEY), name="lines_sqlite")(lines)
lines_postgresql = fl.fold(payments, into=fl.table(URL, "lines", key=KEY), name="lines_postgresql")(lines)
lines_delta = fl.fold(payments, into=fl.lake("views/lines", mode="merge", key=KEY), name="lines_delta")(lines)
kept_sqlite = fl.fold(payments, into=fl.table("views/shop.db", "kept"), name="kept_sqlite")(kept)
kept_delta = fl.fold(payments, into=fl.lake("views/kept", mode="merge"), name="kept_delta")(kept)

MEASURES = {{"payments": fl.count(), "paise": fl.sum("amount_paise")}}
for name, place in {{"sqlite": "views/live.db", "duckdb": "views/live.duckdb", "postgresql": URL}}.items():
    view = fl.counters(place, by=["merchant"], measures=MEASURES, name="counted")
    globals()[f"counted_{{name}}"] = fl.fold(payments, into=view, name=f"counted_{{name}}")(kept)
"""


def happenings(chance: random.Random, count: int) -> Iterator[tuple[str, bytes | None]]:
    """Of few keys, so that each is written, corrected, dropped and erased again and again."""
    for _ in range(count):
        key = f"person{chance.randint(0, 11)}"
        what = chance.random()
        if what < 0.25:
            yield key, None
        elif what < 0.3:
            yield key, b"{"  # a dead letter: the key keeps what it had
        else:
            yield key, payment(chance.choice(["tea", "books", "rice"]), chance.choice([0, 1, 2, 3]))


def newest(records: list[Record]) -> dict[str, tuple[str, int]]:
    """Merchant and amount of each key whose newest record that parses has an amount."""
    found: dict[str, tuple[str, int]] = {}
    for record in records:
        assert record.key is not None
        key = record.key.decode()
        if record.value == b"{":
            continue
        found.pop(key, None)
        if record.value is not None:
            content = json.loads(record.value)
            if content["amount_paise"] > 0:
                found[key] = (content["merchant"], content["amount_paise"])
    return found


def expected(kind: str, records: list[Record]) -> Counter[tuple[object, ...]]:
    if kind == "counted":
        given = [json.loads(one.value) for one in records if one.value not in (None, b"{")]
        good = [one for one in given if one["amount_paise"] > 0]
        return Counter(
            (merchant, len(amounts), sum(amounts))
            for merchant in {one["merchant"] for one in good}
            if (amounts := [one["amount_paise"] for one in good if one["merchant"] == merchant])
        )
    rows = newest(records)
    if kind == "lines":
        return Counter((key.upper(), line, merchant) for key, (merchant, n) in rows.items() for line in range(1, n + 1))
    if kind == "hidden":
        rows = {hashlib.sha256(key.encode()).hexdigest(): row for key, row in rows.items()}
    return Counter((key, *row) for key, row in rows.items())


COLUMNS = {
    "hidden": ("tx_id", "merchant", "amount_paise"),
    "kept": ("tx_id", "merchant", "amount_paise"),
    "lines": ("tx_id", "line", "merchant"),
    "counted": ("merchant", "payments", "paise"),
}


def check(folds: list[Fold], directory: Path) -> None:
    records = records_of(directory, "payments")
    for fold in folds:
        kind = fold.name.partition("_")[0]
        batches = (batch.to_pylist() for batch in fold.view.scan().batches)
        found = Counter(tuple(row[name] for name in COLUMNS[kind]) for rows in batches for row in rows)
        assert found == expected(kind, records), fold.name


@pytest.mark.faults
@pytest.mark.parametrize("seed", [1, 2])
def test_every_view_deletes_what_a_random_history_says(
    tmp_path: Path, postgres_url: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    chance = random.Random(seed)
    directory, copied = tmp_path / "data", tmp_path / "copied"
    Path("folds.py").write_text(PIPELINE.format(url=postgres_url))
    folds = list(fl.load_folds("folds.py"))
    with foldlog.open(directory) as log:
        log.create_topic("payments", partitions=2)

    def happen(where: Path) -> None:
        with foldlog.open(where) as log:
            fill(log, "payments", list(happenings(chance, 60)))
        fl.run(folds, where, once=True, spark=spark, range_bytes=chance.choice([800, 2000, 1 << 20]))
        check(folds, where)

    happen(directory)
    assert main(["copy", "payments", "--from", "data", "--to", "copied", "--folds", "folds.py"]) == 0
    check(folds, copied)
    happen(copied)
    some = ("hidden_postgresql", "hidden_delta", "lines_sqlite", "kept_delta", "hidden_tantivy")
    for fold in [fold for fold in folds if fold.name in some]:
        assert fl.verify(fold, copied, spark=spark).answer == "equal", fold.name
        fl.rebuild(fold, copied, spark=spark)
    check(folds, copied)
    happen(copied)
