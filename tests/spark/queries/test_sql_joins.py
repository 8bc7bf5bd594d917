"""Joins in SQL: after any ranges, in any order, the table is the join of both whole topics in plain Python."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import foldlog
import foldlog.spark as fl

PAYMENTS = fl.topic("payments", key="tx_id", schema="merchant STRING, amount BIGINT")
SHOPS = fl.topic("shops", key="shop", schema="city STRING, size BIGINT")
QUERIES = {
    "inner": """SELECT tx_id, amount * 2 AS twice, s.city FROM payments p JOIN shops s ON p.merchant = s.shop
                WHERE amount > 2 AND s.size < 3""",
    "left": """SELECT p.*, s.city AS place FROM payments AS p LEFT OUTER JOIN shops AS s
               ON s.shop = p.merchant AND size < 3 WHERE amount > 2""",
}


@pytest.mark.faults
def test_a_join_in_sql_is_the_join_of_both_topics(tmp_path: Path, spark: SparkSession) -> None:
    log, chance = tmp_path / "data", random.Random(18)
    with foldlog.open(log) as opened:
        opened.create_topic("payments", partitions=2)
        opened.create_topic("shops")
    payments: dict[str, dict[str, Any] | None] = {}
    shops: dict[str, dict[str, Any] | None] = {}
    folds = [
        fl.sql(query, into=tmp_path / "x.db", name=how, topics=[PAYMENTS, SHOPS]) for how, query in QUERIES.items()
    ]
    for _ in range(3):
        with foldlog.open(log) as opened:
            for _ in range(30):
                is_shop = chance.random() < 0.3
                row: dict[str, Any] | None = {"merchant": chance.choice("abc"), "amount": chance.randrange(9)}
                if is_shop:
                    row = {"city": chance.choice(["Pune", "Goa"]), "size": chance.randrange(5)}
                key = chance.choice("abc") if is_shop else f"t{chance.randrange(9)}"
                row = None if chance.random() < 0.15 else row
                (shops if is_shop else payments)[key] = row
                value = None if row is None else json.dumps(row).encode()
                opened.append("shops" if is_shop else "payments", value, key=key)
        fl.run(folds, log, once=True, range_bytes=chance.choice([400, 1 << 20]), spark=spark)
        small = {key: row["city"] for key, row in shops.items() if row is not None and row["size"] < 3}
        large = {key: row for key, row in payments.items() if row is not None and row["amount"] > 2}
        inner, left = ([row for batch in fold.view.scan().batches for row in batch.to_pylist()] for fold in folds)
        assert {(row["tx_id"], row["twice"], row["city"]) for row in inner} == {
            (key, 2 * row["amount"], small[row["merchant"]]) for key, row in large.items() if row["merchant"] in small
        }
        assert {(row["tx_id"], row["merchant"], row["amount"], row["place"]) for row in left} == {
            (key, row["merchant"], row["amount"], small.get(row["merchant"])) for key, row in large.items()
        }
    for fold in folds:
        assert fl.verify(fold, log, spark=spark).answer == "equal"
