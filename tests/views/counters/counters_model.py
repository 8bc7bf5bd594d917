"""Counters in plain Python: what a range is aggregated to, and what a reader sees in the end."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from foldlog.views.contract import Delta, Shape
from foldlog.views.counters import measures as fl
from foldlog.views.counters.counters import check_aggregation
from foldlog.views.counters.measures import Aggregation, Measure
from foldlog.views.counters.windows import Window
from views.view_contract import COLUMNS, Event, ViewCase

Rows = Sequence[dict[str, Any]]

MEASURES = {
    "payments": fl.count(),
    "paise": fl.sum("amount"),
    "lowest": fl.min("amount"),
    "top": fl.max("tx_id"),
    "mean": fl.avg("amount"),
}
_EXACT = Context(prec=200)


def aggregated(aggregation: Aggregation, rows: Rows, columns: pa.Schema) -> pa.Table:
    """What the runner hands over for rows of the fold: one row for each group, with partial results."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[_group(aggregation, row)].append(row)
    names = [name for name, _, _ in aggregation.partials()]
    found = []
    for group, members in groups.items():
        partials = [_reduced(how, column, members) for _, how, column in aggregation.partials()]
        found.append(dict(zip((*aggregation.group_columns(), *names), (*group, *partials), strict=True)))
    return pa.Table.from_pylist(found, schema=check_aggregation(aggregation, columns))


def shown(aggregation: Aggregation, rows: Rows) -> list[dict[str, object]]:
    """What a reader sees, computed from all rows at once."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[_group(aggregation, row)].append(row)
    return [
        {
            **dict(zip(aggregation.group_columns(), group, strict=True)),
            **{name: _measured(measure, members) for name, measure in aggregation.measures.items()},
        }
        for group, members in groups.items()
    ]


def _group(aggregation: Aggregation, row: dict[str, Any]) -> tuple[Any, ...]:
    group = [row[name] for name in aggregation.by]
    if isinstance(aggregation.window, Window):
        moment = row[aggregation.window.column]
        epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        if moment is not None:
            moment -= (moment - epoch) % dt.timedelta(milliseconds=aggregation.window.width_ms)
        group.append(moment)
    return tuple(group)


def _reduced(how: str, column: str | None, rows: Rows) -> Any:
    values: list[Any] = list(rows)
    if column is not None:
        values = [row[column] for row in rows if row[column] is not None]
    if how == "count":
        return len(values)
    if not values:
        return None
    if how == "sum":
        total = values[0]
        for value in values[1:]:
            total = _EXACT.add(total, value) if isinstance(value, Decimal) else total + value
        return total
    return (min if how == "min" else max)(values)


def _measured(measure: Measure, rows: Rows) -> Any:
    if measure.kind != "avg":
        return _reduced(measure.kind, measure.column, rows)
    total, number = _reduced("sum", measure.column, rows), _reduced("count", measure.column, rows)
    if not number:
        return None
    if isinstance(total, Decimal):
        return _EXACT.quantize(_EXACT.divide(total, Decimal(number)), Decimal("0.0000001"))
    return total / number


class CountersCase(ViewCase):
    """Payments of the contract's events, counted by merchant. A tombstone is no row, so it does not count."""

    grows = False
    aggregation = Aggregation(("merchant",), None, MEASURES)
    shape = Shape(check_aggregation(aggregation, COLUMNS), None, ("merchant",))

    def delta(self, events: Sequence[Event], start: int, stop: int) -> Delta:
        inside = _rows(event for event in events if start <= event.offset < stop)
        return Delta(aggregated(self.aggregation, inside, COLUMNS), {0: (start, stop)})

    def content(self, events: Sequence[Event], stop: int) -> list[dict[str, object]]:
        return shown(self.aggregation, _rows(event for event in events if event.offset < stop))


def _rows(events: Iterable[Event]) -> list[dict[str, Any]]:
    return [event._asdict() for event in events if not event.is_deleted]
