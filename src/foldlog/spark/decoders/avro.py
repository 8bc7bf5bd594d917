"""Avro values to columns, with fastavro; with or without Confluent's wire format in front."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from foldlog.client.schemas.lookups import SchemaRegistry
from foldlog.errors import InvalidArgument
from foldlog.limits import REGISTRY_SCHEMAS_MAX
from foldlog.records.schema_ids import read_header
from foldlog.spark.decoders.avro_types import arrow_type, has_nanos, logical_types, parse_avro
from foldlog.spark.decoders.columns_by_name import pick_columns
from foldlog.spark.decoders.row_columns import Row, Unreadable, decode_rows

_BROKEN = (EOFError, LookupError, ValueError, ArithmeticError, TypeError, struct.error)
"""Raised by fastavro for bytes that are not a record of the schema."""


class AvroDecoder:
    """Each value is one Avro record; its fields become columns. See `Decoder`.

    `reader_schema` is the schema to read, `writer_schema` the one used for writing, if that is another. With a
    `registry`, values are in Confluent's wire format, and each value's schema id selects its writer schema; fields that
    the reader does not name are skipped, and fields that the writer did not have take the reader's defaults, by Avro's
    rules. A record that does not resolve, whose id is not registered, or that has bytes left over, has a reason.

    A schema is JSON text, the result of json.loads, or a `SchemaRegistry`'s. `schema` selects columns by name.
    """

    def __init__(
        self,
        reader_schema: Any = None,
        writer_schema: Any = None,
        *,
        registry: SchemaRegistry | str | dict[int, Any] | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        if registry is not None and writer_schema is not None:
            raise InvalidArgument("give a writer_schema or a registry, not both: values name their own with a registry")
        self._arguments = (reader_schema, writer_schema, registry, schema)
        chosen = writer_schema if reader_schema is None else reader_schema
        if chosen is None:
            raise InvalidArgument("format 'avro' needs a reader_schema: it says which columns there are")
        self._reader, named = parse_avro(chosen)
        if not isinstance(self._reader, dict) or self._reader["type"] != "record":
            raise InvalidArgument("columns come from an Avro record, and this schema is something else")
        self._has_times = any("timestamp" in name for name in logical_types(self._reader, named))
        fields: list[pa.Field] = []
        self._converts: dict[str, Callable[[Any], Any] | None] = {}
        wanted = None if schema is None else set(schema.names)
        for one in self._reader["fields"]:
            if wanted is None or one["name"] in wanted:
                of, self._converts[one["name"]] = arrow_type(one["type"], named, one["name"])
                fields.append(pa.field(one["name"], of))
        self._schema = pick_columns(pa.schema(fields), schema, f"Avro record {self._reader['name']!r}")
        if not len(self._schema):
            raise InvalidArgument(f"Avro record {self._reader['name']!r} has no fields")
        self._writer = None if writer_schema is None or reader_schema is None else self._resolvable(writer_schema)
        self._registry = (
            registry if registry is None or isinstance(registry, SchemaRegistry) else SchemaRegistry(registry)
        )
        self._writers: dict[int, Any] = {}
        # Imported here, as fastavro is an extra; parse_avro has already reported it if missing.
        from fastavro import schemaless_reader
        from fastavro.read import SchemaResolutionError

        self._read = schemaless_reader
        self._unresolved = SchemaResolutionError

    def __reduce__(self) -> tuple[Callable[..., AvroDecoder], tuple[Any, ...]]:
        return _rebuilt, self._arguments

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray | None]:
        return decode_rows(self._schema, values, self._row)

    def _row(self, value: bytes) -> Row:
        record = self._record(value)
        cells: list[Any] = []
        for name in self._schema.names:
            cell, convert = record[name], self._converts[name]
            try:
                cells.append(cell if cell is None or convert is None else convert(cell))
            except Unreadable as error:
                raise Unreadable(f"{name}: {error}") from None
        return tuple(cells)

    def _record(self, value: bytes) -> dict[str, Any]:
        writer, start = self._writer or self._reader, 0
        if self._registry is not None:
            schema_id, start = read_header(value)
            writer = self._writer_of(schema_id)
        stream = io.BytesIO(value)
        stream.seek(start)
        reader = None if writer is self._reader else self._reader
        try:
            record: Any = self._read(stream, writer, reader, return_record_name=True, return_named_type=True)
        except self._unresolved as error:
            raise Unreadable(f"does not resolve: {str(error)[:100]}") from None
        except _BROKEN as error:
            raise Unreadable(f"not Avro: {str(error)[:80] or type(error).__name__}") from None
        left = len(value) - stream.tell()
        if left:
            raise Unreadable(f"not Avro: {left} bytes left over")
        # From a union of records, as in topics with several event types, the value comes with its name.
        return record[1] if isinstance(record, tuple) else record  # type: ignore[no-any-return]

    def _writer_of(self, schema_id: int) -> Any:
        """The parsed schema. Unreadable if the id is unknown, or its schema cannot be used."""
        found = self._writers.get(schema_id)
        if found is None:
            registered = None if self._registry is None else self._registry.schema(schema_id)
            try:
                if registered is None:
                    raise Unreadable(f"schema {schema_id} is not registered")
                found = self._resolvable(registered)
            except InvalidArgument as error:
                found = Unreadable(f"schema {schema_id}: {error}")
            except Unreadable as error:
                found = error
            if len(self._writers) >= REGISTRY_SCHEMAS_MAX:
                self._writers.clear()  # a topic with corrupt records may name any number of ids
            self._writers[schema_id] = found
        if isinstance(found, Unreadable):
            raise Unreadable(str(found))
        return found

    def _resolvable(self, writer_schema: Any) -> Any:
        parsed, named = parse_avro(writer_schema)
        if self._has_times and has_nanos(parsed, named):
            raise InvalidArgument("it was written with nanoseconds; read timestamps as 'long' in the reader schema")
        return parsed


def _rebuilt(reader_schema: Any, writer_schema: Any, registry: Any, schema: pa.Schema | None) -> AvroDecoder:
    return AvroDecoder(reader_schema, writer_schema, registry=registry, schema=schema)
