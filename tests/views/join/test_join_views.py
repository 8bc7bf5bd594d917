"""A join is the join of both logs, however their records were split and mixed, whatever was interrupted or read again:
against a model in plain Python that joins everything anew. SQLite files, and a real PostgreSQL.
"""

from __future__ import annotations

import itertools
import threading
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
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import Shape, View
from foldlog.views.join import statements
from foldlog.views.join.side import JoinSide, JoinStore, Writing
from foldlog.views.join.spec import JoinSpec, asof_spec, join_spec
from foldlog.views.sql.names import TableName
from foldlog.views.lake.lake import lake
from foldlog.views.peek import open_peek
from foldlog.views.search.search import search
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
    joined,
    logs,
    opened,
    pieces,
    shape_of,
    start,
)

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


class Played:
    """A join under test, and what was read into it."""

    def __init__(self, view: View, spec: JoinSpec, are_keyed: tuple[bool, bool]) -> None:
        self.view, self.spec, self.are_keyed = view, spec, are_keyed
        self.read = Read(([], []), are_keyed)
        self.sides = self.open()
        self.at = [self.prepared(side) for side in (0, 1)]

    def open(self) -> tuple[JoinSide, JoinSide]:
        made = self.view.joined(self.are_keyed)
        assert made is not None
        return opened(made, self.spec)

    def prepared(self, side: int) -> Bookmark:
        return self.sides[side].prepare(shape_of(side, self.are_keyed), start(side))

    def apply(self, side: int, events: list[Event]) -> None:
        new = after(self.at[side], events)
        self.sides[side].apply(delta_of(events, side), self.at[side], new)
        self.at[side] = new
        self.read.events[side].extend(sorted(events))

    def rewind(self, side: int, to: int) -> None:
        back = {number: Position(min(to, at.offset)) for number, at in self.at[side].positions.items()}
        moved = self.at[side].moved(back)
        self.sides[side].move(self.at[side], moved)
        self.at[side] = moved

    def rebuild(self, both: tuple[list[Event], list[Event]], sizes: Iterator[int]) -> None:
        """What was read, in other pieces, into a shadow that is joined at the end; and a late piece after that."""
        shadows = [one.shadow("rebuild") for one in self.sides]
        marks = [one.prepare(shape_of(n, self.are_keyed), start(n, 9), loading=True) for n, one in enumerate(shadows)]
        until = [{n: at.offset for n, at in one.positions.items()} for one in self.at]
        wanted = [[event for event in log if event.offset < until[n][event.partition]] for n, log in enumerate(both)]
        late = False
        while True:
            left = [pieces(log, marks[n], next(sizes)) for n, log in enumerate(wanted)]
            if not any(left) or (late is False and not left[0]):
                if late:
                    break
                late = True
                shadows[0].finish_loading()
                continue
            for side, events in enumerate(left):
                if events:
                    new = after(marks[side], events)
                    shadows[side].apply(delta_of(events, side), marks[side], new)
                    marks[side] = new
        self.sides[0].swap(shadows[0])
        self.at = marks
        for side, log in enumerate(wanted):
            self.read.events[side][:] = log

    def close(self) -> None:
        for one in self.sides:
            one.close()


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
    @pytest.mark.parametrize("spec", SPECS, ids=str)
    def test_in_whatever_order_they_came(self, make: Make, spec: JoinSpec) -> None:
        @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(both=logs(), data=st.data())
        def check(both: tuple[list[Event], list[Event]], data: st.DataObject) -> None:
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
