"""`foldlog_fold` runs folds on given records with a real Spark, and finds what breaks the law."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import foldlog.spark as fl
from foldlog.errors import InvalidArgument, UnlawfulFold
from foldlog.testing import FoldTester, GivenRecord, LawBroken
from foldlog.testing.fold_law import whole
from foldlog.testing.folds import given_records

PAGE = Path(__file__).resolve().parents[3] / "docs" / "testing_folds.md"

PAYMENTS = fl.topic("payments", key="tx", schema="merchant STRING, amount BIGINT")
RECORDS = [{"tx": f"a{number % 4}", "merchant": "m", "amount": number} for number in range(8)]


@pytest.fixture
def tester(spark: SparkSession) -> FoldTester:
    return FoldTester(lambda: spark)


def test_the_example_of_the_page_passes(tester: FoldTester) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if "foldlog_fold" in block]
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)
    names["test_totals"](tester)


def test_a_keyed_view_has_the_newest_row_of_each_key(tester: FoldTester, tmp_path: Path) -> None:
    mirror = fl.fold(PAYMENTS, into=fl.table(tmp_path / "x.db", "p"), name="mirror")(lambda rows: rows)
    rows = tester(mirror, [*RECORDS, ("a1", None)])
    assert [(row["tx"], row["amount"]) for row in rows] == [("a0", 4), ("a2", 6), ("a3", 7)]
    assert list(tmp_path.iterdir()) == []


def number_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    place = 0
    for batch in batches:
        index = batch.schema.get_field_index("amount")
        numbers = pa.array(range(place, place + batch.num_rows), pa.int64())
        place += batch.num_rows
        yield batch.set_column(index, batch.schema.field(index), numbers)


def test_what_depends_on_the_split_is_found_and_shrunk(tester: FoldTester, tmp_path: Path) -> None:
    def numbered(rows: DataFrame) -> DataFrame:
        return rows.repartition(1).mapInArrow(number_rows, rows.schema)

    fold = fl.fold(PAYMENTS, into=fl.table(tmp_path / "x.db", "p"))(numbered)
    with pytest.raises(LawBroken, match="fold 'numbered' breaks the law of folds") as broken:
        tester.check_law(fold, RECORDS)
    assert len(broken.value.records) == 2


def no_spark() -> SparkSession:
    raise AssertionError("Spark was started")


def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        index = batch.schema.get_field_index("amount")
        yield batch.set_column(index, batch.schema.field(index), pc.multiply(batch["amount"], 2))


def in_pandas(frames: Iterator[Any]) -> Iterator[Any]:
    for frame in frames:
        yield frame[frame["amount"] > 2]


def latest(state: dict[str, Any], rows: pa.RecordBatch) -> dict[str, Any]:
    return {"records": state["records"] + rows.num_rows, "amount": rows["amount"][-1]}


def calls(state: dict[str, Any], rows: pa.RecordBatch) -> dict[str, Any]:
    return {"records": state["records"] + 1, "amount": None}


def states(step: Any) -> Any:
    return fl.reduce("x.db", "x", state="records INT, amount BIGINT", zero={"records": 0, "amount": 0}, step=step)


COUNTED = {"n": fl.count(), "total": fl.sum("amount"), "mean": fl.avg("amount"), "least": fl.min("amount")}
ALL = "tx STRING, merchant STRING, amount BIGINT, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"

WITHOUT_SPARK: dict[str, tuple[Any, Any]] = {
    "a table": (fl.table("x.db", "p"), lambda rows: rows),
    "states": (states(latest), lambda rows: rows),
    "an Arrow function": (fl.table("x.db", "p"), lambda rows: rows.mapInArrow(doubled, rows.schema)),
    "a pandas function": (
        fl.lake("x"),
        lambda rows: rows.select("tx", "merchant", "amount", *fl.META).mapInPandas(
            in_pandas, f"{ALL}, _deleted BOOLEAN"
        ),
    ),
    "counters": (fl.counters("x.db", by="merchant", measures=COUNTED), lambda rows: rows),
}


@pytest.mark.parametrize("kind", WITHOUT_SPARK)
def test_a_function_that_needs_no_spark_gives_the_same_without_it(tester: FoldTester, kind: str) -> None:
    view, function = WITHOUT_SPARK[kind]
    fold = fl.fold(PAYMENTS, into=view, name="it")(function)
    records: list[Any] = [
        *RECORDS,
        ("a1", None),
        {"tx": "a5", "merchant": "n", "amount": 3},
        ("a6", "no payment"),
        ("a9", None),
    ]
    alone = FoldTester(no_spark)
    rows = alone(fold, records)
    assert len(rows) > 1
    alone.check_law(fold, records, tries=3)
    given = given_records(PAYMENTS, records)
    with tester._spark_contents(fold) as contents:
        assert sorted(map(str, contents(given, whole(given)))) == sorted(map(str, rows))


def test_a_step_that_depends_on_the_split_is_shrunk_to_two_records() -> None:
    fold = fl.fold(PAYMENTS, into=states(calls), name="calls")(lambda rows: rows)
    with pytest.raises(LawBroken, match="fold 'calls' breaks the law of folds") as broken:
        FoldTester(no_spark).check_law(fold, RECORDS)
    assert len(broken.value.records) == 2
    assert '{"amount": null, "records": 2, "tx": "a3"}' in str(broken.value)
    assert "a step has to give the same for rows together as for one after the other" in str(broken.value)


def test_what_only_spark_understands_is_left_to_it(tester: FoldTester) -> None:
    fold = fl.fold(PAYMENTS, into=fl.table("x.db", "p"), name="some")(lambda rows: rows.filter("amount > 5"))
    assert tester.needs_spark(fold, RECORDS)
    assert [row["amount"] for row in tester(fold, RECORDS)] == [6, 7]
    with pytest.raises(AssertionError, match="Spark was started"):
        FoldTester(no_spark)(fold, RECORDS)


SEEN = fl.topic("seen", key="id", schema="at TIMESTAMP, place STRING")


def seen_at(minute: int, key: str, place: str | None = "here", *, ahead: int = 0) -> GivenRecord:
    """Written in that minute, and dated then, or so many minutes ahead."""
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    value = None if place is None else {"at": (at + timedelta(minutes=ahead)).isoformat(), "place": place}
    return GivenRecord(value, key, sum(key.encode()) % 2, int(at.timestamp() * 1000))


@pytest.mark.parametrize("way", ["Arrow", pytest.param("Spark", marks=pytest.mark.faults)])
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_rows_that_have_expired_are_not_in_the_view(request: pytest.FixtureRequest, mode: Any, way: str) -> None:
    tester = FoldTester(no_spark) if way == "Arrow" else request.getfixturevalue("tester")
    view = fl.table("x.db", "seen", mode=mode, ttl=("at", "1 hour"))
    fold = fl.fold(SEEN, into=view, name="seen")(lambda rows: rows if way == "Arrow" else rows.where("id IS NOT NULL"))
    records = [
        seen_at(0, "old"),
        seen_at(10, "again"),
        seen_at(30, "just"),
        seen_at(40, "far", ahead=10**6),  # counts as what its record says, so it expires nobody
        seen_at(85, "gone"),
        seen_at(80, "again", "there"),
        seen_at(90, "gone", None),
    ]
    made = tester(fold, records)
    # The latest time told is that of 'gone', which is no row any more: 85 minutes.
    kept = {"again", "far", "just"} if mode == "merge" else {"again", "far", "just", "gone"}
    assert {row["id"] for row in made} == kept
    assert [row["place"] for row in made if row["id"] == "again"] == ["there"]
    assert tester.needs_spark(fold, records) == (way == "Spark")
    tester.check_law(fold, records, tries=5)
    wrong = fl.fold(SEEN, into=fl.table("x.db", "seen", ttl=("id", "1 hour")), name="wrong")(lambda rows: rows)
    with pytest.raises(InvalidArgument, match="goes by 'id', which is not a TIMESTAMP"):
        tester(wrong, records)


def test_what_the_plan_shows_is_refused_before_it_runs(tester: FoldTester, tmp_path: Path) -> None:
    fold = fl.fold(PAYMENTS, into=fl.table(tmp_path / "x.db", "p"), name="once")(lambda rows: rows.dropDuplicates())
    with pytest.raises(UnlawfulFold, match="drops duplicates"):
        tester.check_law(fold, [GivenRecord({"merchant": "m", "amount": 1}, "a")])
