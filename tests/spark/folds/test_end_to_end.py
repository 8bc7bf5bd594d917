"""A pipeline into every engine at once, through the real runner: each view equals a recompute in plain Python.

One topic holds whatever a topic may hold: tombstones, null and duplicate keys, updates of a key within a range, late
events, 0-byte values and poison. It is folded in small ranges into PostgreSQL, SQLite, tantivy, FTS5, DuckDB, Delta,
Iceberg and Parquet. Then it is rewound, rebuilt, verified and dropped; the views never differ from the recompute.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import foldlog
import foldlog.spark as fl
from foldlog import Record
from foldlog.errors import FoldError
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.feed import Feed
from folds_model import SHOP_COLUMNS, SHOP_SCHEMA, Row, fill, in_order, records_of, rows_of
from folds_shop import ADDING, ALL, MIRRORS, check_as_shown, check_at_its_bookmark, expected, loaded, write_pipeline
from postgres_server import PostgresServer

SHAPED = ("table_postgres", "search_tantivy", "counters_duckdb", "delta_history", "parquet_history")
"""One of each kind: what every engine does with a new column is in the contract of views."""
PROVED = ("table_postgres", "counters_duckdb")
"""One that has keys, one that adds; the others are proved in the long runs."""
SMALL_RANGES = 6000
"""Bytes: a handful of ranges for the records below."""


def sale(merchant: str | None, amount_paise: int | None, note: str | None = None, at: str | None = None) -> bytes:
    return json.dumps({"merchant": merchant, "amount_paise": amount_paise, "note": note, "at": at}).encode()


def ordinary(count: int, first: int = 0) -> list[tuple[str | None, bytes | None]]:
    """Updates of few keys, again and again; every ninth is a tombstone; every seventh is an hour late."""
    merchants = ["Chai Point", "Café ☕", 'O\'Hara "& Sons"', "", None]
    return [
        (
            f"tx{n % 11}",
            None
            if n % 9 == 5
            else sale(
                merchants[n % 5],
                n % 13 - 2,
                f"paid in {'cash' if n % 2 else 'gold'}, number {n}" if n % 4 else None,
                f"2026-01-15T{9 if n % 7 == 0 else 10:02d}:{n % 3:02d}:{n % 60:02d}.{n:06d}+00:00",
            ),
        )
        for n in range(first, first + count)
    ]


AWKWARD: list[tuple[str | None, bytes | None]] = [
    ("twice", sale("Chai Point", 7, "paid twice", "2026-01-15T10:00:30+05:30")),
    ("twice", sale("Chai Point", 7, "paid twice", "2026-01-15T10:00:30+05:30")),
    ("never", None),
    ("", sale("an empty key is a key", 3, "paid", "1969-12-31T23:59:59.999999+00:00")),
    ("large", sale("exact", 2**53 + 1, None, None)),
    ("nothing", b"{}"),
    ("more", b'{"merchant": "tea", "amount_paise": 5, "unknown": [1, {"x": null}]}'),
    (None, sale("nobody's", 11, "paid by nobody", "2026-01-15T10:01:00+00:00")),
    (None, None),
    ("poison-0", b""),
    ("poison-1", b"{"),
    ("poison-2", b"null"),
    ("poison-3", b"[]"),
    ("poison-4", b'{"amount_paise": [5]}'),
    ("poison-5", b"\xff\xfe"),
    ("tx3", b"{this does not parse, so it changes nothing}"),
    ("back", sale("tea", 1, "paid", None)),
    ("back", None),
    ("back", sale("tea", 2, "paid again", "2025-01-01T00:00:00+00:00")),
]


@dataclass
class Shop:
    """A log with its pipeline into every engine."""

    base: Path
    postgres_url: str
    spark: SparkSession
    names: tuple[str, ...] = ALL
    first_feeds: tuple[Feed, ...] = ()
    """As the first run left them."""

    @property
    def data(self) -> Path:
        return self.base / "data"

    @property
    def views(self) -> Path:
        return self.base / "views"

    def folds(self, schema: str = SHOP_SCHEMA) -> dict[str, Fold]:
        file = self.base / "folds.py"
        return loaded(write_pipeline(file, self.views, self.postgres_url, self.names, schema=schema))

    def append(self, records: list[tuple[str | None, bytes | None]]) -> None:
        with foldlog.open(self.data) as log:
            fill(log, "payments", records)

    def run(self, folds: dict[str, Fold]) -> list[Feed]:
        return fl.run(list(folds.values()), self.data, once=True, spark=self.spark, range_bytes=SMALL_RANGES)

    def records(self) -> list[Record]:
        return records_of(self.data, "payments")

    def check(self, *names: str) -> None:
        """By each view's own bookmark, which is the log's end, and as everybody sees it."""
        records, folds = self.records(), self.folds()
        with foldlog.open(self.data, mode="r") as log:
            ends = {number: end for number, (_, end) in log.offsets("payments").items()}
        for name in names or ALL:
            assert check_at_its_bookmark(folds[name], records) == ends, name
            check_as_shown(name, records, self.views, self.postgres_url)


def open_shop(base: Path, postgres: PostgresServer, spark: SparkSession, names: tuple[str, ...] = ALL) -> Shop:
    shop = Shop(base, postgres.new_database(), spark, names)
    with foldlog.open(shop.data) as log:
        log.create_topic("payments", partitions=3)
        fill(log, "payments", [*ordinary(70), *AWKWARD, *ordinary(40, 70)])
        log.append("payments", sale("tea", 4), key=b"\xffnot text")
    return shop


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, spark: SparkSession) -> Iterator[Shop]:
    """A shop whose views are up to date, from one run into every engine. Whoever uses it leaves them so."""
    shop = open_shop(tmp_path_factory.mktemp("built"), postgres, spark)
    shop.first_feeds = tuple(shop.run(shop.folds()))
    yield shop
    shop.check()


def test_every_view_in_every_engine_equals_a_recompute_of_the_log(built: Shop) -> None:
    assert len(built.first_feeds) == len(ALL)
    assert all(feed.records > 100 and len(feed.last_ranges) == 3 for feed in built.first_feeds)
    built.check()
    built.append([("tx1", None), ("tx2", sale("late", 9, "paid late", "2020-02-29T00:00:00+00:00"))])
    built.append(ordinary(30, 110))
    built.run(built.folds())
    built.check()


def test_what_no_view_can_hold_is_in_the_dead_letters_with_its_place(built: Shop) -> None:
    records = built.records()
    good = {(row["_partition"], row["_offset"]) for row in rows_of(records)}
    keyless = {(one.partition, one.offset) for one in records if one.key is None}
    dead = {(one.partition, one.offset) for one in records} - good
    assert len(dead) == 8
    assert len(keyless) == 2
    with foldlog.open(built.data, mode="r") as log:
        for name in ALL:
            letters = {(letter.key or b"").decode() for letter in log.read(f"{name}.dead")}
            wanted = dead | keyless if name in MIRRORS else dead
            assert letters == {f"payments/{partition}/{offset}" for partition, offset in wanted}, name


@pytest.mark.parametrize(
    "name", [*PROVED, *(pytest.param(name, marks=pytest.mark.faults) for name in ALL if name not in PROVED)]
)
def test_a_replay_with_another_split_proves_each_view_and_a_rebuild_gives_it_again(name: str, built: Shop) -> None:
    fold = built.folds()[name]
    verdict = fl.verify(fold, built.data, spark=built.spark)
    assert verdict.answer == "equal"
    assert verdict.view is not None
    assert verdict.view.rows > 5
    fl.rebuild(fold, built.data, spark=built.spark, range_bytes=SMALL_RANGES)
    built.check(name)
    fl.drop(fold, built.data, old_only=True)
    built.check(name)


@pytest.mark.faults
def test_views_with_keys_are_rewound_and_end_the_same_and_views_that_add_refuse(built: Shop) -> None:
    folds = built.folds()
    for name in ADDING:
        with pytest.raises(FoldError, match=rf"would count it twice; rebuild it instead: foldlog fold rebuild {name}"):
            fl.rewind(folds[name], built.data, "start")
    for name in MIRRORS:
        assert fl.rewind(folds[name], built.data, "0=5,1=0,2=9").again > 50
    built.run(folds)
    built.check()


@pytest.mark.parametrize("name", ["table_postgres", pytest.param("counters_duckdb", marks=pytest.mark.faults)])
def test_a_view_that_was_dropped_is_built_again(name: str, built: Shop) -> None:
    fold = built.folds()[name]
    fl.drop(fold, built.data)
    assert fold.view.bookmark() is None
    built.run({name: fold})
    built.check(name)


GROWN = f"{SHOP_SCHEMA}, tip_paise BIGINT"


@pytest.mark.faults
def test_a_schema_that_grew_adds_its_column_and_a_changed_type_names_the_rebuild(
    tmp_path: Path, postgres: PostgresServer, spark: SparkSession
) -> None:
    shop = open_shop(tmp_path, postgres, spark, SHAPED)
    shop.run(shop.folds())
    shop.append([("tip", b'{"merchant": "tea", "amount_paise": 5, "tip_paise": 3}'), ("tx4", sale("tea", 6))])
    grown = shop.folds(GROWN)
    shop.run(grown)
    columns = {**SHOP_COLUMNS, "tip_paise": int}
    records = shop.records()
    for name in SHAPED:
        check_at_its_bookmark(grown[name], records, columns)
    changed = shop.folds(GROWN.replace("amount_paise BIGINT", "amount_paise DECIMAL(20,0)"))
    refused: dict[str, str] = {}

    def progressed(feed: Feed) -> None:
        refused[feed.fold.name] = feed.error or ""

    with pytest.raises(FoldError, match=f"and {len(SHAPED) - 1} more"):
        fl.run(list(changed.values()), shop.data, once=True, spark=spark, on_progress=progressed)
    for name in SHAPED:
        assert re.search(r"int64.*decimal128\(\d+, 0\)|decimal128\(\d+, 0\).*int64", refused[name]), refused[name]
        assert f"'foldlog fold rebuild {name}'" in refused[name]
        check_at_its_bookmark(grown[name], records, columns)
    for name in ("table_postgres", "counters_duckdb"):
        fl.rebuild(changed[name], shop.data, spark=spark)
        wanted = expected(name, records, columns)
        assert in_order(map(with_integers, held(changed[name]))) == in_order(map(with_integers, wanted))


def with_integers(row: Row) -> Row:
    """A decimal without a fraction is as good; the mean of decimals is rounded where theirs are."""
    return {name: int(value) if isinstance(value, Decimal) else value for name, value in row.items() if name != "mean"}


def held(fold: Fold) -> list[Row]:
    with closing(fold.view):
        return [row for batch in fold.view.scan().batches for row in batch.to_pylist()]


def by_key(fold: Fold, key: str = "tx_id") -> dict[object, Row]:
    return {row[key]: row for row in held(fold)}


@pytest.mark.faults
def test_a_compacted_topic_reseeds_views_with_keys_and_cannot_prove_those_that_add(
    tmp_path: Path, spark: SparkSession
) -> None:
    names = ["table_sqlite", "search_fts", "delta_mirror", "counters_sqlite", "parquet_history"]
    folds = loaded(write_pipeline(tmp_path / "folds.py", tmp_path / "views", None, names))
    data = tmp_path / "data"
    with foldlog.open(data) as log:
        log.create_topic("payments", config={"cleanup.policy": "compact", "foldlog.segment.records": 10})
        fill(log, "payments", [one for one in ordinary(90) if one[0] is not None])
    fl.run(list(folds.values()), data, once=True, spark=spark)
    before = records_of(data, "payments")
    for name in names:
        check_at_its_bookmark(folds[name], before)
    with foldlog.open(data) as log:
        log.compact("payments")
    assert len(records_of(data, "payments")) < len(before)
    for name in ("table_sqlite", "search_fts", "delta_mirror"):
        fl.drop(folds[name], data)
    fl.run(list(folds.values()), data, once=True, spark=spark)
    for name in names:
        check_at_its_bookmark(folds[name], before)
    assert fl.verify(folds["delta_mirror"], data, spark=spark).answer == "equal"
    for name in ("counters_sqlite", "parquet_history"):
        verdict = fl.verify(folds[name], data, spark=spark)
        assert verdict.answer == "not provable"
        assert "compacted" in verdict.missing
        with pytest.raises(FoldError, match=rf"compacted.*foldlog fold rebuild {name} --accept-loss"):
            fl.rebuild(folds[name], data, spark=spark)
        check_at_its_bookmark(folds[name], before)
    fl.rebuild(folds["counters_sqlite"], data, spark=spark, accept_loss=True)
    check_at_its_bookmark(folds["counters_sqlite"], records_of(data, "payments"))


@pytest.mark.faults
def test_a_log_read_over_the_network_gives_the_same_views_as_its_directory(
    tmp_path: Path, postgres_url: str, spark: SparkSession
) -> None:
    names = ["table_postgres", "search_tantivy", "counters_sqlite", "delta_history", "parquet_history"]
    with foldlog.open(tmp_path / "data", listen=True) as log:
        log.create_topic("payments", partitions=3)
        fill(log, "payments", [*ordinary(40), *AWKWARD])
        source = f"kafka://{log.bootstrap}"
        folds = loaded(write_pipeline(tmp_path / "folds.py", tmp_path / "wire", postgres_url, names))
        fl.run(list(folds.values()), source, once=True, spark=spark, range_bytes=SMALL_RANGES)
        fill(log, "payments", ordinary(40, 40))
        fl.run(list(folds.values()), source, once=True, spark=spark, range_bytes=SMALL_RANGES)
        records = records_of(tmp_path / "data", "payments")
        ends = {number: end for number, (_, end) in log.offsets("payments").items()}
        for name in names:
            assert check_at_its_bookmark(folds[name], records) == ends
        letters = {letter.key for letter in log.read("parquet_history.dead")}
        assert len(letters) == 7
        # A view that one way has filled goes on by the other: the topic, and its bookmark, are the same.
        fill(log, "payments", ordinary(10, 80))
        fl.run(list(folds.values()), tmp_path / "data", once=True, spark=spark)
        records = records_of(tmp_path / "data", "payments")
        for name in names:
            check_at_its_bookmark(folds[name], records)
        assert fl.verify(folds["table_postgres"], source, spark=spark).answer == "equal"


ORDERS = """
import foldlog.spark as fl
from pyspark.sql import SparkSession, functions as F

orders = fl.topic("orders", key="id", schema="id BIGINT, city STRING, lines ARRAY<STRUCT<sku: STRING, paise: BIGINT>>")

@fl.fold(orders, into=fl.table("{views}/orders.db", "lines", key=["id", "sku"]))
def lines(rows):
    return rows.select("id", F.explode_outer("lines").alias("line"), *fl.META).select("id", "line.*", *fl.META).filter(
        "_deleted or sku is not null"
    )

@fl.fold(orders, into=fl.table("{views}/orders.db", "zones"))
def zones(rows):
    cities = SparkSession.active().createDataFrame([("Pune", 4), ("Goa", 7)], "city STRING, zone INT")
    return rows.drop("lines").join(F.broadcast(cities), "city", "left")

@fl.fold(orders, into=fl.table("{views}/orders.db", "where"))
def where(rows):
    return rows.select("id", F.concat_ws("/", *fl.META[:3]).alias("place"), F.col("_deleted").alias("gone"), *fl.META)

@fl.fold(orders, into=fl.table("{views}/orders.db", "deleted"))
def deleted(rows):
    return rows.select("id", *fl.META).withColumn("gone", F.col("_deleted")).withColumn("_deleted", F.lit(False))

@fl.fold(orders, into=fl.counters("{views}/orders.db", measures={{"lines": fl.count(), "paise": fl.sum("paise")}}))
def totals(rows): return rows.select(F.inline("lines"))

@fl.fold(fl.topic("orders", key="id", format="text"), into=fl.search("{views}/words", text="value", engine="fts5"))
def words(rows): return rows

@fl.fold(fl.topic("orders", format="raw"), into=fl.lake("{views}/raw", format="parquet"))
def raw(rows): return rows
"""


def order(city: str, *lines: tuple[str, int]) -> bytes:
    return json.dumps({"city": city, "lines": [{"sku": sku, "paise": paise} for sku, paise in lines]}).encode()


@pytest.mark.faults
def test_folds_may_explode_join_static_frames_use_meta_and_read_text_and_bytes(
    tmp_path: Path, spark: SparkSession
) -> None:
    data, views = tmp_path / "data", tmp_path / "views"
    views.mkdir()
    (tmp_path / "folds.py").write_text(ORDERS.format(views=views))
    folds = loaded(tmp_path / "folds.py")
    written = [
        ("1", order("Pune", ("tea", 5), ("cup", 9), ("mug", 6))),
        ("2", order("Goa", ("tea", 1))),
        ("3", order("Agra", ("jug", 2), ("cup", 3))),
        ("1", order("Goa", ("cup", 8))),
        ("2", None),
        ("no number", order("Goa", ("tea", 1))),
        ("-4", order("Pune")),
        ("3", b"plain words"),
    ]
    with foldlog.open(data) as log:
        log.create_topic("orders", partitions=1)
        fill(log, "orders", list(written))
    fl.run(list(folds.values()), data, once=True, spark=spark, range_bytes=600)
    assert {(row["id"], row["sku"]): row["paise"] for row in held(folds["lines"])} == {
        (1, "cup"): 8,
        (3, "jug"): 2,
        (3, "cup"): 3,
    }
    zones = {key: (row["city"], row["zone"]) for key, row in by_key(folds["zones"], "id").items()}
    assert zones == {1: ("Goa", 7), 3: ("Agra", None), -4: ("Pune", 4)}
    assert {key: (row["place"], row["gone"]) for key, row in by_key(folds["where"], "id").items()} == {
        1: ("orders/0/3", False),
        3: ("orders/0/2", False),
        -4: ("orders/0/6", False),
    }
    assert {key: row["gone"] for key, row in by_key(folds["deleted"], "id").items()} == {
        1: False,
        3: False,
        -4: False,
    }
    assert held(folds["totals"]) == [{"lines": 7, "paise": 5 + 9 + 6 + 1 + 2 + 3 + 8}]
    texts = {"1": written[3][1], "no number": written[5][1], "-4": written[6][1], "3": written[7][1]}
    assert {key: str(row["value"]).encode() for key, row in by_key(folds["words"], "id").items()} == texts
    raw = sorted(held(folds["raw"]), key=lambda row: int(row["_offset"]))
    assert [row["value"] for row in raw] == [value for _, value in written]
    assert [row["_deleted"] for row in raw] == [value is None for _, value in written]
    for name in ("lines", "totals"):
        assert fl.verify(folds[name], data, spark=spark).answer == "equal", name
    fl.rebuild(folds["lines"], data, spark=spark)
    assert len(held(folds["lines"])) == 3


def test_aborted_records_are_in_no_view_and_an_open_transaction_is_folded_once_it_is_committed(
    tmp_path: Path, spark: SparkSession
) -> None:
    names = ["table_sqlite", "counters_sqlite"]
    folds = loaded(write_pipeline(tmp_path / "folds.py", tmp_path / "views", None, names))
    data = tmp_path / "data"
    records = [one for one in ordinary(30) if one[0] is not None]
    with foldlog.open(data, listen=True) as log:
        log.create_topic("payments")
        for start, keep in ((0, True), (10, False)):
            with log.transaction("etl") as tx:
                sent = [tx.send("payments", value, key=key) for key, value in records[start : start + 10]]
                sent[-1].result(60)
                if not keep:
                    tx.abort()
        tx = log.transaction("etl")
        sent = [tx.send("payments", value, key=key) for key, value in records[20:]]
        sent[-1].result(60)
        fl.run(list(folds.values()), data, once=True, spark=spark)
        committed = [record.value for record in log.read("payments", isolation="read_committed")]
        assert len(committed) == len(records[:10])
        for name in names:
            check_at_its_bookmark(folds[name], records_of(data, "payments", isolation="read_committed"))
        tx.commit()
    fl.run(list(folds.values()), data, once=True, spark=spark)
    for name in names:
        check_at_its_bookmark(folds[name], records_of(data, "payments", isolation="read_committed"))
        assert fl.verify(folds[name], data, spark=spark).answer == "equal"
