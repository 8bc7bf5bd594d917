"""A join whose result is a topic: the newest record of each key is the join of both logs, in whatever order they came,
whoever dies between any two steps, and whatever is rewound or rebuilt. The model is that of joins in tables; the topic
is read by itself, not through the view.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import foldlog
from foldlog import Log
from foldlog.errors import FoldError, SchemaChanged, StaleBookmark
from foldlog.spark.change_topics import joined_changes
from foldlog.spark.change_topics.changes import changes
from foldlog.spark.change_topics.joined_changes import JoinedChanges
from foldlog.spark.change_topics.keyed_rows import KeyedRows, RowChange
from foldlog.spark.origins.origin import origin_spec
from foldlog.views.contract import View
from foldlog.views.join import statements
from foldlog.views.join.spec import JoinSpec
from spark.change_topics.change_machine import Crash, dying
from views.join.join_model import (
    ASOF,
    INNER,
    LEFT,
    SPECS,
    Event,
    Read,
    after,
    delta_of,
    joined,
    logs,
    pieces,
    shape_of,
    start,
)
from views.join.played_join import Played

KEYED = (True, True)
_numbers = itertools.count()

few = settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate, Phase.reuse],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
many = settings(few, max_examples=15)


class PlayedTopic(Played):
    """A join that is written to a topic of a directory."""

    def __init__(self, directory: Path, spec: JoinSpec, are_keyed: tuple[bool, bool] = KEYED, **options: Any) -> None:
        self.directory = directory
        super().__init__(changes("enriched", partitions=2, **options), spec, are_keyed)

    def open(self) -> Any:
        sides = super().open()
        assert isinstance(sides[0], JoinedChanges)
        sides[0].bind(origin_spec(self.directory))
        return sides

    def die(self) -> None:
        """Another process goes on."""
        self.close()
        self.sides = self.open()
        self.at = [self.prepared(side) for side in (0, 1)]

    def held(self, *, old: bool = False) -> list[tuple[object, ...]]:
        """What the topic says, read by a client of its own. No record says what the one before it has said."""
        rows: dict[bytes, dict[str, Any]] = {}
        with foldlog.open(self.directory, mode="r") as log:
            for number in log.offsets("enriched"):
                for record in log.read("enriched", number, isolation="read_committed"):
                    assert record.key is not None
                    value = None if record.value is None else json.loads(record.value)
                    if old and value is not None:
                        assert value["old"] == rows.get(record.key), "old is what was there before"
                        value = value["new"]
                    elif not old:
                        assert value != rows.get(record.key), "a change was written twice"
                    rows.pop(record.key, None)
                    if value is not None:
                        rows[record.key] = value
        names = ("order_id", "customer", "at", "amount", "id", "since", "name", "_left", "_right")
        return sorted((tuple(_minute(name, row[name]) for name in names) for row in rows.values()), key=repr)


def _minute(name: str, value: Any) -> object:
    return int(datetime.fromisoformat(value).timestamp()) // 60 if name in ("at", "since") and value else value


@pytest.fixture
def directory(tmp_path: Path) -> Callable[[], Path]:
    def made() -> Path:
        path = tmp_path / f"log{next(_numbers)}"
        foldlog.open(path).close()
        return path

    return made


def check_random_steps(path: Path, both: tuple[list[Event], list[Event]], data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(SPECS))
    are_keyed = data.draw(st.sampled_from([KEYED, KEYED, (False, True), (True, False), (False, False)]))
    old = data.draw(st.booleans())
    with closing(PlayedTopic(path, spec, are_keyed, old=old)) as played, pytest.MonkeyPatch.context() as patch:
        for _ in range(data.draw(st.integers(1, 8))):
            step(played, both, data, patch)
            assert played.held(old=old) == joined(played.read, spec)
        for side in (0, 1):
            while events := pieces(both[side], played.at[side], 4):
                played.apply(side, events)
        assert played.held(old=old) == joined(Read((both[0], both[1]), are_keyed), spec)
        rows = [row for batch in played.sides[1].scan().batches for row in batch.to_pylist()]
        assert len(rows) == len(played.held(old=old))


def step(
    played: PlayedTopic, both: tuple[list[Event], list[Event]], data: st.DataObject, patch: pytest.MonkeyPatch
) -> None:
    side = data.draw(st.integers(0, 1))
    what = data.draw(st.sampled_from(["read"] * 5 + ["rewind", "rebuild", "reopen", "stale", "die", "die"]))
    events = pieces(both[side], played.at[side], data.draw(st.integers(1, 6)))
    if what == "read":
        played.apply(side, events)
    elif what == "rewind":
        played.rewind(side, data.draw(st.integers(0, 4)))
    elif what == "rebuild":
        played.rebuild(both, itertools.cycle(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))))
    elif what == "reopen":
        before = list(played.at)
        played.die()
        assert played.at == before
    elif what == "stale":
        before_this = played.at[side].moved({})
        with pytest.raises(StaleBookmark):
            played.sides[side].apply(delta_of(events, side), before_this, after(before_this, events))
    else:
        at = played.at[side]
        try:
            with dying(patch, data.draw(st.integers(0, 12))):
                played.apply(side, events)
        except Crash:
            played.die()
            if played.at[side] != at:  # it died behind the commit
                played.read.events[side].extend(sorted(events))


@few
@given(both=logs(), data=st.data())
def test_the_topic_is_the_join_of_both_logs(
    directory: Callable[[], Path], both: tuple[list[Event], list[Event]], data: st.DataObject
) -> None:
    check_random_steps(directory(), both, data)


@pytest.mark.faults
@many
@given(both=logs(), data=st.data())
def test_the_topic_is_the_join_of_both_logs_for_long(
    directory: Callable[[], Path], both: tuple[list[Event], list[Event]], data: st.DataObject
) -> None:
    check_random_steps(directory(), both, data)


ANN = Event(0, 0, "c1", "ann", 1, 1)
BOB = Event(0, 1, "c2", "bob", 1, 2)
ORDER = Event(0, 0, "o1", "ann", 2, 10)
BY_KEY = JoinSpec("left", (("customer", "customer"), ("order_id", "id")))
"""On the right side's key: a left row has one partner at most."""


def records_of(log: Log) -> list[Any]:
    numbers = log.offsets("enriched")
    return [one for number in numbers for one in log.read("enriched", number, isolation="read_committed")]


def keys_of(path: Path) -> set[bytes]:
    with foldlog.open(path, mode="r") as log:
        return {record.key for record in records_of(log)}


@pytest.mark.parametrize(
    ("spec", "are_keyed", "key"),
    [
        (LEFT, KEYED, b'["o1","c1"]'),
        (ASOF, KEYED, b"o1"),
        (ASOF, (False, True), b"0@0"),
        (INNER, KEYED, b'["o1","c1"]'),
    ],
    ids=str,
)
def test_the_key_is_the_left_record_where_it_has_one_partner(
    directory: Callable[[], Path], spec: JoinSpec, are_keyed: tuple[bool, bool], key: bytes
) -> None:
    path = directory()
    with closing(PlayedTopic(path, spec, are_keyed)) as played:
        played.apply(1, [ANN, BOB])
        played.apply(0, [ORDER])
        assert keys_of(path) == {key}


def test_a_partner_that_changes_is_one_change_of_one_key(directory: Callable[[], Path]) -> None:
    path = directory()
    with closing(PlayedTopic(path, BY_KEY)) as played:
        played.apply(0, [ORDER])
        played.apply(1, [Event(0, 0, "o1", "ann", 1, 1)])
        played.apply(1, [Event(0, 1, "o1", "ann", 1, 2)])
        played.apply(1, [Event(0, 2, "o1", "ann", 1, None)])
    with foldlog.open(path, mode="r") as log:
        records = records_of(log)
    assert {one.key for one in records} == {b"o1"}
    assert [one.json()["name"] for one in records] == [None, "name 1", "name 2", None]


def test_a_key_that_two_rows_have_is_refused_and_changes_nothing(directory: Callable[[], Path]) -> None:
    path = directory()
    with closing(PlayedTopic(path, INNER, key="order_id")) as played:
        played.apply(0, [ORDER])
        played.apply(1, [ANN])
        assert keys_of(path) == {b"o1"}
        held = played.held()
        with pytest.raises(FoldError, match=r"two rows of the join have the key order_id='o1'; leave key= out"):
            played.apply(1, [Event(0, 1, "c9", "ann", 1, 2)])
        assert played.held() == held
        played.apply(1, [Event(0, 1, "c9", "bob", 1, 2)])
        assert played.held() == joined(played.read, INNER)


def test_another_key_or_another_form_asks_for_a_rebuild(directory: Callable[[], Path]) -> None:
    path = directory()
    with closing(PlayedTopic(path, LEFT)) as played:
        played.apply(0, [ORDER])
    with pytest.raises(SchemaChanged, match=r"its key is _left, _right, and the fold's order_id"):
        PlayedTopic(path, LEFT, key="order_id")
    with pytest.raises(SchemaChanged, match="has only the new row"):
        PlayedTopic(path, LEFT, old=True)
    with (
        closing(PlayedTopic(directory(), LEFT, key="name")) as played,
        pytest.raises(FoldError, match="a row of the join has no 'name', which is its key"),
    ):
        played.apply(0, [ORDER])


def test_two_runners_take_turns_and_nothing_counts_twice(directory: Callable[[], Path]) -> None:
    path = directory()
    with closing(PlayedTopic(path, LEFT)) as one, closing(PlayedTopic(path, LEFT)) as other:
        one.apply(0, [ORDER])
        with pytest.raises(StaleBookmark):
            other.sides[0].apply(delta_of([ORDER], 0), other.at[0], after(other.at[0], [ORDER]))
        other.at = [side.bookmark() or other.at[n] for n, side in enumerate(other.sides)]
        other.apply(1, [ANN])
        assert one.sides[1].bookmark() == other.at[1]
        both = Read(([ORDER], [ANN]), KEYED)
        assert one.held() == joined(both, LEFT)


def test_a_dropped_join_leaves_no_topic(directory: Callable[[], Path]) -> None:
    path = directory()
    with closing(PlayedTopic(path, LEFT)) as played:
        played.apply(0, [ORDER])
        with foldlog.open(path, mode="r") as log:
            assert log.topics() == ["enriched"]
            assert set(log.topics(include_internal=True)) >= {
                "__changes.enriched",
                "__joined.left.enriched",
                "__joined.right.enriched",
            }
        played.sides[0].drop()
        with foldlog.open(path, mode="r") as log:
            assert [one for one in log.topics(include_internal=True) if "enriched" in one] == []


@pytest.mark.faults
class TestPlantedBugs:
    """Each of these is found by reading the topic."""

    BOTH = (
        [ORDER, Event(0, 1, "o2", "bob", 3, 5), Event(0, 2, "o1", "bob", 3, 6)],
        [ANN, BOB, Event(0, 2, "c1", "ann", 2, 7), Event(0, 3, "c2", None, None, None)],
    )

    def is_found(self, path: Path, *, old: bool = False, reopens: bool = False) -> bool:
        with closing(PlayedTopic(path, LEFT, old=old)) as played:
            for side in (0, 1, 0, 1, 1, 0, 1):
                try:
                    played.apply(side, pieces(self.BOTH[side], played.at[side], 1))
                    if played.held(old=old) != joined(played.read, LEFT):
                        return True
                except AssertionError:
                    return True
                if reopens:
                    played.die()
        return False

    def test_nothing_is_planted(self, directory: Callable[[], Path]) -> None:
        assert not self.is_found(directory(), old=True, reopens=True)

    def test_a_late_side_is_ignored(self, directory: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
        whole = statements.JoinStatements.after

        def only_left(self: statements.JoinStatements, side: int) -> Iterator[str]:
            return whole(self, side) if side == 0 else iter(())

        monkeypatch.setattr(statements.JoinStatements, "after", only_left)
        assert self.is_found(directory())

    def test_old_and_new_are_reversed(self, directory: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
        def reversed_change(key: bytes, record: bytes, old: bytes | None, new: bytes | None) -> Any:
            return RowChange(key, record, new, old)

        monkeypatch.setattr(joined_changes, "RowChange", reversed_change)
        assert self.is_found(directory(), old=True)

    def test_a_side_is_not_kept(self, directory: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
        def none(self: joined_changes.TopicJoin, number: int, shape: Any, at: Any) -> KeyedRows:
            return KeyedRows(shape)

        monkeypatch.setattr(joined_changes.TopicJoin, "_rows", none)
        assert self.is_found(directory(), reopens=True)


@pytest.mark.faults
def test_by_wire(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka", reason="enable with: pip install 'foldlog[kafka]'")
    with foldlog.open(tmp_path / "log", listen=True) as log:
        check_by_wire(log)


def check_by_wire(log: Log) -> None:
    def bound(view: View) -> tuple[Any, Any]:
        pair = view.joined(KEYED)
        assert pair is not None
        left, right = pair
        assert isinstance(left, JoinedChanges)
        left.bind(origin_spec(f"kafka://{log.bootstrap}"))
        left.declared.declare(LEFT, "enriched")
        return left, right

    read = Read(([ORDER], [ANN, BOB]), KEYED)
    sides = bound(changes("enriched"))
    for number in (0, 1, 0):
        at = sides[number].prepare(shape_of(number, KEYED), start(number))
        events = [one for one in read.events[number] if one.offset >= (at.offset(0) or 0)]
        sides[number].apply(delta_of(events, number), at, after(at, events))
        sides[0].close()
        sides = bound(changes("enriched"))  # another process
    found = {one.key: one.value and one.json() for one in records_of(log)}
    assert {key: row["_right"] for key, row in found.items() if row} == {b'["o1","c1"]': "c1"}
    sides[0].close()
