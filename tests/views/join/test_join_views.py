"""A join is the join of both logs, however their records were split and mixed, whatever was interrupted or read again:
against a model in plain Python that joins everything anew. SQLite files, and a real PostgreSQL.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldlog.errors import FoldError, InvalidArgument, SchemaChanged, StaleBookmark, ViewUnavailable
from foldlog.views.contract import Shape, View
from foldlog.views.join import statements
from foldlog.views.join.rows import SideChange
from foldlog.views.join.side import JoinStore, Writing
from foldlog.views.join.spec import JoinSpec, asof_spec, join_spec
from foldlog.views.lake.lake import lake
from foldlog.views.peek import open_peek
from foldlog.views.search.search import search
from foldlog.views.sql.names import TableName
from foldlog.views.table.postgres import PostgresTable
from foldlog.views.table.table import table
from views.join.join_model import (
    ASOF,
    COLUMNS,
    INNER,
    LEFT,
    SPECS,
    Event,
    Read,
    after,
    content,
    delta_of,
    event_at,
    joined,
    logs,
    opened,
    pieces,
    rows_of,
    shape_of,
    start,
)
from views.join.played_join import Played

TESTS = Path(__file__).resolve().parent.parent.parent

Make = Callable[[], View]
KEYED = (True, True)


@pytest.fixture(params=["sqlite", "postgresql"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes a table view of a new name with each call of the iterator."""
    numbers = itertools.count()
    if request.param == "sqlite":
        return lambda: table(tmp_path / f"views{next(numbers)}.db", "enriched")
    url = request.getfixturevalue("postgres_url")
    return lambda: table(url, f"enriched{next(numbers)}")


class Crash(Exception):
    """As if the process were killed."""


def crash_at(monkeypatch: pytest.MonkeyPatch, store: JoinStore, step: int) -> None:
    """Raise before the n-th statement of the store's next transaction, or where it stores rows, or commits."""
    kind, left = type(store), itertools.count(step, -1)
    writing, fill = kind.writing, kind.fill

    def stepped() -> None:
        if next(left) == 0:
            raise Crash

    @contextmanager
    def counted(self: JoinStore, **options: bool) -> Iterator[Writing]:
        with writing(self, **options) as opened:

            def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
                stepped()
                return opened.run(statement, *values)

            yield replace(opened, run=run)
            stepped()

    def filled(self: JoinStore, opened: Writing, name: TableName, rows: pa.Table) -> None:
        stepped()
        fill(self, opened, name, rows)

    monkeypatch.setattr(kind, "writing", counted)
    monkeypatch.setattr(kind, "fill", filled)


class TestTheJoinOfBothLogs:
    def test_in_whatever_order_they_came(self, make: Make) -> None:
        self.check(make, SPECS, 6 if isinstance(make(), PostgresTable) else 16)

    @pytest.mark.faults
    @pytest.mark.parametrize("spec", SPECS, ids=str)
    def test_in_many_more_orders(self, make: Make, spec: JoinSpec) -> None:
        self.check(make, (spec,), 10 if isinstance(make(), PostgresTable) else 30)

    def check(self, make: Make, specs: tuple[JoinSpec, ...], examples: int) -> None:
        @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(both=logs(), data=st.data())
        def check(both: tuple[list[Event], list[Event]], data: st.DataObject) -> None:
            spec = data.draw(st.sampled_from(specs))
            are_keyed = data.draw(st.sampled_from([KEYED, KEYED, (False, True), (True, False), (False, False)]))
            with closing(Played(make(), spec, are_keyed)) as played:
                for _ in range(data.draw(st.integers(1, 12))):
                    self.step(played, both, data)
                    assert content(played.sides[0]) == joined(played.read, spec)
                for side in (0, 1):  # and to the end of both
                    while events := pieces(both[side], played.at[side], 4):
                        played.apply(side, events)
                assert content(played.sides[1]) == joined(Read((both[0], both[1]), are_keyed), spec)

        check()

    def step(self, played: Played, both: tuple[list[Event], list[Event]], data: st.DataObject) -> None:
        side = data.draw(st.integers(0, 1))
        what = data.draw(st.sampled_from(["read"] * 6 + ["rewind", "rebuild", "reopen", "stale", "crash"]))
        events = pieces(both[side], played.at[side], data.draw(st.integers(1, 6)))
        if what == "read":
            played.apply(side, events)
        elif what == "rewind":
            played.rewind(side, data.draw(st.integers(0, 4)))
        elif what == "rebuild":
            played.rebuild(both, itertools.cycle(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))))
        elif what == "reopen":
            played.close()
            played.sides = played.open()
            assert [played.prepared(number) for number in (0, 1)] == played.at
        elif what == "stale":
            before = played.at[side].moved({})
            with pytest.raises(StaleBookmark):
                played.sides[side].apply(delta_of(events, side), before, after(before, events))
        else:
            with pytest.MonkeyPatch.context() as patch, suppress(Crash):
                crash_at(patch, played.sides[side].store, data.draw(st.integers(0, 20)))
                played.apply(side, events)  # which counts as read only if it got to its end


ANN = Event(0, 0, "c1", "ann", 1, 1)
BOB = Event(0, 1, "c2", "bob", 1, 2)
ORDER = Event(0, 0, "o1", "ann", 2, 10)


def played_with(make: Make, spec: JoinSpec, are_keyed: tuple[bool, bool] = KEYED) -> Played:
    played = Played(make(), spec, are_keyed)
    played.apply(0, [ORDER])
    played.apply(1, [ANN, BOB])
    return played


class TestPlantedBugs:
    """Each of these would be found by the test above: the random steps are enough, and the model tells."""

    def found(self, make: Make, plant: Callable[[pytest.MonkeyPatch], None], spec: JoinSpec) -> None:
        both = (
            [ORDER, Event(0, 1, "o2", "bob", 3, 5), Event(0, 2, "o1", "bob", 3, 6)],
            [ANN, BOB, Event(0, 2, "c1", "ann", 2, 7), Event(0, 3, "c2", None, None, None)],
        )
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            with closing(Played(make(), spec, KEYED)) as played:
                for first in (0, 1, 0, 1, 1, 0, 1):
                    events = pieces(both[first], played.at[first], 1)
                    played.apply(first, events)
                    if content(played.sides[0]) != joined(played.read, spec):
                        return
        pytest.fail("the bug was not noticed")

    def without(self, side: int, when: str, number: int) -> Callable[[pytest.MonkeyPatch], None]:
        """Leave out one of the statements."""
        whole = getattr(statements.JoinStatements, when)

        def fewer(self: statements.JoinStatements, which: int) -> Iterator[str]:
            for place, statement in enumerate(whole(self, which)):
                if (which, place) != (side, number):
                    yield statement

        return lambda patch: patch.setattr(statements.JoinStatements, when, fewer)

    @pytest.mark.parametrize("spec", SPECS, ids=str)
    def test_a_late_side_is_ignored(self, sqlite_make: Make, spec: JoinSpec) -> None:
        number = 4 if spec.how == "asof" else 0
        self.found(sqlite_make, self.without(1, "after", number), spec)

    @pytest.mark.parametrize("spec", SPECS, ids=str)
    def test_what_was_joined_stays_when_a_left_row_changes(self, sqlite_make: Make, spec: JoinSpec) -> None:
        self.found_or_refused(sqlite_make, self.without(0, "before", 0), spec)

    @pytest.mark.parametrize("spec", [INNER, LEFT], ids=str)
    def test_a_tombstone_of_the_right_side_leaves_its_rows(self, sqlite_make: Make, spec: JoinSpec) -> None:
        self.found_or_refused(sqlite_make, self.without(1, "before", 0 if spec is INNER else 1), spec)

    @pytest.mark.parametrize("number", [1, 2])
    def test_left_rows_keep_or_lack_a_row_without_a_partner(self, sqlite_make: Make, number: int) -> None:
        self.found_or_refused(sqlite_make, self.without(1, "after", number), LEFT)

    @pytest.mark.parametrize("number", [0, 1])
    def test_the_times_of_before_or_of_now_are_not_looked_at(self, sqlite_make: Make, number: int) -> None:
        plant = self.without(1, "before", 0) if number else self.without(1, "after", 0)
        self.found_or_refused(sqlite_make, plant, ASOF)

    def found_or_refused(self, make: Make, plant: Callable[[pytest.MonkeyPatch], None], spec: JoinSpec) -> None:
        """The engine's keys find some of them themselves: two rows of the same two records."""
        refused = pytest.raises(ViewUnavailable, match="UNIQUE")
        try:
            self.found(make, plant, spec)
        except ViewUnavailable as error:
            with refused:
                raise error

    @pytest.fixture
    def sqlite_make(self, tmp_path: Path) -> Make:
        return lambda: table(tmp_path / "views.db", "enriched")


@pytest.mark.faults
def test_a_killed_join_is_exactly_what_its_bookmarks_say_and_goes_on(make: Make, tmp_path: Path) -> None:
    """kill -9 at some moment, again and again: by a process that reads now of this topic, now of that."""
    rng, before = random.Random(5), (0, 0)
    view = make()
    found = view.description() or {}
    place, name = str(found.get("path") or found["url"]), str(found["name"])
    for _ in range(4):
        kill_at_some_moment(place, name, rng)
        with closing(opened(joined_of(view), ASOF)[0]) as side:
            snapshot = side.scan()
            here = [(mark.offset(0) or 0) for mark in (snapshot.bookmark, *snapshot.others)]
            assert here[0] > before[0]
            assert here[1] > before[1]
            read = ([event_at(0, offset) for offset in range(here[0])], [event_at(1, n) for n in range(here[1])])
            assert rows_of(snapshot.batches) == joined(Read(read, KEYED), ASOF)
        before = (here[0], here[1])


def kill_at_some_moment(place: str, name: str, rng: random.Random) -> None:
    command = [sys.executable, "-m", "views.join.joiner", place, name, str(rng.randrange(1000))]
    path = f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}"
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as process:
        assert process.stdout is not None
        began, ranges = time.monotonic(), rng.randrange(4, 14)
        assert all(process.stdout.readline() for _ in range(ranges)), "it ended by itself"
        with suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0, 2) * (time.monotonic() - began) / ranges)
        process.kill()


def test_two_sides_that_change_at_once_join_each_others_new_rows(make: Make) -> None:
    """Each transaction alone would see the other side as it was, and both would miss the new pairs."""
    with closing(Played(make(), INNER, KEYED)) as played:
        logs_of = (
            [Event(0, n, f"o{n}", "ann", 1, n) for n in range(30)],
            [Event(0, n, f"c{n}", "ann", 1, n) for n in range(30)],
        )
        problems: list[BaseException] = []

        def read(side: int) -> None:
            try:
                for event in logs_of[side]:
                    played.apply(side, [event])
            except BaseException as error:  # noqa: BLE001 to be shown by the test's own thread
                problems.append(error)

        threads = [threading.Thread(target=read, args=[side]) for side in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        assert len(content(played.sides[0])) == 900


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_change_looks_its_partners_up(tmp_path: Path, spec: JoinSpec) -> None:
    """However large the tables are: no statement walks through one."""
    with closing(Played(table(tmp_path / "views.db", "enriched"), spec, KEYED)) as played:
        store = played.sides[0].store
        with store.writing() as writing:
            state = store.expect(writing, 0, played.at[0])
            store.begin_change(writing, SideChange(pa.table({"_record": ["a"]}), pa.table({})))
            parts = store.statements(writing, state)
            for side in (0, 1):
                for statement in (*parts.before(side), parts.removed(side), *parts.after(side)):
                    steps = [str(row[3]) for row in writing.run(f"EXPLAIN QUERY PLAN {statement}")]
                    walks = [step for step in steps if step.startswith("SCAN") and "_foldlog_" not in step]
                    assert [step for step in walks if step != "SCAN t"] == [], statement


def test_long_texts_join_and_are_told_apart(make: Make) -> None:
    long = "x" * 5000
    with closing(Played(make(), LEFT, KEYED)) as played:
        played.apply(0, [Event(0, 0, long, long, 1, 1), Event(0, 1, long + "y", long + "y", 1, 2)])
        played.apply(1, [Event(0, 0, "c" + long, long, 1, 3)])
        found = {row[0]: row[6] for row in content(played.sides[0])}
        assert found == {long: "name 3", long + "y": None}


def test_a_column_that_a_side_gains_is_added_to_the_join(make: Make) -> None:
    with closing(played_with(make, LEFT)) as played:
        wider = Shape(COLUMNS[1].append(pa.field("city", pa.string())), "id", ("id",))
        played.at[1] = played.sides[1].prepare(wider, start(1))
        rows = delta_of([Event(0, 2, "c1", "ann", 1, 4)], 1)
        grown = rows.rows.append_column("city", pa.array(["Pune"]))
        played.sides[1].apply(replace(rows, rows=grown), played.at[1], after(played.at[1], []))
        (row,) = [row for batch in played.sides[0].scan().batches for row in batch.to_pylist()]
        assert (row["name"], row["city"]) == ("name 4", "Pune")
        played.rebuild(([ORDER], [ANN, BOB]), itertools.repeat(3))
        assert len(content(played.sides[0])) == 1


def test_a_join_is_looked_into_like_any_table(make: Make) -> None:
    with closing(played_with(make, LEFT)) as played:
        description = played.sides[0].description() or {}
        with open_peek(description) as peek:
            page = peek.rows(5)
            assert [dict(zip(page.columns, row, strict=True))["name"] for row in page.rows] == ["name 1"]
            assert len(peek.search("ann").rows) == 1


def test_a_rebuilt_join_can_be_rebuilt_and_dropped(make: Make) -> None:
    with closing(played_with(make, INNER)) as played:
        for _ in range(3):
            played.rebuild(([ORDER], [ANN, BOB]), itertools.repeat(1))
        assert played.sides[0].drop_old()
        assert not played.sides[1].drop_old()
        played.sides[1].drop()
        assert played.sides[0].bookmark() is None
        played.at = [played.prepared(side) for side in (0, 1)]
        assert content(played.sides[0]) == []


class TestWhatIsRefused:
    def test_another_join_in_the_same_table(self, make: Make) -> None:
        view = make()
        for one in opened(joined_of(view), LEFT):
            one.close()
        left, _ = opened(joined_of(view), LEFT)
        left.prepare(shape_of(0, KEYED), start(0))
        other, _ = opened(joined_of(view), INNER)
        with closing(left), closing(other), pytest.raises(SchemaChanged, match=r"left join on customer.*inner join"):
            other.prepare(shape_of(0, KEYED), start(0))

    def test_a_table_of_the_same_name(self, make: Make) -> None:
        view = make()
        with closing(view), closing(Played(view, LEFT, KEYED)), pytest.raises(ViewUnavailable, match="join of two"):
            view.prepare(shape_of(0, KEYED), start(0))

    def test_two_rows_of_one_record(self, make: Make) -> None:
        with closing(Played(make(), LEFT, KEYED)) as played:
            twice = delta_of([ORDER, ORDER], 0)
            with pytest.raises(FoldError, match="two rows on the left side"):
                played.sides[0].apply(twice, played.at[0], after(played.at[0], [ORDER]))

    @pytest.mark.parametrize(
        ("spec", "said"),
        [
            (join_spec("nobody", "left"), "has no column 'nobody'"),
            (join_spec({"amount": "customer"}, "left"), "cast one of them"),
            (asof_spec("customer", None, None), "is no time"),
            (asof_spec({"at": "since"}, "customer", 5), "does not fit"),
        ],
        ids=str,
    )
    def test_columns_that_do_not_fit(self, make: Make, spec: JoinSpec, said: str) -> None:
        with pytest.raises(FoldError, match=said):
            Played(make(), spec, KEYED)

    def test_a_column_that_both_sides_have(self, make: Make) -> None:
        with pytest.raises(FoldError, match="both sides of the join have a column 'customer'"):
            Played(make(), join_spec({"order_id": "id"}, "inner"), KEYED)

    @pytest.mark.parametrize("on", [None, "", [], {}, 5, ["a", "a"], {"a": 1}])
    def test_columns_that_are_none(self, on: object) -> None:
        with pytest.raises(InvalidArgument, match="names no columns"):
            join_spec(on, "left")

    def test_joins_that_there_are_not(self) -> None:
        with pytest.raises(InvalidArgument, match="in the other order"):
            join_spec("a", "right")
        with pytest.raises(InvalidArgument, match="on one time"):
            asof_spec(["a", "b"], None, None)
        with pytest.raises(InvalidArgument, match="no duration"):
            asof_spec("a", None, "soon")
        with pytest.raises(InvalidArgument, match="neither a duration"):
            asof_spec("a", None, -1)

    def test_engines_that_cannot_keep_both_sides(self, tmp_path: Path) -> None:
        assert lake(str(tmp_path / "lake")).joined(KEYED) is None
        assert search(str(tmp_path / "search"), text=["a"]).joined(KEYED) is None
        with pytest.raises(InvalidArgument, match="leave out key="):
            table(tmp_path / "views.db", "a", key=["b"]).joined(KEYED)


def joined_of(view: View) -> tuple[View, View]:
    made = view.joined(KEYED)
    assert made is not None
    return made
