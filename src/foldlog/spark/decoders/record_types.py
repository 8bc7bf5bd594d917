"""Several types of records in one topic: which records are of the type that a fold reads.

Records of other types are left out before anything of them is decoded, as if the topic did not hold them. A record
whose type cannot be told, such as a value that is not JSON, is not left out: it becomes a dead letter. A tombstone has
no value to tell its type by; it is of every type, unless a header says otherwise, for what a key has written has to go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.spark.decoders.headers import last_header

if TYPE_CHECKING:
    import pyarrow as pa


class RecordType(Protocol):
    """Tells the records of a type. Pickled to the workers."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The log's columns that it looks at."""
        ...

    def of(self, records: pa.RecordBatch) -> pa.BooleanArray:
        """A flag for each record: False for those to leave out."""
        ...


@dataclass(frozen=True)
class ByField:
    """Values are JSON, and their field is one of these; see `by_field`."""

    field: str
    values: tuple[str | int, ...]

    columns = ("value",)

    def of(self, records: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow as pa
        import pyarrow.compute as pc

        from foldlog.spark.decoders.json_values import JsonDecoder

        kind = pa.string() if isinstance(self.values[0], str) else pa.int64()
        values = records.column("value")
        (found,), reasons = JsonDecoder(schema=pa.schema([(self.field, kind)])).decode(values)
        is_of = pc.is_in(found, value_set=pa.array(self.values, kind))
        unclear = pc.is_null(values) if reasons is None else pc.or_(pc.is_null(values), pc.is_valid(reasons))
        return pc.or_(is_of, unclear)


@dataclass(frozen=True)
class ByHeader:
    """The last header of a name has one of these values; see `by_header`."""

    header: str
    values: tuple[bytes, ...]

    columns = ("headers", "value")

    def of(self, records: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = last_header(records.column("headers"), self.header)
        is_of = pc.is_in(found, value_set=pa.array(self.values, pa.binary()))
        return pc.or_(is_of, pc.and_(pc.is_null(records.column("value")), pc.is_null(found)))


@dataclass(frozen=True)
class BySchema:
    """Values are in Confluent's wire format, and name one of these schema ids; see `by_schema`."""

    ids: tuple[int, ...]

    columns = ("value",)

    def of(self, records: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow as pa
        import pyarrow.compute as pc

        values = records.column("value")
        prefixes = pa.array([b"\0" + one.to_bytes(4, "big") for one in self.ids], pa.binary())
        begins = pc.binary_slice(values, 0, 5)
        names_one = pc.and_(pc.equal(pc.binary_slice(values, 0, 1), b"\0"), pc.equal(pc.binary_length(begins), 5))
        # What is not in that format is not known to be of another type: its decoder says what is wrong with it.
        return pc.or_(pc.is_in(begins, value_set=prefixes), pc.fill_null(pc.invert(names_one), True))


@dataclass(frozen=True)
class ByKey:
    """Records of these keys, by their bytes; and of the type that is read anyway."""

    keys: tuple[bytes, ...]
    also: RecordType | None

    @property
    def columns(self) -> tuple[str, ...]:
        return ("key", *(() if self.also is None else self.also.columns))

    def of(self, records: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow as pa
        import pyarrow.compute as pc

        has_key = pc.is_in(records.column("key"), value_set=pa.array(self.keys, pa.binary()))
        return has_key if self.also is None else pc.and_(has_key, self.also.of(records))


def by_field(field: str, *values: str | int) -> RecordType:
    """Records whose JSON value has one of these values in a field of its top level: texts, or whole numbers."""
    _check_type("by_field", "field", field, values)
    if not all(type(one) is str for one in values) and not all(type(one) is int for one in values):
        raise InvalidArgument(f"by_field() takes texts, or whole numbers, not {brief_repr(values)}")
    return ByField(field, values)


def by_header(header: str, *values: str | bytes) -> RecordType:
    """Records whose header of this name has one of these values; if it is there several times, the last one counts."""
    _check_type("by_header", "header", header, values)
    if not all(isinstance(one, str | bytes) for one in values):
        raise InvalidArgument(f"by_header() takes texts or bytes, not {brief_repr(values)}")
    return ByHeader(header, tuple(one.encode() if isinstance(one, str) else one for one in values))


def by_schema(*ids: int) -> RecordType:
    """Records whose value, in Confluent's wire format, names one of these ids of the schema registry."""
    if not ids or not all(type(one) is int and 0 <= one < 1 << 32 for one in ids):
        raise InvalidArgument(f"by_schema() takes ids of schemas, such as by_schema(7, 12), not {brief_repr(ids)}")
    return BySchema(ids)


def _check_type(function: str, what: str, name: object, values: tuple[object, ...]) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{function}() takes the name of a {what}, not {brief_repr(name)}")
    if not values:
        raise InvalidArgument(f"{function}() needs the values of the type that you want: {function}({name!r}, 'order')")


def is_record_type(given: object) -> bool:
    """Whether `by_field`, `by_header` or `by_schema` made it."""
    return isinstance(given, ByField | ByHeader | BySchema)
