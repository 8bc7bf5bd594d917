"""A table of states: the key, and the columns of the state. Reading states and storing the next ones are one step.

States change only with the bookmark. So they are read, in one transaction, at the bookmark that the range begins with,
stepped without any lock, and stored by the table's own `apply`, which refuses if the bookmark has moved meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from foldlog.errors import InvalidArgument
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import DELETED, OFFSET, PARTITION, Delta, Shape, Snapshot, View
from foldlog.views.reduce.plain import step_plainly
from foldlog.views.reduce.states import State, StateColumns
from foldlog.views.reduce.stepping import Reduction, StepFault, Stepped, step_groups
from foldlog.views.storable import unheld_text

if TYPE_CHECKING:
    import pyarrow as pa


class ReduceView(View):
    """The states of a `Reduction`, each a row of a table."""

    kind: ClassVar[str] = "reduce"
    adds: bool = True
    reduction: Reduction

    def __init__(self, table: View, reduction: Reduction) -> None:
        if not table.looks_up:
            raise InvalidArgument(
                f"{table.place} cannot keep states: they are looked up by key, in SQLite or PostgreSQL"
            )
        self._table = table
        self.reduction = replace(reduction, columns=StateColumns(reduction.columns.schema, table))

    @property
    def place(self) -> str:
        return self._table.place

    def description(self) -> dict[str, object] | None:
        return self._table.description()

    def bookmark(self) -> Bookmark | None:
        return self._table.bookmark()

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        # Never a bulk load: states are looked up by key from the first range on.
        return self._table.prepare(self._stored(shape), start)

    def _stored(self, shape: Shape) -> Shape:
        """The shape of the table: not the fold's rows, but what the step makes of them."""
        import pyarrow as pa

        key = shape.record_key
        if key is None:
            raise InvalidArgument(f"{self.place} keeps a state for each key, and the topic names no key column")
        if key.lower() in (name.lower() for name in self.reduction.columns.schema.names):
            raise InvalidArgument(f"state= has a column {key!r}, which is the key's; give it another name")
        nullable = [one.with_nullable(True) for one in self.reduction.columns.schema]
        return Shape(pa.schema([shape.columns.field(key), *nullable]), key, (key,))

    def filled(self, shape: Shape) -> tuple[str, ...]:
        return (shape.record_key,) if shape.record_key is not None else ()

    def unheld_keys(self, keys: pa.Table) -> pa.ChunkedArray | None:
        return self._table.unheld_keys(keys)

    def step(self, delta: Delta, key: str, expected: Bookmark, *, plainly: bool = False) -> tuple[Delta, Stepped]:
        """The change of the table by a range of the fold's rows, and what was stepped; StaleBookmark if the stored
        bookmark is not `expected`. Nothing is stored. `plainly`, one record after the other.
        """
        rows, faults = self._with_holdable_keys(delta.rows, key)
        stored = self._states(rows[key], key, expected)
        walk: Callable[[Reduction, str, pa.Table, dict[Any, State]], Stepped] = step_plainly if plainly else step_groups
        found = walk(self.reduction, key, rows, stored)
        found.faults += faults
        return Delta(found.table(self.reduction, key, rows), delta.ranges), found

    def _with_holdable_keys(self, rows: pa.Table, key: str) -> tuple[pa.Table, list[StepFault]]:
        """The rows without keys that the table cannot hold, and their records; a tombstone of such a key is nothing."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import types

        if not types.is_string(rows[key].type):
            return rows, []
        reasons = {one: unheld_text(self._table, one) for one in rows[key].unique().to_pylist() if one is not None}
        unheld = {one: reason for one, reason in reasons.items() if reason is not None}
        if not unheld:
            return rows, []
        flags = pc.is_in(rows[key], value_set=pa.array(list(unheld), rows[key].type))
        bad = rows.filter(flags).select([key, PARTITION, OFFSET, DELETED]).to_pylist()
        faults = {
            (row[PARTITION], row[OFFSET]): f"its key has {unheld[row[key]]}, which {self.place} cannot hold"
            for row in bad
            if not row[DELETED]
        }
        return rows.filter(pc.invert(flags)), [StepFault(*place, reason) for place, reason in faults.items()]

    def _states(self, keys: pa.ChunkedArray, key: str, expected: Bookmark) -> dict[Any, State]:
        rows = self._table.rows_of(keys.unique().drop_null(), expected)
        columns: StateColumns = self.reduction.columns
        return dict(zip(rows[key].to_pylist(), columns.states(rows), strict=True))

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        """Store the change that `step` returned."""
        self._table.apply(delta, expected, new)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        self._table.move(expected, new)

    def shadow(self, label: str) -> ReduceView:
        return ReduceView(self._table.shadow(label), self.reduction)

    def check_swap(self) -> None:
        self._table.check_swap()

    def swap(self, shadow: View) -> None:
        if not isinstance(shadow, ReduceView):
            raise InvalidArgument(f"{shadow.place} is not a shadow of {self.place}")
        self._table.swap(shadow._table)

    def drop_old(self) -> bool:
        return self._table.drop_old()

    def drop(self) -> None:
        self._table.drop()

    def scan(self) -> Snapshot:
        return self._table.scan()

    def close(self) -> None:
        self._table.close()
