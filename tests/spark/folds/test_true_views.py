"""Views hold what their bookmark says, whatever the function does with its frame: it caches, keeps state of its own,
hides what it does in SQL, or writes other keys than it was given.

Each view is compared with a recompute of the log in plain Python.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

import foldlog.spark as fl
from file_view import FileView
from foldlog.errors import FoldError
from foldlog.limits import FOLD_TRIAL_OFFSETS, FOLD_TRIAL_YOUNG_OFFSETS
from foldlog.spark.folds import deltas, runner
from foldlog.spark.folds import plans as law
from foldlog.spark.folds.declaration import DeclaredTopic
from foldlog.spark.folds.reading import TopicFrames
from foldlog.spark.folds.reference import TrialSample, fold_sample
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta, View
from folds_model import SCHEMA, append, mirror_of, payment


@pytest.fixture
def payments() -> DeclaredTopic:
    return fl.topic("payments", key="tx_id", schema=SCHEMA)


@pytest.mark.parametrize("how", ["cache", pytest.param("persist", marks=pytest.mark.faults)])
def test_a_fold_that_caches_its_rows_harms_neither_its_own_view_nor_others(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession, how: str
) -> None:
    append(directory, *((f"tx{n % 7}", None if n % 9 == 0 else payment(amount_paise=n)) for n in range(40)))
    caching, filtering, plain = (FileView(tmp_path / name) for name in ("caching", "filtering", "plain"))
    folds = [
        fl.fold(payments, into=caching, name="caching")(lambda rows: getattr(rows, how)().filter("amount_paise > 5")),
        fl.fold(payments, into=filtering, name="filtering")(lambda rows: rows.filter("amount_paise > 5")),
        fl.fold(payments, into=plain, name="plain")(lambda rows: rows),
    ]
    fl.run(folds, directory, once=True, spark=spark, range_bytes=1500)
    expected = mirror_of(directory, "payments", lambda row: row["amount_paise"] > 5)
    assert len(expected) > 2
    assert caching.rows() == expected
    assert filtering.rows() == expected
    assert plain.rows() == mirror_of(directory, "payments")
    # Nothing of the ranges stays in Spark's memory.
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


@pytest.mark.faults
def test_a_frame_that_a_fold_caches_for_itself_stays_cached(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession
) -> None:
    append(directory, ("a", payment("tea")), ("b", payment("books")))
    view = FileView(tmp_path / "view")
    static = spark.createDataFrame([("tea", 7)], "merchant STRING, rank INT").cache()
    try:
        fl.run(
            [fl.fold(payments, into=view, name="ranked")(lambda rows: rows.join(static, "merchant"))],
            directory,
            once=True,
            spark=spark,
        )
        assert set(view.rows()) == {"a"}
        assert static.is_cached
        assert not spark._jsparkSession.sharedState().cacheManager().isEmpty()
    finally:
        static.unpersist()


EACH_TIME: dict[str, Callable[[DataFrame], DataFrame]] = {
    "the time": lambda rows: rows.withColumn("note", F.lit(datetime.now(UTC)).cast("string")),
    "a random number": lambda rows: rows.filter(F.col("amount_paise") > random.random()),
}


@pytest.mark.parametrize("function", EACH_TIME.values(), ids=EACH_TIME)
def test_a_function_that_makes_another_plan_each_time_is_refused(
    directory: Path,
    tmp_path: Path,
    payments: DeclaredTopic,
    spark: SparkSession,
    function: Callable[[DataFrame], DataFrame],
) -> None:
    append(directory, ("a", payment()))
    fold = fl.fold(payments, into=FileView(tmp_path / "view"), name="it")(function)
    with pytest.raises(FoldError, match="breaks the law of folds: it makes another plan each time it is called"):
        fl.run([fold], directory, once=True, spark=spark)


def test_a_list_that_is_filled_later_counts_from_the_next_range_on(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment("tea" if n % 2 else "books", amount_paise=n)) for n in range(40)))
    view = FileView(tmp_path / "view")
    wanted: list[str] = []

    @fl.fold(payments, into=view)
    def chosen(rows: DataFrame) -> DataFrame:
        if not wanted and not rows.isEmpty():
            wanted.append("tea")
        return rows.filter(F.col("merchant").isin(wanted))

    fl.run([chosen], directory, once=True, spark=spark, range_bytes=1500)
    assert len(view.deltas) > 2
    assert view.rows() == mirror_of(directory, "payments", lambda row: row["merchant"] == "tea")


def test_a_function_that_returns_its_rows_is_called_for_every_range(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(40)))
    view = FileView(tmp_path / "view")
    counted: list[int] = []

    @fl.fold(payments, into=view)
    def counting(rows: DataFrame) -> DataFrame:
        counted.append(rows.count())
        return rows

    fl.run([counting], directory, once=True, spark=spark, range_bytes=1500)
    assert len(view.deltas) > 2
    assert sum(counted) >= 40
    assert view.rows() == mirror_of(directory, "payments")


def test_a_function_that_looks_at_its_rows_sees_all_their_columns(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment("tea", amount_paise=n)) for n in range(10)))
    view, other = FileView(tmp_path / "view"), FileView(tmp_path / "other")
    seen: set[str | None] = set()

    @fl.fold(payments, into=view)
    def looking(rows: DataFrame) -> DataFrame:
        seen.update(row["merchant"] for row in rows.select("merchant").collect())
        return rows.select("tx_id", *fl.META)

    fl.run(
        [fl.fold(payments, into=other, name="first")(lambda rows: rows.select("tx_id", *fl.META)), looking],
        directory,
        once=True,
        spark=spark,
    )
    assert seen == {"tea"}
    assert set(view.rows()) == set(other.rows()) == {f"tx{n}" for n in range(10)}


def test_rows_of_an_earlier_range_are_not_taken_for_those_of_this_one(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(10)))
    kept: list[DataFrame] = []

    @fl.fold(payments, into=FileView(tmp_path / "view"))
    def stale(rows: DataFrame) -> DataFrame:
        kept.append(rows)
        return kept[0]

    with pytest.raises(FoldError, match="does not come from the rows it is given"):
        fl.run([stale], directory, once=True, spark=spark)


def test_a_function_that_returns_its_rows_only_later_gives_its_view_the_columns_it_has(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(10)), ("tx3", None))
    view = FileView(tmp_path / "view")
    calls: list[int] = []

    @fl.fold(payments, into=view)
    def settling(rows: DataFrame) -> DataFrame:
        calls.append(1)
        # Twice before it is run, and then for every range.
        return rows if len(calls) > 2 else rows.withColumn("tx_id", F.concat("tx_id", F.lit("")))

    fl.run([settling], directory, once=True, spark=spark)
    assert sorted(row["tx_id"] for row in view.rows().values()) == sorted(mirror_of(directory, "payments"))  # type: ignore[type-var]


def test_a_column_may_have_any_name(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    append(directory, ("a", b'{"two\\nlines": 7, "other": 1}'))
    columns = T.StructType([T.StructField("two\nlines", T.LongType()), T.StructField("other", T.LongType())])
    view = FileView(tmp_path / "view")
    fold = fl.fold(fl.topic("payments", key="tx_id", schema=columns), into=view, name="lines")
    fl.run([fold(lambda rows: rows.drop("other"))], directory, once=True, spark=spark)
    assert view.rows() == {"a": {"tx_id": "a", "two\nlines": 7}}


# --- folds that write other keys than their records have -----------------------------------------------------------

SECRET = "left(sha2(concat('pepper', tx_id), 256), 12)"


def _hidden(key: str) -> str:
    return hashlib.sha256(b"pepper" + key.encode()).hexdigest()[:12]


def _engine(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> View:
    makers: dict[str, Callable[[], View]] = {
        "sqlite": lambda: fl.table(tmp_path / "shop.db", "payments"),
        "postgresql": lambda: fl.table(request.getfixturevalue("postgres_url"), "hidden_payments"),
        "fts5": lambda: fl.search(tmp_path / "search.db", text=["merchant"], engine="fts5"),
        "tantivy": lambda: fl.search(tmp_path / "search", text=["merchant"], engine="tantivy"),
        "delta": lambda: fl.lake(tmp_path / "lake", mode="merge"),
        "own": lambda: FileView(tmp_path / "view"),
    }
    return makers[name]()


def rows_in(view: View) -> list[tuple[object, ...]]:
    names = ("tx_id", "merchant", "amount_paise")
    return sorted(tuple(row[name] for name in names) for batch in view.scan().batches for row in batch.to_pylist())


def _engines(*first: str, more: tuple[str, ...]) -> list[object]:
    """Each engine is a case; the first are for every run of the tests."""
    return [*first, *(pytest.param(name, marks=pytest.mark.faults) for name in more)]


@pytest.mark.parametrize("engine", _engines("sqlite", more=("own", "postgresql", "fts5", "tantivy", "delta")))
def test_a_fold_that_hides_keys_deletes_what_it_wrote(
    directory: Path,
    tmp_path: Path,
    payments: DeclaredTopic,
    spark: SparkSession,
    request: pytest.FixtureRequest,
    engine: str,
) -> None:
    view = _engine(engine, tmp_path, request)
    hidden = fl.fold(payments, into=view, name="hidden")(
        lambda rows: rows.withColumn("tx_id", F.expr(SECRET)).filter("amount_paise > 0")
    )

    def expected() -> list[tuple[object, ...]]:
        found = mirror_of(directory, "payments", lambda row: row["amount_paise"] > 0)
        return sorted((_hidden(key), row["merchant"], row["amount_paise"]) for key, row in found.items())

    append(directory, *((f"person{n}", payment(amount_paise=n + 1)) for n in range(8)))
    fl.run([hidden], directory, once=True, spark=spark)
    assert rows_in(view) == expected()
    append(directory, ("person0", None), ("person1", payment(amount_paise=0)), ("person2", payment("coffee")))
    append(directory, ("new", payment()), ("new", None), ("person3", None), ("person3", payment("back")))
    fl.run([hidden], directory, once=True, spark=spark)
    assert rows_in(view) == expected()
    assert len(expected()) == 6
    assert fl.verify(hidden, directory, spark=spark).answer == "equal"
    fl.rebuild(hidden, directory, spark=spark)
    assert rows_in(view) == expected()
    append(directory, ("person4", None))
    fl.run([hidden], directory, once=True, spark=spark)
    assert rows_in(view) == expected()
    assert not any("person" in str(row) for batch in view.scan().batches for row in batch.to_pylist())
    view.drop_old()
    view.drop()


@pytest.mark.parametrize("engine", _engines("sqlite", more=("postgresql", "delta")))
def test_two_records_under_one_key_are_refused_and_the_view_keeps_what_it_had(
    directory: Path,
    tmp_path: Path,
    payments: DeclaredTopic,
    spark: SparkSession,
    request: pytest.FixtureRequest,
    engine: str,
) -> None:
    view = _engine(engine, tmp_path, request)
    loud = fl.fold(payments, into=view, name="loud")(lambda rows: rows.withColumn("tx_id", F.upper("tx_id")))
    append(directory, ("a", payment()), ("b", payment()))
    fl.run([loud], directory, once=True, spark=spark)
    append(directory, ("A", payment("books")))
    with pytest.raises(FoldError, match="rows of two records under the same key"):
        fl.run([loud], directory, once=True, spark=spark)
    assert rows_in(view) == [("A", "tea", 100), ("B", "tea", 100)]
    append(directory, ("a", None))
    fl.run([loud], directory, once=True, spark=spark)  # in one range with what was in its way
    assert rows_in(view) == [("A", "books", 100), ("B", "tea", 100)]
    view.drop()


@pytest.mark.parametrize("engine", _engines("sqlite", more=("postgresql", "fts5", "tantivy", "delta")))
def test_a_view_that_does_not_know_whose_rows_it_has_is_to_be_rebuilt(
    directory: Path,
    tmp_path: Path,
    payments: DeclaredTopic,
    spark: SparkSession,
    request: pytest.FixtureRequest,
    engine: str,
) -> None:
    view = _engine(engine, tmp_path, request)
    append(directory, ("a", payment()), ("b", payment()))
    fl.run([fl.fold(payments, into=view, name="loud")(lambda rows: rows)], directory, once=True, spark=spark)
    loud = fl.fold(payments, into=view, name="loud")(lambda rows: rows.withColumn("tx_id", F.upper("tx_id")))
    with pytest.raises(FoldError, match=r"does not know which record each row is of.*foldlog fold rebuild loud"):
        fl.run([loud], directory, once=True, spark=spark)
    fl.rebuild(loud, directory, spark=spark)
    append(directory, ("a", None))
    fl.run([loud], directory, once=True, spark=spark)
    assert rows_in(view) == [("B", "tea", 100)]
    view.drop_old()
    view.drop()


def test_several_rows_of_a_record_go_with_it_under_whatever_keys(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession
) -> None:
    view = fl.table(tmp_path / "shop.db", "lines", key=["tx_id", "line"])
    lines = fl.fold(payments, into=view, name="lines")(
        lambda rows: rows.withColumn("tx_id", F.upper("tx_id")).withColumn(
            "line", F.explode(F.expr("sequence(1, amount_paise)"))
        )
    )
    append(directory, ("a", payment(amount_paise=3)), ("b", payment(amount_paise=2)))
    fl.run([lines], directory, once=True, spark=spark)
    append(directory, ("a", payment(amount_paise=1)), ("b", None))
    fl.run([lines], directory, once=True, spark=spark)
    found = [(row["tx_id"], row["line"]) for batch in view.scan().batches for row in batch.to_pylist()]
    assert found == [("A", 1)]


def test_rows_at_places_that_a_fold_was_not_given_are_refused(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession
) -> None:
    append(directory, ("a", payment()), ("b", payment()))
    view = FileView(tmp_path / "view")
    moved = fl.fold(payments, into=view, name="moved")(lambda rows: rows.withColumn("_offset", F.col("_offset") + 7))
    with pytest.raises(FoldError, match="which it was not given just now; keep _partition and _offset"):
        fl.run([moved], directory, once=True, spark=spark)
    assert view.rows() == {}


# --- mistakes of ours, and of a fold, that no plan shows -----------------------------------------------------------


def test_a_column_that_is_wrongly_left_out_is_found_before_anything_is_stored(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(20)))
    view = FileView(tmp_path / "view")
    positive = fl.fold(payments, into=view, name="positive")(lambda rows: rows.filter("amount_paise > 5"))
    monkeypatch.setattr(deltas, "used_columns", lambda *given: law.used_columns(*given) - {"amount_paise"})  # type: ignore[operator]
    with pytest.raises(FoldError, match=r"other rows than the plain one, without .*a mistake of foldlog"):
        fl.run([positive], directory, once=True, spark=spark)
    assert view.rows() == {}
    monkeypatch.undo()
    fl.run([positive], directory, once=True, spark=spark)
    assert view.rows() == mirror_of(directory, "payments", lambda row: row["amount_paise"] > 5)


def test_a_verification_does_not_repeat_a_mistake_of_the_short_way(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = FileView(tmp_path / "view")
    positive = fl.fold(payments, into=view, name="positive")(lambda rows: rows.filter("amount_paise > 5"))
    append(directory, *((f"a{n}", payment(amount_paise=7)) for n in range(FOLD_TRIAL_YOUNG_OFFSETS)))
    fl.run([positive], directory, once=True, spark=spark)
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(20)))
    monkeypatch.setattr(runner, "FOLD_NEAR_OFFSETS", 0)  # what the driver reads has all columns
    monkeypatch.setattr(deltas, "used_columns", lambda *given: law.used_columns(*given) - {"amount_paise"})  # type: ignore[operator]
    fl.run([positive], directory, once=True, spark=spark)
    assert all(key.startswith("a") for key in view.rows())
    verdict = fl.verify(positive, directory, spark=spark)
    assert verdict.answer == "different"
    assert verdict.comparison is not None
    assert verdict.comparison.only_right == 14


def numbered(rows: DataFrame) -> DataFrame:
    def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        whole = pa.Table.from_batches(batches, rows_schema)
        where = whole.schema.get_field_index("amount_paise")
        numbers = pa.array(range(whole.num_rows), pa.int64())
        yield from whole.set_column(where, "amount_paise", numbers).to_batches()

    rows_schema = to_arrow_schema(rows.schema, timezone="UTC")
    return rows.repartition(1).mapInArrow(number, rows.schema)


@pytest.mark.parametrize(
    "kind", ["table", *(pytest.param(name, marks=pytest.mark.faults) for name in ("counters", "lake"))]
)
def test_a_fold_that_counts_within_its_batches_is_refused_before_it_stores_anything(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession, kind: str
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(20)))
    views: dict[str, Callable[[], View]] = {
        "table": lambda: fl.table(tmp_path / "shop.db", "payments"),
        "lake": lambda: fl.lake(tmp_path / "lake"),
        "counters": lambda: fl.counters(tmp_path / "live.db", measures={"paise": fl.sum("amount_paise")}),
    }
    view = views[kind]()
    fold = fl.fold(payments, into=view, name="numbered")(numbered)
    with pytest.raises(FoldError, match="breaks the law of folds: it was tried on 20 records, and gave other rows"):
        fl.run([fold], directory, once=True, spark=spark)
    assert not [row for batch in view.scan().batches for row in batch.to_pylist()]


@pytest.mark.faults
def test_a_fold_that_began_with_one_record_is_tried_again_when_there_is_something_to_cut(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession
) -> None:
    view = fl.table(tmp_path / "shop.db", "payments")
    fold = fl.fold(payments, into=view, name="numbered")(numbered)
    append(directory, ("tx1", payment("tea")))
    fl.run([fold], directory, once=True, spark=spark)
    append(directory, ("tx2", payment("tea")))
    with pytest.raises(FoldError, match="breaks the law of folds: it was tried on 2 records, and gave other rows"):
        fl.run([fold], directory, once=True, spark=spark)


def test_a_fold_that_counts_only_in_large_batches_is_refused_by_its_first_range(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession
) -> None:
    count = FOLD_TRIAL_OFFSETS + 50
    append(directory, *((f"tx{n}", payment(amount_paise=7)) for n in range(count)))

    def crowded(rows: DataFrame) -> DataFrame:
        def mark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            whole = pa.Table.from_batches(batches, schema)
            where = whole.schema.get_field_index("amount_paise")
            marks = pa.array([int(whole.num_rows > FOLD_TRIAL_OFFSETS)] * whole.num_rows, pa.int64())
            yield from whole.set_column(where, "amount_paise", marks).to_batches()

        schema = to_arrow_schema(rows.schema, timezone="UTC")
        return rows.repartition(1).mapInArrow(mark, rows.schema)

    view = FileView(tmp_path / "view")
    told = rf"it was tried on {FOLD_TRIAL_OFFSETS} records, and gave other rows when more were folded with them"
    with pytest.raises(FoldError, match=told):
        fl.run([fl.fold(payments, into=view, name="crowded")(crowded)], directory, once=True, spark=spark)
    assert view.deltas == []


def test_a_fold_is_tried_while_its_first_range_is_computed_and_stores_nothing_before_that(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(20)))
    view = FileView(tmp_path / "view")
    computed = Event()
    stored: list[int] = []
    folded = runner.Runner._folded

    def computing(*given: Any) -> list[Any]:
        found = folded(*given)
        computed.set()
        return found

    def trying(*given: Any) -> TrialSample:
        assert computed.wait(60), "the trial ran before the range, and not beside it"
        stored.append(len(view.deltas))
        return fold_sample(*given)

    monkeypatch.setattr(runner.Runner, "_folded", computing)
    monkeypatch.setattr(runner, "fold_sample", trying)
    # A shuffle in each of the pieces: Spark must not take one for the other.
    shuffled = fl.fold(payments, into=view, name="shuffled")(
        lambda rows: rows.repartition(1).filter("amount_paise > 5")
    )
    fl.run([shuffled], directory, once=True, spark=spark)
    assert stored == [0]
    assert view.rows() == mirror_of(directory, "payments", lambda row: row["amount_paise"] > 5)


def _counting(place: Path) -> View:
    return fl.counters(place / "live.db", by=["merchant"], measures={"n": fl.count(), "paise": fl.sum("amount_paise")})


def _counted(view: View) -> dict[str, tuple[int, int]]:
    rows = (row for batch in view.scan().batches for row in batch.to_pylist())
    return {row["merchant"]: (row["n"], row["paise"]) for row in rows}


MORE_THAN_A_SAMPLE = FOLD_TRIAL_OFFSETS + 500


def _append_payments(directory: Path) -> None:
    merchants = ("tea", "books")
    append(directory, *((f"tx{n}", payment(merchants[n % 2], amount_paise=n)) for n in range(MORE_THAN_A_SAMPLE)))


KEPT = {
    name: (len(range(start, MORE_THAN_A_SAMPLE, 2)), sum(range(start, MORE_THAN_A_SAMPLE, 2)))
    for name, start in (("tea", 6), ("books", 7))
}
"""What counters of these payments hold, of those over 5 paise."""


@pytest.mark.parametrize(
    ("make", "counts"),
    [
        pytest.param(
            lambda rows: rows.filter("amount_paise > 5"),
            [FOLD_TRIAL_OFFSETS, MORE_THAN_A_SAMPLE - FOLD_TRIAL_OFFSETS],
            id="in the tasks that read",
        ),
        pytest.param(
            lambda rows: rows.repartition(3).filter("amount_paise > 5"),
            [MORE_THAN_A_SAMPLE],
            id="shuffled",
            marks=pytest.mark.faults,
        ),
    ],
)
def test_counters_are_tried_on_what_they_then_store_if_it_can_be_told_apart(
    directory: Path,
    tmp_path: Path,
    payments: DeclaredTopic,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[DataFrame], DataFrame],
    counts: list[int],
) -> None:
    _append_payments(directory)
    view = _counting(tmp_path)
    stored: list[tuple[Delta, Bookmark]] = []
    apply = type(view).apply

    def applying(self: View, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        apply(self, delta, expected, new)
        stored.append((delta, new))

    monkeypatch.setattr(type(view), "apply", applying)
    fold = fl.fold(payments, into=view, name="counted")(make)
    fl.run([fold], directory, once=True, spark=spark)
    assert [sum(stop - start for start, stop in delta.ranges.values()) for delta, _ in stored] == counts
    for delta, new in stored:
        assert {number: new.offset(number) for number in delta.ranges} == {
            number: stop for number, (_, stop) in delta.ranges.items()
        }, "a bookmark is where its change ends"
    assert _counted(view) == KEPT
    assert fl.verify(fold, directory, spark=spark).answer == "equal"


def test_counters_go_on_behind_their_sample_if_storing_the_rest_failed(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    _append_payments(directory)
    view = _counting(tmp_path)
    apply = type(view).apply

    def failing(self: View, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        if any(start for start, _ in delta.ranges.values()):
            raise FoldError("the machine was stopped here")
        apply(self, delta, expected, new)

    fold = fl.fold(payments, into=view, name="counted")(lambda rows: rows.filter("amount_paise > 5"))
    monkeypatch.setattr(type(view), "apply", failing)
    with pytest.raises(FoldError, match="stopped here"):
        fl.run([fold], directory, once=True, spark=spark)
    monkeypatch.undo()
    bookmark = view.bookmark()
    assert bookmark is not None
    assert sum(at.offset for at in bookmark.positions.values()) == FOLD_TRIAL_OFFSETS
    fl.run([fold], directory, once=True, spark=spark)
    assert _counted(view) == KEPT


@pytest.mark.parametrize("records", [20, MORE_THAN_A_SAMPLE])
def test_a_column_that_is_wrongly_left_out_of_counters_is_found_before_anything_is_stored(
    directory: Path,
    tmp_path: Path,
    payments: DeclaredTopic,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    records: int,
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(records)))
    view = _counting(tmp_path)
    fold = fl.fold(payments, into=view, name="counted")(lambda rows: rows.filter("amount_paise > 5"))
    monkeypatch.setattr(deltas, "used_columns", lambda *given: law.used_columns(*given) - {"amount_paise"})  # type: ignore[operator]
    with pytest.raises(FoldError, match=r"other rows than the plain one, without .*a mistake of foldlog"):
        fl.run([fold], directory, once=True, spark=spark)
    assert _counted(view) == {}


@pytest.mark.parametrize("records", [20, MORE_THAN_A_SAMPLE])
def test_a_row_that_the_quick_way_loses_is_found_also_of_a_fold_that_returns_its_rows(
    directory: Path,
    tmp_path: Path,
    payments: DeclaredTopic,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    records: int,
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(records)))
    view = FileView(tmp_path / "view")
    whole = TopicFrames.table

    def losing(self: TopicFrames, *given: Any, **named: Any) -> pa.Table:
        rows = whole(self, *given, **named)
        return rows.filter(pc.not_equal(rows["_offset"], 7))

    monkeypatch.setattr(TopicFrames, "table", losing)
    with pytest.raises(FoldError, match=r"other rows than the plain one, without .*a mistake of foldlog"):
        fl.run([fl.fold(payments, into=view, name="mirror")(lambda rows: rows)], directory, once=True, spark=spark)
    assert view.rows() == {}


def test_spark_s_own_types_are_refused_in_what_a_fold_returns(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession
) -> None:
    append(directory, ("tx1", payment("tea")), ("tx2", None))
    for made in (F.parse_json("note"), F.array(F.parse_json("note")), F.struct(F.parse_json("note"))):
        fold = fl.fold(payments, into=fl.table(tmp_path / "shop.db", "payments"), name="variants")(
            partial(DataFrame.withColumn, colName="parsed", col=made)
        )
        with pytest.raises(FoldError, match="returns VARIANT in column 'parsed', which no view can hold; take out"):
            fl.run([fold], directory, once=True, spark=spark)


@pytest.mark.faults
def test_counters_are_tried_as_well_as_tables(
    directory: Path, tmp_path: Path, payments: DeclaredTopic, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(directory, *((f"tx{n}", payment(["tea", "books"][n % 2], amount_paise=n)) for n in range(20)))
    append(directory, ("tx1", None), ("x", b"{"))
    measures = {
        "payments": fl.count(),
        "paise": fl.sum("amount_paise"),
        "least": fl.min("amount_paise"),
        "most": fl.max("note"),
        "mean": fl.avg("amount_paise"),
    }
    view = fl.counters(tmp_path / "live.db", by=["merchant"], window=("_timestamp", "1 day"), measures=measures)
    counted = fl.fold(payments, into=view, name="counted")(lambda rows: rows.filter("amount_paise > 0"))
    fl.run([counted], directory, once=True, spark=spark)
    found = [row for batch in view.scan().batches for row in batch.to_pylist()]
    assert sorted((row["merchant"], row["payments"], row["paise"], row["least"]) for row in found) == [
        ("books", 10, 100, 1),
        ("tea", 9, 90, 2),
    ]
    assert fl.verify(counted, directory, spark=spark).answer == "equal"
