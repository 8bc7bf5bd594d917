"""Rows that expire: `ttl=("at", "30 days")`. A function of the log alone, so that every split gives the same table.

The time of a table is the latest time that its rows have told up to its bookmark: the largest value of the column in
any row the fold has returned, also in rows that were replaced or have expired since. A row's time counts at most as its
record's own timestamp, so that one event dated far ahead does not expire all others. A row whose time is more than the
ttl before the table's time is not in the table. As the table's time only grows, a row that has expired stays expired
until a newer record writes it again. No clock is asked: while nothing is written, nothing expires.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from foldlog.durations import duration_text, milliseconds
from foldlog.errors import InvalidArgument, brief_repr
from foldlog.views.contract import DELETED, TIMESTAMP, Delta

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.views.table.shape import TableShape


class Ttl(NamedTuple):
    """How long rows stay, by the time in a column."""

    column: str
    ms: int

    def __str__(self) -> str:
        return f"{duration_text(self.ms)} by {self.column!r}"


def parse_ttl(given: object) -> Ttl | None:
    """The argument of `fl.table`; InvalidArgument if it makes no sense."""
    if given is None:
        return None
    if not isinstance(given, tuple | list) or len(given) != 2 or not all(isinstance(one, str) for one in given):
        raise InvalidArgument(
            f"ttl= is a column of times and a duration, as in ('at', '30 days'), not {brief_repr(given)}"
        )
    column, text = given
    found = milliseconds(text)
    if not found:
        raise InvalidArgument(f"{brief_repr(text)} in ttl= is not a duration; write '30 days', '12h' or '90m'")
    return Ttl(column, found)


def check_ttl(ttl: Ttl, columns: pa.Schema, location: str) -> None:
    """InvalidArgument if rows have no such column of times."""
    from pyarrow import types

    if ttl.column not in columns.names or not types.is_timestamp(columns.field(ttl.column).type):
        raise InvalidArgument(
            f"the ttl of {location} goes by {ttl.column!r}, which is not a TIMESTAMP among the fold's columns; return"
            f" one, such as the record's own time: selectExpr('*', '_timestamp AS {ttl.column}')"
        )


def aged(shape: TableShape, delta: Delta) -> TableShape:
    """The table with the time that these rows tell, if it is later than its own."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if shape.ttl is None or shape.ttl.column not in delta.rows.column_names:
        return shape
    live = delta.rows.filter(pc.invert(delta.rows[DELETED]))
    times, stamps = (live[name].cast(pa.timestamp("us")).cast(pa.int64()) for name in (shape.ttl.column, TIMESTAMP))
    stamps = pc.if_else(pc.less(stamps, 0), times, stamps)  # a record without a timestamp has -1
    latest = pc.max(pc.if_else(pc.is_null(times), None, pc.min_element_wise(times, stamps))).as_py()
    if latest is None or (shape.time_us is not None and latest <= shape.time_us):
        return shape
    return replace(shape, time_us=latest)


def expired_before(shape: TableShape) -> Any:
    """The earliest time of a row that is still in the table, as an Arrow array of one; None if no row has expired."""
    import pyarrow as pa

    if shape.ttl is None or shape.time_us is None:
        return None
    at_us = shape.time_us - shape.ttl.ms * 1000
    try:
        datetime(1970, 1, 1) + timedelta(microseconds=at_us)  # noqa: DTZ001 only whether there is such a time
    except OverflowError:
        return None  # before the year 1
    return pa.array([at_us], pa.timestamp("us")).cast(shape.columns.field(shape.ttl.column).type)
