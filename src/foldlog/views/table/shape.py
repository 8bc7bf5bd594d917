"""The form of a table: its columns and keys, derived from a fold's shape, stored beside the bookmark, and reconciled
with a later version of the fold. Pure decisions; the engines carry them out.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from foldlog.errors import InvalidArgument, MissingDependency, SchemaChanged, ViewUnavailable
from foldlog.views.contract import (
    DELETED,
    META,
    OFFSET,
    PARTITION,
    RECORD,
    TIMESTAMP,
    WHOSE_ROWS_UNKNOWN,
    Shape,
)
from foldlog.views.sql.names import check_columns
from foldlog.views.sql.types import is_key_type, kept_schema
from foldlog.views.table.expiry import Ttl, check_ttl

if TYPE_CHECKING:
    import pyarrow as pa


Replaces = Literal["record", "row"]
"""What a newer record replaces: all rows of its record key, or the rows with the keys that it writes."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What the user asks of a table, beside its place. `key` is empty for the record's key."""

    key: tuple[str, ...] = ()
    replaces: Replaces | None = None
    ttl: Ttl | None = None

    def check_joined(self, location: str, *, appends: bool = False) -> None:
        """InvalidArgument if a join cannot be kept in such a table."""
        given = {"mode='append'": appends, "replaces=": self.replaces is not None, "ttl=": self.ttl is not None}
        wrong = next((name for name, is_given in given.items() if is_given), None)
        if wrong is not None:
            raise InvalidArgument(
                f"{location} is the table of a join of two topics, which has no {wrong}; leave it out"
            )

    def keeps_rows(self, record_key: tuple[str, ...]) -> bool:
        """See `View.keeps_rows`. Without a word about it, rows are kept if the key says nothing of their record."""
        if self.replaces is not None:
            return self.replaces == "row"
        return bool(self.key) and not (record_key and set(record_key) <= set(self.key))


@dataclass(frozen=True, slots=True)
class TableShape:
    """`key` is the primary key. `record_key`, if there is one, is what a tombstone deletes by: part of it, or RECORD.

    `is_loading`: the table has all versions of rows, and no primary key yet. `keeps_rows`: as in `Shape`; `record_key`
    is then any column, and has an index. A table that `appends` has no key, and the columns of META but for the topic.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    record_key: str | None
    is_loading: bool = False
    keeps_rows: bool = False
    appends: bool = False
    ttl: Ttl | None = None
    time_us: int | None = None
    """The time of the table, by which rows expire: see `expiry`."""

    @property
    def record_columns(self) -> tuple[str, ...]:
        """The columns that identify a record: of records that agree in them, the newest counts."""
        return (self.record_key,) if self.record_key is not None else self.key

    @property
    def replaces_records(self) -> bool:
        """Whether one record may have several rows, which a newer one replaces all."""
        return self.key != self.record_columns and not self.keeps_rows

    @property
    def finds_records(self) -> bool:
        """Whether rows are looked up by a record key that is not what the primary key begins with."""
        return self.record_key is not None and self.key[0] != self.record_key

    @property
    def others(self) -> tuple[str, ...]:
        """The columns that are not part of the primary key."""
        return tuple(name for name in self.columns.names if name not in self.key)

    def to_json(self) -> str:
        """The columns are a serialized Arrow schema, so that they are restored exactly."""
        fields = {
            "columns": b64encode(self.columns.serialize().to_pybytes()).decode("ascii"),
            "key": list(self.key),
            "record_key": self.record_key,
            "is_loading": self.is_loading,
            **({"keeps_rows": True} if self.keeps_rows else {}),
            **({"appends": True} if self.appends else {}),
            **({"ttl": list(self.ttl), "time_us": self.time_us} if self.ttl is not None else {}),
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, location: str) -> TableShape:
        """The inverse of `to_json`."""
        pa = load_pyarrow()
        try:
            fields = json.loads(text)
            return cls(
                columns=pa.ipc.read_schema(pa.py_buffer(b64decode(fields["columns"]))),
                key=tuple(map(str, fields["key"])),
                record_key=fields["record_key"],
                is_loading=bool(fields["is_loading"]),
                keeps_rows=bool(fields.get("keeps_rows", False)),
                appends=bool(fields.get("appends", False)),
                ttl=Ttl(*fields["ttl"]) if "ttl" in fields else None,
                time_us=fields.get("time_us"),
            )
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise ViewUnavailable(location, f"what is stored of its columns cannot be understood ({error})") from error

    def with_ttl(self, ttl: Ttl | None, location: str) -> TableShape:
        """A table whose rows expire. It is not bulk loaded, which would keep what has expired until the end."""
        if ttl is None:
            return self
        check_ttl(ttl, self.columns, location)
        return replace(self, ttl=ttl, is_loading=False)

    def loaded(self) -> TableShape:
        """The shape after a bulk load."""
        return replace(self, is_loading=False)


def load_pyarrow() -> Any:
    """pyarrow, or MissingDependency."""
    try:
        import pyarrow as pa
        import pyarrow.ipc
    except ImportError as error:
        raise MissingDependency("a table view", "pyarrow", "views") from error
    return pa


def decide_shape(shape: Shape, key: tuple[str, ...], location: str, *, loading: bool) -> TableShape:
    """The table for a fold's rows. `key` is the view's argument; without it, the fold's or the record's key."""
    load_pyarrow()
    check_columns(shape.columns.names)
    chosen = key or shape.key or ((shape.record_key,) if shape.record_key is not None else ())
    if not chosen:
        raise InvalidArgument(
            f"{location} needs a key: name the column of the record's key, as in fl.topic(..., key='id'), or the"
            " columns that make a row unique, as in fl.table(..., key=['id'])"
        )
    columns = kept_schema(shape.columns)
    for name in META:
        if name in columns.names:
            raise InvalidArgument(f"column {name!r} is foldlog's own; select it under another name in the fold")
    for name in (*chosen, *((shape.record_key,) if shape.record_key is not None else ())):
        if name not in columns.names:
            raise InvalidArgument(
                f"{location} has the key column {name!r}, which the fold's rows do not have"
                f" (they have {', '.join(columns.names) or 'none'}); keep it in the fold"
            )
        if not is_key_type(columns.field(name).type):
            raise InvalidArgument(
                f"{location} cannot have {name!r} in its key: {columns.field(name).type} is not exact"
            )
    if len(set(chosen)) != len(chosen):
        raise InvalidArgument(f"the key of {location} names a column twice: {', '.join(chosen)}")
    if shape.record_key not in (None, RECORD, *chosen) and not shape.keeps_rows:
        raise InvalidArgument(
            f"the key of {location} ({', '.join(chosen)}) has to include {shape.record_key!r}, the record's own key:"
            " a newer record or a tombstone could not find the rows it replaces"
        )
    # Of rows with keys of their own, which are withdrawn, deleted and written again, a bulk load could not tell in the
    # end what happened in which order.
    is_loading = loading and not shape.keeps_rows
    return TableShape(columns, tuple(chosen), shape.record_key, is_loading, shape.keeps_rows)


def appended_shape(shape: Shape, location: str) -> TableShape:
    """The table that has every row of a fold, with where it comes from."""
    pa = load_pyarrow()
    check_columns(shape.columns.names)
    for name in META:
        if name in shape.columns.names:
            raise InvalidArgument(f"column {name!r} is foldlog's own; select it under another name in the fold")
    places = [
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
        (TIMESTAMP, pa.timestamp("us", "UTC")),
        (DELETED, pa.bool_()),
    ]
    columns = pa.schema([*shape.columns, *(pa.field(name, kind) for name, kind in places)])
    return TableShape(kept_schema(columns), (), None, appends=True)


def reconcile(stored: TableShape, wanted: TableShape, location: str) -> TableShape:
    """The stored table with the fold's new columns; SchemaChanged if it cannot become the wanted one."""
    import pyarrow as pa

    if stored.appends != wanted.appends:
        raise SchemaChanged(location, f"it {_does(stored)}, and the fold's {_does(wanted)}")
    if stored.is_loading and not wanted.is_loading:
        raise ViewUnavailable(location, "loading it was never finished; drop it and load it again")
    if wanted.record_key == RECORD and stored.record_key != RECORD:
        raise SchemaChanged(location, WHOSE_ROWS_UNKNOWN)
    if (stored.key, stored.record_key) != (wanted.key, wanted.record_key):
        raise SchemaChanged(location, f"its key is {_names(stored)}, and the fold's is {_names(wanted)}")
    if stored.ttl != wanted.ttl:
        raise SchemaChanged(location, f"its rows expire {_life(stored)}, and the fold's {_life(wanted)}")
    if stored.keeps_rows != wanted.keeps_rows:
        what = {True: "its own key", False: "its record's key"}
        raise SchemaChanged(
            location, f"its rows are replaced by {what[stored.keeps_rows]}, and the fold's by {what[wanted.keeps_rows]}"
        )
    added = []
    for field in wanted.columns:
        position = stored.columns.get_field_index(field.name)
        if position < 0:
            twins = [name for name in stored.columns.names if name.lower() == field.name.lower()]
            if twins:
                raise SchemaChanged(
                    location, f"it has a column {twins[0]!r}, and the fold now writes it {field.name!r}"
                )
            added.append(field)
        elif stored.columns.field(position).type != field.type:
            there = stored.columns.field(position).type
            raise SchemaChanged(location, f"its column {field.name!r} is {there}, and the fold's is {field.type}")
    return replace(stored, columns=pa.schema([*stored.columns, *added])) if added else stored


def added_columns(before: TableShape, after: TableShape) -> list[Any]:
    """The fields that `reconcile` added."""
    return [after.columns.field(number) for number in range(len(before.columns), len(after.columns))]


def _does(shape: TableShape) -> str:
    return "has every row, mode='append'" if shape.appends else "has the newest rows, mode='merge'"


def _life(shape: TableShape) -> str:
    return "never" if shape.ttl is None else f"after {shape.ttl}"


def _names(shape: TableShape) -> str:
    record = "" if shape.record_key is None else f" with the record's key in {shape.record_key}"
    return f"({', '.join(shape.key)}){record}"
