"""Decoders as functions of a DataFrame's columns, for any query: bytes in, a struct out, no jars.

    rows = spark.read.format("foldlog").option("subscribe", "payments").load()
    rows.select(fl.from_json("value", "merchant STRING, amount BIGINT").alias("p")).select("p.*")

They take Arrow batches directly from Spark. Each format accepts the same values as in folds, see docs/decoders.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import types as T  # noqa: N812 as Spark's own documentation calls it
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from foldlog.errors import InvalidArgument, SerializationError, brief_repr
from foldlog.files.paths import PathLike
from foldlog.spark.decoders.avro import AvroDecoder
from foldlog.spark.decoders.decoder import Decoder
from foldlog.spark.decoders.json_values import JsonDecoder
from foldlog.spark.decoders.protobuf import ProtobufDecoder

if TYPE_CHECKING:
    from pyspark.sql import Column

    from foldlog.client.schemas.lookups import SchemaRegistry

REASON: Final = "_reason"
OnBad = Literal["fail", "null", "reason"]


def from_json(column: Column | str, schema: T.StructType | str, *, on_bad: OnBad = "fail") -> Column:
    """A STRING or BINARY column of JSON objects as a struct of this schema (Spark's DDL, or a StructType).

    A null stays null. A value that does not fit the schema fails the query; with on_bad="null" the struct is null
    instead, and with on_bad="reason" its fields are null and an additional field `_reason` says why.
    """
    return _decoded(JsonDecoder(to_arrow_schema(_struct_type(schema), timezone="UTC")), column, on_bad)


def from_avro(
    column: Column | str,
    reader_schema: Any,
    *,
    writer_schema: Any = None,
    registry: SchemaRegistry | str | dict[int, Any] | None = None,
    on_bad: OnBad = "fail",
) -> Column:
    """A BINARY column of Avro records as a struct; with a `registry`, in Confluent's wire format. See `AvroDecoder`."""
    return _decoded(AvroDecoder(reader_schema, writer_schema, registry=registry), column, on_bad)


def from_protobuf(
    column: Column | str,
    descriptors: bytes | str | PathLike[str] | type,
    message: str | None = None,
    *,
    confluent: bool = False,
    on_bad: OnBad = "fail",
) -> Column:
    """A BINARY column of Protobuf messages as a struct. See `ProtobufDecoder`."""
    return _decoded(ProtobufDecoder(descriptors, message, confluent=confluent), column, on_bad)


def _struct_type(schema: T.StructType | str) -> T.StructType:
    try:
        found = T.StructType.fromDDL(schema) if isinstance(schema, str) else schema
    except PySparkException as error:
        raise InvalidArgument(f"this is not a schema: {brief_repr(schema)}") from error
    if not isinstance(found, T.StructType):
        raise InvalidArgument(f"a schema names columns, as in 'merchant STRING'; this does not: {brief_repr(schema)}")
    return found


def _decoded(decoder: Decoder, column: Column | str, on_bad: OnBad) -> Column:
    if on_bad not in ("fail", "null", "reason"):
        raise InvalidArgument(f"on_bad is 'fail', 'null' or 'reason', not {brief_repr(on_bad)}")
    fields = list(decoder.schema)
    if on_bad == "reason":
        if REASON in decoder.schema.names:
            raise InvalidArgument(f"the schema has a field {REASON!r} already")
        fields.append(pa.field(REASON, pa.string()))

    def decode(values: pa.Array) -> pa.Array:
        columns, reasons = decoder.decode(values.cast(pa.binary()))
        is_null = pc.is_null(values)
        if on_bad == "reason":
            columns = [*columns, pa.nulls(len(values), pa.string()) if reasons is None else reasons]
        elif reasons is not None:
            if on_bad == "fail":
                why = next(reason for reason in reasons.to_pylist() if reason is not None)
                raise SerializationError(f"a value cannot be read: {why}; on_bad='reason' goes on and keeps the reason")
            is_null = pc.or_(is_null, pc.is_valid(reasons))
        return pa.StructArray.from_arrays(columns, fields=fields, mask=is_null)

    # Spark derives the kind of function from the type hints, which its own stubs do not allow for.
    function: Callable[[Column], Column] = arrow_udf(decode, from_arrow_schema(pa.schema(fields)))  # type: ignore[call-overload]
    return function(col(column) if isinstance(column, str) else column)
