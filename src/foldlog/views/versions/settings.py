"""Which rows a view of versions keeps, and which of them readers see.

A row's place among the others of its key is its version, the column `order_by`; of equal versions, the one from the
larger partition and, in a partition, with the larger offset is newer. The order in which rows come does not matter, so
the records of a key may be in several partitions.

A row with `_deleted` and a version is a version like any other, and means that there is nothing from there on. It is
kept, so that an older row that comes later stays hidden. A tombstone has no version: it removes the rows that older
records of its partition wrote for its key, as compaction does.

The newest version of each key in each partition is kept, or, for a history, every version.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import FoldError, InvalidArgument, MalformedBytes, SchemaChanged
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION, RECORD, Shape
from foldlog.views.merged.groups import Groups, group_codes
from foldlog.views.merged.view import MergedSettings
from foldlog.views.sql.names import TableName, check_columns, quoted, quoted_list
from foldlog.views.sql.nested import decode_nested, encode_nested
from foldlog.views.sql.types import is_key_type, is_nested, kept_schema
from foldlog.views.topic_lists import where_at

if TYPE_CHECKING:
    import pyarrow as pa

VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"

_PLACE: Final = "_place"
"""A column of the readers' view, inside: 1 for the newest row."""


@dataclass(frozen=True, slots=True)
class VersionSettings(MergedSettings):
    """`columns` are the fold's. `record_key` is the column by which a tombstone finds its rows, if there is one."""

    key: tuple[str, ...]
    order_by: str
    record_key: str | None
    keeps_all: bool
    columns: pa.Schema

    @classmethod
    def of(
        cls, shape: Shape, key: tuple[str, ...], order_by: str, location: str, *, keeps_all: bool
    ) -> VersionSettings:
        """The settings for a fold's rows; InvalidArgument, in one sentence, if they have no versions."""
        chosen = key or shape.key
        if not chosen:
            raise InvalidArgument(
                f"{location} needs a key: name the column of the record's key, as in fl.topic(..., key='id'), or the"
                " columns that make a row unique, as in key=['id']"
            )
        columns = kept_schema(shape.columns)
        check_columns([*columns.names, *((VALID_FROM, VALID_TO) if keeps_all else ())])
        for name in (*chosen, order_by):
            if name not in columns.names:
                raise InvalidArgument(
                    f"{location} needs the column {name!r}, which the fold's rows do not have; keep it"
                )
        for name in chosen:
            if not is_key_type(columns.field(name).type):
                raise InvalidArgument(f"{location} cannot have {name!r} in its key: its type is not exact")
        _check_order(columns.field(order_by).type, order_by, location)
        if order_by in chosen:
            raise InvalidArgument(
                f"order_by={order_by!r} is part of the key of {location}: each row would be the newest"
            )
        return cls(tuple(chosen), order_by, shape.record_key, keeps_all, columns)

    def to_json(self) -> str:
        fields = {
            "key": self.key,
            "order_by": self.order_by,
            "record_key": self.record_key,
            "keeps_all": self.keeps_all,
            "columns": b64encode(self.columns.serialize().to_pybytes()).decode("ascii"),
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> VersionSettings:
        """The inverse of `to_json`; MalformedBytes if the text is not such settings."""
        import pyarrow as pa

        try:
            fields = json.loads(text)
            columns = pa.ipc.read_schema(pa.py_buffer(b64decode(fields["columns"])))
            key, order_by, record_key = tuple(fields["key"]), fields["order_by"], fields["record_key"]
            return cls(key, order_by, record_key, bool(fields["keeps_all"]), columns)
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise MalformedBytes("settings of versions", f"they cannot be understood ({error!r})", 0) from error

    @property
    def groups(self) -> tuple[str, ...]:
        return (*self.key, *((self.order_by,) if self.keeps_all else ()), PARTITION)

    def partial_columns(self) -> pa.Schema:
        """The fold's columns, and where a row is from."""
        import pyarrow as pa

        places = [(PARTITION, pa.int32()), (OFFSET, pa.int64()), (DELETED, pa.bool_())]
        return pa.schema([*self.columns, *(pa.field(name, kind) for name, kind in places)])

    def stored(self) -> pa.Schema:
        return _with_texts(self.partial_columns())

    def shown(self) -> pa.Schema:
        import pyarrow as pa

        columns = [one for one in self.columns if one.name != RECORD]
        if not self.keeps_all:
            return pa.schema(columns)
        kind = self.columns.field(self.order_by).type
        return pa.schema([*columns, pa.field(VALID_FROM, kind), pa.field(VALID_TO, kind)])

    def shown_texts(self) -> pa.Schema:
        """The columns as the selection gives them: lists, structs and maps as JSON."""
        return _with_texts(self.shown())

    def selection(self, table: TableName) -> str:
        """The SELECT of what readers see. A later version is found when it is read, so that a late row costs no more
        than another.
        """
        key, version = quoted_list(self.key), quoted(self.order_by)
        names = quoted_list([name for name in self.columns.names if name != RECORD])
        places = f"{quoted(PARTITION)} DESC, {quoted(OFFSET)} DESC"
        if not self.keeps_all:
            order = f"PARTITION BY {key} ORDER BY {version} DESC, {places}"
            ranked = f"SELECT *, row_number() OVER ({order}) AS {_PLACE} FROM {table.sql}"
            return f"SELECT {names} FROM ({ranked}) AS ranked WHERE {_PLACE} = 1 AND NOT {quoted(DELETED)}"
        order = f"PARTITION BY {key}, {version} ORDER BY {places}"
        ranked = f"SELECT *, row_number() OVER ({order}) AS {_PLACE} FROM {table.sql}"
        following = f"lead({version}) OVER (PARTITION BY {key} ORDER BY {version}) AS {VALID_TO}"
        dated = f"SELECT *, {following} FROM ({ranked}) AS ranked WHERE {_PLACE} = 1"
        return (
            f"SELECT {names}, {version} AS {VALID_FROM}, {VALID_TO} FROM ({dated}) AS dated WHERE NOT {quoted(DELETED)}"
        )

    def shown_rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What readers see of merged rows, in plain Python: for tests of folds, which have no database."""
        shown = [name for name in self.columns.names if name != RECORD]
        inorder = sorted(rows, key=lambda row: (row[self.order_by], row[PARTITION], row[OFFSET]))
        newest = {
            (*(row[name] for name in self.key), *((row[self.order_by],) if self.keeps_all else ())): row
            for row in inorder
        }
        found = []
        for row in newest.values():
            own = [row[name] for name in self.key]
            later = [
                one[self.order_by]
                for one in newest.values()
                if [one[name] for name in self.key] == own and one[self.order_by] > row[self.order_by]
            ]
            valid = {VALID_FROM: row[self.order_by], VALID_TO: min(later, default=None)} if self.keeps_all else {}
            if not row[DELETED]:
                found.append({name: row[name] for name in shown} | valid)
        return found

    def show(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What the selection gave, with lists, structs and maps."""
        import pyarrow as pa

        shown = self.shown()
        return pa.RecordBatch.from_arrays([_from_text(batch[one.name], one.type) for one in shown], schema=shown)

    def grown(self, wanted: VersionSettings, location: str) -> VersionSettings:
        """The stored settings with the fold's new columns; SchemaChanged if they cannot become the wanted ones."""
        import pyarrow as pa

        mine, other = ((one.key, one.order_by, one.record_key, one.keeps_all) for one in (self, wanted))
        if mine != other:
            raise SchemaChanged(
                location,
                f"it was kept by ({', '.join(self.key)}) with versions in {self.order_by}, and is now by"
                f" ({', '.join(wanted.key)}) with versions in {wanted.order_by}",
            )
        added = []
        for field in wanted.columns:
            at = self.columns.get_field_index(field.name)
            if at < 0:
                added.append(field)
            elif self.columns.field(at).type != field.type:
                kind = self.columns.field(at).type
                raise SchemaChanged(location, f"its column {field.name!r} is {kind}, and the fold's is {field.type}")
        return replace(self, columns=pa.schema([*self.columns, *added])) if added else self

    def fitted(self, rows: pa.Table, location: str) -> pa.Table:
        import pyarrow as pa

        unknown = [one for one in rows.column_names if one not in META and one not in self.columns.names]
        if unknown:
            raise SchemaChanged(location, f"it has no column {unknown[0]!r}, which the fold's rows have")
        schema = self.partial_columns()
        columns = [
            rows[one.name].cast(one.type)
            if one.name in rows.column_names
            else pa.chunked_array([pa.nulls(rows.num_rows, one.type)])
            for one in schema
        ]
        found = pa.table(columns, schema=schema)
        self._refuse_versionless(rows, location)
        self._refuse_twins(rows, location)
        return found

    def merged(self, rows: pa.Table) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = self._without_withdrawn(rows.combine_chunks())
        is_version = self._are_versions(rows)
        versions = rows.filter(is_version)
        if versions.num_rows < 2:
            return rows
        groups = Groups(group_codes([versions[name] for name in self.groups], versions.num_rows))
        newest = [versions[OFFSET]] if self.keeps_all else [versions[self.order_by], versions[OFFSET]]
        kept = versions.take(groups.at_extreme(newest, largest=True))
        # A tombstone stays beside newer versions: there may be older ones in the table that it has to remove.
        return pa.concat_tables([kept, rows.filter(pc.invert(is_version))])

    def asked(self) -> list[str]:
        return list(dict.fromkeys((*self.groups, *(() if self.record_key is None else (self.record_key,)))))

    def met(self, same: str, table: TableName, *, seeks: bool = False) -> list[str]:
        conditions = [self.alike(self.groups, same)]
        owner = [self.record_key, PARTITION] if self.record_key is not None else [PARTITION]
        if self.record_key is not None and set(owner) != set(self.groups):
            is_tombstone = " OR ".join(f"new.{quoted(name)} IS NULL" for name in self.groups)
            conditions.append(f"{self.alike(owner, same)} AND ({is_tombstone})")
        return conditions

    def to_stored(self, rows: pa.Table) -> pa.Table:
        import pyarrow as pa

        rows = self.versions_of(rows)
        return pa.table([_as_text(column) for column in rows.columns], schema=self.stored())

    def from_stored(self, rows: pa.Table) -> pa.Table:
        import pyarrow as pa

        schema = self.partial_columns()
        return pa.table([_from_text(rows[one.name], one.type) for one in schema], schema=schema)

    def versions_of(self, rows: pa.Table) -> pa.Table:
        """Merged rows without tombstones, which have removed what they had to."""
        return rows.filter(self._are_versions(rows))

    def _are_versions(self, rows: pa.Table) -> Any:
        """Flags the rows that have a key and a version; the others are tombstones."""
        import pyarrow.compute as pc

        found = pc.is_valid(rows[self.order_by])
        for name in self.key:
            found = pc.and_(found, pc.is_valid(rows[name]))
        return found

    def _without_withdrawn(self, rows: pa.Table) -> pa.Table:
        """Without the rows that a later tombstone of their partition removes. Each last tombstone stays."""
        import numpy as np
        import pyarrow as pa

        is_version = self._are_versions(rows).to_numpy()
        if is_version.all() or self.record_key is None:
            return rows.filter(pa.array(is_version))
        codes = group_codes([rows[self.record_key], rows[PARTITION]], rows.num_rows)
        offsets = rows[OFFSET].to_numpy()
        last = np.full(codes.max() + 1, -1, np.int64)
        np.maximum.at(last, codes[~is_version], offsets[~is_version])
        return rows.filter(pa.array(offsets >= last[codes]))

    def _refuse_versionless(self, rows: pa.Table, location: str) -> None:
        import pyarrow.compute as pc

        without = rows.filter(pc.and_(pc.invert(self._are_versions(rows)), pc.invert(rows[DELETED])))
        if without.num_rows:
            raise FoldError(
                f"{location} has no place for the row at {where_at(without, 0)}: its key or its version"
                f" ({', '.join((*self.key, self.order_by))}) is null"
            )

    def _refuse_twins(self, rows: pa.Table, location: str) -> None:
        versions = rows.filter(self._are_versions(rows))
        names = (*self.key, self.order_by, PARTITION, OFFSET)
        codes = group_codes([versions[name] for name in names], versions.num_rows)
        numbers = codes.tolist()
        if versions.num_rows and len(set(numbers)) < versions.num_rows:
            number = next(at for at, code in enumerate(numbers) if numbers.index(code) < at)
            raise FoldError(
                f"{location} cannot hold two rows of one record with the same key and version, as at"
                f" {where_at(versions, number)}; name more columns that tell them apart: key=['id', 'line']"
            )


def _check_order(kind: Any, order_by: str, location: str) -> None:
    from pyarrow import types

    if not (types.is_integer(kind) or types.is_timestamp(kind) or types.is_date(kind) or types.is_string(kind)):
        raise InvalidArgument(
            f"order_by={order_by!r} of {location} is {kind}; a version is a number without a point, a time, a date or a"
            " text: cast it in the fold"
        )


def _with_texts(columns: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([pa.field(one.name, pa.string()) if is_nested(one.type) else one for one in columns])


def _as_text(column: Any) -> Any:
    return encode_nested(column) if is_nested(column.type) else column


def _from_text(column: Any, kind: Any) -> Any:
    return decode_nested(column.to_pylist(), kind) if is_nested(kind) else column
