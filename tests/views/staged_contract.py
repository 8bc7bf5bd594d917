"""What every view promises that takes rows from executors, as tests that each engine runs: derive `StagedContract`.

The tasks of executors are played by calls in this process, with everything pickled as Spark does it. The content is
compared with the same plain Python model as that of rows which the driver brings; garbage is looked for by what the
engine itself shows (files on disk, tables of the server), never by asking the view.
"""

from __future__ import annotations

import os
import pickle
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import StaleBookmark, ViewUnavailable
from foldlog.views.contract import Delta, View
from foldlog.views.staging import Report, StagedDelta, StageRefusal, Staging, ViewStage, staged_of, write_all
from views.view_contract import START, Event, ViewCase, at, few, held, in_order, opened, outcomes, some_events

EVENTS = some_events(60)


class StagedCase(ViewCase):
    """A case whose view takes rows from executors. `places` are those that were not committed, and not removed."""

    def __init__(
        self,
        inner: ViewCase,
        places: Callable[[], list[str]],
        *,
        loading: bool = False,
        steps: Sequence[str] = (),
        loose: Callable[[], list[str]] = list,
    ) -> None:
        super().__init__(inner.open)
        self._inner = inner
        self.shape = inner.shape
        self.places = places
        self.loading = loading
        self.steps = steps
        """The functions of a commit: a process may die before and after each."""
        self.loose = loose
        """Files beside the table's that no commit names."""

    def open(self) -> View:
        return self._inner.open().shadow("rebuild") if self.loading else self._inner.open()

    def delta(self, events: Sequence[Event], start: int, stop: int) -> Delta:
        return self._inner.delta(events, start, stop)

    def content(self, events: Sequence[Event], stop: int) -> list[dict[str, object]]:
        return self._inner.content(events, stop)

    def prepare(self, view: View) -> None:
        view.prepare(self.shape, START, loading=self.loading)

    def read(self, view: View) -> list[dict[str, object]]:
        if self.loading:
            view.finish_loading()
        return held(view)


def places_below(path: Path) -> list[str]:
    """What is left of places of ranges in a lake: their directories, and all that is in them."""
    found = [os.path.join(at, name) for at, below, names in os.walk(path) for name in (*below, *names)]
    return sorted(
        one for one in found if "/_foldlog_staged/" in one and one.count("/", one.index("_foldlog_staged")) == 1
    )


def reports(stage: ViewStage, rows: pa.Table, task: int, **options: object) -> list[Report]:
    """What one try of a task reports, after everything has gone over the wire."""
    staging: Staging = pickle.loads(pickle.dumps(Staging(stage, rows.schema, **options)))  # type: ignore[arg-type]
    label = f"{task:05d}-{os.urandom(6).hex()}"
    (found,) = write_all([staging], rows.to_batches(max_chunksize=7), label)
    return pickle.loads(pickle.dumps(found))  # type: ignore[no-any-return]


def stage(
    view: View, case: ViewCase, events: Sequence[Event], start: int, stop: int, tasks: int = 2, epoch: int = 0
) -> StagedDelta:
    """The range as `tasks` tasks write it."""
    place = view.stage({0: (start, stop)}, at(start, epoch=epoch))
    assert place is not None
    rows = case.delta(events, start, stop).rows.drop_columns(["_topic"])
    each = max(1, -(-rows.num_rows // tasks))
    found = [one for task in range(tasks) for one in reports(place, rows.slice(task * each, each), task)]
    staged, _ = staged_of(place, found, {0: (start, stop)})
    assert isinstance(staged, StagedDelta)
    return staged


class StagedContract:
    """Derive and give `case`."""

    @pytest.fixture
    def case(self) -> StagedCase:
        raise NotImplementedError("a contract is for one engine: derive, and give it a case")

    @pytest.fixture
    def view(self, case: StagedCase) -> Iterator[View]:
        with opened(case) as view:
            case.prepare(view)
            yield view

    @few
    @given(cuts=st.lists(st.integers(1, 39), max_size=5, unique=True), data=st.data())
    def test_however_the_rows_come_the_view_is_the_same(
        self, case: StagedCase, cuts: list[int], data: st.DataObject
    ) -> None:
        events = some_events(40, seed=data.draw(st.integers(0, 1000)), keys=5)
        with opened(case) as view:
            view.drop()
            case.prepare(view)
            here = 0
            for cut in (*sorted(cuts), 40):
                if data.draw(st.booleans()):
                    tasks = data.draw(st.integers(1, 3))
                    view.apply_staged(stage(view, case, events, here, cut, tasks), at(here), at(cut))
                else:
                    view.apply(case.delta(events, here, cut), at(here), at(cut))
                here = cut
            assert case.read(view) == in_order(case.content(events, 40))
        assert case.places() == []

    def test_what_is_staged_is_not_in_the_view(self, case: StagedCase, view: View) -> None:
        view.apply_staged(stage(view, case, EVENTS, 0, 20), START, at(20))
        stage(view, case, EVENTS, 20, 40)
        assert view.bookmark() == at(20)
        assert case.read(view) == in_order(case.content(EVENTS, 20))

    def test_a_range_that_is_committed_twice_counts_once(self, case: StagedCase, view: View) -> None:
        staged = stage(view, case, EVENTS, 0, 30)
        view.apply_staged(staged, START, at(30))
        with pytest.raises(StaleBookmark):
            view.apply_staged(staged, START, at(30))
        assert case.read(view) == in_order(case.content(EVENTS, 30))

    def test_of_two_runners_one_commits_and_the_other_adds_nothing_however_late_it_wakes_up(
        self, case: StagedCase, view: View
    ) -> None:
        with opened(case) as other:
            case.prepare(other)
            zombie = stage(other, case, EVENTS, 0, 30)
            view.apply_staged(stage(view, case, EVENTS, 0, 30), START, at(30))
            with pytest.raises(StaleBookmark):
                other.apply_staged(zombie, START, at(30))
            view.apply_staged(stage(view, case, EVENTS, 30, 50), at(30), at(50))
            with pytest.raises(StaleBookmark):
                other.apply_staged(zombie, START, at(30))
        assert case.places() == []
        assert case.read(view) == in_order(case.content(EVENTS, 50))

    def test_two_who_commit_at_once_are_one(self, case: StagedCase, view: View) -> None:
        with opened(case) as other:
            both = [(who, stage(who, case, EVENTS, 0, 30)) for who in (view, other)]
            results = outcomes([partial(_committed, who, staged) for who, staged in both])
        assert sorted(type(one).__name__ for one in results) == ["NoneType", "StaleBookmark"], results
        assert case.read(view) == in_order(case.content(EVENTS, 30))

    def test_what_may_still_be_committed_is_kept_and_what_may_not_is_removed(
        self, case: StagedCase, view: View
    ) -> None:
        waiting = stage(view, case, EVENTS, 0, 30)
        with opened(case) as other:
            case.prepare(other)  # the next run finds it, and it is not past
            assert len(case.places()) == 1
            view.apply_staged(waiting, START, at(30))
            stage(view, case, EVENTS, 30, 40)  # its runner dies
            stage(view, case, EVENTS, 30, 50)  # and so does the next
            case.prepare(other)
            assert len(case.places()) == 2
            other.apply(case.delta(EVENTS, 30, 60), at(30), at(60))
        assert case.places() == []
        assert case.read(view) == in_order(case.content(EVENTS, 60))

    def test_a_bookmark_that_was_moved_makes_garbage_of_what_was_staged_before(
        self, case: StagedCase, view: View
    ) -> None:
        staged = stage(view, case, EVENTS, 0, 30)
        view.move(START, at(0, epoch=1))
        with pytest.raises(StaleBookmark):
            view.apply_staged(staged, START, at(30))
        case.prepare(view)
        assert case.places() == []
        assert case.read(view) == []

    def test_a_task_that_ran_twice_adds_nothing(self, case: StagedCase, view: View) -> None:
        place = view.stage({0: (0, 30)}, START)
        assert place is not None
        rows = case.delta(EVENTS, 0, 30).rows.drop_columns(["_topic"])
        reports(place, rows, 0)  # written, and its executor died before it could say so
        staged, records = staged_of(place, reports(place, rows, 0), {0: (0, 30)})
        assert isinstance(staged, StagedDelta)
        assert records == 30
        view.apply_staged(staged, START, at(30))
        assert case.places() == []
        assert case.read(view) == in_order(case.content(EVENTS, 30))

    def test_a_range_without_rows_moves_the_bookmark_only(self, case: StagedCase, view: View) -> None:
        view.apply_staged(stage(view, case, [], 0, 30), START, at(30))
        assert view.bookmark() == at(30)
        assert case.read(view) == []
        assert case.places() == []

    def test_a_task_that_comes_after_its_place_was_swept_writes_nothing_and_says_so(
        self, case: StagedCase, view: View
    ) -> None:
        late = view.stage({0: (0, 30)}, START)
        assert late is not None
        view.apply(case.delta(EVENTS, 0, 30), START, at(30))
        rows = case.delta(EVENTS, 0, 30).rows.drop_columns(["_topic"])
        refusal, _ = staged_of(late, reports(late, rows, 0), {0: (0, 30)})
        assert isinstance(refusal, StageRefusal)
        assert not refusal.is_unreachable
        assert case.places() == []
        assert case.read(view) == in_order(case.content(EVENTS, 30))

    def test_a_dropped_view_leaves_nothing_and_takes_nothing_from_before(self, case: StagedCase, view: View) -> None:
        staged = stage(view, case, EVENTS, 0, 30)
        view.drop()
        assert case.places() == []
        case.prepare(view)  # at the bookmark that the range was read from
        with pytest.raises((StaleBookmark, ViewUnavailable)):
            view.apply_staged(staged, START, at(30))
        assert view.bookmark() == START
        assert case.read(view) == []

    def test_a_deletion_deletes_what_is_older_and_not_the_rows_of_its_own_record(
        self, case: StagedCase, view: View
    ) -> None:
        if not view.is_keyed:
            return
        rows = case.delta(EVENTS, 0, 30).rows.drop_columns(["_topic"])
        view.apply_staged(stage(view, case, EVENTS, 0, 20), START, at(20))
        place = view.stage({0: (20, 30)}, at(20))
        assert place is not None
        later = rows.slice(20)
        kept = later.filter(pa.array([number % 2 == 0 for number in range(10)]))
        keys = later.select(["tx_id", "_partition", "_offset", "_timestamp", "_deleted"])
        deleting = Staging(place.for_deletions(), rows.schema, are_deletions=True)
        (more,) = write_all([deleting], keys.to_batches(), "00001-b")
        found = [*reports(place, kept, 0), *more]
        staged, _ = staged_of(place, found, {0: (20, 30)})
        assert isinstance(staged, StagedDelta)
        view.apply_staged(staged, at(20), at(30))
        dropped = [
            event._replace(merchant=None, amount=None) if event.offset >= 20 and event.offset % 2 else event
            for event in EVENTS
        ]
        assert case.read(view) == in_order(case.content(dropped, 30))

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_process_that_dies_in_a_commit_leaves_all_of_it_or_nothing_and_no_garbage_after_the_next_run(
        self, case: StagedCase, monkeypatch: pytest.MonkeyPatch, when: str
    ) -> None:
        assert case.steps
        for step in case.steps:
            with opened(case) as view:
                view.drop()
                case.prepare(view)
                view.apply_staged(stage(view, case, EVENTS, 0, 10), START, at(10))
                staged = stage(view, case, EVENTS, 10, 30)
                with monkeypatch.context() as patched:
                    patched.setattr(step, dying(step, when))
                    with pytest.raises(Died):
                        view.apply_staged(staged, at(10), at(30))
            with opened(case) as view:
                case.prepare(view)
                stored = view.bookmark()
                assert stored in (at(10), at(30)), step
                here = 10 if stored == at(10) else 30
                if not case.loading:
                    assert held(view) == in_order(case.content(EVENTS, here)), step
                view.apply(case.delta(EVENTS, here, 60), at(here), at(60))
                assert case.places() == [], step
                assert case.loose() == [], step
                assert case.read(view) == in_order(case.content(EVENTS, 60)), step

    def test_a_record_with_several_rows_is_refused_where_there_is_room_for_one(
        self, case: StagedCase, view: View
    ) -> None:
        place = view.stage({0: (0, 30)}, START)
        assert place is not None
        rows = case.delta(EVENTS, 0, 30).rows.drop_columns(["_topic"])
        twice = pa.concat_tables([rows.slice(0, 7), rows.slice(6)])  # also where one batch ends and the next begins
        found, _ = staged_of(place, reports(place, twice, 0), {0: (0, 30)})
        assert isinstance(found, StageRefusal) == place.has_one_row_each

    def test_rows_out_of_order_are_refused_where_the_order_counts(self, case: StagedCase, view: View) -> None:
        place = view.stage({0: (0, 30)}, START)
        assert place is not None
        rows = case.delta(EVENTS, 0, 30).rows.drop_columns(["_topic"])
        turned = pa.concat_tables([rows.slice(0, 7), rows.slice(6), rows.slice(3, 1)])
        found, records = staged_of(place, reports(place, turned, 0), {0: (0, 30)})
        assert isinstance(found, StageRefusal) == place.needs_order
        assert records == (0 if place.needs_order else 31)

    def test_rows_that_no_view_can_hold_are_refused(self, case: StagedCase, view: View) -> None:
        place = view.stage({0: (0, 30)}, START)
        assert place is not None
        rows = case.delta(EVENTS, 0, 30).rows.drop_columns(["_topic"])
        torn = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
        )
        merchants = pa.concat_arrays([*rows["merchant"].slice(0, 29).chunks, torn])
        bad = rows.set_column(rows.column_names.index("merchant"), rows.schema.field("merchant"), merchants)
        refusal, _ = staged_of(place, reports(place, bad, 0), {0: (0, 30)})
        assert isinstance(refusal, StageRefusal)
        assert "'merchant'" in refusal.why
        assert not refusal.is_unreachable


class Died(BaseException):
    """The process is gone: nothing catches this."""


def dying(path: str, when: str) -> Callable[..., object]:
    """The function of that path, which dies before or after it has done its work."""
    original = pkgutil.resolve_name(path)

    def died(*given: object, **named: object) -> object:
        if when == "after":
            original(*given, **named)
        raise Died

    return died


def _committed(view: View, staged: StagedDelta) -> None:
    """Tries again as a runner does, where the other one held a lock for longer than this one waits."""
    for _ in range(20):
        try:
            return view.apply_staged(staged, START, at(30))
        except ViewUnavailable:
            continue
    return view.apply_staged(staged, START, at(30))
