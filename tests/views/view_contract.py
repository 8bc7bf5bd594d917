"""What every view promises, as tests that each engine runs: derive `ViewContract` and give it a `case`.

    class TestSqliteTable(ViewContract):
        @pytest.fixture
        def case(self, tmp_path): return ViewCase(lambda: table(tmp_path / "views.db", "payments"))

Events are payments with a key; a case says which delta a range of them is for its view, and, as a plain Python model,
what the view then has to hold. `ViewCase` is for views that keep the newest row of a key. A view that adds (counters,
an appended lake) overrides `delta` and `content`, and nothing else.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldlog.errors import SchemaChanged, StaleBookmark, ViewUnavailable
from foldlog.views.bookmark import Bookmark, Logic, Position
from foldlog.views.contract import Delta, Shape, Snapshot, View

TOPIC = "payments"
COLUMNS = pa.schema([("tx_id", pa.string()), ("merchant", pa.string()), ("amount", pa.int64())])
START = Bookmark(TOPIC, "topic-id-1", {0: Position(0)}, {0: 0})


class Event(NamedTuple):
    """One record of the topic, which has one partition; without an amount it is a tombstone."""

    offset: int
    tx_id: str
    merchant: str | None = None
    amount: int | None = None

    @property
    def is_deleted(self) -> bool:
        return self.amount is None


def at(offset: int, *, epoch: int = 0) -> Bookmark:
    """The bookmark of a view that has read everything below `offset`."""
    return Bookmark(TOPIC, "topic-id-1", {0: Position(offset)}, {0: 0}, epoch=epoch)


def delta_of(rows: Sequence[dict[str, object]], columns: pa.Schema, start: int, stop: int) -> Delta:
    """Rows with `_offset` and the shape's columns, as the runner hands them over."""
    meta = [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_deleted", pa.bool_()),
    ]
    schema = pa.schema([*columns, *meta])
    filled = [{"_topic": TOPIC, "_partition": 0, "_timestamp": 0, "_deleted": False, **row} for row in rows]
    return Delta(pa.Table.from_pylist(filled, schema=schema), {0: (start, stop)})


class ViewCase:
    """A view that keeps the newest row of each key, and the model of what it holds."""

    shape = Shape(COLUMNS, record_key="tx_id", key=("tx_id",))
    grows = True
    """Whether a column that the fold gains is added to the view (else those tests do not apply)."""

    def __init__(self, make: Callable[[], View]) -> None:
        self._make = make

    def open(self) -> View:
        """A new object for the same view."""
        return self._make()

    def delta(self, events: Sequence[Event], start: int, stop: int) -> Delta:
        """What the runner would hand over for [start, stop) of `events`."""
        inside = [event for event in events if start <= event.offset < stop]
        rows: list[dict[str, object]] = [
            {
                "tx_id": event.tx_id,
                "merchant": None if event.is_deleted else event.merchant,
                "amount": event.amount,
                "_offset": event.offset,
                "_deleted": event.is_deleted,
            }
            for event in inside
        ]
        return delta_of(rows, self.shape.columns, start, stop)

    def content(self, events: Sequence[Event], stop: int) -> list[dict[str, object]]:
        """What a view that has read everything below `stop` holds, in any order."""
        newest = {event.tx_id: event for event in events if event.offset < stop}
        return [
            {"tx_id": event.tx_id, "merchant": event.merchant, "amount": event.amount}
            for event in newest.values()
            if not event.is_deleted
        ]


def some_events(count: int, *, seed: int = 1, keys: int = 12) -> list[Event]:
    """Deterministic: updates, tombstones, tombstones of what never was, null merchants."""
    rng = random.Random(seed)
    events = []
    for offset in range(count):
        key = f"tx-{rng.randrange(keys)}"
        if rng.random() < 0.2:
            events.append(Event(offset, key))
        else:
            events.append(Event(offset, key, rng.choice(["Chai Point", "Café", None]), rng.randrange(-5, 1000)))
    return events


def held(view: View) -> list[dict[str, object]]:
    """All rows of a view, sorted."""
    return read_all(view.scan())


def read_all(snapshot: Snapshot) -> list[dict[str, object]]:
    return in_order([row for batch in snapshot.batches for row in batch.to_pylist()])


def in_order(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: repr(sorted(row.items())))


def play(view: View, case: ViewCase, events: Sequence[Event], cuts: Sequence[int], *, epoch: int = 0) -> None:
    """Apply [0, cut), [cut, next cut) and so on."""
    here = 0
    for cut in cuts:
        view.apply(case.delta(events, here, cut), at(here, epoch=epoch), at(cut, epoch=epoch))
        here = cut


def applied(view: View, delta: Delta, start: Bookmark, stop: Bookmark) -> None:
    """Tries again as a runner does, where the other one held a lock for longer than this one waits."""
    for _ in range(20):
        try:
            return view.apply(delta, start, stop)
        except ViewUnavailable:
            continue
    return view.apply(delta, start, stop)


def outcomes(actions: Sequence[Callable[[], object]]) -> list[object]:
    """Run them at the same moment, each in a thread; what each returned or raised."""
    barrier = threading.Barrier(len(actions))
    results: list[object] = [None] * len(actions)

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = actions[number]()
        except Exception as error:  # noqa: BLE001 whatever it is, the test looks at it
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@contextmanager
def opened(case: ViewCase) -> Iterator[View]:
    with closing(case.open()) as view:
        yield view


_splits = st.lists(st.integers(0, 40), max_size=6).map(lambda cuts: [*sorted(cuts), 40])
few = settings(
    max_examples=6,
    # One test for every engine: each has an instance of its own, and nothing is shared between them.
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.differing_executors,
    ],
)


class ViewContract:
    """Derive and give `case`."""

    @pytest.fixture
    def case(self) -> ViewCase:
        raise NotImplementedError("a contract is for one engine: derive, and give it a case")

    @pytest.fixture
    def view(self, case: ViewCase) -> Iterator[View]:
        with opened(case) as view:
            yield view

    def test_a_view_that_does_not_exist_has_no_bookmark_and_asking_makes_none(self, case: ViewCase, view: View) -> None:
        assert view.bookmark() is None
        with opened(case) as other:
            assert other.bookmark() is None
        view.drop()
        assert not view.drop_old()
        assert view.bookmark() is None

    def test_preparing_gives_the_start_and_later_the_bookmark_that_is_stored(self, case: ViewCase, view: View) -> None:
        assert view.prepare(case.shape, START) == START
        assert view.bookmark() == START
        assert held(view) == []
        play(view, case, some_events(9), [9])
        with opened(case) as other:
            assert other.prepare(case.shape, START) == at(9)

    def test_what_was_applied_is_there_with_its_bookmark_also_for_who_opens_it_again(
        self, case: ViewCase, view: View
    ) -> None:
        events = some_events(60)
        view.prepare(case.shape, START)
        play(view, case, events, [25, 60])
        view.close()
        assert view.bookmark() == at(60)
        with opened(case) as other:
            snapshot = other.scan()
            assert snapshot.bookmark == at(60)
            assert read_all(snapshot) == in_order(case.content(events, 60))
            assert other.place == view.place

    @few
    @given(cuts=_splits, seed=st.integers(0, 1000))
    def test_however_the_log_is_split_the_view_is_the_same(self, case: ViewCase, cuts: list[int], seed: int) -> None:
        events = some_events(40, seed=seed, keys=5)
        with opened(case) as view:
            view.drop()
            view.prepare(case.shape, START)
            play(view, case, events, cuts)
            assert held(view) == in_order(case.content(events, 40))

    def test_a_range_that_is_applied_twice_counts_once(self, case: ViewCase, view: View) -> None:
        events = some_events(30)
        view.prepare(case.shape, START)
        play(view, case, events, [30])
        with pytest.raises(StaleBookmark) as refused:
            view.apply(case.delta(events, 0, 30), START, at(30))
        assert refused.value.place == view.place
        assert view.bookmark() == at(30)
        assert held(view) == in_order(case.content(events, 30))

    def test_an_unexpected_bookmark_is_refused_and_nothing_changes(self, case: ViewCase, view: View) -> None:
        events = some_events(30)
        view.prepare(case.shape, START)
        play(view, case, events, [10])
        for wrong in (at(9), at(11), at(10, epoch=1), START):
            with pytest.raises(StaleBookmark):
                view.apply(case.delta(events, 10, 30), wrong, at(30))
            with pytest.raises(StaleBookmark):
                view.move(wrong, at(30))
        assert view.bookmark() == at(10)
        assert held(view) == in_order(case.content(events, 10))
        view.apply(case.delta(events, 10, 30), at(10), at(30))
        assert held(view) == in_order(case.content(events, 30))

    def test_a_range_without_rows_moves_the_bookmark_only(self, case: ViewCase, view: View) -> None:
        events = some_events(20)
        view.prepare(case.shape, START)
        play(view, case, events, [0, 20])
        view.apply(case.delta(events, 20, 50), at(20), at(50))
        assert view.bookmark() == at(50)
        assert held(view) == in_order(case.content(events, 20))

    def test_moving_the_bookmark_leaves_the_content_alone_and_fences_who_read_before(
        self, case: ViewCase, view: View
    ) -> None:
        events = some_events(20)
        view.prepare(case.shape, START)
        play(view, case, events, [20])
        view.move(at(20), at(5, epoch=1))
        assert view.bookmark() == at(5, epoch=1)
        assert held(view) == in_order(case.content(events, 20))
        with pytest.raises(StaleBookmark):
            view.apply(case.delta(events, 20, 20), at(20), at(25))

    def test_a_bookmark_that_is_moved_to_a_copy_of_the_topic_is_of_that(self, case: ViewCase, view: View) -> None:
        events = some_events(30)
        view.prepare(case.shape, START)
        play(view, case, events, [20])
        copied = {"topic": "copied", "topic_id": "of the copy", "logic": Logic(3, 5, 1)}
        moved, further = (replace(one, **copied) for one in (at(20, epoch=1), at(30, epoch=1)))  # type: ignore[arg-type]
        view.move(at(20), moved)
        with opened(case) as other:
            assert other.bookmark() == moved
        view.apply(case.delta(events, 20, 30), moved, further)
        assert view.bookmark() == further
        assert held(view) == in_order(case.content(events, 30))
        view.move(further, at(30, epoch=2))  # and back
        assert view.bookmark() == at(30, epoch=2)

    def test_reading_a_range_again_changes_nothing_where_the_view_overwrites(self, case: ViewCase, view: View) -> None:
        if view.adds:
            return  # it is rebuilt, never rewound
        events = some_events(40)
        view.prepare(case.shape, START)
        play(view, case, events, [40])
        view.move(at(40), at(7, epoch=1))
        view.apply(case.delta(events, 7, 40), at(7, epoch=1), at(40, epoch=1))
        assert held(view) == in_order(case.content(events, 40))

    def test_of_two_who_apply_the_same_range_at_once_one_is_refused(self, case: ViewCase, view: View) -> None:
        events = some_events(40)
        view.prepare(case.shape, START)
        with opened(case) as other:
            for here in range(0, 40, 10):
                delta = case.delta(events, here, here + 10)
                results = outcomes([partial(applied, who, delta, at(here), at(here + 10)) for who in (view, other)])
                assert sorted(type(result).__name__ for result in results) == ["NoneType", "StaleBookmark"], results
        assert view.bookmark() == at(40)
        assert held(view) == in_order(case.content(events, 40))

    def test_many_may_prepare_at_once(self, case: ViewCase) -> None:
        views = [case.open() for _ in range(4)]
        try:
            results = outcomes([lambda view=view: view.prepare(case.shape, START) for view in views])  # type: ignore[misc]
            assert results == [START] * 4
        finally:
            for view in views:
                view.close()

    def test_a_scan_is_one_state_whatever_is_applied_meanwhile(self, case: ViewCase, view: View) -> None:
        events = some_events(60)
        view.prepare(case.shape, START)
        play(view, case, events, [30])
        snapshot = view.scan()
        view.apply(case.delta(events, 30, 60), at(30), at(60))
        assert snapshot.bookmark == at(30)
        assert read_all(snapshot) == in_order(case.content(events, 30))
        assert held(view) == in_order(case.content(events, 60))

    def test_a_scan_that_is_not_read_to_its_end_keeps_nobody_from_going_on(self, case: ViewCase, view: View) -> None:
        events = some_events(40)
        view.prepare(case.shape, START)
        play(view, case, events, [30])
        batches: Any = view.scan().batches
        next(batches)
        batches.close()
        assert len(view.peek(1)) <= 1
        view.apply(case.delta(events, 30, 40), at(30), at(40))
        view.drop()
        assert view.bookmark() is None

    def test_a_shadow_is_another_view_of_the_same_kind(self, case: ViewCase, view: View) -> None:
        events = some_events(40)
        view.prepare(case.shape, START)
        play(view, case, events, [30])
        with closing(view.shadow("verify")) as shadow:
            assert shadow.bookmark() is None
            assert shadow.place != view.place
            assert (shadow.kind, shadow.adds) == (view.kind, view.adds)
            shadow.prepare(case.shape, START)
            play(shadow, case, events, [3, 40])
            assert held(shadow) == in_order(case.content(events, 40))
            assert held(view) == in_order(case.content(events, 30))
            shadow.drop()
            assert shadow.bookmark() is None
        assert view.bookmark() == at(30)
        assert held(view) == in_order(case.content(events, 30))

    @few
    @given(cuts=_splits, seed=st.integers(0, 1000))
    def test_bulk_loading_ends_as_applying_does(self, case: ViewCase, cuts: list[int], seed: int) -> None:
        events = some_events(40, seed=seed, keys=5)
        with opened(case) as view, closing(view.shadow("rebuild")) as shadow:
            shadow.drop()
            shadow.prepare(case.shape, START, loading=True)
            play(shadow, case, events, cuts)
            shadow.finish_loading()
            shadow.finish_loading()
            assert shadow.bookmark() == at(40)
            assert held(shadow) == in_order(case.content(events, 40))
            shadow.drop()

    def test_a_bulk_load_is_fenced_and_goes_on_after_it_was_finished(self, case: ViewCase, view: View) -> None:
        events = some_events(50)
        with closing(view.shadow("rebuild")) as shadow:
            shadow.prepare(case.shape, START, loading=True)
            play(shadow, case, events, [20])
            with pytest.raises(StaleBookmark):
                shadow.apply(case.delta(events, 0, 20), START, at(20))
            shadow.apply(case.delta(events, 20, 30), at(20), at(30))
            shadow.finish_loading()
            shadow.apply(case.delta(events, 30, 50), at(30), at(50))
            assert held(shadow) == in_order(case.content(events, 50))

    def test_a_swap_puts_the_shadow_with_its_bookmark_into_place_and_keeps_the_old_one_until_told(
        self, case: ViewCase, view: View
    ) -> None:
        wrong, right = some_events(30, seed=3), some_events(40, seed=4)
        view.prepare(case.shape, START)
        play(view, case, wrong, [30])
        with closing(view.shadow("rebuild")) as shadow:
            shadow.prepare(case.shape, at(0, epoch=1), loading=True)
            play(shadow, case, right, [15, 40], epoch=1)
            shadow.finish_loading()
            view.swap(shadow)
            assert shadow.bookmark() is None
        assert view.bookmark() == at(40, epoch=1)
        assert held(view) == in_order(case.content(right, 40))
        with pytest.raises(StaleBookmark):
            view.apply(case.delta(wrong, 30, 30), at(30), at(31))
        with opened(case) as other:
            assert held(other) == in_order(case.content(right, 40))
        assert view.drop_old() == view.keeps_old
        assert not view.drop_old()
        assert held(view) == in_order(case.content(right, 40))

    def test_swaps_follow_each_other_and_the_view_lives_on(self, case: ViewCase, view: View) -> None:
        events = some_events(60)
        view.prepare(case.shape, START)
        for epoch in (1, 2, 3):
            with closing(view.shadow("rebuild")) as shadow:
                shadow.prepare(case.shape, at(0, epoch=epoch), loading=True)
                play(shadow, case, events, [40], epoch=epoch)
                shadow.finish_loading()
                view.swap(shadow)
            view.apply(case.delta(events, 40, 40 + epoch), at(40, epoch=epoch), at(40 + epoch, epoch=epoch))
        assert view.prepare(case.shape, START) == at(43, epoch=3)
        assert held(view) == in_order(case.content(events, 43))
        assert view.drop_old() == view.keeps_old
        assert not view.drop_old()

    def test_a_dropped_view_is_gone_and_can_begin_anew(self, case: ViewCase, view: View) -> None:
        events = some_events(30)
        view.prepare(case.shape, START)
        play(view, case, events, [30])
        view.drop()
        assert view.bookmark() is None
        with pytest.raises(StaleBookmark):
            view.apply(case.delta(events, 30, 30), at(30), at(31))
        assert view.prepare(case.shape, at(10)) == at(10)
        assert held(view) == []

    def test_a_column_that_the_fold_gained_is_null_in_older_rows(self, case: ViewCase, view: View) -> None:
        if not case.grows:
            return
        view.prepare(case.shape, START)
        view.apply(delta_of([{"tx_id": "a", "amount": 1, "_offset": 0}], COLUMNS, 0, 1), START, at(1))
        grown = pa.schema([COLUMNS.field("tx_id"), ("note", pa.string()), *list(COLUMNS)[1:]])
        shape = Shape(grown, case.shape.record_key, case.shape.key)
        with opened(case) as other:
            assert other.prepare(shape, START) == at(1)
            other.apply(delta_of([{"tx_id": "b", "note": "n", "_offset": 1}], grown, 1, 2), at(1), at(2))
        empty: dict[str, object] = {"merchant": None, "amount": None, "note": None}
        expected: list[dict[str, object]] = [{**empty, "tx_id": "a", "amount": 1}, {**empty, "tx_id": "b", "note": "n"}]
        assert held(view) == in_order(expected)
        # The fold as it was before still fits: the column stays, and its new rows have nothing there.
        assert view.prepare(case.shape, START) == at(2)
        view.apply(delta_of([{"tx_id": "c", "amount": 3, "_offset": 2}], COLUMNS, 2, 3), at(2), at(3))
        assert held(view) == in_order([*expected, {**empty, "tx_id": "c", "amount": 3}])

    def test_what_cannot_be_reconciled_is_refused_and_changes_nothing(self, case: ViewCase, view: View) -> None:
        if not case.grows:
            return
        view.prepare(case.shape, START)
        other_type = pa.schema([COLUMNS.field("tx_id"), ("amount", pa.string()), ("note", pa.string())])
        with pytest.raises(SchemaChanged, match="rebuild"):
            view.prepare(Shape(other_type, case.shape.record_key, case.shape.key), START)
        if view.is_keyed:
            other_key = Shape(COLUMNS, case.shape.record_key, ("tx_id", "merchant"))
            with pytest.raises(SchemaChanged, match="rebuild"):
                view.prepare(other_key, START)
        view.apply(delta_of([{"tx_id": "a", "amount": 1, "_offset": 0}], COLUMNS, 0, 1), START, at(1))
        assert held(view) == [{"tx_id": "a", "merchant": None, "amount": 1}]
