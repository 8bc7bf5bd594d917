"""Tables whose rows have keys of their own: a topic keyed by customer, a table of orders.

The law: a row stays until a newer one has its key; a tombstone of the record's key withdraws every row that its records
wrote; a row with `_deleted` deletes the row of its key. Each view is compared with a recompute of the log in plain
Python, one record after the other, after random ranges, a rewind, a rebuild and a verification.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import foldlog
import foldlog.spark as fl
from foldlog import Record
from foldlog.errors import FoldError, InvalidArgument
from foldlog.spark.folds.declaration import Fold
from foldlog.testing.folds import FoldTester
from folds_model import records_of

SCHEMA = "order_id BIGINT, status STRING, paise BIGINT"
Rows = dict[int, tuple[Any, ...]]


def order(order_id: int | None, status: str = "open", paise: int = 1) -> bytes:
    return json.dumps({"order_id": order_id, "status": status, "paise": paise}).encode()


def send(directory: Path, *records: tuple[str | None, bytes | None], partition: int | None = None) -> None:
    with foldlog.open(directory) as log, log.producer(linger_ms=5) as producer:
        for key, value in records:
            producer.send("orders", value, key, partition=partition)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("orders", partitions=2)
    return tmp_path / "data"


def happenings(chance: random.Random, count: int) -> list[tuple[str, bytes | None]]:
    """Orders of few customers, each order of one: placed, changed, cancelled, forgotten, and a customer who leaves."""
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        number = chance.randint(0, 19)
        what = chance.random()
        customer = f"c{number % 6}"
        if what < 0.08:
            found.append((customer, None))
        elif what < 0.12:
            found.append((customer, b"{"))  # a dead letter
        elif what < 0.16:
            found.append((customer, order(None)))  # without its key: a dead letter, too
        else:
            status = chance.choice(["open", "paid", "cancelled"])
            found.append((customer, order(number, status, chance.choice([0, 1, 2]))))
    return found


def expected(records: list[Record]) -> Rows:
    """Orders of paise above 0, but for those that are cancelled."""
    held: Rows = {}
    owner: dict[int, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            held = {number: row for number, row in held.items() if owner[number] != record.key}
            continue
        try:
            content = json.loads(record.value)
        except ValueError:
            continue
        number = content["order_id"]
        if number is None or content["paise"] == 0:
            continue  # filtered out: changes nothing
        if content["status"] == "cancelled":
            held.pop(number, None)
            continue
        held[number] = (record.key.decode(), content["status"], content["paise"])
        owner[number] = record.key
    return held


def held(fold: Fold, *names: str) -> Rows:
    rows = [row for batch in fold.view.scan().batches for row in batch.to_pylist()]
    found = {row["order_id"]: tuple(row[name] for name in names) for row in rows}
    assert len(found) == len(rows)
    return found


def kept(rows: DataFrame) -> DataFrame:
    return rows.filter("paise > 0").withColumn("_deleted", F.expr("status = 'cancelled'"))


def hidden(rows: DataFrame) -> DataFrame:
    return kept(rows).withColumn("customer", F.sha2("customer", 256))


@pytest.mark.faults
@pytest.mark.parametrize("function", [kept, pytest.param(hidden, marks=pytest.mark.faults)])
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.faults)])
def test_orders_of_a_topic_by_customer_are_what_a_random_history_says(
    directory: Path,
    tmp_path: Path,
    spark: SparkSession,
    request: pytest.FixtureRequest,
    engine: str,
    function: Callable[[DataFrame], DataFrame],
) -> None:
    place = tmp_path / "shop.db" if engine == "sqlite" else request.getfixturevalue("postgres_url")
    topic = fl.topic("orders", key="customer", schema=SCHEMA)
    fold = fl.fold(topic, into=fl.table(place, "orders", key="order_id"), name="orders")(function)
    chance = random.Random(18)

    def check() -> None:
        wanted = expected(records_of(directory, "orders"))
        assert len(wanted) > 3
        assert held(fold, "status", "paise") == {number: row[1:] for number, row in wanted.items()}

    for size in (700, 1 << 20):
        send(directory, *happenings(chance, 80))
        fl.run([fold], directory, once=True, spark=spark, range_bytes=size)
        check()
    fl.rewind(fold, directory, "0=30,1=11")
    fl.run([fold], directory, once=True, spark=spark, range_bytes=900)
    check()
    assert fl.verify(fold, directory, spark=spark).answer == "equal"
    fl.rebuild(fold, directory, spark=spark)
    check()
    send(directory, ("c1", None), ("c2", order(2, "paid", 7)), ("c2", None), ("c2", order(8)))
    fl.run([fold], directory, once=True, spark=spark)
    check()
    fold.view.drop_old()
    fold.view.drop()


@pytest.mark.faults
def test_all_orders_of_a_customer_stay_and_a_plain_fold_needs_no_more_columns(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    topic = fl.topic("orders", key="customer", schema=SCHEMA)
    fold = fl.fold(topic, into=fl.table(tmp_path / "shop.db", "orders", key="order_id"), name="orders")(lambda r: r)
    send(directory, *((f"c{n % 3}", order(n)) for n in range(60)), ("c1", None), ("c1", order(4, "late")))
    fl.run([fold], directory, once=True, spark=spark)
    of_others = {n: (f"c{n % 3}", "open") for n in range(60) if n % 3 != 1}
    assert held(fold, "customer", "status") == {**of_others, 4: ("c1", "late")}
    assert fold.view.scan().batches.__next__().schema.names == ["customer", "order_id", "status", "paise"]


def test_a_row_of_two_record_keys_is_refused_until_one_withdraws_it(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    topic = fl.topic("orders", key="customer", schema=SCHEMA)
    fold = fl.fold(topic, into=fl.table(tmp_path / "shop.db", "orders", key="order_id"), name="orders")(lambda r: r)
    send(directory, ("c1", order(1)), ("c2", order(2)))
    fl.run([fold], directory, once=True, spark=spark)
    send(directory, ("c2", order(1, "stolen")))
    with pytest.raises(FoldError, match=r"cannot hold one row of two record keys \(order_id=1\): there is no order"):
        fl.run([fold], directory, once=True, spark=spark)
    assert held(fold, "customer") == {1: ("c1",), 2: ("c2",)}
    send(directory, ("c1", None))
    fl.run([fold], directory, once=True, spark=spark)  # in one range with what was in its way
    assert held(fold, "customer") == {1: ("c2",), 2: ("c2",)}


@pytest.mark.parametrize("is_changed", [pytest.param(True, marks=pytest.mark.faults), False])
def test_rows_of_a_topic_without_keys_belong_to_their_partition(
    directory: Path, tmp_path: Path, spark: SparkSession, is_changed: bool
) -> None:
    view = fl.table(tmp_path / "shop.db", "orders", key="order_id")
    fold = fl.fold(fl.topic("orders", schema=SCHEMA), into=view, name="orders")(
        lambda rows: rows.withColumn("status", F.upper("status")) if is_changed else rows
    )
    send(directory, (None, order(1)), (None, order(2)), (None, order(1, "paid")), (None, None), partition=0)
    send(directory, (None, order(3)), partition=1)
    (feed,) = fl.run([fold], directory, once=True, spark=spark)
    paid, opened = ("PAID", "OPEN") if is_changed else ("paid", "open")
    assert held(fold, "status") == {1: (paid,), 2: (opened,), 3: (opened,)}
    assert feed.dead == 1
    with foldlog.open(directory, mode="r") as log:
        (letter,) = log.read("orders.dead")
    assert dict(letter.headers)["reason"] == (
        b"the record has no value, and its topic names no key, so nobody knows what it deletes"
    )
    assert fl.verify(fold, directory, spark=spark).answer == "equal"
    send(directory, (None, order(3, "moved")), partition=0)
    with pytest.raises(FoldError, match="one row of two record keys"):
        fl.run([fold], directory, once=True, spark=spark)


@pytest.mark.faults
def test_lines_of_a_record_stay_if_rows_are_replaced_and_go_if_records_are(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    topic = fl.topic("orders", key="customer", schema=SCHEMA)
    both = [
        fl.fold(
            topic,
            into=fl.table(tmp_path / "shop.db", replaces, key=["customer", "order_id"], replaces=replaces),
            name=replaces,
        )(lambda rows: rows)
        for replaces in ("record", "row")
    ]
    send(directory, ("c1", order(1)), ("c1", order(2)), ("c2", order(1)))
    fl.run(both, directory, once=True, spark=spark)
    of_records, of_rows = ([row for batch in fold.view.scan().batches for row in batch.to_pylist()] for fold in both)
    assert sorted((row["customer"], row["order_id"]) for row in of_records) == [("c1", 2), ("c2", 1)]
    assert sorted((row["customer"], row["order_id"]) for row in of_rows) == [("c1", 1), ("c1", 2), ("c2", 1)]


@pytest.mark.faults
def test_a_compacted_topic_can_not_prove_rows_that_its_records_no_longer_tell(
    tmp_path: Path, spark: SparkSession
) -> None:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("orders", partitions=1, config={"cleanup.policy": "compact"})
    topic = fl.topic("orders", key="customer", schema=SCHEMA)
    fold = fl.fold(topic, into=fl.table(tmp_path / "shop.db", "orders", key="order_id"), name="orders")(lambda r: r)
    send(tmp_path / "data", ("c1", order(1)), ("c1", order(2)))
    fl.run([fold], tmp_path / "data", once=True, spark=spark)
    verdict = fl.verify(fold, tmp_path / "data", spark=spark)
    assert (verdict.answer, "compaction may have removed" in verdict.missing) == ("not provable", True)
    with pytest.raises(FoldError, match="compaction may have removed"):
        fl.rebuild(fold, tmp_path / "data", spark=spark)


# --- keys of several columns ------------------------------------------------------------------------------------------


def test_json_keys_fill_columns_and_a_tombstone_deletes_by_them(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    topic = fl.topic("orders", key=["region", "number"], key_format="json", schema=f"number INT, {SCHEMA}")
    view = fl.table(tmp_path / "shop.db", "orders")
    fold = fl.fold(topic, into=view, name="orders")(lambda rows: rows.filter("paise > 0"))

    def key(region: str, number: object) -> str:
        return json.dumps({"region": region, "number": number})

    send(directory, (key("eu", 1), order(1)), (key("eu", 2), order(2)), (key("us", 1), order(3)))
    send(
        directory,
        (key("eu", 2), None),
        (key("us", 1), order(4, paise=0)),
        ("no key", order(5)),
        (key("eu", "x"), b"{}"),
    )
    send(directory, (key("eu", 1), order(9)))
    (feed,) = fl.run([fold], directory, once=True, spark=spark)
    rows = [row for batch in view.scan().batches for row in batch.to_pylist()]
    assert [(row["region"], row["number"], row["order_id"]) for row in rows] == [("eu", 1, 9)]
    assert feed.dead == 2
    assert fl.verify(fold, directory, spark=spark).answer == "equal"
    # The same columns in another spelling are another key of the log, whose records have no order with the first's.
    send(directory, ('{"number":1,"region":"eu"}', order(7)))
    with pytest.raises(FoldError, match="rows of two records under the same key"):
        fl.run([fold], directory, once=True, spark=spark)


@pytest.mark.faults
def test_the_tester_of_folds_knows_rows_with_keys_of_their_own(tmp_path: Path, spark: SparkSession) -> None:
    run_fold = FoldTester(lambda: spark)
    topic = fl.topic("orders", key="customer", schema=SCHEMA)
    fold = fl.fold(topic, into=fl.table(tmp_path / "shop.db", "orders", key="order_id"), name="orders")(kept)
    given = [{"customer": "c1", "order_id": n, "status": "open", "paise": 1} for n in range(3)]
    given += [{"customer": "c1", "order_id": 1, "status": "cancelled", "paise": 1}]
    assert [row["order_id"] for row in run_fold(fold, given)] == [0, 2]
    assert run_fold(fold, [*given, ("c1", None)]) == []
    run_fold.check_law(fold, [*given, ("c2", None)], tries=3)


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: fl.table("a.db", "t", key="id", replaces="all"), "replaces='all' is not one of record, row"),  # type: ignore[arg-type]
    (lambda: fl.table("a.db", "t", replaces="row"), r"replaces='row' needs the key of a row: fl.table\(\.\.\., key="),
    (lambda: fl.topic("t", key=["a", "b"], schema="a STRING"), "fill 2 columns, so say how to parse it: key_format="),
    (lambda: fl.topic("t", key=["a", "a"], schema="a STRING", key_format="json"), "is not a column, or a list of"),
    (lambda: fl.topic("t", key="a", schema="a STRING", key_format="xml"), "key_format='xml' .* one of json, avro"),
    (lambda: fl.topic("t", schema="a STRING", key_format="json"), "names no columns to fill"),
    (
        lambda: fl.topic("t", key="a", schema="a STRING", key_options={"x": 1}),
        "are a dict of options of its key_format",
    ),
    (
        lambda: fl.fold(fl.topic("t", schema="a STRING"), into=fl.table("a.db", "t")),
        r"names none; .*; or give rows a key of their own, fl.table\(.*\), or keep them all, mode='append'",
    ),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_a_mistake_is_told_in_one_sentence(mistake: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        mistake()
