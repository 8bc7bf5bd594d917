"""`fl.reduce` through a runner: states equal a plain loop over the log, after ranges, a rebuild and a verification."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.errors import FoldError, InvalidArgument
from foldlog.spark.folds.declaration import Fold
from foldlog.testing import FoldTester
from foldlog.views.contract import View
from folds_model import append, records_of
from test_docs import DOCS, blocks_of, page

ORDERS = fl.topic("payments", key="order_id", schema="event STRING, amount BIGINT")
STATE = "status STRING, paid BIGINT"
ZERO = {"status": "new", "paid": 0}


def advance(state: dict[str, Any], row: dict[str, Any]) -> dict[str, Any] | None:
    if row["event"] == "closed":
        return None
    if row["event"] == "shipped" and not state["paid"]:
        raise ValueError("shipped before it was paid")
    paid = state["paid"] + (row["amount"] or 0)
    return {"status": row["event"], "paid": paid}


def sums(state: dict[str, Any], rows: pa.RecordBatch) -> dict[str, Any]:
    return {"status": rows["event"][-1], "paid": state["paid"] + (pc.sum(rows["amount"]).as_py() or 0)}


def event(name: str, amount: int | None = None) -> bytes:
    return json.dumps({"event": name, "amount": amount}).encode()


def orders_into(place: object, step: Any = None, function: Any = None, **options: Any) -> Fold:
    view = fl.reduce(str(place), "orders", state=STATE, zero=ZERO, step=step or fl.each_row(advance), **options)
    return fl.fold(ORDERS, into=view, name="orders")(function or (lambda rows: rows))


def model(directory: Path, keep: Any = lambda row: True) -> tuple[list[dict[str, Any]], set[tuple[int, int]]]:
    """The states, and the coordinates of the records at fault."""
    states: dict[str, dict[str, Any]] = {}
    faults = set()
    for record in records_of(directory, "payments"):
        if record.key is None:
            faults |= {(record.partition, record.offset)} if record.value is not None else set()
            continue
        key = record.key.decode()
        if record.value is None:
            states.pop(key, None)
            continue
        try:
            row = json.loads(record.value)
            if not keep(row):
                continue
            after = advance(dict(states.get(key, ZERO)), row)
        except ValueError:
            faults.add((record.partition, record.offset))
            continue
        states.pop(key, None)
        if after is not None:
            states[key] = after
    return sorted(({"order_id": key, **state} for key, state in states.items()), key=str), faults


def rows_in(view: View) -> list[dict[str, Any]]:
    return sorted((row for batch in view.scan().batches for row in batch.to_pylist()), key=str)


def letters(directory: Path) -> dict[tuple[int, int], str]:
    found = {}
    with foldlog.open(directory, mode="r") as log:
        for record in log.read("orders.dead"):
            said = dict(record.headers)
            found[int(said["partition"] or b""), int(said["offset"] or b"")] = (said["reason"] or b"").decode()
    return found


EVENTS = [
    *((f"o{n % 7}", event(["paid", "shipped", "looked", "closed"][n * 5 % 4], n % 3 or None)) for n in range(60)),
    ("o3", None),
    ("o4", b"no event"),
    (None, event("paid", 1)),
    (None, None),
    ("o3", event("shipped")),
    ("o5", event("paid", 3)),
]


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.faults)])
def test_states_equal_a_plain_loop_after_ranges_rebuild_and_verification(
    engine: str, directory: Path, tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    fold = orders_into(tmp_path / "x.db" if engine == "sqlite" else request.getfixturevalue("postgres_url"))
    append(directory, *EVENTS[:20])
    fl.run([fold], directory, once=True, spark=spark)
    append(directory, *EVENTS[20:])
    fl.run([fold], directory, once=True, spark=spark, range_bytes=2500)
    states, faults = model(directory)
    assert len(states) > 3
    assert rows_in(fold.view) == states
    told = letters(directory)
    assert set(told) == faults
    assert any("the step raised ValueError: shipped before it was paid" in reason for reason in told.values())
    assert fl.verify(fold, directory, spark=spark).answer == "equal"
    fl.rebuild(fold, directory, spark=spark, range_bytes=4000)
    assert rows_in(fold.view) == states
    with pytest.raises(FoldError, match="rebuild it instead"):
        fl.rewind(fold, directory, "start")
    fl.drop(fold, directory)


def test_a_state_changed_by_hand_is_different(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    import sqlite3

    fold = orders_into(tmp_path / "x.db", sums)
    append(directory, ("a", event("paid", 1)), ("b", event("paid", 2)))
    fl.run([fold], directory, once=True, spark=spark)
    with sqlite3.connect(tmp_path / "x.db") as shop:
        shop.execute("UPDATE orders SET paid = 7 WHERE order_id = 'a'")
    assert fl.verify(fold, directory, spark=spark).answer == "different"


def test_tombstones_delete_even_if_the_function_drops_them(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    def paid(rows: DataFrame) -> DataFrame:
        return rows.filter("event = 'paid'")

    fold = orders_into(tmp_path / "x.db", function=paid)
    append(directory, ("a", event("paid", 1)), ("b", event("paid", 2)), ("b", event("looked")), ("a", None))
    append(directory, ("c", event("paid", 2)), ("c", None), ("c", event("paid", 5)))
    fl.run([fold], directory, once=True, spark=spark)
    assert rows_in(fold.view) == model(directory, lambda row: row["event"] == "paid")[0]
    assert [row["order_id"] for row in rows_in(fold.view)] == ["b", "c"]
    assert fl.verify(fold, directory, spark=spark).answer == "equal"


def test_a_step_that_depends_on_the_split_is_refused_before_anything_is_stored(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    def calls(state: dict[str, Any], rows: pa.RecordBatch) -> dict[str, Any]:
        return {**state, "paid": state["paid"] + 1}

    append(directory, *((f"o{n % 3}", event("paid", 1)) for n in range(9)))
    fold = orders_into(tmp_path / "x.db", calls)
    with pytest.raises(FoldError, match=r"for the first 2 records of key 'o\d' together"):
        fl.run([fold], directory, once=True, spark=spark)
    assert rows_in(fold.view) == []


def test_another_step_is_another_function(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    append(directory, ("a", event("paid", 1)))
    fl.run([orders_into(tmp_path / "x.db")], directory, once=True, spark=spark)
    fl.run([orders_into(tmp_path / "x.db")], directory, once=True, spark=spark)
    with pytest.raises(FoldError, match="is another one than its view was made with"):
        fl.run([orders_into(tmp_path / "x.db", sums)], directory, once=True, spark=spark)


def test_a_step_that_fails_everywhere_is_wrong_itself(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    append(directory, *((f"o{n}", event("paid", 1)) for n in range(101)))

    def wrong(state: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        return {"status": row["event"]}

    fold = orders_into(tmp_path / "x.db", fl.each_row(wrong))
    with pytest.raises(FoldError, match=r"fails at 101 records of one range.*the state has no 'paid'"):
        fl.run([fold], directory, once=True, spark=spark)


def test_a_function_that_may_change_the_key_is_refused(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    append(directory, ("a", event("paid", 1)))
    fold = orders_into(
        tmp_path / "x.db",
        function=lambda rows: rows.selectExpr("upper(order_id) AS order_id", "event", "amount", *fl.META),
    )
    with pytest.raises(FoldError, match="a state follows the records of its key"):
        fl.run([fold], directory, once=True, spark=spark)


def test_a_key_of_its_own_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="may lie in several partitions, which have no order"):
        orders_into(tmp_path / "x.db", key="event")
    with pytest.raises(InvalidArgument, match="addresses its rows by key, and topic 'p' names none"):
        fl.fold(fl.topic("p", schema="a INT"), into=fl.reduce(tmp_path / "x.db", "o", state="b INT", step=sums))


def test_the_page_about_states_is_true(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in blocks_of(page(DOCS / "reduce.md")) if block.language == "python"]
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block.code, "reduce.md", "exec"), names)
    with foldlog.open("data") as log:
        log.create_topic("orders", partitions=2)
        for order, what in (("a", "paid"), ("b", "paid"), ("c", "shipped"), ("a", "shipped"), ("b", "closed")):
            log.append("orders", {"event": what, "paise": 5, "at": "2026-01-15T10:00:00Z"}, key=order)
    fl.run([names["orders"]], "data", once=True, spark=spark)
    assert [(row["order_id"], row["status"], row["paid"]) for row in rows_in(names["orders"].view)] == [
        ("a", "shipped", 5)
    ]
    summed = fl.reduce(
        "x.db", "x", state="paid BIGINT, last STRING", zero={"paid": 0, "last": None}, step=names["balance"]
    )
    fold = fl.fold(names["events"], into=summed, name="balances")(lambda rows: rows)
    given = [("a", {"event": "paid", "paise": paise}) for paise in (1, 2, None)]
    assert FoldTester(lambda: spark)(fold, given) == [{"order_id": "a", "paid": 3, "last": "paid"}]
