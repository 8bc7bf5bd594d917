"""A fold of several topics, by list or by pattern: each view is what plain Python makes of all of them, whenever a
topic appears, however the log is split, rewound or rebuilt.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import foldlog
import foldlog.spark as fl
from foldlog.errors import FoldError, InvalidArgument
from foldlog.spark.change_topics.pipelines import graph_of
from foldlog.spark.folds.declaration import Fold
from foldlog.testing.folds import FoldTester
from foldlog.views.contract import View
from folds_model import records_of

SCHEMA = "shop STRING, paise BIGINT, version BIGINT"
Sent = list[tuple[str, str, dict[str, Any] | None]]


def orders(**given: Any) -> fl.Topic:
    return fl.topic(key="order_id", schema=SCHEMA, **{"pattern": "orders-.*", **given})


def send(log: Path, sent: Sent, *records: tuple[str, str, dict[str, Any] | None]) -> None:
    with foldlog.open(log) as opened:
        for topic, key, row in records:
            if topic not in opened.topics():
                opened.create_topic(topic, partitions=2)
            opened.append(topic, None if row is None else json.dumps(row).encode(), key=key)
    sent.extend(records)


def some(chance: random.Random, topics: list[str], count: int) -> list[tuple[str, str, dict[str, Any] | None]]:
    found: list[tuple[str, str, dict[str, Any] | None]] = []
    for _ in range(count):
        row = {"shop": chance.choice("ab"), "paise": chance.randint(0, 9), "version": chance.randint(0, 9)}
        found.append((chance.choice(topics), f"o{chance.randint(0, 5)}", None if chance.random() < 0.15 else row))
    return found


def with_source(rows: DataFrame) -> DataFrame:
    return rows.filter("paise > 0").withColumn("source", F.col("_topic"))


def as_it_is(rows: DataFrame) -> DataFrame:
    return rows


def newest(sent: Sent) -> set[tuple[Any, ...]]:
    """By topic and key, of paise above 0."""
    rows: dict[tuple[str, str], dict[str, Any] | None] = {}
    for topic, key, row in sent:
        rows[topic, key] = row
    return {(topic, key, row["paise"]) for (topic, key), row in rows.items() if row is not None and row["paise"] > 0}


def counted(sent: Sent) -> set[tuple[Any, ...]]:
    found: dict[str, tuple[int, int]] = {}
    for _, _, row in sent:
        if row is not None:
            count, paise = found.get(row["shop"], (0, 0))
            found[row["shop"]] = (count + 1, paise + row["paise"])
    return {(shop, *numbers) for shop, numbers in found.items()}


def held(view: View, *names: str) -> set[tuple[Any, ...]]:
    rows = [row for batch in view.scan().batches for row in batch.to_pylist()]
    found = {tuple(row[name] for name in names) for row in rows}
    assert len(found) == len(rows)
    return found


def folds_of(home: Path, topic: fl.Topic) -> tuple[Fold, Fold]:
    table = fl.table(home / "shop.db", "orders", key=["source", "order_id"])
    counts = fl.counters(home / "live.db", by=["shop"], measures={"orders": fl.count(), "paise": fl.sum("paise")})
    return fl.fold(topic, into=table, name="mirror")(with_source), fl.fold(topic, into=counts, name="live")(as_it_is)


@pytest.mark.faults
@pytest.mark.parametrize("topic", [orders(), orders(pattern=None, name=["orders-us", "orders-eu", "orders-aa"])])
def test_views_of_several_topics_are_what_all_their_records_say(
    topic: fl.Topic, tmp_path: Path, spark: SparkSession
) -> None:
    log, sent, chance = tmp_path / "data", Sent(), random.Random(18)
    first = ["orders-eu", "orders-us"] if topic.pattern else list(topic.names)
    for name in first:
        send(log, sent, (name, "o1", {"shop": "a", "paise": 1, "version": 1}))
    mirror, live = folds_of(tmp_path, topic)
    topics = [*first]
    for turn in range(4):
        send(log, sent, *some(chance, topics, 40))
        fl.run([mirror, live], log, once=True, range_bytes=chance.choice([400, 1500, 1 << 20]), spark=spark)
        assert held(mirror.view, "source", "order_id", "paise") == newest(sent)
        assert held(live.view, "shop", "orders", "paise") == counted(sent)
        if turn == 1 and topic.pattern:  # it sorts before the others, and is numbered behind them
            topics.append("orders-aa")
        if turn == 2:
            fl.rewind(mirror, log, "start")
            fl.run([mirror], log, once=True, range_bytes=700, spark=spark)
            assert held(mirror.view, "source", "order_id", "paise") == newest(sent)
            fl.rebuild(live, log, spark=spark)
            assert held(live.view, "shop", "orders", "paise") == counted(sent)
    assert fl.verify(mirror, log, spark=spark).answer == fl.verify(live, log, spark=spark).answer == "equal"
    (state,) = fl.status([mirror], log)
    assert {one.topic for one in state.topics} == {*topics}
    assert (state.lag, state.error) == (0, None)
    with foldlog.open(log) as opened:
        ends = {(name, number): end for name in topics for number, (_, end) in opened.offsets(name).items()}
        assert {at: one.offset for at, one in opened.committed("fold.mirror").items()} == ends


@pytest.mark.faults
def test_several_topics_are_folded_over_the_wire(tmp_path: Path, spark: SparkSession) -> None:
    """Into a table, counters and a topic; one of the topics appears later, as others see it."""
    pytest.importorskip("confluent_kafka", reason="enable with: pip install 'foldlog[kafka]'")
    sent, chance = Sent(), random.Random(7)
    mirror, live = folds_of(tmp_path, orders())
    merged = fl.fold(orders(), into=fl.changes("merged", key=["source", "order_id"]), name="merged")(with_source)
    topics = ["orders-eu", "orders-us"]
    with foldlog.open(tmp_path / "data", listen=True) as log:
        place = f"kafka://{log.bootstrap}"
        for _ in range(2):
            for topic, key, row in some(chance, topics, 40):
                if topic not in log.topics():
                    log.create_topic(topic, partitions=2)
                log.append(topic, None if row is None else json.dumps(row).encode(), key=key)
                sent.append((topic, key, row))
            fl.run([mirror, live, merged], place, once=True, range_bytes=1500, spark=spark)
            topics.append("orders-aa")
        assert held(mirror.view, "source", "order_id", "paise") == newest(sent)
        assert held(live.view, "shop", "orders", "paise") == counted(sent)
        rows: dict[bytes, Any] = {}
        for number in log.offsets("merged"):
            for record in log.read("merged", number, isolation="read_committed"):
                rows[record.key or b""] = None if record.value is None else record.json()
        assert {(one["source"], one["order_id"], one["paise"]) for one in rows.values() if one} == newest(sent)
        fl.rewind(mirror, place, "orders-us:start")
        fl.run([mirror], place, once=True, spark=spark)
        fl.rebuild(live, place, spark=spark)
        answers = [fl.verify(fold, place, spark=spark).answer for fold in (mirror, live, merged)]
        assert answers == ["equal"] * 3
        for fold in (mirror, live, merged):
            fold.close()


@pytest.mark.faults
def test_several_topics_become_one_topic_of_changes(tmp_path: Path, spark: SparkSession) -> None:
    log, sent, chance = tmp_path / "data", Sent(), random.Random(7)
    send(log, sent, *some(chance, ["orders-eu", "orders-us"], 30))
    into = fl.changes("all-orders", key=["source", "order_id"])
    merged = fl.fold(orders(), into=into, name="merged")(with_source)
    for _ in range(2):
        fl.run([merged], log, once=True, range_bytes=700, spark=spark)
        rows = {record.key: record.value for record in records_of(log, "all-orders", "read_committed")}
        found = [(json.loads(key or b""), json.loads(value)) for key, value in rows.items() if value is not None]
        assert {(*key, row["paise"]) for key, row in found} == newest(sent)
        send(log, sent, *some(chance, ["orders-eu", "orders-us", "orders-in"], 30))


@pytest.mark.faults
def test_rewind_preview_explain_and_letters_know_the_topics(tmp_path: Path, spark: SparkSession) -> None:
    log, sent = tmp_path / "data", Sent()
    row = {"shop": "a", "paise": 3, "version": 1}
    send(log, sent, ("orders-eu", "o1", row), ("orders-us", "o1", row), ("orders-us", "o2", row))
    with foldlog.open(log) as opened:
        opened.append("orders-us", b"{", key="broken")
    mirror, _ = folds_of(tmp_path, orders())
    fl.run([mirror], log, once=True, spark=spark)
    with foldlog.open(log, mode="r") as opened:
        (letter,) = opened.read("mirror.dead")
        assert letter.key is not None
        assert letter.key.decode().rsplit("/", 1)[0] in ("orders-us/0", "orders-us/1")
    rewound = fl.rewind(mirror, log, "orders-us:start")
    assert rewound.again == 3
    with pytest.raises(InvalidArgument, match="say of which: orders-eu:0=0"):
        fl.rewind(mirror, log, "0=0")
    fl.run([mirror], log, once=True, spark=spark)
    assert held(mirror.view, "source", "order_id", "paise") == newest(sent)
    shown = fl.preview(mirror, log, spark=spark)
    assert {row["_topic"] for row in shown.given.to_pylist()} == {"orders-eu", "orders-us"}
    (told,) = fl.explain(mirror, log, spark=spark)
    assert (told.topic, told.partitions, told.records) == ("orders-eu,orders-us", 4, 0)


@pytest.mark.faults
def test_a_key_of_two_topics_stops_a_table_unless_a_version_orders_them(tmp_path: Path, spark: SparkSession) -> None:
    log, sent = tmp_path / "data", Sent()
    send(log, sent, ("orders-eu", "o1", {"shop": "a", "paise": 1, "version": 5}))
    send(log, sent, ("orders-us", "o1", {"shop": "b", "paise": 2, "version": 3}))
    plain = fl.fold(orders(), into=fl.table(tmp_path / "shop.db", "plain"), name="plain")(as_it_is)
    with pytest.raises(FoldError, match=r"two records under the same key .*orders-eu.*orders-us.*made of _topic"):
        fl.run([plain], log, once=True, spark=spark)
    ordered = fl.table(tmp_path / "shop.db", "ordered", order_by="version")
    fold = fl.fold(orders(), into=ordered, name="ordered")(as_it_is)
    fl.run([fold], log, once=True, spark=spark)
    assert held(ordered, "order_id", "paise") == {("o1", 1)}
    assert fl.verify(fold, log, spark=spark).answer == "equal"


@pytest.mark.faults
def test_a_topic_that_is_deleted_or_no_longer_read_stops_the_fold_until_it_is_rebuilt(
    tmp_path: Path, spark: SparkSession
) -> None:
    log, sent = tmp_path / "data", Sent()
    row = {"shop": "a", "paise": 3, "version": 1}
    send(log, sent, ("orders-eu", "o1", row), ("orders-us", "o1", row))
    mirror, _ = folds_of(tmp_path, orders())
    fl.run([mirror], log, once=True, spark=spark)
    with foldlog.open(log) as opened:
        opened.delete_topic("orders-eu")
    with pytest.raises(FoldError, match=r"rows of topic 'orders-eu', which was deleted.*rebuild mirror --accept-loss"):
        fl.run([mirror], log, once=True, spark=spark)
    assert fl.verify(mirror, log, spark=spark).answer == "not provable"
    fl.rebuild(mirror, log, accept_loss=True, spark=spark)
    assert held(mirror.view, "source", "order_id") == {("orders-us", "o1")}
    send(log, sent, ("orders-eu", "o9", row))
    other, _ = folds_of(tmp_path, orders(pattern=None, name=["orders-eu"]))
    with pytest.raises(FoldError, match=r"'orders-us', which was deleted, or is not among those .*\(orders-eu\)"):
        fl.run([other], log, once=True, spark=spark)


def test_topics_are_given_by_name_list_or_pattern() -> None:
    listed = fl.topic(["a", "b"], schema="x INT")
    assert (listed.name, listed.names, listed.is_several) == ("a,b", ("a", "b"), True)
    assert fl.topic(pattern="a|b", schema="x INT").is_several
    wrongs: list[dict[str, Any]] = [
        {"name": []},
        {"name": ["a", "a"]},
        {"name": ["a", 3]},
        {"pattern": "("},
        {"pattern": ""},
        {},
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidArgument):
            fl.topic(schema="x INT", **wrong)
    with pytest.raises(InvalidArgument, match="one of them"):
        fl.topic("a", pattern="b", schema="x INT")


def test_what_needs_the_order_of_one_topic_is_refused(tmp_path: Path) -> None:
    customers = fl.topic("customers", key="customer", schema="name STRING")
    with pytest.raises(InvalidArgument, match="a join knows the rows of a side by the keys of one"):
        fl.fold(orders(), customers, into=fl.table(tmp_path / "shop.db", "joined"))
    state = fl.reduce(tmp_path / "shop.db", "states", state="n BIGINT", zero={"n": 0}, step=lambda state, row: state)
    with pytest.raises(InvalidArgument, match="several topics, which have no order"):
        fl.fold(orders(), into=state)


def test_the_graph_knows_which_written_topics_a_pattern_means(tmp_path: Path) -> None:
    writes = fl.fold(fl.topic("raw", key="order_id", schema=SCHEMA), into=fl.changes("orders-clean"), name="clean")(
        as_it_is
    )
    mirror, _ = folds_of(tmp_path, orders())
    graph = graph_of([mirror, writes])
    assert [one.name for one in graph.folds] == ["clean", "mirror"]
    assert [one.reads for one in graph.folds] == [("raw",), ("/orders-.*/", "orders-clean")]
    with pytest.raises(FoldError, match="in a circle"):
        graph_of([fl.fold(orders(), into=fl.changes("orders-all"), name="all")(as_it_is)])


def test_the_test_kit_writes_all_records_to_the_first_topic(tmp_path: Path) -> None:
    topic = orders(pattern=None, name=["orders-eu", "orders-us"])
    fold = fl.fold(topic, into=fl.table(tmp_path / "shop.db", "orders"), name="orders")(as_it_is)
    given = [{"order_id": "o1", "shop": "a", "paise": 1, "version": 1}]
    assert FoldTester()(fold, given) == given
