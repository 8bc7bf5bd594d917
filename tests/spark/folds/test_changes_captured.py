"""A table of a database, followed through Debezium's events: the view holds what the table held.

Statements are generated and applied to a dict, which is the table. Each gives the events that a connector writes: a
change of the key is a deletion and a creation, and a deletion is followed by a tombstone.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import foldlog
import foldlog.spark as fl

Key = tuple[str, int]
REGIONS = ("eu", "in")
STATEMENTS = 60


def events_of(table: dict[Key, dict[str, Any]], chance: random.Random) -> Iterator[tuple[Key, dict[str, Any] | None]]:
    """Change the table at random, and yield what is captured of it."""
    key = (chance.choice(REGIONS), chance.randrange(8))
    row = {"region": key[0], "id": key[1], "name": f"n{chance.randrange(99)}", "at": chance.randrange(10**15)}
    what = chance.choice(("put", "put", "delete", "move"))
    before = table.get(key)
    if what == "put":
        table[key] = row
        yield key, {"before": before, "after": row, "op": "c" if before is None else chance.choice("ur")}
    elif before is not None:
        del table[key]
        yield key, {"before": before, "after": None, "op": "d"}
        if chance.random() < 0.8:  # tombstones.on.delete
            yield key, None
        other = (key[0], key[1] + 100)
        if what == "move" and other not in table:
            table[other] = {**before, "id": other[1]}
            yield other, {"before": None, "after": table[other], "op": "c"}


def wrapped(payload: object, *, has_schema: bool) -> bytes | None:
    if payload is None:
        return None
    return json.dumps({"schema": {"type": "struct"}, "payload": payload} if has_schema else payload).encode()


@pytest.mark.faults
@pytest.mark.parametrize("has_schema", [False, True], ids=["plain", "with schemas"])
def test_the_view_holds_what_the_table_held(tmp_path: Path, spark: SparkSession, has_schema: bool) -> None:
    chance = random.Random(7 + has_schema)
    table: dict[Key, dict[str, Any]] = {}
    items = fl.topic(
        "items",
        key=["region", "id"],
        schema="region STRING, id BIGINT, name STRING, at TIMESTAMP",
        format="debezium",
        times="micros",
    )

    @fl.fold(items, into=fl.table(str(tmp_path / "shop.db"), "items"))
    def mirror(rows: DataFrame) -> DataFrame:
        return rows

    @fl.fold(items, into=fl.table(str(tmp_path / "shop.db"), "names"))
    def names(rows: DataFrame) -> DataFrame:
        return rows.drop("at")

    for _ in range(2):
        with foldlog.open(tmp_path / "data", listen=False) as log:
            if not log.topics():
                log.create_topic("items", partitions=2)
            for _ in range(STATEMENTS):
                for (region, number), event in list(events_of(table, chance)):
                    key = wrapped({"region": region, "id": number}, has_schema=has_schema)
                    log.append("items", wrapped(event, has_schema=has_schema), key=key)
        feeds = fl.run([mirror, names], tmp_path / "data", once=True, spark=spark)
        assert [feed.dead for feed in feeds] == [0, 0]
        with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
            wanted = sorted((*key, row["name"]) for key, row in table.items())
            for view in ("items", "names"):
                assert sorted(shop.execute(f"SELECT region, id, name FROM {view}")) == wanted


def test_an_event_that_is_no_row_is_set_aside(tmp_path: Path, spark: SparkSession) -> None:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("items")
        log.append("items", {"op": "c", "after": {"name": "tea"}}, key={"id": 1})
        log.append("items", {"op": "t"}, key={"id": 2})
        log.append("items", {"name": "tea"}, key={"id": 3})

    @fl.fold(
        fl.topic("items", key="id", schema="id INT, name STRING", format="debezium"),
        into=fl.table(str(tmp_path / "shop.db"), "items"),
    )
    def mirror(rows: DataFrame) -> DataFrame:
        return rows

    (feed,) = fl.run([mirror], tmp_path / "data", once=True, spark=spark)
    assert feed.dead == 2
    with foldlog.open(tmp_path / "data", "r") as log:
        reasons = [(dict(one.headers)["reason"] or b"").decode() for one in log.read("mirror.dead")]
    assert reasons[0].startswith("op 't': the table was truncated")
    assert reasons[1].startswith("no event of Debezium")
