"""Backfill: rows that were spoiled are computed anew, of some keys or of the keys of a range, and nothing else changes.

Rows are spoiled by hand; after the backfill those of the keys that were asked for are what the log says, recomputed in
plain Python, and the others are as spoiled as before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.cli.main import main
from foldlog.errors import FoldError, FoldlogError, InvalidArgument
from foldlog.spark.folds.declaration import Fold
from folds_model import SCHEMA, append, mirror_of, payment


def spoil(tmp_path: Path, statement: str = "UPDATE payments SET amount_paise = -1") -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute(statement)


def held(fold: Fold) -> dict[str, int]:
    rows = [row for batch in fold.view.scan().batches for row in batch.to_pylist()]
    return {row["tx_id"]: row["amount_paise"] for row in rows}


@pytest.mark.faults
def test_keys_and_ranges_are_computed_anew_and_nothing_else(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    topic = fl.topic("payments", key="tx_id", schema=SCHEMA)
    mirror = fl.fold(topic, into=fl.table(tmp_path / "shop.db", "payments"), name="mirror")(
        lambda rows: rows.filter("amount_paise > 2")
    )
    append(directory, *((f"tx{n % 12}", payment(amount_paise=n)) for n in range(40)), ("tx3", None))
    append(directory, ("tx4", payment(amount_paise=1)), ("tx5", b"{"))
    fl.run([mirror], directory, once=True, spark=spark)
    true = {
        key: row["amount_paise"]
        for key, row in mirror_of(directory, "payments", lambda r: r["amount_paise"] > 2).items()
    }
    before = mirror.view.bookmark()
    assert before is not None
    assert held(mirror) == true
    spoil(tmp_path)
    spoil(tmp_path, "INSERT INTO payments VALUES ('tx3', 'x', 7, 'back'), ('tx4', 'x', 7, 'back')")
    spoil(tmp_path, "DELETE FROM payments WHERE tx_id = 'tx6'")
    done = fl.backfill(mirror, directory, keys=["tx3", b"tx4", "tx5", "tx6", "never"], spark=spark)
    assert done.keys == 5
    wanted = dict.fromkeys(true, -1) | {key: true[key] for key in ("tx5", "tx6")}
    assert held(mirror) == wanted
    after = mirror.view.bookmark()
    assert after is not None
    assert (after.positions, after.origins) == (before.positions, before.origins)
    # Of the keys with a record among these offsets, all records count.
    with foldlog.open(directory, mode="r") as log:
        keys = {
            record.key.decode()
            for number in (0, 1)
            for record in log.read("payments", number)
            if record.key and 2 <= record.offset < 5
        }
    fl.backfill(mirror, directory, of="2:5", spark=spark)
    assert held(mirror) == wanted | {key: true[key] for key in keys if key in true}
    fl.backfill(mirror, directory, of="start:end", spark=spark)
    assert fl.verify(mirror, directory, spark=spark).answer == "equal"
    append(directory, ("tx1", payment(amount_paise=99)))
    fl.run([mirror], directory, once=True, spark=spark)
    assert held(mirror)["tx1"] == 99


@pytest.mark.faults
def test_rows_with_keys_of_their_own_are_withdrawn_and_written_again(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    topic = fl.topic("payments", key="who", schema="amount_paise BIGINT, note STRING")
    view = fl.table(tmp_path / "shop.db", "payments", key="note")
    fold = fl.fold(topic, into=view, name="notes")(lambda rows: rows)
    append(directory, *((f"who{n % 3}", payment(amount_paise=n, note=f"n{n % 9}")) for n in range(30)))
    append(directory, ("who1", None), ("who1", payment(amount_paise=50, note="n1")))
    fl.run([fold], directory, once=True, spark=spark)
    spoil(tmp_path, "UPDATE payments SET amount_paise = -1")
    spoil(tmp_path, "INSERT INTO payments (who, note, amount_paise) VALUES ('who1', 'false', 3)")
    fl.backfill(fold, directory, keys=["who0", "who1", "who2"], spark=spark)
    assert fl.verify(fold, directory, spark=spark).answer == "equal"
    rows = {row["note"]: row["amount_paise"] for batch in view.scan().batches for row in batch.to_pylist()}
    assert rows == {"n0": 27, "n3": 21, "n6": 24, "n1": 50, "n2": 29, "n5": 23, "n8": 26}


@pytest.mark.faults
def test_the_command_line_backfills_and_what_cannot_be_is_told(
    directory: Path,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folds.py").write_text(
        "import foldlog.spark as fl\n"
        f"topic = fl.topic('payments', key='tx_id', schema='{SCHEMA}')\n"
        "@fl.fold(topic, into=fl.table('shop.db', 'payments'))\n"
        "def mirror(rows): return rows\n"
        "@fl.fold(topic, into=fl.counters('live.db', measures={'n': fl.count()}))\n"
        "def counted(rows): return rows\n"
    )
    mirror, counted = fl.load_folds("folds.py")
    mistakes: list[tuple[Callable[[], object], str]] = [
        (lambda: fl.backfill(mirror, directory), "needs keys, or a range of records"),
        (lambda: fl.backfill(mirror, directory, keys=["a"], of="1:2"), "one of the two"),
        (lambda: fl.backfill(mirror, directory, keys="a"), r"keys= is a list of record keys, as in keys=\['a'\]"),
        (
            lambda: fl.backfill(counted, directory, keys=["a"]),
            "its rows depend on more than one key's records; rebuild",
        ),
        (lambda: fl.backfill(mirror, directory, keys=["a"]), "has no view yet, so there is nothing to backfill"),
    ]
    for mistake, message in mistakes:
        with pytest.raises((InvalidArgument, FoldError), match=message):
            mistake()
    append(directory, ("a", payment(amount_paise=5)), ("b", payment(amount_paise=6)))
    fl.run([mirror], directory, once=True, spark=spark)
    spoil(tmp_path)
    assert main(["fold", "backfill", "mirror", "-d", str(directory), "--key", "b"]) == 0
    assert "mirror: 1 key, computed anew from 1 record" in capsys.readouterr().out
    assert held(mirror) == {"a": -1, "b": 6}
    with pytest.raises(FoldlogError, match="is not a range"):
        fl.backfill(mirror, directory, of="5", spark=spark)
