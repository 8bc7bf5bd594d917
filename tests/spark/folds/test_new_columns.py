"""`on_new_column="add"` through a runner: fields that the schema does not name become columns, whatever the ranges."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.errors import FoldError
from folds_model import append


def paid(rows: DataFrame) -> DataFrame:
    return rows.where("amount > 0").selectExpr("*", "amount * 2 AS doubled")


def value(number: int) -> bytes:
    fields = {"tip": number / 4} if number > 30 else {}
    seat = {"seat": f"row {number}", "Seat": 1} if number % 7 == 0 else {}
    return json.dumps({"amount": number % 5, **fields, **seat}).encode()


@pytest.mark.faults
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_new_fields_are_columns_after_ranges_a_rebuild_and_a_verification(
    engine: str, tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path / "shop.db") if engine == "sqlite" else request.getfixturevalue("postgres_url")
    directory = tmp_path / "data"
    with foldlog.open(directory) as log:
        log.create_topic("payments", partitions=2)
    append(directory, *((f"k{number % 40}", value(number)) for number in range(60)))
    topic = fl.topic("payments", key="tx_id", schema="amount BIGINT", on_new_column="add")
    fold = fl.fold(topic, into=fl.table(place, "payments"), name="payments")(paid)
    newest = {f"k{number % 40}": number for number in range(60)}
    wanted = [
        (
            key,
            number % 5 * 2,
            str(number / 4) if number > 30 else None,
            f"row {number}" if number % 7 == 0 else None,
            [["Seat", "1"]] if number % 7 == 0 else None,
        )
        for key, number in newest.items()
        if number % 5
    ]

    def check() -> None:
        query = "SELECT tx_id, doubled, tip, seat, _more FROM payments"
        if engine == "sqlite":
            with closing(sqlite3.connect(place)) as connection:
                rows = connection.execute(query).fetchall()
        else:
            with psycopg.connect(place) as connection:
                rows = connection.execute(query).fetchall()
        found = [(*row[:4], _pairs(row[4])) for row in rows]
        assert sorted(found, key=repr) == sorted(wanted, key=repr)

    fl.run([fold], directory, once=True, spark=spark, range_bytes=500)
    check()
    assert fl.verify(fold, directory, spark=spark).answer == "equal"
    fl.rebuild(fold, directory, spark=spark)
    check()
    lost = fl.fold(topic, into=fl.table(tmp_path / "x.db", "t"), name="lost")(lambda rows: rows.drop("_more"))
    with pytest.raises(FoldError, match="leaves out _more, in which new fields come"):
        fl.run([lost], directory, once=True, spark=spark)


def _pairs(more: object) -> object:
    """A map as the engines keep it: JSON, of an object."""
    held = json.loads(more) if isinstance(more, str) else more
    return sorted([name, text] for name, text in held.items()) if isinstance(held, dict) else held
