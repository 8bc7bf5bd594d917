"""A preview shows what a fold makes of a topic's last records, and leaves the view and the log alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.cli.main import main
from foldlog.errors import FoldError, InvalidArgument, UnlawfulFold
from folds_model import SCHEMA, append, payment

PIPELINE = f"""
import foldlog.spark as fl

payments = fl.topic("payments", key="tx_id", schema="{SCHEMA}")

@fl.fold(payments, into=fl.table("shop.db", "payments"))
def large(rows): return rows.filter("amount_paise > 6").select("tx_id", "amount_paise", *fl.META)

@fl.fold(payments, into=fl.counters("live.db", by=["merchant"], measures={{"paise": fl.sum("amount_paise")}}))
def totals(rows): return rows
"""


@pytest.fixture
def shop(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(10)), ("poison", b"no payment"))
    (directory.parent / "folds.py").write_text(PIPELINE)
    monkeypatch.chdir(directory.parent)
    return directory


def test_rows_in_and_out_are_shown_and_nothing_is_stored(shop: Path, spark: SparkSession) -> None:
    large, totals = fl.load_folds("folds.py")
    before = sorted(path.name for path in shop.parent.iterdir())
    found = fl.preview(large, shop, spark=spark)
    assert found.given.num_rows == 10
    assert found.dead is not None
    assert [(row["key"], row["value"]) for row in found.dead.to_pylist()] == [(b"poison", b"no payment")]
    out = {row["tx_id"]: row["amount_paise"] for row in found.made.to_pylist() if not row["_deleted"]}
    assert out == {f"tx{n}": n for n in (7, 8, 9)}
    # A record without a row deletes its key.
    assert {row["tx_id"] for row in found.made.to_pylist() if row["_deleted"]} == {f"tx{n}" for n in range(7)}
    assert fl.preview(totals, shop, spark=spark).made.to_pylist() == [{"merchant": "tea", "paise": 45}]
    last = fl.preview(large, shop, last=4, spark=spark)
    assert sum(stop - start for start, stop in last.ranges.values()) == 4
    assert sorted(path.name for path in shop.parent.iterdir()) == before
    with foldlog.open(shop, mode="r") as log:
        assert log.topics(include_internal=True) == ["payments"]


def test_the_command_shows_both_tables_or_json(
    shop: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fold", "preview", "folds.py", "large", "-d", str(shop)]) == 1  # one record would be set aside
    shown = capsys.readouterr().out
    assert "10 rows of payments" in shown
    assert "would get; nothing is stored" in shown
    assert "1 record that would be set aside" in shown
    main(["fold", "preview", "folds.py", "totals", "-d", str(shop), "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert document["out"] == [{"merchant": "tea", "paise": 45}]
    assert len(document["in"]) == 10
    assert len(document["dead_letters"]) == 1


def test_what_cannot_be_shown_is_a_sentence(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)

    @fl.fold(payments, into=fl.table(tmp_path / "shop.db", "payments"))
    def counted(rows: DataFrame) -> DataFrame:
        return rows.groupBy("merchant").count()

    with pytest.raises(FoldError, match="no records to show fold 'counted' on"):
        fl.preview(counted, directory, spark=spark)
    append(directory, ("a", payment()))
    with pytest.raises(UnlawfulFold):
        fl.preview(counted, directory, spark=spark)
    with pytest.raises(InvalidArgument, match="last=0 is not a number of records from 1 to"):
        fl.preview(counted, directory, last=0, spark=spark)
