"""States equal a plain loop over the log, however the log is split, whatever the engine, and wherever a step raises.

The model knows nothing of groups, batches and tables: a dict of states, and one record after the other. Bugs that were
planted on purpose are found by the same comparison.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import foldlog.spark as fl
from foldlog.errors import FoldError, StaleBookmark, UnlawfulFold
from foldlog.views.contract import OFFSET, Delta, Shape
from foldlog.views.reduce import stepping
from foldlog.views.reduce.plain import check_steps, step_plainly
from foldlog.views.reduce.states import StateColumns
from foldlog.views.reduce.stepping import EachRow, Reduction, step_groups
from foldlog.views.reduce.view import ReduceView
from views.view_contract import START, at, delta_of, held

COLUMNS = pa.schema([("order_id", pa.string()), ("event", pa.string()), ("amount", pa.int64())])
SHAPE = Shape(COLUMNS, "order_id", ("order_id",))
STATE = "status STRING NOT NULL, paid BIGINT, seen ARRAY<STRING>"
ZERO: dict[str, Any] = {"status": "new", "paid": 0, "seen": []}


class Event(NamedTuple):
    """A record; without an event it is a tombstone."""

    order_id: str | None
    event: str | None
    amount: int | None = None


def advance(state: dict[str, Any], row: dict[str, Any]) -> dict[str, Any] | None:
    """An order: paid in parts, then shipped; closing it ends its state; an impossible event raises."""
    state["seen"].append(row["event"])  # before it may raise: what it changed must not stay
    if row["event"] == "paid":
        state["paid"] += row["amount"]
    elif row["event"] == "shipped":
        if state["paid"] < 10:
            raise ValueError("shipped before it was paid")
        state["status"] = "shipped"
    elif row["event"] == "closed":
        return None
    return state


def advance_rows(state: dict[str, Any], rows: pa.RecordBatch) -> dict[str, Any] | None:
    """`advance` of a whole group."""
    found: dict[str, Any] | None = state
    for row in rows.to_pylist():
        found = advance({"status": "new", "paid": 0, "seen": []} if found is None else found, row)
    return found


def model(events: Sequence[Event], *, deletes: bool = True) -> tuple[list[dict[str, object]], set[int]]:
    """The rows of the view, and the offsets at fault."""
    states: dict[str, dict[str, Any]] = {}
    faults: set[int] = set()
    for offset, one in enumerate(events):
        if one.order_id is None:
            continue
        if one.event is None and deletes:
            states.pop(one.order_id, None)
            continue
        before = states.get(one.order_id, ZERO)
        copy = {**before, "seen": list(before["seen"])}
        try:
            after = advance(copy, one._asdict())
        except (ValueError, TypeError):
            faults.add(offset)
            continue
        states.pop(one.order_id, None)
        if after is not None:
            states[one.order_id] = after
    rows = [{"order_id": key, **state} for key, state in states.items()]
    return sorted(rows, key=lambda row: repr(sorted(row.items()))), faults


def delta(events: Sequence[Event], start: int, stop: int) -> Delta:
    rows: list[dict[str, object]] = [
        {**one._asdict(), "_offset": offset, "_deleted": one.event is None}
        for offset, one in enumerate(events)
        if start <= offset < stop
    ]
    return delta_of(rows, COLUMNS, start, stop)


EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from(["paid", "shipped", "closed", "looked", None]),
        st.none() | st.integers(0, 9),
    ),
    max_size=30,
)
CUTS = st.lists(st.integers(0, 30), max_size=6)


def machine(step: Any, place: str = "unused.db", tombstones: Any = "delete") -> ReduceView:
    return fl.reduce(place, "orders", state=STATE, zero=ZERO, step=step, tombstones=tombstones)


STEPS: dict[str, Any] = {"rows": advance_rows, "each row": EachRow(advance)}


def replayed(
    view: ReduceView, events: Sequence[Event], cuts: Sequence[int], *, plainly: bool
) -> tuple[list[dict[str, object]], set[int]]:
    """What the view holds after these ranges, and the faults that were told."""
    view.drop()
    view.prepare(SHAPE, START)
    faults: set[int] = set()
    stops = sorted({*(cut for cut in cuts if 0 < cut < len(events)), len(events)})
    here = 0
    for stop in stops:
        change, found = view.step(delta(events, here, stop), "order_id", at(here), plainly=plainly)
        view.apply(change, at(here), at(stop))
        faults |= {fault.offset for fault in found.faults}
        here = stop
    return held(view), faults


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.faults)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "x.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.mark.parametrize("kind", STEPS)
def test_every_split_gives_the_states_of_a_plain_loop(place: str, kind: str) -> None:
    with closing(machine(STEPS[kind], place)) as view:

        @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
        @given(EVENTS, CUTS, st.booleans())
        def check(events: list[Event], cuts: list[int], plainly: bool) -> None:
            assert replayed(view, events, cuts, plainly=plainly) == model(events)

        check()
        view.drop()


class MemoryStates:
    """A view of states in a dict, for many examples."""

    def __init__(self, reduction: Reduction) -> None:
        self.reduction = reduction

    def replayed(self, events: Sequence[Event], cuts: Sequence[int]) -> tuple[list[dict[str, object]], set[int]]:
        states: dict[Any, Any] = {}
        faults: set[int] = set()
        stops = sorted({*(cut for cut in cuts if 0 < cut < len(events)), len(events)})
        for start, stop in zip([0, *stops], stops, strict=False):
            found = stepping.step_groups(self.reduction, "order_id", delta(events, start, stop).rows, states)
            faults |= {fault.offset for fault in found.faults}
            for key, state in found.states.items():
                states.pop(key, None)
                if state is not None:
                    states[key] = state
        rows = [{"order_id": key, **state} for key, state in states.items()]
        return sorted(rows, key=lambda row: repr(sorted(row.items()))), faults


def check_many(kind: str, deletes: bool = True, **how: Any) -> None:
    reduction = machine(STEPS[kind], tombstones="delete" if deletes else "step").reduction

    @settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), **how)
    @given(EVENTS, CUTS)
    def check(events: list[Event], cuts: list[int]) -> None:
        assert MemoryStates(reduction).replayed(events, cuts) == model(events, deletes=deletes)

    check()


@pytest.mark.parametrize("deletes", [True, False])
@pytest.mark.parametrize("kind", STEPS)
def test_many_splits_give_the_states_of_a_plain_loop(kind: str, deletes: bool) -> None:
    check_many(kind, deletes)


def backwards(self: Any) -> Iterator[tuple[int, int, int, int]]:
    return iter(list(records_of(self))[::-1])


records_of = stepping._Group._records
step_of = Reduction.stepped


def stopping(self: Any, state: Any, error: Exception) -> Any:
    """The rest of a group is lost after its first fault."""
    faults: list[Any] = []
    for partition, offset, first, stop in records_of(self):
        try:
            state = step_of(self.reduction, self.reduction.columns.copied(state), self._part(first, stop))
        except Exception as found:  # noqa: BLE001 a copy of what it replaces
            faults.append(stepping.StepFault(partition, offset, str(found)))
            break
    return state, faults


PLANTED: dict[str, tuple[object, str, object]] = {
    "a state changed by a step that raised": (StateColumns, "copied", lambda self, state: state),
    "tombstones passed over": (stepping._Group, "_stop", lambda self, first: self.last),
    "records in the wrong order": (stepping._Group, "_records", backwards),
    "the rest of a group lost after a fault": (stepping._Group, "careful", stopping),
    "a state that has ended stays": (
        Reduction,
        "_checked",
        lambda self, state: self.columns.checked(self.begun() if state is None else state),
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, wrong = PLANTED[bug]
    monkeypatch.setattr(where, name, wrong)
    with pytest.raises((AssertionError, FoldError)):
        check_many("each row", phases=[Phase.generate])


def test_states_are_read_at_the_bookmark_that_the_range_begins_with(place: str) -> None:
    events = [Event("a", "paid", 5), Event("a", "paid", 6)]
    with closing(machine(EachRow(advance), place)) as view, closing(machine(EachRow(advance), place)) as other:
        view.prepare(SHAPE, START)
        late, _ = other.step(delta(events, 0, 1), "order_id", START)
        change, _ = view.step(delta(events, 0, 1), "order_id", START)
        view.apply(change, START, at(1))
        with pytest.raises(StaleBookmark):
            other.apply(late, START, at(1))
        with pytest.raises(StaleBookmark):
            other.step(delta(events, 0, 1), "order_id", START)
        change, _ = other.step(delta(events, 1, 2), "order_id", at(1))
        other.apply(change, at(1), at(2))
        assert held(view) == [{"order_id": "a", "status": "new", "paid": 11, "seen": ["paid", "paid"]}]
        view.drop()


def test_keys_and_states_that_postgres_cannot_hold_are_faults(postgres_url: str) -> None:
    events = [Event("a\0", "paid", 5), Event("b", "no\0te", 6), Event("b", "paid", 6), Event("a\0", None)]
    with closing(machine(EachRow(advance), postgres_url)) as view:
        view.prepare(SHAPE, START)
        change, found = view.step(delta(events, 0, 4), "order_id", START)
        view.apply(change, START, at(4))
        assert [fault.offset for fault in sorted(found.faults)] == [0, 1]
        assert all("character NUL" in fault.reason for fault in found.faults)
        assert [row["paid"] for row in held(view)] == [6]
        view.drop()


# --- the law ----------------------------------------------------------------------------------------------------------


def rows_of(count: int, keys: int = 3) -> pa.Table:
    return delta([Event(f"k{number % keys}", "paid", number) for number in range(count)], 0, count).rows


def counts_calls(state: dict[str, Any], rows: pa.RecordBatch) -> dict[str, Any]:
    return {**state, "paid": state["paid"] + 1}


def keeps_the_mean(state: dict[str, Any], rows: pa.RecordBatch) -> dict[str, Any]:
    return {**state, "paid": round((state["paid"] + pc.mean(rows["amount"]).as_py()) / 2)}


def remembers() -> Callable[[dict[str, Any], pa.RecordBatch], dict[str, Any]]:
    calls: list[int] = []

    def step(state: dict[str, Any], rows: pa.RecordBatch) -> dict[str, Any]:
        calls.append(1)
        return {**state, "paid": len(calls)}

    return step


UNLAWFUL = {
    "counts its calls": (counts_calls, "for the first 2 records of key 'k0' together"),
    "a mean of means": (keeps_the_mean, "records of key 'k0' together"),
    "remembers": (remembers(), "for the same records"),
}


@pytest.mark.parametrize(("step", "why"), UNLAWFUL.values(), ids=UNLAWFUL)
def test_a_step_that_depends_on_the_split_is_refused_with_the_fewest_records(step: Any, why: str) -> None:
    with pytest.raises(UnlawfulFold, match=why):
        check_steps("orders", machine(step).reduction, "order_id", rows_of(40), random.Random(1))


@pytest.mark.parametrize("kind", STEPS)
def test_a_lawful_step_passes(kind: str) -> None:
    check_steps("orders", machine(STEPS[kind]).reduction, "order_id", rows_of(40), random.Random(1))


def test_a_step_that_fails_only_at_rows_together_is_wrong_itself() -> None:
    def one_only(state: dict[str, Any], rows: pa.RecordBatch) -> dict[str, Any]:
        if rows.num_rows > 1:
            raise ValueError("one at a time")
        return state

    with pytest.raises(FoldError, match=r"fails at 20 rows of one key together .*and at none of them alone"):
        step_groups(machine(one_only).reduction, "order_id", rows_of(20, keys=1), {})


def test_all_rows_of_a_record_are_stepped_or_none() -> None:
    rows = rows_of(6, keys=1)
    doubled = pa.concat_tables([rows, rows]).sort_by(OFFSET)

    def third(state: dict[str, Any], given_rows: pa.RecordBatch) -> dict[str, Any]:
        if 3 in given_rows["amount"].to_pylist():
            raise ValueError("three")
        return {**state, "paid": state["paid"] + pc.sum(given_rows["amount"]).as_py()}

    for walk in (step_groups, step_plainly):
        found = walk(machine(third).reduction, "order_id", doubled, {})
        assert [fault.offset for fault in found.faults] == [3]
        assert [state and state["paid"] for state in found.states.values()] == [2 * (0 + 1 + 2 + 4 + 5)]
