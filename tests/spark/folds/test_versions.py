"""Newest by a version, and histories, folded by Spark: keys in several partitions, late versions, deletions, rewinds,
rebuilds and verification, against the plain recompute.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.spark.folds.declaration import Fold
from foldlog.testing.folds import FoldTester

CUSTOMERS = fl.topic("customers", key="id", schema="version BIGINT, city STRING, is_gone BOOLEAN")
Row = dict[str, Any]


def _known(rows: DataFrame) -> DataFrame:
    """A record with `is_gone` deletes, as of its version; versions of zero are left out."""
    found = rows.filter("version IS NULL OR version <> 0")
    return found.selectExpr(
        "id", "version", "city", *(name for name in fl.META if name != "_deleted"), "_deleted OR is_gone AS _deleted"
    )


def _folds(home: Path) -> dict[str, Fold]:
    newest = fl.table(home / "live.db", "newest", order_by="version")
    history = fl.history(home / "live.db", "history", order_by="version")
    return {
        "newest": fl.fold(CUSTOMERS, into=newest, name="newest")(_known),
        "history": fl.fold(CUSTOMERS, into=history, name="history")(_known),
    }


def _append(directory: Path, chance: random.Random, count: int) -> None:
    with foldlog.open(directory) as log:
        if "customers" not in log.topics():
            log.create_topic("customers", partitions=3)
        for _ in range(count):
            row = {"version": chance.randrange(9), "city": chance.choice("xyz"), "is_gone": chance.random() < 0.2}
            value = None if chance.random() < 0.1 else json.dumps(row).encode()
            key = f"c{chance.randrange(5)}".encode()
            log.append("customers", value, key=key, partition=chance.randrange(3))


def _log(directory: Path) -> list[Row]:
    """Every record, as a row with its place."""
    with foldlog.open(directory, mode="r") as log:
        return [
            {
                "id": (one.key or b"").decode(),
                "partition": number,
                "offset": one.offset,
                "row": one.value and json.loads(one.value),
            }
            for number in range(3)
            for one in log.read("customers", number)
        ]


def _living(log: list[Row]) -> list[Row]:
    """The versions that no later tombstone of their partition removes, the oldest first."""
    found = [
        one | one["row"]
        for one in log
        if one["row"]
        and one["row"]["version"]
        and not any(
            not other["row"] and other["offset"] > one["offset"]
            for other in log
            if (other["id"], other["partition"]) == (one["id"], one["partition"])
        )
    ]
    return sorted(found, key=lambda one: (one["version"], one["partition"], one["offset"]))


def _newest(log: list[Row]) -> list[Row]:
    found = {one["id"]: one for one in _living(log)}
    return [{name: one[name] for name in ("id", "version", "city")} for one in found.values() if not one["is_gone"]]


def _history(log: list[Row]) -> list[Row]:
    found = {(one["id"], one["version"]): one for one in _living(log)}
    rows = []
    for (key, version), one in found.items():
        later = [other for of, other in found if of == key and other > version]
        if not one["is_gone"]:
            row = {"id": key, "version": version, "city": one["city"]}
            rows.append(row | {"valid_from": version, "valid_to": min(later, default=None)})
    return rows


def _held(fold: Fold) -> list[Row]:
    rows = [row for batch in fold.view.scan().batches for row in batch.to_pylist()]
    fold.view.close()
    return _in_order(rows)


def _in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row, default=str, sort_keys=True))


@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.faults)], ids=["short", "long"])
def test_late_versions_deletions_and_rewinds_give_the_recompute_of_the_whole_log(
    is_long: bool, tmp_path: Path, spark: SparkSession
) -> None:
    folds, chance, data = _folds(tmp_path), random.Random(11), tmp_path / "data"
    models = {"newest": _newest, "history": _history}
    for _ in range(2):
        _append(data, chance, 40)
        fl.run(list(folds.values()), data, once=True, spark=spark)
        for name, fold in folds.items():
            assert _held(fold) == _in_order(models[name](_log(data))), name
    if not is_long:
        return
    fl.rewind(folds["history"], data, "0=5,1=0,2=7")
    fl.run(list(folds.values()), data, once=True, spark=spark)
    assert fl.verify(folds["history"], data, spark=spark).answer == "equal"
    fl.rebuild(folds["newest"], data, spark=spark)
    for name, fold in folds.items():
        assert _held(fold) == _in_order(models[name](_log(data))), name


@pytest.mark.faults
def test_they_can_be_tested_like_every_fold(tmp_path: Path, spark: SparkSession) -> None:
    tester = FoldTester(lambda: spark)
    given = [
        ("a", {"version": 2, "city": "y", "is_gone": False}),
        ("a", {"version": 1, "city": "x", "is_gone": False}),
        ("b", {"version": 1, "city": "x", "is_gone": False}),
        ("b", None),
    ]
    folds = _folds(tmp_path)
    assert tester(folds["newest"], given) == [{"id": "a", "version": 2, "city": "y"}]
    assert [(row["valid_from"], row["valid_to"]) for row in tester(folds["history"], given)] == [(1, 2), (2, None)]
    tester.check_law(folds["history"], given, tries=4)


@pytest.mark.faults
def test_a_record_without_a_version_is_a_dead_letter(tmp_path: Path, spark: SparkSession) -> None:
    fold = fl.fold(CUSTOMERS, into=fl.table(tmp_path / "live.db", "newest", order_by="version"), name="newest")(
        lambda rows: rows
    )
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("customers")
        log.append("customers", b'{"city": "x"}', key=b"a")
        log.append("customers", b'{"version": 1, "city": "x"}', key=b"b")
    fl.run([fold], tmp_path / "data", once=True, spark=spark)
    assert [row["id"] for row in _held(fold)] == ["b"]
    with foldlog.open(tmp_path / "data", mode="r") as log:
        (letter,) = log.read("newest.dead", 0)
    assert letter.value == b'{"city": "x"}'
