"""The newest row by a version, and histories: in every engine, whatever the order of partitions, the splits and the
rewinds, they are the plain recompute of the whole log.
"""

from __future__ import annotations

import datetime as dt
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldlog.errors import FoldError, InvalidArgument, SchemaChanged, ViewUnavailable
from foldlog.views.contract import Delta, Shape, View
from foldlog.views.table.table import table
from foldlog.views.versions.settings import VersionSettings
from foldlog.views.versions.versions import history
from postgres_server import PostgresServer
from views.view_contract import START, Event, ViewCase, ViewContract, at, held, in_order

COLUMNS = pa.schema(
    [("id", pa.string()), ("version", pa.int64()), ("city", pa.string()), ("tags", pa.list_(pa.string()))]
)
SHAPE = Shape(COLUMNS, "id", ("id",))
META = pa.schema(
    [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_deleted", pa.bool_()),
    ]
)
Row = dict[str, Any]


class NewestCase(ViewCase):
    """The contract's events, of which the amount is the version. A column that a fold gains is tested below."""

    grows = False

    def content(self, events: Sequence[Event], stop: int) -> list[dict[str, object]]:
        newest: dict[str, Event] = {}
        for event in events:
            if event.offset < stop and event.is_deleted:
                newest.pop(event.tx_id, None)
            elif event.offset < stop:
                known = newest.get(event.tx_id)
                newest[event.tx_id] = event if known is None or (event.amount or 0) >= (known.amount or 0) else known
        return [{"tx_id": one.tx_id, "merchant": one.merchant, "amount": one.amount} for one in newest.values()]


@pytest.fixture(scope="module")
def shared_database(postgres: PostgresServer) -> str:
    return postgres.new_database()


def _schema_url(database: str) -> str:
    schema = f"test_{uuid4().hex}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
    return f"{database}?options=-csearch_path%3D{schema}"


class TestSqliteContract(ViewContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return NewestCase(lambda: table(tmp_path / "views" / "live.db", "newest", order_by="amount"))


@pytest.mark.faults  # the contract in the other engines: what is theirs is tested with counters, in short
class TestPostgresContract(ViewContract):
    @pytest.fixture
    def case(self, shared_database: str) -> ViewCase:
        url = _schema_url(shared_database)
        return NewestCase(lambda: table(url, "newest", order_by="amount"))


@pytest.mark.faults
class TestDuckdbContract(ViewContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return NewestCase(lambda: table(tmp_path / "views" / "live.duckdb", "newest", order_by="amount"))


Make = Callable[..., View]


@pytest.fixture(params=["sqlite", "postgres", pytest.param("duckdb", marks=pytest.mark.faults)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Views of versions in each engine, closed at the end."""
    place = str(tmp_path / ("live.db" if request.param == "sqlite" else "live.duckdb"))
    if request.param == "postgres":
        place = _schema_url(request.getfixturevalue("shared_database"))
    made: list[View] = []

    def make(kind: str = "newest", **arguments: Any) -> View:
        chosen: Callable[..., View] = table if kind == "newest" else history
        made.append(chosen(place, kind, **{"order_by": "version", **arguments}))
        return made[-1]

    yield make
    for view in made:
        view.close()


def delta_of(rows: Sequence[Row], columns: pa.Schema = COLUMNS) -> Delta:
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    full = [{"_topic": "t", "_timestamp": moment, "_partition": 0, "_deleted": False, **row} for row in rows]
    return Delta(pa.Table.from_pylist(full, schema=pa.schema([*columns, *META])), {0: (0, 1)})


def feed(view: View, rows: Sequence[Row], columns: pa.Schema = COLUMNS) -> None:
    here = view.bookmark()
    assert here is not None
    offset = here.positions[0].offset
    view.apply(delta_of(rows, columns), here, at(offset + 1, epoch=here.epoch))


# --- the model --------------------------------------------------------------------------------------------------------


def living(log: Sequence[Row]) -> list[Row]:
    """The versions that no later tombstone of their partition has removed."""
    last: dict[tuple[str, int], int] = {}
    for row in log:
        if row["version"] is None:
            at_key = (row["id"], row["_partition"])
            last[at_key] = max(last.get(at_key, -1), row["_offset"])
    return [
        row
        for row in log
        if row["version"] is not None and row["_offset"] > last.get((row["id"], row["_partition"]), -1)
    ]


def newest_of(log: Sequence[Row]) -> list[Row]:
    found: dict[str, Row] = {}
    for row in sorted(living(log), key=lambda row: (row["version"], row["_partition"], row["_offset"])):
        found[row["id"]] = row
    return [{name: row[name] for name in COLUMNS.names} for row in found.values() if not row["_deleted"]]


def history_of(log: Sequence[Row]) -> list[Row]:
    found: dict[tuple[str, int], Row] = {}
    for row in sorted(living(log), key=lambda row: (row["_partition"], row["_offset"])):
        found[row["id"], row["version"]] = row
    shown = []
    for (key, version), row in found.items():
        later = [other for of, other in found if of == key and other > version]
        valid = {"valid_from": version, "valid_to": min(later, default=None)}
        if not row["_deleted"]:
            shown.append({name: row[name] for name in COLUMNS.names} | valid)
    return shown


MODELS: dict[str, Callable[[Sequence[Row]], list[Row]]] = {"newest": newest_of, "history": history_of}

_row = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["a", "b"]),
        "version": st.integers(0, 4) | st.none(),
        "city": st.sampled_from([None, "Pune", "Oslo"]),
        "tags": st.sampled_from([None, [], ["x", None]]),
        "_partition": st.integers(0, 2),
        "_deleted": st.booleans(),
    }
)


def _log(rows: list[Row]) -> list[Row]:
    """Rows at offsets of their partitions; a row without a version is a tombstone."""
    ends = [0, 0, 0]
    found = []
    for row in rows:
        offset = ends[row["_partition"]]
        ends[row["_partition"]] += 1
        bare = {"city": None, "tags": None, "_deleted": True} if row["version"] is None else {}
        found.append({**row, "_offset": offset, **bare})
    return found


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(_row, max_size=16),
    kind=st.sampled_from(["newest", "history"]),
    seed=st.integers(0, 2**32),
)
def test_whatever_the_order_of_partitions_splits_and_rewinds(make: Make, rows: list[Row], kind: str, seed: int) -> None:
    log, chance = _log(rows), random.Random(seed)
    view = make(kind)
    view.drop()
    view.prepare(SHAPE, START)
    by_partition = [[row for row in log if row["_partition"] == number] for number in range(3)]
    read = [0, 0, 0]
    rewinds = 2
    while read != [len(part) for part in by_partition]:
        if rewinds and chance.random() < 0.1:
            rewinds -= 1
            read = [chance.randint(0, stop) for stop in read]
        stops = [chance.randint(start, len(part)) for start, part in zip(read, by_partition, strict=True)]
        feed(view, [row for part, a, b in zip(by_partition, read, stops, strict=True) for row in part[a:b]])
        read = stops
    assert in_order(held(view)) == in_order(MODELS[kind](log))
    view.close()


def _version(number: int | None, offset: int, partition: int = 0, **more: Any) -> Row:
    row = {"id": "a", "version": number, "city": f"v{number}", "_partition": partition, "_offset": offset}
    return row | ({"_deleted": True} if number is None else {}) | more


class TestNewest:
    def test_a_late_older_version_does_not_win(self, make: Make) -> None:
        view = make()
        view.prepare(SHAPE, START)
        feed(view, [_version(5, 0)])
        feed(view, [_version(3, 1), _version(4, 0, partition=1)])
        assert [row["city"] for row in held(view)] == ["v5"]

    def test_a_deletion_has_a_version_and_stays(self, make: Make) -> None:
        view = make()
        view.prepare(SHAPE, START)
        feed(view, [_version(5, 0, _deleted=True)])
        feed(view, [_version(4, 0, partition=1)])
        assert held(view) == []
        feed(view, [_version(6, 1)])
        assert [row["city"] for row in held(view)] == ["v6"]

    def test_a_tombstone_removes_what_its_partition_wrote(self, make: Make) -> None:
        view = make()
        view.prepare(SHAPE, START)
        feed(view, [_version(5, 0), _version(2, 0, partition=1)])
        feed(view, [_version(None, 1)])
        assert [row["city"] for row in held(view)] == ["v2"]
        feed(view, [_version(1, 2), _version(None, 1, partition=1)])
        assert [row["city"] for row in held(view)] == ["v1"]

    def test_a_tombstone_removes_what_is_stored_though_a_newer_row_came_with_it(self, make: Make) -> None:
        view = make()
        view.prepare(SHAPE, START)
        feed(view, [_version(9, 0)])
        feed(view, [_version(None, 1), _version(1, 2)])
        assert [row["city"] for row in held(view)] == ["v1"]

    def test_keys_of_several_columns_are_withdrawn_by_the_record_s(self, make: Make) -> None:
        view = make(key=["id", "city"])
        view.prepare(Shape(COLUMNS, "id", ("id",)), START)
        feed(view, [_version(1, 0, city="x"), _version(1, 1, city="y"), _version(1, 2, id="b", city="x")])
        feed(view, [_version(None, 3, city=None)])
        assert [(row["id"], row["city"]) for row in held(view)] == [("b", "x")]

    def test_a_tombstone_withdraws_by_a_digest_of_the_key_where_the_fold_has_changed_that(self, make: Make) -> None:
        columns = COLUMNS.append(pa.field("_record", pa.string()))
        view = make()
        view.prepare(Shape(columns, "_record", ("id",)), START)
        feed(view, [_version(1, 0, _record="r1"), _version(1, 1, id="b", _record="r2")], columns)
        feed(view, [_version(None, 2, id=None, city=None, _record="r1")], columns)
        assert [row["id"] for row in held(view)] == ["b"]

    def test_new_columns_are_added_and_what_else_changes_is_refused(self, make: Make) -> None:
        view = make()
        view.prepare(SHAPE, START)
        feed(view, [_version(1, 0)])
        wider = COLUMNS.append(pa.field("zip", pa.int32()))
        view.prepare(Shape(wider, "id", ("id",)), START)
        feed(view, [_version(1, 0, id="b", zip=5)], wider)
        assert {row["id"]: row["zip"] for row in held(view)} == {"a": None, "b": 5}
        with pytest.raises(SchemaChanged, match=r"versions in version, and is now by \(id\) with versions in zip"):
            make(order_by="zip").prepare(Shape(wider, "id", ("id",)), START)
        other = wider.set(2, pa.field("city", pa.int32()))
        with pytest.raises(SchemaChanged, match="its column 'city' is string"):
            view.prepare(Shape(other, "id", ("id",)), START)

    def test_a_row_without_a_version_is_refused(self, make: Make) -> None:
        view = make()
        view.prepare(SHAPE, START)
        with pytest.raises(FoldError, match=r"at offset 3 of t-0: its key or its version \(id, version\) is null"):
            feed(view, [_version(None, 3, _deleted=False)])
        assert view.bookmark() == START

    def test_two_rows_of_a_record_with_one_key_and_version_are_refused(self, make: Make) -> None:
        view = make()
        view.prepare(SHAPE, START)
        with pytest.raises(FoldError, match=r"at offset 7 of t-0; name more columns"):
            feed(view, [_version(1, 7), _version(1, 7, city="other")])
        assert view.bookmark() == START


class TestHistory:
    def test_a_late_version_and_a_correction_are_put_in_their_place(self, make: Make) -> None:
        view = make("history")
        view.prepare(SHAPE, START)
        feed(view, [_version(10, 0), _version(30, 1)])
        feed(view, [_version(20, 2)])
        feed(view, [_version(10, 3, city="corrected")])
        found = [(row["city"], row["valid_from"], row["valid_to"]) for row in held(view)]
        assert sorted(found) == [("corrected", 10, 20), ("v20", 20, 30), ("v30", 30, None)]

    def test_a_deletion_ends_what_was_valid(self, make: Make) -> None:
        view = make("history")
        view.prepare(SHAPE, START)
        feed(view, [_version(10, 0), _version(20, 1, _deleted=True)])
        feed(view, [_version(30, 2)])
        found = [(row["valid_from"], row["valid_to"]) for row in held(view)]
        assert sorted(found) == [(10, 20), (30, None)]

    def test_a_person_sees_it_in_sql(self, tmp_path: Path) -> None:
        view = history(tmp_path / "live.db", "customers", order_by="version")
        view.prepare(SHAPE, START)
        feed(view, [_version(10, 0, tags=["x"]), _version(20, 1)])
        view.close()
        with closing(sqlite3.connect(tmp_path / "live.db")) as opened:
            found = opened.execute("SELECT city, tags, valid_from, valid_to FROM customers ORDER BY 3").fetchall()
        assert found == [("v10", '["x"]', 10, 20), ("v20", None, 20, None)]


def test_the_engine_follows_from_the_place_and_what_is_wrong_is_said() -> None:
    kinds = {"a.db": "SqliteVersions", "a.duckdb": "DuckdbVersions", "postgresql://db/shop": "PostgresVersions"}
    assert {place: type(history(place, "x", order_by="v")).__name__ for place in kinds} == kinds
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"order_by": ""}, "order_by= names the column"),
        ({"order_by": "v", "key": []}, "a key is a column"),
        ({"order_by": "v", "key": [3]}, "a key is a column"),
        ({"order_by": "v", "name": ""}, "a view has a name"),
        ({"order_by": "v", "name": "x__1"}, "cannot name versions"),
    ]
    for arguments, sentence in wrong:
        with pytest.raises(InvalidArgument, match=sentence):
            history("a.db", **{"name": "x", **arguments})
    with pytest.raises(InvalidArgument, match="omit replaces="):
        table("a.db", "x", order_by="v", replaces="row", key="id")


@pytest.mark.parametrize(
    ("shape", "arguments", "sentence"),
    [
        (Shape(COLUMNS), {}, "needs a key"),
        (SHAPE, {"order_by": "nothing"}, "needs the column 'nothing'"),
        (SHAPE, {"order_by": "tags"}, "a version is a number without a point, a time, a date or a text"),
        (SHAPE, {"order_by": "id"}, "is part of the key"),
        (Shape(COLUMNS, None, ("tags",)), {}, "its type is not exact"),
        (Shape(COLUMNS.append(pa.field("valid_to", pa.int64())), "id", ("id",)), {}, "'valid_to'"),
    ],
)
def test_rows_without_versions_are_refused_in_one_sentence(
    shape: Shape, arguments: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    view = history(tmp_path / "live.db", "x", **{"order_by": "version", **arguments})
    with pytest.raises(InvalidArgument, match=sentence):
        view.prepare(shape, START)


def test_a_name_that_counters_have_is_refused(tmp_path: Path) -> None:
    from foldlog.views.counters import measures as fl
    from foldlog.views.counters.counters import counters

    taken = counters(tmp_path / "live.db", measures={"n": fl.count()}, name="x")
    taken.prepare(Shape(pa.schema([("n", pa.int64())])), START)
    taken.close()
    view = history(tmp_path / "live.db", "x", order_by="version")
    with pytest.raises(ViewUnavailable, match="there is a counters of the same name"):
        view.prepare(SHAPE, START)
    view.close()


def _late_wins(self: VersionSettings, rows: pa.Table) -> pa.Table:
    """Planted: the row that comes last wins."""
    last = {tuple(row[name] for name in self.groups): number for number, row in enumerate(rows.to_pylist())}
    return rows.take(pa.array(sorted(last.values()), pa.int64()))


def test_a_late_version_that_wins_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VersionSettings, "merged", _late_wins)
    view = table(tmp_path / "live.db", "newest", order_by="version")
    view.prepare(SHAPE, START)
    log = [_version(5, 0), _version(3, 1)]
    for row in log:
        feed(view, [row])
    assert held(view) != newest_of([{"tags": None, "_deleted": False, **row} for row in log])
    view.close()
