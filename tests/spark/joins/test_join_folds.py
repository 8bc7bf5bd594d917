"""Folds of two topics, run: the view is the join of both logs, the law is checked, every command knows both topics."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.cli.main import main
from foldlog.errors import FoldError, InvalidArgument, UnlawfulFold
from foldlog.spark.folds.declaration import Fold
from foldlog.testing.folds import FoldTester

Rows = list[tuple[Any, ...]]

ORDERS = fl.topic("orders", key="order_id", schema="customer STRING, amount BIGINT, at TIMESTAMP")
CUSTOMERS = fl.topic("customers", key="customer", schema="name STRING, city STRING")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("orders", partitions=2)
        log.create_topic("customers", partitions=1)
        log.create_topic("rates", partitions=1)
    return tmp_path / "data"


def send(directory: Path, topic: str, *records: tuple[str | None, Mapping[str, object] | None]) -> None:
    with foldlog.open(directory) as log:
        for key, value in records:
            log.append(topic, None if value is None else dict(value), key=key)


def enriched_into(path: Path) -> Fold:
    @fl.fold(ORDERS, CUSTOMERS, into=fl.table(path, "enriched"))
    def enriched(orders: DataFrame, customers: DataFrame) -> Any:
        return fl.join(orders.filter("amount > 0"), customers.drop("city"), on="customer", how="left")

    return enriched


def rows(path: Path, what: str = "order_id, customer, amount, name") -> Rows:
    with closing(sqlite3.connect(path)) as shop:
        return sorted(shop.execute(f"SELECT {what} FROM enriched").fetchall())


def run(fold: Fold, directory: Path, spark: SparkSession, **options: Any) -> None:
    fl.run([fold], directory, once=True, spark=spark, **options)


def test_a_late_side_corrects_what_was_written(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    views = tmp_path / "views.db"
    fold = enriched_into(views)
    send(directory, "orders", ("o1", {"customer": "ann", "amount": 5}), ("o2", {"customer": "bob", "amount": 7}))
    run(fold, directory, spark)
    assert rows(views) == [("o1", "ann", 5, None), ("o2", "bob", 7, None)]

    send(directory, "customers", ("ann", {"name": "Ann"}), ("bob", {"name": "Bob"}))
    send(directory, "orders", ("o3", {"customer": "ann", "amount": 1}), ("o2", {"customer": "bob", "amount": 0}))
    run(fold, directory, spark)
    assert rows(views) == [("o1", "ann", 5, "Ann"), ("o3", "ann", 1, "Ann")]

    send(directory, "customers", ("ann", None), ("bob", {"name": "Robert"}))
    send(directory, "orders", ("o1", None), ("o2", {"customer": "bob", "amount": 2}))
    run(fold, directory, spark)
    assert rows(views) == [("o2", "bob", 2, "Robert"), ("o3", "ann", 1, None)]
    assert rows(views, "_left, _right") == [("o2", "bob"), ("o3", "")]
    assert fl.verify(fold, directory, spark=spark).answer == "equal"

    with foldlog.open(directory) as log:
        log.append("customers", "no JSON", key="eve")
    assert [part.lag for part in fl.status([fold], directory)[0].topics] == [0, 1]
    run(fold, directory, spark)
    with foldlog.open(directory) as log:
        (letter,) = log.read("enriched.dead")
        assert letter.key == b"customers/0/4"
        assert {place.topic: lag for place, lag in log.lag("fold.enriched").items() if not place.partition} == {
            "orders": 0,
            "customers": 0,
        }
    rewound = fl.rewind(fold, directory, "start")
    assert (rewound.again, len(rewound.each)) == (11, 2)
    assert fl.verify(fold, directory, spark=spark).answer == "not provable"
    run(fold, directory, spark)
    fl.rebuild(fold, directory, spark=spark)
    assert rows(views) == [("o2", "bob", 2, "Robert"), ("o3", "ann", 1, None)]
    fl.drop(fold, directory)
    with closing(sqlite3.connect(views)) as shop:
        assert shop.execute("SELECT name FROM sqlite_master WHERE name LIKE 'enriched%'").fetchall() == []


@pytest.mark.faults  # with the other long runs
def test_the_commands_name_the_topics(
    directory: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    (tmp_path / "folds.py").write_text(
        "import foldlog.spark as fl\n"
        "orders = fl.topic('orders', key='order_id', schema='customer STRING, amount BIGINT')\n"
        "rates = fl.topic('rates', schema='customer STRING, since BIGINT')\n"
        "@fl.fold(orders, rates, into=fl.table('views.db', 'enriched'))\n"
        "def enriched(orders, rates): return fl.join_asof(orders, rates, on={'amount': 'since'}, by='customer')\n"
    )
    monkeypatch.chdir(tmp_path)
    send(directory, "orders", *[(f"o{n}", {"customer": "ann", "amount": n}) for n in range(4)])
    send(directory, "rates", (None, {"customer": "ann", "since": 2}), (None, {"customer": "ann", "since": 1}))
    assert main(["fold", "preview", "folds.py", "enriched", "-d", "data", "--format", "json"]) == 0
    seen = json.loads(capfd.readouterr().out)
    assert {topic: len(one["out"]) for topic, one in seen.items()} == {"orders": 4, "rates": 2}
    assert main(["fold", "run", "folds.py", "-d", "data", "--once"]) == 0
    assert rows(tmp_path / "views.db", "order_id, since, _right") == [
        ("o0", None, ""),
        ("o1", 1, "0@1"),
        ("o2", 2, "0@0"),
        ("o3", 2, "0@0"),
    ]
    capfd.readouterr()
    assert main(["fold", "rewind", "enriched", "--to", "rates:0=1", "-d", "data"]) == 0
    assert capfd.readouterr().out == "enriched went in rates from 0=2 to 0=1: 1 offset to read again\n"
    assert main(["fold", "rewind", "enriched", "--to", "3", "-d", "data"]) == 2
    assert "orders:3" in capfd.readouterr().err
    assert main(["fold", "rewind", "enriched", "--to", "nobody:start", "-d", "data"]) == 2
    assert "it reads orders, rates" in capfd.readouterr().err
    assert main(["fold", "status", "-d", "data"]) == 0
    told = capfd.readouterr().out
    assert "rates 0=1" in told
    assert "rates 0=2" in told
    with foldlog.open(directory) as log:
        assert {place.topic: lag for place, lag in log.lag("fold.enriched").items() if lag} == {"rates": 1}
    assert main(["fold", "rebuild", "enriched", "-d", "data"]) == 0
    assert "rebuilt from 6 records" in capfd.readouterr().out
    assert main(["fold", "verify", "enriched", "-d", "data"]) == 0


def not_lawful(function: Callable[..., Any], directory: Path, tmp_path: Path, spark: SparkSession) -> str:
    fold = fl.fold(ORDERS, CUSTOMERS, into=fl.table(tmp_path / "views.db", "enriched"), name="enriched")(function)
    with pytest.raises(FoldError) as refused:
        run(fold, directory, spark)
    return str(refused.value)


def test_what_is_not_lawful_is_refused(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    def told(function: Callable[..., Any]) -> str:
        return not_lawful(function, directory, tmp_path, spark)

    send(directory, "orders", ("o1", {"customer": "ann", "amount": 5}))
    assert "return fl.join(left, right" in told(lambda orders, customers: orders.join(customers, "customer"))
    assert "the left side of its join uses the rows of 'customers'" in told(
        lambda orders, customers: fl.join(
            orders.join(customers.select("customer", "city"), "customer", "left"), customers.drop("city"), on="customer"
        )
    )
    assert "aggregate in the view" in told(
        lambda orders, customers: fl.join(orders.groupBy("customer").count(), customers, on="customer")
    )
    assert "no column 'nobody'" in told(lambda orders, customers: fl.join(orders, customers, on="nobody"))
    assert "a fold joins two topics" in told(
        lambda orders, customers: fl.join(fl.join(orders, customers, on="customer"), customers, on="customer")  # type: ignore[arg-type]
    )
    assert "a fold of two topics returns fl.join" in told(lambda orders, customers: None)


@pytest.mark.faults  # with the other long runs
def test_a_join_that_changes_asks_for_a_rebuild(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    views = tmp_path / "views.db"
    send(directory, "orders", ("o1", {"customer": "ann", "amount": 5}))
    run(enriched_into(views), directory, spark)
    fold = fl.fold(ORDERS, CUSTOMERS, into=fl.table(views, "enriched"), name="enriched")(
        lambda orders, customers: fl.join(orders.filter("amount > 0"), customers.drop("city"), on="customer")
    )
    with pytest.raises(FoldError, match=r"left join on customer.*foldlog fold rebuild enriched"):
        run(fold, directory, spark)
    fl.rebuild(fold, directory, spark=spark)
    assert rows(views) == []


@pytest.mark.faults  # with the other long runs
def test_each_side_is_tried_on_given_records(tmp_path: Path, spark: SparkSession) -> None:
    fold = enriched_into(tmp_path / "views.db")
    tester = FoldTester(lambda: spark)
    orders = [
        {"order_id": "o1", "customer": "ann", "amount": 5, "at": None},
        {"order_id": "o2", "customer": "ann", "amount": 0, "at": None},
    ]
    assert tester(fold.parts[0], orders) == orders[:1]
    tester.check_law(fold.parts[1], [("ann", {"name": "Ann"}), ("ann", None), ("bob", {"name": "Bob"})], tries=2)
    with pytest.raises(InvalidArgument, match=r"enriched.parts\[0\]"):
        tester(fold, orders)


def test_what_a_fold_of_two_topics_is_declared_of(tmp_path: Path) -> None:
    view = fl.table(tmp_path / "views.db", "a")
    with pytest.raises(InvalidArgument, match="cannot be joined to itself"):
        fl.fold(ORDERS, ORDERS, into=view)
    with pytest.raises(InvalidArgument, match="one topic, or joins two, not 3"):
        fl.fold(ORDERS, CUSTOMERS, fl.topic("x", schema="a STRING"), into=view)
    with pytest.raises(InvalidArgument, match="a table of SQLite or PostgreSQL"):
        fl.fold(ORDERS, CUSTOMERS, into=fl.lake(tmp_path / "lake"), name="a")(lambda orders, customers: None)
    with pytest.raises(InvalidArgument, match="leave out key="):
        fl.fold(ORDERS, CUSTOMERS, into=fl.table(tmp_path / "b.db", "b", key="order_id"), name="a")(lambda a, b: None)


@pytest.mark.faults  # with the other long runs
def test_a_join_lies_behind_a_fold_that_writes_a_topic(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    """Its topic's newest record of a key is a side; every record of it is none, as their number says nothing."""
    rich = fl.fold(CUSTOMERS, into=fl.changes("known"), name="rich")(lambda rows: rows.filter("city IS NOT NULL"))
    view = fl.table(tmp_path / "views.db", "enriched")
    known = fl.topic("known", key="customer", schema="name STRING, city STRING")
    enriched = fl.fold(ORDERS, known, into=view, name="enriched")(
        lambda orders, known: fl.join(orders, known, on="customer")
    )
    send(directory, "orders", ("o1", {"customer": "ann", "amount": 5}), ("o2", {"customer": "bob", "amount": 5}))
    send(directory, "customers", ("ann", {"name": "Ann", "city": "Pune"}), ("bob", {"name": "Bob"}))
    fl.run([enriched, rich], directory, once=True, spark=spark)
    assert rows(tmp_path / "views.db") == [("o1", "ann", 5, "Ann")]
    facts = fl.topic("known", schema="name STRING, city STRING")
    counting = fl.fold(ORDERS, facts, into=fl.table(tmp_path / "views.db", "b"), name="b")(
        lambda orders, known: fl.join(orders, known, on={"customer": "name"})
    )
    with pytest.raises(UnlawfulFold, match="adds up the records of topic 'known'"):
        run(counting, directory, spark)


@pytest.mark.faults
def test_random_joins_are_those_of_both_whole_logs(
    directory: Path, tmp_path: Path, postgres_url: str, spark: SparkSession
) -> None:
    """Written a little at a time to both topics, one of which grows; run, stopped, rewound and rebuilt in between."""
    rng = random.Random(7)
    views = {"sqlite": fl.table(tmp_path / "views.db", "enriched"), "postgresql": fl.table(postgres_url, "enriched")}
    folds = {
        how: fl.fold(ORDERS, CUSTOMERS, into=view, name=f"{how}-join")(
            lambda orders, customers: fl.join(orders.filter("amount > 1"), customers, on="customer", how="left")
        )
        for how, view in views.items()
    }
    orders: dict[str, dict[str, Any] | None] = {}
    customers: dict[str, dict[str, Any] | None] = {}
    for turn in range(8):
        for _ in range(rng.randrange(12)):
            key = f"o{rng.randrange(15)}"
            orders[key] = rng.choice([None, {"customer": rng.choice("abc"), "amount": rng.randrange(5)}])
            send(directory, "orders", (key, orders[key]))
        for _ in range(rng.randrange(3)):
            key = rng.choice("abc")
            customers[key] = rng.choice([None, {"name": f"name {turn}", "city": "Pune"}])
            send(directory, "customers", (key, customers[key]))
        if turn == 3:
            with foldlog.open(directory) as log:
                log.grow_topic("orders", 5)
        for fold in folds.values():
            what = rng.choice(["run", "run", "rewind", "rebuild"])
            if what == "rewind" and turn:
                fl.rewind(fold, directory, rng.choice(["start", "customers:start", "orders:start"]))
            run(fold, directory, spark, range_bytes=rng.choice([200, 2000, None]))
            if what == "rebuild":
                fl.rebuild(fold, directory, spark=spark, range_bytes=rng.choice([200, 2000]))
            wanted = sorted(
                (key, one["customer"], one["amount"], (customers.get(one["customer"]) or {}).get("name"))
                for key, one in orders.items()
                if one is not None and one["amount"] > 1
            )
            found = [row for batch in fold.view.scan().batches for row in batch.to_pylist()]
            names = ("order_id", "customer", "amount", "name")
            assert sorted(tuple(row[name] for name in names) for row in found) == wanted, (turn, fold.name, what)
            fold.close()
    for fold in folds.values():
        assert fl.verify(fold, directory, spark=spark).answer == "equal"
        fold.close()
