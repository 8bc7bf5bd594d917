"""Steps states over the rows of a range: whole groups at a time, and one record at a time where a group fails.

The rows of a key come in offset order; a step is called once for each key of the range, with all of its rows, or, for
`each_row`, once for each row. A record that a step raises at is at fault: the state stays as it was before that record,
and the next one goes on from there. That depends on the records of its key alone, so every split sets the same ones
aside. `plainly` (see `plain.py`) computes the same without groups, for verifications and trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from foldlog.errors import FoldError
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION
from foldlog.views.reduce.states import State, StateColumns

if TYPE_CHECKING:
    import pyarrow as pa

Tombstones = Literal["delete", "step"]


class StepFault(NamedTuple):
    """One record, and why the step cannot take it."""

    partition: int
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class EachRow:
    """A step of single rows: `function(state, row)` returns the next state. `each_row` makes one."""

    function: Callable[[Any, dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Reduction:
    """A keyed state machine. `key` is None for the topic's own."""

    columns: StateColumns
    zero: State | None
    step: Callable[[Any, Any], Any] | EachRow
    key: str | None = None
    tombstones: Tombstones = "delete"

    def doing(self) -> tuple[object, ...]:
        """What a fingerprint is made of: everything that states depend on."""
        step = ("each row", self.step.function) if isinstance(self.step, EachRow) else ("rows", self.step)
        return (str(self.columns.schema), self.zero, step, self.tombstones)

    def begun(self) -> State | None:
        """The state of a key that has none, for the step to keep or change."""
        return self.columns.copied(self.zero)

    def stepped(self, state: State | None, rows: Any) -> State | None:
        """The state after these rows, none of which deletes; ValueError if it does not fit. `state` may be changed.

        `rows` is a RecordBatch, or a list of dicts for a step of single rows.
        """
        if isinstance(self.step, EachRow):
            for row in rows:
                state = self._checked(self.step.function(self.begun() if state is None else state, row))
            return state
        return self._checked(self.step(self.begun() if state is None else state, rows))

    def _checked(self, given: Any) -> State | None:
        return None if given is None else self.columns.checked(given)


@dataclass
class Stepped:
    """The new states of keys, None where there is none any more, each with the row of its last record; and the records
    at fault.
    """

    states: dict[Any, State | None] = field(default_factory=dict)
    last: dict[Any, int] = field(default_factory=dict)
    faults: list[StepFault] = field(default_factory=list)

    def table(self, reduction: Reduction, key: str, rows: pa.Table) -> pa.Table:
        """A row for each state, with the key and META of `rows`, the range's; it deletes where there is no state."""
        import pyarrow as pa

        states = list(self.states.values())
        came = rows.select([key, *META]).take(pa.array([self.last[one] for one in self.states], pa.int64()))
        gone = pa.array([one is None for one in states], pa.bool_())
        columns = dict(zip(reduction.columns.schema.names, reduction.columns.arrays(states), strict=True))
        return pa.table({key: came[key], **columns, **{name: came[name] for name in META}, DELETED: gone})


def step_groups(reduction: Reduction, key: str, rows: pa.Table, stored: dict[Any, State]) -> Stepped:
    """The states of the keys of a range whose state has changed, from the stored ones. `rows` are in offset order, with
    META; rows without a key are passed over. FoldError if a group fails, and none of its records by itself.
    """
    found = Stepped()
    for one, numbers, group in _groups(reduction, key, rows):
        before = stored.get(one)
        try:
            state = group.quick(reduction.columns.copied(before))
        except Exception as error:  # noqa: BLE001 whatever a user's step raises
            state, faults = group.careful(before, error)
            found.faults += faults
        if state != before:
            found.states[one] = state
            found.last[one] = numbers
    return found


@dataclass(frozen=True, slots=True)
class _Group:
    """The rows of one key: `first` to `last` of all rows, which are sorted by key."""

    reduction: Reduction
    rows: pa.RecordBatch
    lines: list[dict[str, Any]] | None
    """The rows as dicts, for a step of single rows."""
    first: int
    last: int
    gone: Sequence[bool] | None
    """Which of all rows delete the state; None if none does."""

    def quick(self, state: State | None) -> State | None:
        """The state after all rows, in as few calls as possible."""
        at = self.first
        while at < self.last:
            stop = self._stop(at)
            if self.gone is not None and self.gone[at]:
                state = None
            else:
                state = self.reduction.stepped(state, self._part(at, stop))
            at = stop
        return state

    def careful(self, state: State | None, error: Exception) -> tuple[State | None, list[StepFault]]:
        """The state after all records but those that the step fails at, which are found one by one."""
        faults: list[StepFault] = []
        for partition, offset, at, stop in self._records():
            if self.gone is not None and self.gone[at]:
                state = None
                continue
            try:
                # Of a copy: a step may have changed the state before it raised.
                state = self.reduction.stepped(self.reduction.columns.copied(state), self._part(at, stop))
            except Exception as found:  # noqa: BLE001 whatever a user's step raises
                faults.append(StepFault(partition, offset, told(found)))
        if not faults:
            raise FoldError(
                f"the step fails at {self.last - self.first} rows of one key together ({told(error)}), and at none of"
                " them alone; a step has to give the same for rows together as for one after the other"
            ) from error
        return state, faults

    def _stop(self, at: int) -> int:
        """Where the rows end that are stepped, or deleted, together with this one."""
        if self.gone is None:
            return self.last
        stop = at
        while stop < self.last and self.gone[stop] == self.gone[at]:
            stop += 1
        return stop

    def _part(self, at: int, stop: int) -> Any:
        return self.rows.slice(at, stop - at) if self.lines is None else self.lines[at:stop]

    def _records(self) -> Iterator[tuple[int, int, int, int]]:
        """Each record, as partition, offset and its rows: a function may return several rows for one."""
        part = self.rows.slice(self.first, self.last - self.first)
        places = list(
            zip(part[PARTITION].to_pylist(), part[OFFSET].to_pylist(), part[DELETED].to_pylist(), strict=True)
        )
        at = 0
        for number in range(1, len(places) + 1):
            if number == len(places) or places[number] != places[at]:
                partition, offset, _ = places[at]
                yield partition, offset, self.first + at, self.first + number
                at = number


def _groups(reduction: Reduction, key: str, rows: pa.Table) -> Iterator[tuple[Any, int, _Group]]:
    """Each key, the number of its last row among `rows`, and its rows."""
    import pyarrow.compute as pc

    if not rows.num_rows:
        return
    encoded = rows[key].combine_chunks().dictionary_encode()
    # Stable, so that each key's rows stay in offset order. Nulls come last.
    order = pc.sort_indices(encoded.indices)
    order = order.slice(0, len(order) - encoded.indices.null_count)
    (ordered,) = rows.take(order).combine_chunks().to_batches(max_chunksize=None) or [None]
    if ordered is None:
        return
    codes = encoded.indices.take(order)
    counts = pc.value_counts(codes).field("counts").to_pylist()
    lines = ordered.to_pylist() if isinstance(reduction.step, EachRow) else None
    deletes = reduction.tombstones == "delete" and pc.any(ordered[DELETED]).as_py()
    gone = ordered[DELETED].to_pylist() if deletes else None
    keys = encoded.dictionary.to_pylist()
    numbers = order.to_pylist()
    at = 0
    for count, code in zip(counts, pc.unique(codes).to_pylist(), strict=True):
        stop = at + count
        yield keys[code], numbers[stop - 1], _Group(reduction, ordered, lines, at, stop, gone)
        at = stop
    if at != len(order):
        raise FoldError(f"{len(order)} rows were grouped by {key!r}, and {at} came back")


def told(error: Exception) -> str:
    """An exception in the words of a dead letter."""
    first = str(error).strip().partition("\n")[0]
    return f"the step raised {type(error).__name__}: {first}" if first else f"the step raised {type(error).__name__}"
