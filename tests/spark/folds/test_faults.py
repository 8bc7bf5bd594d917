"""A record that a fold fails at is a dead letter, and the fold goes on; what is not a record's fault stops it.

Each failure is a real one: functions that raise, casts that overflow, texts that PostgreSQL cannot hold, workers that
die. The same records have to be set aside whatever the ranges, and a replay has to agree.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import PandasUDFType, pandas_udf

import foldlog
import foldlog.spark as fl
from file_view import FileView
from foldlog.errors import FoldError, FoldlogError
from foldlog.limits import FOLD_TRIAL_YOUNG_OFFSETS
from foldlog.spark.folds.commands import log_at
from foldlog.spark.folds.deltas import PlannedFold, PreparedFold
from foldlog.spark.folds.feed import State
from foldlog.spark.folds.pipeline import Pipeline
from foldlog.views.contract import View
from folds_model import SCHEMA, append, payment
from postgres_server import PostgresServer

PAYMENTS = fl.topic("payments", key="tx_id", schema=SCHEMA)
NUL = payment("tea\0house")


def letters(directory: Path, fold: str) -> dict[bytes, str]:
    """The reason of each dead letter, by the record's key."""
    with foldlog.open(directory, mode="r") as log:
        found = [dict(record.headers) for record in log.read(f"{fold}.dead")]
    return {one["key"] or b"": (one["reason"] or b"").decode() for one in found}


def refuse_thirteen(rows: DataFrame) -> DataFrame:
    @F.udf("bigint")
    def doubled(paise: int) -> int:
        if paise == 13:
            raise ValueError("thirteen is not paid")
        return paise * 2  # which fails at a tombstone, too

    return rows.withColumn("amount_paise", doubled("amount_paise"))


ODD = {
    "a function that raises": (refuse_thirteen, r"ValueError: thirteen is not paid \(test_faults.py, line \d+\)"),
    "a division by zero": (
        lambda rows: rows.withColumn("note", F.expr("cast(1 / (amount_paise - 13) as string)")),
        "DIVIDE_BY_ZERO",
    ),
    "a cast that overflows": (
        lambda rows: rows.withColumn(
            "note", F.expr("cast(cast(if(amount_paise = 13, amount_paise * 100, 1) as tinyint) as string)")
        ),
        "CAST_OVERFLOW",
    ),
}


# Each takes dozens of jobs that fail, and with each its worker. For every run there are shorter ones below, each about
# one of the things that this holds together: a record set aside, a view that is built again, ranges that are split.
@pytest.mark.faults
@pytest.mark.parametrize(("function", "reason"), ODD.values(), ids=ODD)
def test_a_record_that_a_fold_fails_at_is_a_dead_letter_whatever_the_split(
    function: Any, reason: str, directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    append(directory, ("a", payment(amount_paise=1)), ("b", payment(amount_paise=13)), ("c", payment(amount_paise=3)))
    append(directory, ("c", payment(amount_paise=13)), ("d", b"{"), ("e", payment()), ("f", payment()), ("f", None))
    whole, split = FileView(tmp_path / "whole.json"), FileView(tmp_path / "split.json")
    fold = fl.fold(PAYMENTS, into=whole, name="whole")(function)
    (feed,) = fl.run([fold], directory, once=True, spark=spark)
    assert set(whole.rows()) == {"a", "c", "e"}  # of c what it was before, and f is deleted
    reasons = letters(directory, "whole")
    assert feed.dead == len(reasons)
    assert set(reasons) - {b"f"} == {b"b", b"c", b"d"}
    assert [key for key, text in reasons.items() if re.search(reason, text)] == [b"b", b"c"]
    assert fl.verify(fold, directory, spark=spark).answer == "equal"
    other = fl.fold(PAYMENTS, into=split, name="split")(function)
    fl.run([other], directory, once=True, spark=spark, range_bytes=1)
    assert split.rows() == whole.rows()
    assert set(letters(directory, "split")) == set(reasons)


def asserting(rows: DataFrame) -> DataFrame:
    @F.udf("bigint")
    def unlike_thirteen(paise: int) -> int:
        if paise == 13:
            raise AssertionError  # what `assert` does; pytest would give it a message
        return paise

    return rows.withColumn("amount_paise", unlike_thirteen("amount_paise"))


def asserting_in_series(rows: DataFrame) -> DataFrame:
    def unlike_thirteen(paise: Any) -> Any:
        if (paise == 13).any():
            raise AssertionError
        return paise

    in_series: Any = pandas_udf(unlike_thirteen, "bigint", PandasUDFType.SCALAR)
    return rows.withColumn("amount_paise", in_series("amount_paise"))


def ending_an_iteration(rows: DataFrame) -> DataFrame:
    @F.udf("bigint")
    def first_of_none(paise: int) -> int:
        return int(next(iter([]))) if paise == 13 else paise

    return rows.withColumn("amount_paise", first_of_none("amount_paise"))


def expression(text: str) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: rows.withColumn("note", F.expr(text))


ALONE = {
    "assertion": (asserting, r"AssertionError \(test_faults.py, line \d+\)"),
    "series": (asserting_in_series, r"AssertionError \(test_faults.py, line \d+\)"),
    "iteration": (ending_an_iteration, r"StopIteration \(test_faults.py, line \d+\)"),
    "json": (expression("from_json(note, 'a STRING', map('mode', 'FAILFAST')).a"), "MALFORMED_RECORD_IN_PARSING"),
    "map": (expression("map_from_arrays(split(note, ','), split(note, ','))['x']"), "DUPLICATED_MAP_KEY"),
    "array": (
        expression("size(array_repeat('x', cast(if(amount_paise = 13, 2147483647, 1) AS INT)))"),
        "create array with 2147483647 elements",
    ),
    "xml": (expression("xpath_string(if(amount_paise = 13, '<a', '<a/>'), 'a')"), "Error loading expression 'a'"),
}


@pytest.mark.faults
@pytest.mark.parametrize("name", ALONE)
def test_whatever_fails_at_one_record_alone_sets_that_one_aside(
    name: str, directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    function, reason = ALONE[name]
    notes = {13: "1,1,{"}
    append(directory, *((f"k{n}", payment(amount_paise=n, note=notes.get(n, '{"a": 1}'))) for n in range(20)))
    view = FileView(tmp_path / "view.json")
    fl.run([fl.fold(PAYMENTS, into=view, name=name)(function)], directory, once=True, spark=spark)
    assert set(view.rows()) == {f"k{n}" for n in range(20) if n != 13}
    ((key, told),) = letters(directory, name).items()
    assert key == b"k13"
    assert re.search(reason, told), told


@pytest.mark.faults
def test_a_static_frame_whose_files_are_gone_makes_no_dead_letter(
    directory: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldlog.spark.folds.feed.SAME_FAILURES_MAX", 1)
    append(directory, ("a", payment()))
    spark.createDataFrame([("tea", 2)], "merchant STRING, rate INT").write.parquet(str(tmp_path / "rates"))
    rates = spark.read.parquet(str(tmp_path / "rates"))
    shutil.rmtree(tmp_path / "rates")
    view = FileView(tmp_path / "view.json")
    fold = fl.fold(PAYMENTS, into=view, name="rated")(lambda rows: rows.join(rates, "merchant", "left"))
    with pytest.raises(FoldError, match="FAILED_READ_FILE"):
        fl.run([fold], directory, once=True, spark=spark)
    with foldlog.open(directory, mode="r") as log:
        assert "rated.dead" not in log.topics()


@pytest.mark.faults
def test_a_fold_that_fails_at_a_record_leaves_those_alone_that_share_its_read(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    append(directory, ("a", payment(amount_paise=1)), ("b", payment(amount_paise=13)), ("c", b"{"), ("d", None))
    views = [FileView(tmp_path / f"{name}.json") for name in ("odd", "cheap")]
    odd = fl.fold(PAYMENTS, into=views[0], name="odd")(refuse_thirteen)
    cheap = fl.fold(PAYMENTS, into=views[1], name="cheap")(lambda rows: rows.filter("amount_paise < 50"))
    fl.run([odd, cheap], directory, once=True, spark=spark)
    assert [set(view.rows()) for view in views] == [{"a"}, {"a", "b"}]
    assert (set(letters(directory, "odd")), set(letters(directory, "cheap"))) == ({b"b", b"c", b"d"}, {b"c"})


def test_strict_names_the_record_and_the_line(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    append(directory, ("a", payment(amount_paise=13)))
    fold = fl.fold(PAYMENTS, into=FileView(tmp_path / "view.json"), name="odd")(refuse_thirteen)
    with pytest.raises(FoldError, match=r"offset 0 of payments-\d: ValueError: .*test_faults.py, line \d+.*--strict"):
        fl.run([fold], directory, once=True, spark=spark, strict=True)


@pytest.mark.faults
def test_a_fold_that_fails_at_everything_is_wrong_itself_and_stops(
    directory: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldlog.spark.folds.faults.FAULTY_RECORDS_MAX", 2)
    append(directory, *((f"tx{number}", payment(amount_paise=13)) for number in range(5)))
    view = FileView(tmp_path / "view.json")
    fold = fl.fold(PAYMENTS, into=view, name="odd")(refuse_thirteen)
    with pytest.raises(FoldError, match=r"more than 2 records.*fix the fold.*thirteen is not paid"):
        fl.run([fold], directory, once=True, spark=spark)
    assert view.rows() == {}


def test_what_no_record_does_alone_is_no_records_fault(
    directory: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each amount fits; their sum does not."""
    monkeypatch.setattr("foldlog.spark.folds.feed.SAME_FAILURES_MAX", 1)
    append(directory, *(("tx", payment(amount_paise=2**62)) for _ in range(3)))
    view = fl.counters(str(tmp_path / "live.duckdb"), by=["merchant"], measures={"sum": fl.sum("amount_paise")})
    fold = fl.fold(PAYMENTS, into=view, name="sums")(lambda rows: rows)
    with pytest.raises(FoldError, match=r"(?i)overflow"):
        fl.run([fold], directory, once=True, spark=spark)
    with foldlog.open(directory, mode="r") as log:
        assert "sums.dead" not in log.topics()


@pytest.mark.faults
def test_text_that_postgres_cannot_hold_is_a_dead_letter_of_its_record(
    directory: Path, postgres_url: str, spark: SparkSession
) -> None:
    append(directory, ("a", payment()), ("b", payment("old")), ("b", NUL), ("c\0", payment()), ("d\0", None))
    table = fl.fold(PAYMENTS, into=fl.table(postgres_url, "payments"), name="plain")(lambda rows: rows)
    nested = fl.fold(PAYMENTS, into=fl.table(postgres_url, "nested"), name="nested")(
        lambda rows: rows.withColumn("note", F.struct(F.array("merchant").alias("names")))
    )
    fl.run([table, nested], directory, once=True, spark=spark)
    with psycopg.connect(postgres_url) as connection:
        for name in ("payments", "nested"):
            rows = connection.execute(f"SELECT tx_id, merchant FROM {name} ORDER BY 1").fetchall()
            assert rows == [("a", "tea"), ("b", "old")]
    for fold in (table, nested):
        assert set(letters(directory, fold.name)) == {b"b", b"c\0"}  # there is nothing to delete under d
        assert "character NUL" in letters(directory, fold.name)[b"b"]
        assert fl.verify(fold, directory, spark=spark).answer == "equal"


@pytest.mark.faults
def test_text_that_postgres_cannot_hold_is_not_counted_whatever_hides_it(
    directory: Path, postgres_url: str, spark: SparkSession
) -> None:
    """The largest name hides the one with the NUL in one range, and not in another."""
    append(directory, ("a", payment("x", 1, "z")), ("b", payment("x", 2, "a\0")), ("c", payment("y\0", 4)))
    for name, range_bytes in (("whole", 1 << 20), ("split", 1)):
        measures = {"paise": fl.sum("amount_paise"), "last": fl.max("note")}
        view = fl.counters(postgres_url, by=["merchant"], measures=measures, name=name)
        fold = fl.fold(PAYMENTS, into=view, name=name)(lambda rows: rows)
        fl.run([fold], directory, once=True, spark=spark, range_bytes=range_bytes)
        with psycopg.connect(postgres_url) as connection:
            assert connection.execute(f"SELECT merchant, paise, last FROM {name}").fetchall() == [("x", 1, "z")]
        assert set(letters(directory, name)) == {b"b", b"c"}


LONG = "".join(hashlib.sha256(str(number).encode()).hexdigest() for number in range(100))
"""Of 6400 digits that do not pack: no index of PostgreSQL's takes it."""

FOR_NO_VIEW = {
    "text": ("cast(unhex('61fffe') as string)", "is not UTF-8"),
    "texts": ("array(cast(unhex('61fffe') as string))", "is not UTF-8"),
    "day": ("date_add(DATE '9999-12-31', 1)", "outside the years 1 to 9999"),
    "time": ("timestamp_seconds(-62135596801)", "outside the years 1 to 9999"),
    "times": ("map('at', timestamp_seconds(-62135596801))", "outside the years 1 to 9999"),
}


def with_odd_values(rows: DataFrame) -> DataFrame:
    """A payment to "day" has a day that no view holds, and so on."""
    for name, (value, _) in FOR_NO_VIEW.items():
        rows = rows.withColumn(name, F.expr(f"if(merchant = '{name}', {value}, null)"))
    return rows


@pytest.mark.parametrize(
    "kinds",
    [("sqlite",), pytest.param(("postgresql", "tantivy", "fts5", "delta", "parquet"), marks=pytest.mark.faults)],
)
def test_a_value_that_no_view_holds_is_a_dead_letter_of_its_record(
    directory: Path, tmp_path: Path, request: pytest.FixtureRequest, spark: SparkSession, kinds: tuple[str, ...]
) -> None:
    append(directory, ("a", payment()), ("day", payment("old")), *((name, payment(name)) for name in FOR_NO_VIEW))
    makers: dict[str, Callable[[], View]] = {
        "sqlite": lambda: fl.table(tmp_path / "shop.db", "odd"),
        "postgresql": lambda: fl.table(request.getfixturevalue("postgres_url"), "odd"),
        "tantivy": lambda: fl.search(tmp_path / "tantivy", text="merchant", engine="tantivy"),
        "fts5": lambda: fl.search(tmp_path / "fts5", text="merchant", engine="fts5"),
        "delta": lambda: fl.lake(tmp_path / "delta", mode="merge"),
        "parquet": lambda: fl.lake(tmp_path / "parquet", "parquet"),
    }
    views = {kind: makers[kind]() for kind in kinds}
    folds = [fl.fold(PAYMENTS, into=view, name=name)(with_odd_values) for name, view in views.items()]
    fl.run(folds, directory, once=True, spark=spark)
    for name, view in views.items():
        assert {(row["tx_id"], row["merchant"]) for row in view.peek()} == {("a", "tea"), ("day", "old")}, name
        reasons = letters(directory, name)
        assert set(reasons) == {one.encode() for one in FOR_NO_VIEW}, name
        for one, (_, reason) in FOR_NO_VIEW.items():
            assert f"in column {one!r} {reason}" in reasons[one.encode()].replace(" is outside", " outside"), name
    assert fl.verify(folds[0], directory, spark=spark).answer == "equal"


@pytest.mark.faults  # dozens of jobs, each of which fails
def test_a_value_that_no_view_holds_is_not_counted_whatever_hides_it(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    """A larger one hides it in one range, and not in another."""
    records = [("a", payment("x", 1, "z")), ("b", payment("x", 2, "early")), ("c", payment("x", 4, "no text"))]
    append(directory, *records, ("d", payment("x", 8, "y")), ("e", payment("x", 16, "early window")))
    for name, range_bytes in (("whole", 1 << 20), ("split", 1)):
        measures = {"paise": fl.sum("amount_paise"), "last": fl.max("note"), "newest": fl.max("day")}
        view = fl.counters(
            str(tmp_path / f"{name}.duckdb"), by=["merchant"], window=("at", "7 days"), measures=measures
        )
        fold = fl.fold(PAYMENTS, into=view, name=name)(
            lambda rows: (
                rows.withColumn("day", F.expr("if(note = 'early', date_sub(DATE '0001-01-01', 1), DATE '2020-01-01')"))
                .withColumn("at", F.expr("if(note = 'early window', TIMESTAMP '0001-01-01', TIMESTAMP '2020-01-01')"))
                .withColumn("note", F.expr("if(note = 'no text', cast(unhex('61ff') as string), note)"))
            )
        )
        fl.run([fold], directory, once=True, spark=spark, range_bytes=range_bytes)
        assert [(row["merchant"], row["paise"], row["last"]) for row in view.peek()] == [("x", 9, "z")]
        assert set(letters(directory, name)) == {b"b", b"c", b"e"}
        assert fl.verify(fold, directory, spark=spark).answer == "equal"


def test_a_record_whose_own_time_is_beyond_all_years_is_a_dead_letter_and_a_tombstone_still_deletes(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    """Such as nanoseconds where milliseconds are meant."""
    nanoseconds = 1_700_000_000_000_000_000
    with foldlog.open(directory) as log:
        log.alter_topic("payments", {"message.timestamp.after.max.ms": 2 * nanoseconds})
        for key, value, at in (("a", payment(), 1), ("b", payment(), nanoseconds), ("c", payment(), 1)):
            log.append("payments", value, key=key, timestamp_ms=at)
        log.append("payments", None, key="c", timestamp_ms=nanoseconds)
    views = FileView(tmp_path / "rows.json"), FileView(tmp_path / "names.json")
    folds = [
        fl.fold(PAYMENTS, into=views[0], name="rows")(lambda rows: rows),
        fl.fold(PAYMENTS, into=views[1], name="names")(lambda rows: rows.select("tx_id", "merchant", *fl.META)),
    ]
    fl.run(folds, directory, once=True, spark=spark)
    for view, fold in zip(views, folds, strict=True):
        assert set(view.rows()) == {"a"}
        assert {key: "after the year 9999" in why for key, why in letters(directory, fold.name).items()} == {b"b": True}


@pytest.fixture
def latin_url(postgres: PostgresServer) -> str:
    return postgres.new_database(options="ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")


@pytest.mark.faults
def test_text_that_a_databases_encoding_cannot_hold_is_a_dead_letter_of_its_record(
    directory: Path, latin_url: str, spark: SparkSession
) -> None:
    append(
        directory, ("a", payment("th\u00e9")), ("b", payment("old")), ("b", payment("\u2603")), ("\u2603", payment())
    )
    append(directory, ("\u2603", None), ("c", payment("\u4e2d")), ("c", payment("new")))
    table = fl.fold(PAYMENTS, into=fl.table(latin_url, "payments"), name="plain")(lambda rows: rows)
    nested = fl.fold(PAYMENTS, into=fl.table(latin_url, "nested"), name="nested")(
        lambda rows: rows.withColumn("note", F.struct(F.array("merchant").alias("names")))
    )
    fl.run([table, nested], directory, once=True, spark=spark)
    for fold in (table, nested):
        rows = {(row["tx_id"], row["merchant"]) for row in fold.view.peek()}
        assert rows == {("a", "th\u00e9"), ("b", "old"), ("c", "new")}
        reasons = letters(directory, fold.name)
        assert set(reasons) == {b"b", "\u2603".encode(), b"c"}
        assert "'merchant' has the character \u2603 (U+2603)" in reasons[b"b"]
        assert fl.verify(fold, directory, spark=spark).answer == "equal"
    split = fl.fold(PAYMENTS, into=fl.table(latin_url, "split"), name="split")(lambda rows: rows)
    fl.run([split], directory, once=True, spark=spark, range_bytes=1)
    assert letters(directory, "split") == {
        key: why.replace("payments in", "split in") for key, why in letters(directory, "plain").items()
    }


@pytest.mark.faults
def test_text_that_a_databases_encoding_cannot_hold_is_not_counted_whatever_hides_it(
    directory: Path, latin_url: str, spark: SparkSession
) -> None:
    append(directory, ("a", payment("x", 1, "\u00ff")), ("b", payment("x", 2, "\u0101")), ("c", payment("\u2603", 4)))
    for name, range_bytes in (("whole", 1 << 20), ("split", 1)):
        measures = {"paise": fl.sum("amount_paise"), "first": fl.min("note")}
        view = fl.counters(latin_url, by=["merchant"], measures=measures, name=name)
        fold = fl.fold(PAYMENTS, into=view, name=name)(lambda rows: rows)
        fl.run([fold], directory, once=True, spark=spark, range_bytes=range_bytes)
        assert [(row["merchant"], row["paise"], row["first"]) for row in view.peek()] == [("x", 1, "\u00ff")]
        assert set(letters(directory, name)) == {b"b", b"c"}


@pytest.mark.faults
def test_a_key_that_is_too_long_for_an_index_is_a_dead_letter(
    directory: Path, postgres_url: str, spark: SparkSession
) -> None:
    """One that packs well is none, however long it is."""
    append(directory, ("a", payment()), (LONG, payment()), ("b" * 6400, payment("b")), (LONG, None), (LONG, payment()))
    table = fl.fold(PAYMENTS, into=fl.table(postgres_url, "keys"), name="keys")(lambda rows: rows)
    counts = fl.fold(
        PAYMENTS, into=fl.counters(postgres_url, by=["tx_id"], measures={"n": fl.count()}, name="counts"), name="counts"
    )(lambda rows: rows)
    fl.run([table, counts], directory, once=True, spark=spark)
    for fold in (table, counts):
        assert {row["tx_id"] for row in fold.view.peek()} == {"a", "b" * 6400}
        assert set(letters(directory, fold.name)) == {LONG.encode()}
        assert "its key (tx_id) is too long" in letters(directory, fold.name)[LONG.encode()]
        assert fl.verify(fold, directory, spark=spark).answer == "equal"
    fl.rebuild(table, directory, spark=spark)
    assert {row["tx_id"] for row in table.view.peek()} == {"a", "b" * 6400}


@pytest.mark.faults
def test_what_a_table_refuses_for_everybody_is_no_records_fault(
    directory: Path, postgres_url: str, spark: SparkSession
) -> None:
    append(directory, ("a", payment()))
    fold = fl.fold(PAYMENTS, into=fl.table(postgres_url, "gone"), name="gone")(lambda rows: rows)
    fl.run([fold], directory, once=True, spark=spark)
    append(directory, ("b", payment()))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP TABLE gone")
    with pytest.raises(FoldlogError, match="its bookmark is there and the table is not"):
        fl.run([fold], directory, once=True, spark=spark)
    with foldlog.open(directory, mode="r") as log:
        assert "gone.dead" not in log.topics()


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.faults)])
def test_a_null_in_the_key_that_a_fold_writes_is_a_dead_letter(
    directory: Path, tmp_path: Path, request: pytest.FixtureRequest, spark: SparkSession, engine: str
) -> None:
    append(directory, ("a", payment("tea")), ("b", payment("none")), ("c", payment("x")), ("c", payment("none")))
    place = tmp_path / "shop.db" if engine == "sqlite" else request.getfixturevalue("postgres_url")
    fold = fl.fold(PAYMENTS, into=fl.table(place, "nulls"), name="nulls")(
        lambda rows: rows.withColumn("tx_id", F.expr("if(merchant = 'none', null, upper(tx_id))"))
    )
    fl.run([fold], directory, once=True, spark=spark)
    assert {row["tx_id"] for row in fold.view.peek()} == {"A", "C"}
    assert set(letters(directory, "nulls")) == {b"b", b"c"}
    assert "'tx_id' is null" in letters(directory, "nulls")[b"b"]
    assert fl.verify(fold, directory, spark=spark).answer == "equal"


@pytest.mark.faults
def test_counters_leave_out_what_their_function_fails_at(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    """A column that is not counted is never computed, so no record fails at it."""
    append(directory, *((f"tx{paise}", payment(amount_paise=paise)) for paise in (1, 13, 3, 0, 5)))
    view = fl.counters(
        str(tmp_path / "live.duckdb"), by=["merchant"], measures={"n": fl.count(), "sum": fl.sum("amount_paise")}
    )
    fold = fl.fold(PAYMENTS, into=view, name="counts")(
        lambda rows: refuse_thirteen(rows).withColumn("note", F.expr("cast(1 / amount_paise as string)"))
    )
    fl.run([fold], directory, once=True, spark=spark)
    assert [(row["n"], row["sum"]) for row in view.peek()] == [(4, 18)]
    assert set(letters(directory, "counts")) == {b"tx13"}
    assert fl.verify(fold, directory, spark=spark).answer == "equal"


@pytest.mark.faults
def test_a_rebuild_leaves_the_same_records_out(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    append(directory, ("a", payment(amount_paise=1)), ("a", payment(amount_paise=13)), ("b", payment(amount_paise=13)))
    view = FileView(tmp_path / "view.json")
    fold = fl.fold(PAYMENTS, into=view, name="odd")(refuse_thirteen)
    fl.run([fold], directory, once=True, spark=spark)
    before, reasons = view.rows(), letters(directory, "odd")
    assert set(before) == {"a"}
    fl.rebuild(fold, directory, spark=spark)
    assert (view.rows(), letters(directory, "odd")) == (before, reasons)


@pytest.mark.faults
def test_a_worker_that_dies_makes_no_dead_letter(
    directory: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither at first, nor while a record at fault is looked for: the range is tried again, and then is whole."""
    append(directory, *((f"tx{paise}", payment(amount_paise=paise)) for paise in (1, 13, 3, 4, 5)))
    deaths = tmp_path / "deaths"
    deaths.mkdir()

    @F.udf("bigint")
    def dies_twice(paise: int) -> int:
        tries = len(list(deaths.iterdir()))
        if paise == 4 and tries < 2:
            (deaths / str(tries)).touch()
            os._exit(9)
        if paise == 13:
            raise ValueError("thirteen is not paid")
        return paise

    view = FileView(tmp_path / "view.json")
    fold = fl.fold(PAYMENTS, into=view, name="dying")(
        lambda rows: rows.withColumn("amount_paise", dies_twice("amount_paise"))
    )
    fl.run([fold], directory, once=True, spark=spark)
    assert len(list(deaths.iterdir())) == 2
    assert set(view.rows()) == {"tx1", "tx3", "tx4", "tx5"}
    assert set(letters(directory, "dying")) == {b"tx13"}


@pytest.mark.parametrize(
    "error",
    ["ImportError", *(pytest.param(name, marks=pytest.mark.faults) for name in ("ConnectionError", "MemoryError"))],
)
def test_what_is_missing_around_a_function_is_no_records_fault(
    directory: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    monkeypatch.setattr("foldlog.spark.folds.feed.SAME_FAILURES_MAX", 1)
    append(directory, ("a", payment(amount_paise=13)))

    @F.udf("bigint")
    def misses(_: int) -> int:
        raise {"ImportError": ImportError, "ConnectionError": ConnectionError, "MemoryError": MemoryError}[error]("no")

    fold = fl.fold(PAYMENTS, into=FileView(tmp_path / "view.json"), name="misses")(
        lambda rows: rows.withColumn("amount_paise", misses("amount_paise"))
    )
    with pytest.raises(FoldError, match=rf"{error}: no \(test_faults.py, line \d+\)"):
        fl.run([fold], directory, once=True, spark=spark)
    with foldlog.open(directory, mode="r") as log:
        assert "misses.dead" not in log.topics()


def test_one_record_at_fault_among_many_is_found_in_few_tries(
    directory: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[PlannedFold] = []
    plan = PreparedFold.plan

    def planned(*given: Any, **named: Any) -> PlannedFold:
        plans.append(plan(*given, **named))
        return plans[-1]

    view = FileView(tmp_path / "view.json")
    fold = fl.fold(PAYMENTS, into=view, name="one")(
        lambda rows: rows.withColumn("note", F.expr("cast(1 / (amount_paise - 77) as string)"))
    )
    append(directory, *((f"first{number}", payment()) for number in range(FOLD_TRIAL_YOUNG_OFFSETS)))
    fl.run([fold], directory, once=True, spark=spark)  # and is tried, which takes jobs of its own
    append(directory, *((f"tx{number}", payment(amount_paise=number)) for number in range(256)))
    monkeypatch.setattr(PreparedFold, "plan", planned)
    fl.run([fold], directory, once=True, spark=spark)
    assert len(view.rows()) == FOLD_TRIAL_YOUNG_OFFSETS + 255
    assert set(letters(directory, "one")) == {b"tx77"}
    # One that fails, two for each halving at most, one of the record alone, and one of the rest.
    assert 8 < len(plans) <= 1 + 2 * 8 + 2


@pytest.mark.faults
def test_a_fold_into_a_locked_table_does_not_hold_up_the_others(
    directory: Path, tmp_path: Path, postgres_url: str, spark: SparkSession
) -> None:
    append(directory, ("a", payment()))
    table, view = fl.table(postgres_url, "locked"), FileView(tmp_path / "view.json")
    locked, free = (
        fl.fold(PAYMENTS, into=into, name=name)(lambda rows: rows) for into, name in ((table, "locked"), (view, "free"))
    )
    fl.run([locked, free], directory, once=True, spark=spark)
    append(directory, ("b", payment()))
    with Pipeline([locked, free], log_at(directory), spark) as pipeline, psycopg.connect(postgres_url) as user:
        user.execute("LOCK TABLE locked")
        pipeline._runner.step()
        states = {feed.fold.name: feed.state for feed in pipeline.feeds}
        assert states == {"locked": State.WAITING, "free": State.RUNNING}
        assert set(view.rows()) == {"a", "b"}
        user.rollback()
        pipeline.run(once=True)
        assert {row["tx_id"] for row in table.peek()} == {"a", "b"}
