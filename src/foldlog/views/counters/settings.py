"""What counters count and how it is stored: checked against the fold's columns, stored in the view, shown to readers.

A range arrives aggregated: its groups and, for each measure, partial columns (see measures). The view stores the merged
partials of all ranges, in wide types: integers of 64 bits, DECIMAL of 38 digits. A reader sees each measure under its
name; a mean is divided when it is read, and what a state shows is stored beside it. Lists are stored as JSON.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, MalformedBytes, SchemaChanged
from foldlog.views.counters.measures import DECIMAL_DIGITS_MAX, Aggregation, Measure
from foldlog.views.counters.merging import merged
from foldlog.views.counters.states import estimates, quantiles
from foldlog.views.counters.windows import WINDOW_END, WINDOW_START, window_from_json, window_to_json
from foldlog.views.merged.view import MergedSettings
from foldlog.views.sql.names import TableName, check_columns, quoted
from foldlog.views.sql.nested import decode_nested, encode_nested
from foldlog.views.sql.types import is_nested, kept_schema

if TYPE_CHECKING:
    import pyarrow as pa

SUM_DIGITS_MORE: Final = 10
"""Spark's sum of a DECIMAL(p, s) is a DECIMAL(p + 10, s)."""

MEAN_DIGITS_MORE: Final = 4
"""How many more digits after the point a mean of DECIMAL has than its column, as in Spark."""

DISTINCT_MAX: Final = 1_000_000
"""How many values an exact count_distinct keeps in a group: with every range they are read and written again."""


ROWS: Final = "__rows"
"""A measure that counts the current rows of a group: without any, it is gone."""

KNOWN: Final = "__known"
"""The ending of a measure that counts the values of a sum."""


@dataclass(frozen=True, slots=True)
class CounterSettings(MergedSettings):
    """`columns` are the columns of an aggregated range, groups first. Counters of current rows know the column of the
    record's key, `record`, and count more than they show: see `foldlog.views.counters.current`.
    """

    aggregation: Aggregation
    columns: pa.Schema
    record: pa.Field | None = None

    def to_json(self) -> str:
        """The form in which the view stores it."""
        import pyarrow as pa

        fields: dict[str, Any] = {
            "by": self.aggregation.by,
            "window": window_to_json(self.aggregation.window),
            "measures": {name: _measure_to_json(measure) for name, measure in self.aggregation.measures.items()},
            "columns": b64encode(self.columns.serialize().to_pybytes()).decode("ascii"),
        }
        if self.record is not None:
            fields["record"] = b64encode(pa.schema([self.record]).serialize().to_pybytes()).decode("ascii")
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> CounterSettings:
        """The inverse of `to_json`; MalformedBytes if the text is not such settings."""
        import pyarrow as pa

        try:
            fields = json.loads(text)
            measures = {name: Measure(*stored) for name, stored in fields["measures"].items()}
            aggregation = Aggregation(tuple(fields["by"]), window_from_json(fields["window"]), measures)
            columns = pa.ipc.read_schema(pa.py_buffer(b64decode(fields["columns"])))
            record = None
            if "record" in fields:
                record = pa.ipc.read_schema(pa.py_buffer(b64decode(fields["record"]))).field(0)
            return cls(aggregation, columns, record)
        except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            raise MalformedBytes("counters' settings", f"they cannot be understood ({error!r})", 0) from error

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns that make a row unique; null is a value like any other."""
        return self.aggregation.group_columns()

    def visible(self) -> dict[str, Measure]:
        """The measures that a reader sees."""
        hidden = () if self.record is None else {ROWS, *(name + KNOWN for name in self.aggregation.measures)}
        return {name: measure for name, measure in self.aggregation.measures.items() if name not in hidden}

    def known(self, name: str) -> str | None:
        """The column that counts the values of a sum from which rows are withdrawn: without one, it is null, not 0."""
        is_sum = self.record is not None and self.aggregation.measures[name].kind == "sum"
        return name + KNOWN if is_sum else None

    def asked(self) -> list[str]:
        return [*self.groups, *([WINDOW_END] if self.aggregation.sessions is not None else [])]

    def merged(self, rows: pa.Table) -> pa.Table:
        return merged(rows, self.aggregation)

    def met(self, same: str, table: TableName, *, seeks: bool = False) -> list[str]:
        """Rows of the same group, or sessions that overlap."""
        if self.aggregation.sessions is None:
            return [self.alike(self.groups, same)]
        alike, start, end = self.alike(self.aggregation.by, same), quoted(WINDOW_START), quoted(WINDOW_END)
        overlapping = f"{alike} AND kept.{start} < new.{end} AND kept.{end} > new.{start}"
        if seeks:
            # The only session that begins before and may reach here is the last of those: no two of them overlap.
            overlapping += (
                f" AND kept.{start} >= coalesce((SELECT max(older.{start}) FROM {table.sql} AS older"
                f" WHERE {alike.replace('kept.', 'older.')} AND older.{start} <= new.{start}), new.{start})"
            )
        return [overlapping, f"{alike} AND kept.{start} IS NULL AND new.{start} IS NULL"]

    @property
    def merges_in_sql(self) -> bool:
        """Whether the engine merges a range's rows by itself: a row for each group, and no states."""
        return self.aggregation.is_plain and self.aggregation.sessions is None

    def partial_columns(self) -> pa.Schema:
        """The columns of merged ranges: sums of DECIMAL with the maximum of digits."""
        import pyarrow as pa

        sums = {name for name, how, _ in self.aggregation.partials() if how == "sum"}
        return pa.schema([_widened(field) if field.name in sums else field for field in self.columns])

    def stored(self) -> pa.Schema:
        """The columns of the view's table: merged ranges, with lists as JSON, and what states show."""
        import pyarrow as pa

        fields = [*self.partial_columns(), *(self._shown_field(name) for name in self._with_states())]
        return pa.schema([pa.field(one.name, pa.string()) if is_nested(one.type) else one for one in fields])

    def fitted(self, rows: pa.Table, location: str) -> pa.Table:
        """A range's rows in the types of merged ones."""
        if rows.column_names != self.columns.names:
            shown = ", ".join(rows.column_names)
            raise SchemaChanged(location, f"a range has the columns {shown} and not {', '.join(self.columns.names)}")
        return rows.cast(self.partial_columns())

    def to_stored(self, rows: pa.Table) -> pa.Table:
        """Merged ranges as rows of the view's table. ArithmeticError if one cannot be kept."""
        import pyarrow as pa

        columns = {name: _as_text(rows[name]) for name in rows.column_names}
        for name in self._with_states():
            field = self._shown_field(name)
            values = _shown_by_state(name, self.aggregation.measures[name], rows)
            columns[name] = _as_text(pa.chunked_array([pa.array(values, field.type)]))
        return pa.table(columns, schema=self.stored())

    def from_stored(self, rows: pa.Table) -> pa.Table:
        """The inverse of `to_stored`."""
        import pyarrow as pa

        schema = self.partial_columns()
        return pa.table([_from_text(rows[one.name], one.type) for one in schema], schema=schema)

    def _with_states(self) -> list[str]:
        return [name for name, measure in self.aggregation.measures.items() if measure.state is not None]

    def _shown_field(self, name: str) -> pa.Field:
        import pyarrow as pa

        state = self.aggregation.measures[name].state
        if state != "top":
            return pa.field(name, pa.float64() if state == "buckets" else pa.int64())
        value = self.columns.field(f"{name}__top").type.value_type.field("value").type
        return pa.field(name, pa.list_(pa.field("element", value)))

    def refuse_change(self, wanted: CounterSettings, location: str) -> None:
        """SchemaChanged if `wanted` differs: what was counted before cannot be counted again from here."""
        mine, other = self.aggregation, wanted.aggregation
        if _over(self) != _over(wanted):
            raise SchemaChanged(location, f"it {_over(self)}, and the fold's {_over(wanted)}")
        if mine.by != other.by:
            raise SchemaChanged(location, f"it was counted by {_names(mine.by)} and is now by {_names(other.by)}")
        if mine.window != other.window:
            raise SchemaChanged(location, f"its window was {mine.window or 'none'} and is now {other.window or 'none'}")
        if dict(mine.measures) != dict(other.measures) or list(mine.measures) != list(other.measures):
            raise SchemaChanged(location, f"its measures were {_measures(mine)} and are now {_measures(other)}")
        for was, now in zip(self.columns, wanted.columns, strict=True):
            if was.type != now.type:
                raise SchemaChanged(location, f"column {was.name!r} was {was.type} and is now {now.type}")

    def shown(self) -> pa.Schema:
        """The columns that a reader sees: groups, then measures."""
        import pyarrow as pa

        stored = self.partial_columns()
        ends = [WINDOW_END] if self.aggregation.sessions is not None else []
        fields = [pa.field(name, stored.field(name).type) for name in (*self.groups, *ends)]
        for name, measure in self.visible().items():
            if measure.state is not None:
                fields.append(self._shown_field(name))
            else:
                kind = self._mean_type(name) if measure.kind == "avg" else stored.field(name).type
                fields.append(pa.field(name, kind))
        return pa.schema(fields)

    def show(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the view's table, as a reader sees them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        arrays = []
        for field in self.shown():
            measure = self.aggregation.measures.get(field.name)
            known = None if measure is None else self.known(field.name)
            if known is not None:
                has_value = pc.greater(batch.column(known), 0)
                arrays.append(pc.if_else(has_value, batch.column(field.name), pa.scalar(None, field.type)))
            elif measure is not None and measure.kind == "avg":
                sums, counts = (batch.column(f"{field.name}__{part}").to_pylist() for part in ("sum", "count"))
                arrays.append(pa.array(means(sums, counts, field.type), field.type))
            else:
                arrays.append(_from_text(batch.column(field.name), field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.shown())

    def _mean_type(self, name: str) -> Any:
        import pyarrow as pa
        from pyarrow import types

        kind = self.columns.field(f"{name}__sum").type
        if types.is_integer(kind):
            return pa.float64()
        room = DECIMAL_DIGITS_MAX - (kind.precision - kind.scale)
        return pa.decimal128(DECIMAL_DIGITS_MAX, min(kind.scale + MEAN_DIGITS_MORE, max(kind.scale, room)))


def means(sums: Sequence[Any], counts: Sequence[int | None], kind: Any) -> list[float | Decimal | None]:
    """Means of integers as the nearest float; of DECIMAL rounded half to even at the digits of `kind`."""
    from pyarrow import types

    if types.is_floating(kind):
        return [total / count if count else None for total, count in zip(sums, counts, strict=True)]
    step = Decimal(1).scaleb(-kind.scale)
    with localcontext(Context(prec=4 * DECIMAL_DIGITS_MAX)):
        return [(total / count).quantize(step) if count else None for total, count in zip(sums, counts, strict=True)]


def check_aggregation(aggregation: Aggregation, input_schema: pa.Schema) -> pa.Schema:
    """The columns of an aggregated range; InvalidArgument, in one sentence, if the fold's rows cannot be counted so."""
    import pyarrow as pa
    from pyarrow import types

    fields = []
    for name in aggregation.by:
        kind = _type_of(input_schema, name, f"by={name!r}")
        if types.is_floating(kind) or not is_orderable(kind):
            raise InvalidArgument(f"by={name!r} is {kind}, which rows cannot be counted by; cast it in the fold")
        fields.append(pa.field(name, kind))
    if aggregation.window is not None:
        column = aggregation.window.column
        kind = _type_of(input_schema, column, f"window={column!r}")
        if not types.is_timestamp(kind) or kind.tz is None:
            raise InvalidArgument(f"window={column!r} is {kind} and no TIMESTAMP; cast it in the fold")
        fields.append(pa.field(WINDOW_START, pa.timestamp("us", "UTC")))
    if aggregation.sessions is not None:
        fields.append(pa.field(WINDOW_END, pa.timestamp("us", "UTC")))
    for name, measure in aggregation.measures.items():
        fields += [
            pa.field(partial, _partial_type(name, measure, how, column, input_schema))
            for partial, how, column in measure.partials(name)
        ]
    # What a state shows is stored beside it.
    names = [field.name for field in fields] + [name for name, one in aggregation.measures.items() if one.state]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(f"counters would have two columns {twice[0]!r}; give the measure another name")
    check_columns(names)
    return kept_schema(pa.schema(fields))


def is_orderable(kind: Any) -> bool:
    """Whether Spark and every engine order its values in the same way."""
    from pyarrow import types

    tests = (
        types.is_boolean,
        types.is_integer,
        types.is_floating,
        types.is_decimal128,
        types.is_string,
        types.is_large_string,
        types.is_binary,
        types.is_large_binary,
        types.is_date32,
        types.is_timestamp,
    )
    return any(test(kind) for test in tests)


def _partial_type(name: str, measure: Measure, how: str, column: str | None, schema: pa.Schema) -> Any:
    import pyarrow as pa
    from pyarrow import types

    said = f"measure {name!r}, {measure},"
    kind: Any = pa.null() if column is None else _type_of(schema, column, f"the column of {said}")
    if how == "count":
        return pa.int64()
    if how == "buckets":
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal128(kind)):
            raise InvalidArgument(f"{said} is of {kind}, which is no number; cast it in the fold")
        return pa.binary()
    if how != "sum" and not is_orderable(kind):
        raise InvalidArgument(f"{said} is of {kind}, which has no order; take a part of it in the fold")
    if how in ("values", "registers"):
        if types.is_floating(kind):
            raise InvalidArgument(f"{said} is of {kind}, whose values are not exact; cast it to DECIMAL in the fold")
        return pa.binary() if how == "registers" else pa.list_(pa.field("element", kind))
    if how == "top":
        order = _partial_type(name, measure, "order", measure.order_by, schema)
        return pa.list_(pa.field("element", pa.struct([("order", order), ("value", kind)])))
    if how != "sum":
        return kind
    if types.is_integer(kind):
        return pa.int64()
    if types.is_decimal128(kind):
        return pa.decimal128(min(kind.precision + SUM_DIGITS_MORE, DECIMAL_DIGITS_MAX), kind.scale)
    if types.is_floating(kind):
        raise InvalidArgument(
            f"{said} is of floating-point numbers, whose sum depends on the order of additions;"
            " use an integer of the smallest unit, or cast to DECIMAL in the fold"
        )
    raise InvalidArgument(f"{said} is of {kind}, which cannot be added up; cast it to BIGINT or DECIMAL in the fold")


def _measure_to_json(measure: Measure) -> list[object]:
    """The form in which a view stores it: as older versions do, where they know such a measure."""
    more = (measure.order_by, measure.size, measure.rank)
    return [measure.kind, measure.column, *(more if more != (None, 0, 0.0) else ())]


def _shown_by_state(name: str, measure: Measure, rows: pa.Table) -> list[Any]:
    import pyarrow.compute as pc

    states = rows[f"{name}__{measure.state}"].combine_chunks()
    if measure.state == "registers":
        return estimates(states, measure.size)
    if measure.state == "buckets":
        return quantiles(states, measure.rank, measure.size)
    if measure.state == "top":
        return [[] if one is None else [pair["value"] for pair in one] for one in states.to_pylist()]
    lengths: list[int] = pc.fill_null(pc.list_value_length(states), 0).to_pylist()
    if max(lengths, default=0) > DISTINCT_MAX:
        raise ArithmeticError(
            f"a group of {name!r} has more than {DISTINCT_MAX} different values, which are too many to keep one by one;"
            f" use fl.approx_count_distinct({measure.column!r}) and rebuild"
        )
    return lengths


def _as_text(column: Any) -> Any:
    return encode_nested(column) if is_nested(column.type) else column


def _from_text(column: Any, kind: Any) -> Any:
    return decode_nested(column.to_pylist(), kind) if is_nested(kind) else column


def _type_of(schema: pa.Schema, name: str, said: str) -> Any:
    if schema.get_field_index(name) < 0:
        raise InvalidArgument(f"{said} is no column of the fold, which has {', '.join(schema.names)}")
    return schema.field(name).type


def _widened(field: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    if not types.is_decimal128(field.type):
        return field
    return pa.field(field.name, pa.decimal128(DECIMAL_DIGITS_MAX, field.type.scale))


def _over(settings: CounterSettings) -> str:
    of = "every record" if settings.record is None else f"the current rows of each {settings.record.name}"
    return f"counts {of}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _measures(aggregation: Aggregation) -> str:
    return ", ".join(f"{name}={one}" for name, one in aggregation.measures.items())
