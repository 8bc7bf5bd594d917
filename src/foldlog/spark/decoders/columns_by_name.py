"""Selects columns of a message by the reader's schema."""

from __future__ import annotations

import pyarrow as pa

from foldlog.errors import InvalidArgument
from foldlog.spark.decoders.text_types import sql_name


def pick_columns(available: pa.Schema, wanted: pa.Schema | None, message: str) -> pa.Schema:
    """The available columns that are wanted, in that order; all of them if `wanted` is None."""
    if wanted is None:
        return available
    picked: list[pa.Field] = []
    for field in wanted:
        at = available.get_field_index(field.name)
        if at < 0:
            raise InvalidArgument(f"{message} has no field {field.name!r}")
        found = available.field(at)
        if found.type != field.type:
            raise InvalidArgument(
                f"field {field.name!r} of {message} is {sql_name(found.type)}, and the schema says"
                f" {sql_name(field.type)}; leave the schema out, or cast in the query"
            )
        picked.append(found)
    return pa.schema(picked)
