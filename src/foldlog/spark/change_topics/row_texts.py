"""Rows as the keys and values of records: keys are text, values are JSON objects that `format="json"` reads back.

A value names every column of its row, `{"id":"o-1","amount":4200,"note":null}`. Whole columns are turned into text at
once, as in `foldlog.views.row_json`, whose arrays no fold could read. Equal rows have equal texts, so that a row which
did not change is recognised by its bytes.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, ViewUnavailable
from foldlog.spark.decoders.decoder import decoder_for

if TYPE_CHECKING:
    import pyarrow as pa

_NEEDS_ESCAPE: Final = '["\\\\\\x00-\\x1f]'

_encode: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


def check_columns(schema: pa.Schema) -> None:
    """InvalidArgument, in one sentence, if JSON cannot carry a column's type."""
    try:
        decoder_for("json", schema)
    except InvalidArgument as error:
        raise InvalidArgument(f"a topic of changes cannot carry these rows: {error}; cast the column") from None


def value_texts(rows: pa.Table) -> list[str]:
    """A JSON object for each row.

    >>> import pyarrow as pa
    >>> value_texts(pa.table({"id": [1, None], "name": ['say "hi"', "x"], "share": [0.5, 1e300]}))
    ['{"id":1,"name":"say \\\\"hi\\\\"","share":0.5}', '{"id":null,"name":"x","share":1e+300}']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[Any] = []
    opening = "{"
    for name in rows.column_names:
        parts += [_text(opening + _encode(name) + ":"), _json_column(rows[name].combine_chunks())]
        opening = ","
    if not rows.num_rows:
        return []
    texts: list[str] = pc.binary_join_element_wise(*parts, _text("}"), pa.scalar("", pa.large_string())).to_pylist()
    return texts


def key_texts(rows: pa.Table, key: Sequence[str]) -> list[bytes]:
    """The key of each row: the text of its one key column, or a JSON array of several.

    >>> import pyarrow as pa
    >>> rows = pa.table({"id": ["o-1"], "line": [2]})
    >>> key_texts(rows, ["id"]), key_texts(rows, ["id", "line"])
    ([b'o-1'], [b'["o-1",2]'])
    """
    if len(key) == 1:
        return column_texts(rows[key[0]])
    import pyarrow as pa
    import pyarrow.compute as pc

    if not rows.num_rows:
        return []
    columns = [_json_column(rows[name].combine_chunks()) for name in key]
    joined = pc.binary_join_element_wise(*columns, _text(","))
    nothing = pa.scalar("", pa.large_string())
    texts: list[str] = pc.binary_join_element_wise(_text("["), joined, _text("]"), nothing).to_pylist()
    return [text.encode() for text in texts]


def column_texts(column: pa.ChunkedArray) -> list[bytes]:
    """The values of a key column as the bytes of keys, which the topic's key column of the same type reads back."""
    from pyarrow import types

    kind = column.type
    if types.is_binary(kind) or types.is_large_binary(kind):
        return [bytes(value) for value in column.to_pylist()]
    if types.is_string(kind) or types.is_large_string(kind):
        return [value.encode() for value in column.to_pylist()]
    texts = _json_column(column.combine_chunks()).to_pylist()
    quotes = not (types.is_integer(kind) or types.is_boolean(kind))
    return [(text[1:-1] if quotes else text).encode() for text in texts]


def rows_of(values: Sequence[bytes], schema: pa.Schema, location: str) -> pa.RecordBatch:
    """The inverse of `value_texts`; a row from before a column was added has a null there."""
    import pyarrow as pa

    columns, reasons = decoder_for("json", schema).decode(pa.array(values, pa.binary()))
    if reasons is not None and reasons.null_count < len(reasons):
        raise ViewUnavailable(
            location, f"it holds a record that the fold did not write ({reasons.drop_null()[0]}); rebuild it"
        )
    arrays = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _text(text: str) -> Any:
    import pyarrow as pa

    return pa.scalar(text, pa.large_string())


def _json_column(column: Any) -> Any:
    """JSON for each value, "null" for a null."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_floating(kind):
        # A float is printed with as many digits as tell it from its neighbours. NaN and infinities do not come here.
        return column.cast(pa.large_string()).fill_null("null")
    if types.is_string(kind) or types.is_large_string(kind):
        return _quoted(column.cast(pa.large_string())).fill_null("null")
    return pa.array([_encode(_plain(value, kind)) for value in column.to_pylist()], pa.large_string())


def _quoted(texts: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    quoted = pc.binary_join_element_wise(_text('"'), texts, _text('"'), _text(""))
    escaped = pc.match_substring_regex(texts, _NEEDS_ESCAPE).fill_null(False)
    if pc.any(escaped).as_py():
        replacements = [_encode(text) for text in texts.filter(escaped).to_pylist()]
        quoted = pc.replace_with_mask(quoted, escaped, pa.array(replacements, pa.large_string()))
    return quoted


def _plain(value: Any, kind: Any) -> Any:
    """As `json` writes it, in the spellings of docs/decoders.md."""
    from pyarrow import types

    if value is None or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return value
    if types.is_binary(kind) or types.is_large_binary(kind):
        return b64encode(value).decode("ascii")
    if types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if types.is_map(kind):
        return {key: _plain(item, kind.item_type) for key, item in value}
    if types.is_list(kind) or types.is_large_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if types.is_timestamp(kind):
        return value.isoformat().replace("+00:00", "Z")
    if types.is_date32(kind):
        return value.isoformat()
    return format(value, "f") if types.is_decimal(kind) else str(value)
