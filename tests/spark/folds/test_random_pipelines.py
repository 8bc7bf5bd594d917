"""Whole pipelines against plain Python: whatever folds there are, however they are run, each view is what its logs say.

A pipeline is drawn: topics of changes that feed each other, tables, joins into tables and into topics, sessions and
states over them. Then records come in pieces, and the folds run with ranges of any size, are killed before or after a
view has stored a range, rewound and rebuilt. In the end every view is compared with what `Truth` makes of the records
that were sent: nothing of Spark, folds or views takes part in it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.spark.folds.declaration import Fold

Row = dict[str, Any]
Table = Mapping[Any, Any]

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
GAP_MINUTES = 10
LARGE = 40
SCHEMA = "merchant STRING, amount BIGINT, at TIMESTAMP"
KEYS = tuple(f"tx{number}" for number in range(6))
MERCHANTS = ("books", "tea", "wool")


class Killed(BaseException):
    """The runner is gone: nothing after the step that it was in has happened."""


# --- what the views have to hold --------------------------------------------------------------------------------------


@dataclass
class Truth:
    """The records that were sent, in order, and what each view makes of them."""

    payments: list[tuple[str, Row | None]] = field(default_factory=list)
    merchants: list[tuple[str, str | None]] = field(default_factory=list)

    def newest(self, source: str) -> dict[str, Row]:
        rows: dict[str, Row] = {}
        for key, row in self.payments:
            rows.pop(key, None)
            if row is not None:
                rows[key] = row
        if source in ("large", "doubled"):
            rows = {key: row for key, row in rows.items() if row["amount"] > LARGE}
        if source == "doubled":
            rows = {key: {**row, "amount": 2 * row["amount"]} for key, row in rows.items()}
        return rows

    def table(self, source: str) -> Table:
        return {key: (row["merchant"], row["amount"]) for key, row in self.newest(source).items()}

    def joined(self, source: str, how: str) -> Table:
        cities = dict(self.merchants)  # the last of each
        found = {}
        for key, row in self.newest(source).items():
            city = cities.get(row["merchant"])
            if city is not None or how == "left":
                found[key] = (row["merchant"], row["amount"], city)
        return found

    def sessions(self) -> Table:
        found: dict[tuple[str, datetime], tuple[int, int]] = {}
        for merchant in MERCHANTS:
            rows = sorted(
                (row["at"], row["amount"])
                for _, row in self.payments
                if row is not None and row["merchant"] == merchant
            )
            start = last = BEGIN
            for number, (at, amount) in enumerate(rows):
                if number == 0 or at - last >= timedelta(minutes=GAP_MINUTES):
                    start = at
                count, total = found.get((merchant, start), (0, 0))
                found[merchant, start] = (count + 1, total + amount)
                last = at
        return found

    def states(self) -> Table:
        found: dict[str, tuple[int, int]] = {}
        for key, row in self.payments:
            if row is None:
                found.pop(key, None)
            else:
                count, most = found.get(key, (0, 0))
                found[key] = (count + 1, max(most, row["amount"]))
        return found


# --- the pipelines ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A fold with what its view holds, and what it has to hold."""

    fold: Fold
    held: Callable[[], Table]
    true: Callable[[Truth], Table]
    may_rewind: bool = True


def _advance(state: Row, row: Row) -> Row:
    return {"seen": state["seen"] + 1, "most": max(state["most"], row["amount"])}


class Pipeline:
    """The folds of one example, over a log of its own."""

    def __init__(self, home: Path, wanted: set[tuple[str, str]]) -> None:
        self.log = home / "data"
        self._views = home / "views.db"
        self._merchants = fl.topic("merchants", key="merchant", schema="city STRING")
        with foldlog.open(self.log) as log:
            log.create_topic("payments", partitions=2)
            log.create_topic("merchants", partitions=1)
        sources = {source for _, source in wanted}
        self.nodes: list[Node] = []
        if sources & {"large", "doubled"}:
            self._feeding("payments", "large", lambda rows: rows.where(f"amount > {LARGE}"))
        if "doubled" in sources:
            self._feeding("large", "doubled", lambda rows: rows.selectExpr("* EXCEPT (amount)", "2 * amount AS amount"))
        for kind, source in sorted(wanted):
            self.nodes.append(getattr(self, f"_{kind}")(source))

    def _topic(self, name: str) -> fl.Topic:
        return fl.topic(name, key="tx_id", schema=SCHEMA)

    def _feeding(self, source: str, into: str, function: Callable[[DataFrame], DataFrame]) -> None:
        fold = fl.fold(self._topic(source), into=fl.changes(into), name=f"to_{into}")(function)
        self.nodes.append(Node(fold, lambda: self._newest_changes(into), lambda truth: truth.table(into)))

    def _table(self, source: str) -> Node:
        fold = fl.fold(self._topic(source), into=fl.table(self._views, source), name=f"table_{source}")(
            lambda rows: rows
        )
        query = f"SELECT tx_id, merchant, amount FROM {source}"
        return Node(fold, lambda: self._keyed(query), lambda truth: truth.table(source))

    def _join(self, source: str) -> Node:
        how = "left" if source == "payments" else "inner"
        name = f"join_{source}"

        def joined(rows: DataFrame, merchants: DataFrame) -> Any:
            return fl.join(rows, merchants, on="merchant", how=how)

        fold = fl.fold(self._topic(source), self._merchants, into=fl.table(self._views, name), name=name)(joined)
        query = f"SELECT tx_id, merchant, amount, city FROM {name}"
        return Node(fold, lambda: self._keyed(query), lambda truth: truth.joined(source, how))

    def _joined(self, source: str) -> Node:
        """A join whose result is a topic, and a table behind it."""
        how = "left" if source == "payments" else "inner"
        topic = f"joined_{source}"

        def joined(rows: DataFrame, merchants: DataFrame) -> Any:
            return fl.join(rows, merchants, on="merchant", how=how)

        fold = fl.fold(self._topic(source), self._merchants, into=fl.changes(topic), name=f"to_{topic}")(joined)
        columns = ("merchant", "amount", "city")
        self.nodes.append(
            Node(fold, lambda: self._newest_changes(topic, columns), lambda truth: truth.joined(source, how))
        )
        behind = fl.topic(topic, key="tx_id", schema=f"{SCHEMA}, city STRING")
        table = fl.fold(behind, into=fl.table(self._views, topic), name=f"table_{topic}")(lambda rows: rows)
        query = f"SELECT tx_id, merchant, amount, city FROM {topic}"
        return Node(table, lambda: self._keyed(query), lambda truth: truth.joined(source, how))

    def _sessions(self, source: str) -> Node:
        view = fl.counters(
            self._views,
            by=["merchant"],
            window=fl.sessions("at", f"{GAP_MINUTES} minutes"),
            measures={"payments": fl.count(), "total": fl.sum("amount")},
            name="visits",
        )
        fold = fl.fold(self._topic(source), into=view, name="visits")(lambda rows: rows)
        return Node(fold, self._visits, Truth.sessions, may_rewind=False)

    def _states(self, source: str) -> Node:
        view = fl.reduce(
            self._views,
            "states",
            state="seen BIGINT, most BIGINT",
            zero={"seen": 0, "most": 0},
            step=fl.each_row(_advance),
        )
        fold = fl.fold(self._topic(source), into=view, name="states")(lambda rows: rows)
        query = "SELECT tx_id, seen, most FROM states"
        return Node(fold, lambda: self._keyed(query), Truth.states, may_rewind=False)

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._views)) as views:
            return views.execute(query).fetchall()

    def _keyed(self, query: str) -> Table:
        rows = self._rows(query)
        found = {key: tuple(values) for key, *values in rows}
        assert len(found) == len(rows), "a key has two rows"
        return found

    def _visits(self) -> Table:
        rows = self._rows("SELECT merchant, window_start, payments, total FROM visits")
        return {
            (merchant, datetime.fromisoformat(start).replace(tzinfo=UTC)): (count, total)
            for merchant, start, count, total in rows
        }

    def _newest_changes(self, topic: str, columns: tuple[str, ...] = ("merchant", "amount")) -> Table:
        found: dict[str, Any] = {}
        with foldlog.open(self.log, mode="r") as log:
            for partition in log.offsets(topic):
                for record in log.read(topic, partition, isolation="read_committed"):
                    assert record.key is not None
                    found.pop(record.key.decode(), None)
                    if record.value is not None:
                        row = json.loads(record.value)
                        found[record.key.decode()] = tuple(row[name] for name in columns)
        return found


# --- what happens to them ---------------------------------------------------------------------------------------------


@contextmanager
def killed_at(nodes: list[Node], applied: int, *, is_stored: bool) -> Iterator[None]:
    """The runner is killed at so many ranges from now, before the view stores one or after."""
    left = [applied]
    views = [part.view for node in nodes for part in node.fold.parts]

    def dying(whole: Callable[..., None]) -> Callable[..., None]:
        def apply(*given: Any, **named: Any) -> None:
            left[0] -= 1
            if left[0] == 0 and not is_stored:
                raise Killed
            whole(*given, **named)
            if left[0] == 0:
                raise Killed

        return apply

    for view in views:
        view.apply = dying(view.apply)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for view in views:
            del view.apply  # the class's again


def payments() -> st.SearchStrategy[list[tuple[str, Row | None]]]:
    row = st.builds(
        lambda merchant, amount, minute: {
            "merchant": merchant,
            "amount": amount,
            "at": BEGIN + timedelta(minutes=minute),
        },
        st.sampled_from(MERCHANTS),
        st.integers(0, 99),
        st.integers(0, 90),
    )
    one = st.tuples(st.sampled_from(KEYS), st.none() | row | row | row)
    return st.lists(one, min_size=3, max_size=14)


def cities() -> st.SearchStrategy[list[tuple[str, str | None]]]:
    one = st.tuples(st.sampled_from(MERCHANTS), st.sampled_from([None, "Goa", "Pune"]))
    return st.lists(one, max_size=3)


SHAPES = st.sets(
    st.sampled_from(
        [("table", name) for name in ("payments", "large", "doubled")]
        + [("join", name) for name in ("payments", "large", "doubled")]
        + [("joined", name) for name in ("payments", "doubled")]
        + [("sessions", "payments"), ("states", "payments")]
    ),
    min_size=2,
    max_size=4,
)
STEPS = st.lists(
    st.tuples(
        payments(),
        cities(),
        st.sampled_from(["run", "kill", "kill", "rewind", "rebuild"]),
        st.integers(1, 5),  # which range a kill is at, or which fold is rewound or rebuilt
        st.booleans(),
        st.sampled_from([200, 700, 1 << 20]),  # the size of a range
    ),
    min_size=2,
    max_size=3,
)


def send(pipeline: Pipeline, truth: Truth, rows: list[tuple[str, Row | None]], places: list[tuple[str, Any]]) -> None:
    with foldlog.open(pipeline.log) as log:
        for key, row in rows:
            log.append("payments", None if row is None else {**row, "at": row["at"].isoformat()}, key=key)
        for merchant, city in places:
            log.append("merchants", None if city is None else {"city": city}, key=merchant)
    truth.payments += rows
    truth.merchants += places


@pytest.mark.faults
@pytest.mark.timeout(900)
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(shape=SHAPES, steps=STEPS)
def test_every_view_of_a_random_pipeline_equals_a_recompute_of_the_whole_logs(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, shape: set[tuple[str, str]], steps: list[Any]
) -> None:
    pipeline, truth = Pipeline(tmp_path_factory.mktemp("pipeline"), shape), Truth()
    folds = [node.fold for node in pipeline.nodes]
    for rows, places, happening, number, is_stored, range_bytes in steps:
        send(pipeline, truth, rows, places)
        node = pipeline.nodes[number % len(pipeline.nodes)]
        if happening == "kill":
            with killed_at(pipeline.nodes, number, is_stored=is_stored):
                try:
                    fl.run(folds, pipeline.log, once=True, spark=spark, range_bytes=range_bytes)
                except Killed:
                    event("killed")
            continue
        fl.run(folds, pipeline.log, once=True, spark=spark, range_bytes=range_bytes)
        if happening == "rewind" and node.may_rewind:
            event("rewound")
            fl.rewind(node.fold, pipeline.log, "start")
        elif happening == "rebuild":
            event("rebuilt")
            fl.rebuild(node.fold, pipeline.log, spark=spark, range_bytes=range_bytes)
    fl.run(folds, pipeline.log, once=True, spark=spark)
    for node in pipeline.nodes:
        assert node.held() == node.true(truth), node.fold.name
    assert fl.verify(pipeline.nodes[-1].fold, pipeline.log, spark=spark).answer == "equal"
