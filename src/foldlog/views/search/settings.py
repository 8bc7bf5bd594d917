"""The settings of a search view, stored inside it: its columns, which of them are searched, and its keys."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from foldlog.errors import InvalidArgument, MalformedBytes, SchemaChanged, brief_repr
from foldlog.views.contract import RECORD, WHOSE_ROWS_UNKNOWN, Shape
from foldlog.views.row_json import check_columns

if TYPE_CHECKING:
    import pyarrow as pa


SEARCH_HITS_MAX: Final = 10_000
"""The maximum of one search: people look at a few."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """`columns` are all stored columns, in order; `text` those that are searched."""

    columns: pa.Schema
    text: tuple[str, ...]
    record_key: str
    key: tuple[str, ...]

    def to_json(self) -> str:
        """The form in which the view stores it."""
        fields = {
            "columns": b64encode(self.columns.serialize().to_pybytes()).decode("ascii"),
            "text": self.text,
            "record_key": self.record_key,
            "key": self.key,
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> SearchSettings:
        """The inverse of `to_json`; MalformedBytes if the text is not such settings."""
        import pyarrow as pa

        try:
            fields = json.loads(text)
            columns = pa.ipc.read_schema(pa.py_buffer(b64decode(fields["columns"])))
            return cls(columns, tuple(fields["text"]), fields["record_key"], tuple(fields["key"]))
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise MalformedBytes("search view's settings", f"they cannot be understood ({error!r})", 0) from error

    def grown_to(self, wanted: SearchSettings, location: str) -> SearchSettings:
        """With the additional columns of `wanted`; SchemaChanged if the two cannot be reconciled."""
        if wanted.record_key == RECORD and self.record_key != RECORD:
            raise SchemaChanged(location, WHOSE_ROWS_UNKNOWN)
        for what, mine, other in (
            ("the searched columns were", self.text, wanted.text),
            ("the key was", (self.record_key, *self.key), (wanted.record_key, *wanted.key)),
        ):
            if mine != other:
                raise SchemaChanged(location, f"{what} {', '.join(mine)} and are now {', '.join(other)}")
        new = []
        for field in wanted.columns:
            number = self.columns.get_field_index(field.name)
            if number < 0:
                new.append(field)
            elif self.columns.field(number).type != field.type:
                was = self.columns.field(number).type
                raise SchemaChanged(location, f"column {field.name!r} was {was} and is now {field.type}")
        columns = self.columns
        for field in new:
            columns = columns.append(field)
        return replace(self, columns=columns)

    def fitted(self, rows: pa.Table, location: str) -> pa.Table:
        """The rows in the view's columns, null for a column that the fold has dropped."""
        import pyarrow as pa

        strange = [name for name in rows.column_names if name not in self.columns.names]
        if strange:
            raise SchemaChanged(location, f"it has no column {', '.join(map(repr, strange))}")
        arrays = []
        for field in self.columns:
            if field.name not in rows.column_names:
                arrays.append(pa.nulls(rows.num_rows, field.type))
            elif rows.schema.field(field.name).type != field.type:
                is_now = rows.schema.field(field.name).type
                raise SchemaChanged(location, f"column {field.name!r} was {field.type} and is now {is_now}")
            else:
                arrays.append(rows[field.name])
        return pa.Table.from_arrays(arrays, schema=self.columns)


def settings_of(shape: Shape, text: Sequence[str]) -> SearchSettings:
    """The settings for a fold's rows; InvalidArgument, in one sentence, if they cannot be searched by `text`."""
    import pyarrow as pa
    from pyarrow import types

    if shape.record_key is None:
        raise InvalidArgument(
            "a search view finds rows by their record's key; name the column with fl.topic(..., key=)"
        )
    columns = pa.schema([pa.field(field.name, field.type) for field in shape.columns])
    check_columns(columns)
    for name in text:
        if name not in columns.names:
            raise InvalidArgument(f"text={name!r} is no column of the fold, which has {', '.join(columns.names)}")
        kind = columns.field(name).type
        if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
            raise InvalidArgument(
                f"text={name!r} is {kind} and no text; cast it to STRING in the fold, or leave it out of text="
            )
    return SearchSettings(columns, tuple(text), shape.record_key, shape.key or (shape.record_key,))


def checked_text(text: object) -> tuple[str, ...]:
    """The searched columns from a user's argument.

    >>> checked_text(["merchant", "note"])
    ('merchant', 'note')
    """
    names = (text,) if isinstance(text, str) else text
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgument(
            f"text= names the columns to search, such as ['merchant', 'note'], not {brief_repr(text)}"
        )
    if len(set(names)) != len(names):
        raise InvalidArgument(f"text= names a column twice: {', '.join(names)}")
    return tuple(names)


def checked_limit(limit: object) -> int:
    """The limit, if it is allowed."""
    if type(limit) is not int or not 0 < limit <= SEARCH_HITS_MAX:
        raise InvalidArgument(f"a search gives between 1 and {SEARCH_HITS_MAX} rows, not {limit!r}")
    return limit
