"""Folds whose rows executors write: the views are what plain Python makes of the log, and nothing is left behind.

The ranges here are short, so the least length of a range that executors write is 1 in these tests.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import foldlog
import foldlog.spark as fl
from foldlog.spark.folds import runner
from foldlog.spark.folds.declaration import DeclaredTopic, Fold
from foldlog.spark.folds.feed import Feed
from foldlog.views.contract import Delta, View
from foldlog.views.lake.staged_files import FileStage
from foldlog.views.staging import StagedDelta
from folds_model import SCHEMA, append, fill, history, in_order, mirror, payment, records_of, rows_of
from views.staged_contract import places_below

COLUMNS = {"merchant": str, "amount_paise": int, "note": str}


@pytest.fixture(autouse=True)
def short_ranges_are_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FOLD_STAGED_OFFSETS_MIN", 1)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("payments", partitions=3)
        rng = random.Random(5)
        records: list[tuple[str | None, bytes | None]] = []
        for number in range(300):
            value = None if rng.random() < 0.1 else payment("tea", rng.randrange(-20, 100), f"note {number}")
            records.append((f"tx{rng.randrange(60)}", value))
        fill(log, "payments", records)
    return tmp_path / "data"


@pytest.fixture
def payments() -> DeclaredTopic:
    return fl.topic("payments", key="tx_id", schema=SCHEMA)


class Watched:
    """How the ranges of a view came."""

    def __init__(self, view: View, monkeypatch: pytest.MonkeyPatch) -> None:
        self.staged: list[StagedDelta] = []
        self.brought: list[Delta] = []
        for kind in {type(view), type(view.shadow("rebuild"))}:
            self._watch(kind, monkeypatch)

    def _watch(self, kind: type[View], monkeypatch: pytest.MonkeyPatch) -> None:
        apply, apply_staged = kind.apply, kind.apply_staged

        def watched(view: View, delta: Delta, *others: object) -> None:
            self.brought.append(delta)
            apply(view, delta, *others)  # type: ignore[arg-type]

        def watched_staged(view: View, staged: StagedDelta, *others: object) -> None:
            self.staged.append(staged)
            apply_staged(view, staged, *others)  # type: ignore[arg-type]

        monkeypatch.setattr(kind, "apply", watched)
        monkeypatch.setattr(kind, "apply_staged", watched_staged)


def run(fold: Fold, directory: Path, spark: SparkSession, range_bytes: int = 6000) -> Feed:
    return fl.run([fold], directory, once=True, spark=spark, range_bytes=range_bytes)[0]


def held(view: View) -> list[dict[str, object]]:
    return in_order(row for batch in view.scan().batches for row in batch.to_pylist())


@pytest.mark.parametrize(
    "form", ["parquet", *(pytest.param(name, marks=pytest.mark.faults) for name in ("delta", "iceberg"))]
)
def test_executors_write_a_lake_and_its_rebuild(
    form: str,
    directory: Path,
    payments: DeclaredTopic,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = fl.lake(tmp_path / "lake", format=form)  # type: ignore[arg-type]
    watched = Watched(view, monkeypatch)
    plain = fl.fold(payments, into=view, name="plain")(lambda rows: rows)
    feed = run(plain, directory, spark)
    wanted = in_order(history(rows_of(records_of(directory, "payments"), COLUMNS)))
    assert held(view) == wanted
    assert feed.rows == len(wanted)
    assert len(watched.staged) > 2
    fl.rebuild(plain, directory, spark=spark)
    assert held(view) == wanted
    assert watched.brought == [], "not a row has passed the driver"
    assert fl.verify(plain, directory, spark=spark).answer == "equal"
    assert places_below(tmp_path) == []


def paid(rows: DataFrame) -> DataFrame:
    return rows.filter("amount_paise > 0 OR _deleted").withColumn("note", F.upper("note"))


def shuffled(rows: DataFrame) -> DataFrame:
    return rows.repartition(2, "merchant").filter("amount_paise > 0 OR _deleted").withColumn("note", F.upper("note"))


@pytest.mark.parametrize(
    "function",
    [pytest.param(paid, id="in its task"), pytest.param(shuffled, id="shuffled", marks=pytest.mark.faults)],
)
def test_a_function_may_change_and_move_the_rows_that_executors_write(
    function: object,
    directory: Path,
    payments: DeclaredTopic,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = fl.lake(tmp_path / "lake", format="parquet")
    watched = Watched(view, monkeypatch)
    fold = fl.fold(payments, into=view, name="paid")(function)  # type: ignore[arg-type]
    run(fold, directory, spark)
    rows = rows_of(records_of(directory, "payments"), COLUMNS)
    kept = [
        {**row, "note": row["note"] and row["note"].upper()}
        for row in rows
        if row["_deleted"] or row["amount_paise"] > 0
    ]
    assert held(view) == in_order(history(kept))
    assert watched.staged
    assert not watched.brought


@pytest.fixture(params=["delta", pytest.param("postgres", marks=pytest.mark.faults)])
def keyed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[View]:
    if request.param == "delta":
        yield fl.lake(tmp_path / "lake", mode="merge")
        return
    url: str = request.getfixturevalue("postgres_url")
    yield fl.table(url, "payments")
    with psycopg.connect(url) as connection:
        left = connection.execute("SELECT count(*) FROM pg_class WHERE relpersistence = 'u'").fetchone()
        assert left == (0,)


def test_rows_that_a_filter_no_longer_lets_through_are_gone_from_what_executors_load(
    keyed: View,
    directory: Path,
    payments: DeclaredTopic,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(keyed, monkeypatch)

    def positive(rows: DataFrame) -> DataFrame:
        return rows.filter("amount_paise > 0")

    fold = fl.fold(payments, into=keyed, name="positive")(positive)
    run(fold, directory, spark)
    rows = rows_of(records_of(directory, "payments"), COLUMNS)
    wanted = in_order(row for row in mirror(rows) if row["amount_paise"] > 0)
    assert held(keyed) == wanted
    watched.staged.clear()
    fl.rebuild(fold, directory, spark=spark)
    assert watched.staged, "a rebuild is loaded by executors"
    assert held(keyed) == wanted
    assert fl.verify(fold, directory, spark=spark).answer == "equal"
    assert places_below(tmp_path) == []
    keyed.close()


def test_dead_letters_and_rows_that_a_view_cannot_hold_are_set_aside_as_ever(
    directory: Path, payments: DeclaredTopic, postgres_url: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = fl.table(postgres_url, "payments")
    watched = Watched(view, monkeypatch)
    append(directory, ("bad", b"{"), ("nul", payment(note="a\0b")), ("tx1", payment(note="fine")))
    fold = fl.fold(payments, into=view, name="plain")(lambda rows: rows)
    feed = run(fold, directory, spark)
    assert feed.dead == 2
    rows = [row for row in rows_of(records_of(directory, "payments"), COLUMNS) if row["tx_id"] not in ("bad", "nul")]
    assert held(view) == in_order(mirror(rows))
    assert watched.staged
    assert len(watched.brought) == 1, "the driver brings the range with such a row, and no other"
    view.close()


def test_folds_at_the_same_position_share_the_read_and_each_has_its_files(
    directory: Path, payments: DeclaredTopic, tmp_path: Path, spark: SparkSession
) -> None:
    views = [fl.lake(tmp_path / "one", format="parquet"), fl.lake(tmp_path / "two")]
    table = fl.table(tmp_path / "shop.db", "payments")
    folds = [fl.fold(payments, into=view, name=f"fold{number}")(lambda rows: rows) for number, view in enumerate(views)]
    fl.run([*folds, fl.fold(payments, into=table, name="mirror")(lambda rows: rows)], directory, once=True, spark=spark)
    rows = rows_of(records_of(directory, "payments"), COLUMNS)
    for view in views:
        assert held(view) == in_order(history(rows))
    assert held(table) == in_order(mirror(rows))
    table.close()


def test_rows_go_through_the_driver_where_executors_cannot_write(
    directory: Path, payments: DeclaredTopic, tmp_path: Path, spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    view = fl.lake(tmp_path / "lake", format="parquet")
    watched = Watched(view, monkeypatch)
    stage = type(view).stage

    def elsewhere(of: View, *given: object) -> FileStage:
        """As on a machine that has another file system at this path."""
        real = stage(of, *given)  # type: ignore[arg-type]
        assert isinstance(real, FileStage)
        return Elsewhere(real.directory, real.columns, real.place, is_split=True)

    monkeypatch.setattr(type(view), "stage", elsewhere)
    fold = fl.fold(payments, into=view, name="plain")(lambda rows: rows)
    run(fold, directory, spark)
    assert held(view) == in_order(history(rows_of(records_of(directory, "payments"), COLUMNS)))
    assert not watched.staged
    assert caplog.text.count("its rows go through the driver") == 1
    assert places_below(tmp_path) == []


class Elsewhere(FileStage):
    """A place that no executor sees. The name of its class travels, so it has to be found: see `open`."""

    def __reduce__(self) -> tuple[object, ...]:
        return FileStage, (self.directory + "-on-another-machine", self.columns, self.place, None, True)
