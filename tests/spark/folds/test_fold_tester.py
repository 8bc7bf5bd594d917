"""`foldlog_fold` runs folds on given records with a real Spark, and finds what breaks the law."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import foldlog.spark as fl
from foldlog.errors import UnlawfulFold
from foldlog.testing import FoldTester, GivenRecord, LawBroken

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


def test_what_the_plan_shows_is_refused_before_it_runs(tester: FoldTester, tmp_path: Path) -> None:
    fold = fl.fold(PAYMENTS, into=fl.table(tmp_path / "x.db", "p"), name="once")(lambda rows: rows.dropDuplicates())
    with pytest.raises(UnlawfulFold, match="drops duplicates"):
        tester.check_law(fold, [GivenRecord({"merchant": "m", "amount": 1}, "a")])
