"""From the bytes of keys and values to typed columns, without jars and without a JVM.

A decoder is a small object that is pickled to the executors. It turns a column of bytes into Arrow columns, and gives a
reason for each row that it could not read. It knows nothing of Spark: `functions` makes column functions of decoders,
folds use them directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from foldlog.errors import InvalidArgument, MissingDependency, brief_repr

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS: Final = ("json", "avro", "protobuf", "csv", "debezium", "text", "raw")
VALUE: Final = "value"
"""The column of the formats that do not parse values."""


class Decoder(Protocol):
    """Values to columns. Used by one thread at a time; can be pickled."""

    @property
    def schema(self) -> pa.Schema:
        """The decoded columns, in Spark's Arrow types; all nullable, since a row may be unreadable. A format whose
        values may delete fills `_deleted`, too: its rows are deletions, as a value that is null is."""
        ...

    def decode(self, values: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray | None]:
        """An array per column with a row per value, and the reasons: null for a good row, else why it cannot be read.

        The reasons are None if all rows are good. A row with a reason has only nulls. A null value, a tombstone, has
        only nulls, too, and no reason.
        """
        ...


class KeyDecoder(Protocol):
    """Keys to one column. Used by one thread at a time; can be pickled."""

    @property
    def type(self) -> pa.DataType: ...

    def decode(self, keys: pa.BinaryArray) -> tuple[pa.Array, pa.StringArray | None]:
        """The column and the reasons, as in `Decoder.decode`. A null key is null, without a reason."""
        ...


def decoder_for(format: str, schema: pa.Schema | None = None, **options: Any) -> Decoder:  # noqa: A002 Spark's word
    """The decoder of a format by its name.

    json, csv and debezium need `schema`; with `confluent`, values of JSON begin with a schema id. avro takes
    `reader_schema` (or `writer_schema`) and protobuf `descriptors` and `message`, see their classes; for these `schema`
    selects columns of the message by name, and their types have to agree. text and raw have one column, named "value"
    unless `schema` gives it another name and type.
    """
    _require_pyarrow()
    if format in ("json", "csv", "debezium") and schema is None:
        raise InvalidArgument(f"format {format!r} needs a schema, such as 'merchant STRING, amount BIGINT'")
    if format == "csv":
        from foldlog.spark.decoders.csv_values import CsvDecoder

        return _made(CsvDecoder, format, schema=schema, **options)
    if format == "debezium":
        from foldlog.spark.decoders.debezium import DebeziumDecoder

        return _made(DebeziumDecoder, format, schema=schema, **options)
    if format == "json":
        from foldlog.spark.decoders.json_values import JsonDecoder

        if not options.pop("confluent", False):
            return _made(JsonDecoder, format, schema=schema, **options)
        from foldlog.spark.decoders.registered import FramedDecoder

        return FramedDecoder(_made(JsonDecoder, format, schema=schema, **options))
    if format == "avro":
        from foldlog.spark.decoders.avro import AvroDecoder

        return _made(AvroDecoder, format, schema=schema, **options)
    if format == "protobuf":
        from foldlog.spark.decoders.protobuf import ProtobufDecoder

        return _made(ProtobufDecoder, format, schema=schema, **options)
    if format in ("text", "raw"):
        from foldlog.spark.decoders.plain import PlainDecoder

        return _made(PlainDecoder, format, schema=schema, is_text=format == "text", **options)
    raise InvalidArgument(f"there is no format {brief_repr(format)}; there are {', '.join(FORMATS)}")


def key_decoder(type: pa.DataType) -> KeyDecoder:  # noqa: A002 what it is
    """From a key's bytes to a column of this type: BINARY as they are, STRING as UTF-8, others parsed from text."""
    _require_pyarrow()
    from foldlog.spark.decoders.plain import PlainKeyDecoder

    return PlainKeyDecoder(type)


def parsed_key_decoder(format: str, schema: pa.Schema, **options: Any) -> Decoder:  # noqa: A002 Spark's word
    """From keys that are objects to columns: format "json" or "debezium"."""
    if format == "debezium":
        from foldlog.spark.decoders.debezium import DebeziumKeyDecoder

        return _made(DebeziumKeyDecoder, format, schema=schema, **options)
    return decoder_for(format, schema, **options)


def _made(decoder: Callable[..., Decoder], format_name: str, **options: Any) -> Decoder:
    try:
        return decoder(**options)
    except TypeError as error:
        # An unknown option: Python's own message names the class, which the user did not call.
        if "unexpected keyword argument" not in str(error):
            raise
        name = str(error).rpartition("argument ")[2]
        raise InvalidArgument(f"format {format_name!r} has no option {name}") from None


def _require_pyarrow() -> None:
    try:
        import pyarrow as pa  # noqa: F401 only whether it is there
    except ImportError as error:
        raise MissingDependency("decoding values", "pyarrow", "spark") from error
