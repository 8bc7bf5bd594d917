"""`reduce(place, name, state=, zero=, step=)`: a state of your own for each key, stepped by a Python function.

The states are rows of a table in PostgreSQL or SQLite: the key, and the columns that `state` declares. A range of the
log is stepped from the states that the table has, and stored with the bookmark in one transaction, so a state has seen
every record of its key exactly once, in order, and can be rebuilt and verified.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.files.paths import PathLike
from foldlog.views.reduce.states import State, StateColumns, state_schema
from foldlog.views.reduce.stepping import EachRow, Reduction
from foldlog.views.reduce.view import ReduceView
from foldlog.views.table.table import table


def reduce(
    url_or_path: str | PathLike[str],
    name: str | None = None,
    *,
    state: object,
    step: Callable[[Any, Any], State | None] | EachRow,
    zero: State | None = None,
    key: str | None = None,
    tombstones: Literal["delete", "step"] = "delete",
) -> ReduceView:
    """States at a URL or path: `reduce("views/shop.db", "orders", state="status STRING, paid BIGINT", step=...)`.

    `step(state, rows)` returns the next state of a key, a dict of the columns of `state`, or None if it has ended.
    `rows` is a pyarrow.RecordBatch of the key's next records, in offset order; `each_row(step)` calls it with one row
    at a time, a dict. A key without a state begins with a copy of `zero`. A tombstone deletes its state, unless
    `tombstones="step"` gives it to the step, as a row with `_deleted`. `key` is the column of the record's key.
    """
    place = table(url_or_path, name)
    columns = StateColumns(state_schema(state))
    if not isinstance(step, EachRow) and not callable(step):
        raise InvalidArgument(f"step= is a function of a state and rows, not {brief_repr(step)}")
    begun: State | None = None
    if zero is not None:
        try:
            begun = columns.checked(zero)
        except ValueError as error:
            raise InvalidArgument(f"zero= does not fit state=: {error}") from None
    if tombstones not in ("delete", "step"):
        raise InvalidArgument(f"tombstones={brief_repr(tombstones)} is neither 'delete' nor 'step'")
    if key is not None and not _is_name(key):
        raise InvalidArgument(f"key={brief_repr(key)} is not the name of a column")
    return ReduceView(place, Reduction(columns, begun, step, key, tombstones))


def each_row(step: Callable[[Any, dict[str, Any]], State | None]) -> EachRow:
    """A step of single rows: `step(state, row)`, where `row` is a dict of the columns. It obeys the law by itself, if
    it looks at nothing else.
    """
    if not callable(step):
        raise InvalidArgument(f"each_row() takes a function of a state and a row, not {brief_repr(step)}")
    return EachRow(step)


def _is_name(given: object) -> bool:
    return isinstance(given, str) and bool(given)
