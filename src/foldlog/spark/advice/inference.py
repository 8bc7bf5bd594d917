"""From sampled records to a format, a schema and a key: what `fold init` writes down for a person to look at.

Pure: bytes in, values out. A type is proposed only if the decoder accepts every sampled value of it, so the written
pipeline reads the records it was made of. What cannot be told is left out, and said in a note.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from foldlog.spark.decoders.json_nodes import Constant, Members, Misfit, Number, TimeNode, parse_document

BIGINT_MAX: Final = 1 << 63
DECIMAL_DIGITS: Final = 18
DECIMAL_SCALE_MAX: Final = 6
"""Numbers with more digits after the point are rather measured than counted: DOUBLE."""

DEPTH_MAX: Final = 5
"""Objects below this depth are left out."""

GROUPS_MAX: Final = 20
"""A text with at most so many values is something to count by."""

_DELIMITERS: Final = (",", ";", "\t", "|")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A topic as a pipeline might declare it."""

    format: str
    columns: dict[str, str]
    """Types by name, as Spark's DDL writes them."""
    key: str | None
    """The column for the record's key; None if records have none, or not all do."""
    options: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    group: str | None = None
    """A column to count by."""
    measure: str | None = None
    """A column to add up."""

    @property
    def schema(self) -> str:
        """As Spark's DDL.

        >>> Proposal("json", {"id": "BIGINT", "full name": "STRING"}, None).schema
        'id BIGINT, `full name` STRING'
        """
        return ", ".join(f"{named(name)} {kind}" for name, kind in self.columns.items())


def named(column: str) -> str:
    """A name in a DDL."""
    return column if _PLAIN_NAME.fullmatch(column) else "`" + column.replace("`", "``") + "`"


def propose(records: Sequence[tuple[bytes | None, bytes | None]]) -> Proposal:
    """What these records, keys and values, could be declared as."""
    values = [value for _, value in records if value is not None]
    documents = [document for document in map(_document, values) if document is not None]
    if documents and len(documents) * 10 >= len(values) * 9:
        found = _of_objects(documents, len(values))
    else:
        found = _of_texts(values)
    return _with_key(found, records)


def _document(value: bytes) -> Members | None:
    try:
        return parse_document(value)
    except Misfit:
        return None


# --- objects --------------------------------------------------------------------------------------------------------


def _of_objects(documents: Sequence[Members], values: int) -> Proposal:
    rows, is_debezium = _rows_of_changes(documents)
    notes: list[str] = []
    if len(documents) < values:
        notes.append(f"{values - len(documents)} of {values} sampled values are no JSON objects: dead letters")
    columns = _columns(rows, notes)
    if not columns:
        return Proposal("text", {}, None, notes=("the sampled objects have no fields whose type can be told",))
    if is_debezium:
        numbers = [name for name, kind in columns.items() if kind == "BIGINT"]
        if numbers:
            notes.append("dates and times that Debezium writes as numbers: declare DATE or TIMESTAMP, with times=")
        return Proposal("debezium", columns, None, notes=tuple(notes))
    group, measure = _group_of(columns, rows), _measure_of(columns, rows)
    return Proposal("json", columns, None, notes=tuple(notes), group=group, measure=measure)


def _rows_of_changes(documents: Sequence[Members]) -> tuple[Sequence[Members], bool]:
    """The rows in change events, if these are such."""
    payloads = []
    for document in documents:
        found = dict(document)
        inside = found.get("payload")
        payload = dict(inside) if set(found) == {"schema", "payload"} and isinstance(inside, Members) else found
        if not {"op", "before", "after"} <= set(payload):
            return documents, False
        payloads.append(payload)
    return [one["after"] for one in payloads if isinstance(one["after"], Members)], True


def _columns(rows: Sequence[Members], notes: list[str], path: str = "", depth: int = 1) -> dict[str, str]:
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row:
            values.setdefault(name, []).append(value)
    columns: dict[str, str] = {}
    for name, found in values.items():
        present = [one for one in found if one is not None]
        kind = _type_of(present, notes, f"{path}{name}", depth)
        if kind is not None:
            columns[name] = kind
    return columns


def _type_of(values: Sequence[Any], notes: list[str], path: str, depth: int) -> str | None:
    """The type that accepts all of these; None, with a note, if there is none."""
    if not values:
        notes.append(f"{path} is always null: left out")
        return None
    kinds = {_kind(one) for one in values}
    if kinds == {"object"}:
        inside = _columns(values, notes, f"{path}.", depth + 1) if depth < DEPTH_MAX else {}
        if inside:
            return f"STRUCT<{', '.join(f'{named(name)}: {kind}' for name, kind in inside.items())}>"
        notes.append(f"{path} is an object without fields to name: left out")
        return None
    if kinds == {"array"}:
        items = [item for one in values for item in one if item is not None]
        kind = _type_of(items, notes, f"{path}[]", depth + 1)
        return None if kind is None else f"ARRAY<{kind}>"
    simple = _SIMPLE.get("".join(kinds)) if len(kinds) == 1 else None
    if simple is None:
        notes.append(f"{path} is {'NaN or an infinity' if 'constant' in kinds else 'of several types'}: left out")
        return None
    return simple(values)


def _kind(value: Any) -> str:
    for name, of in _KINDS.items():
        if isinstance(value, of):
            return name
    return "text"


def _number_type(values: Sequence[Any]) -> str:
    numbers = [Decimal(one) for one in values]
    if all(one == one.to_integral_value() and abs(one) < BIGINT_MAX for one in numbers if one.adjusted() < 20) and all(
        one.adjusted() < 20 for one in numbers
    ):
        return "BIGINT"
    scale = max(-int(one.as_tuple().exponent) for one in numbers)
    digits = max(one.adjusted() + 1 for one in numbers)
    if 0 < scale <= DECIMAL_SCALE_MAX and digits + scale <= DECIMAL_DIGITS:
        return f"DECIMAL({DECIMAL_DIGITS},{scale})"
    return "DOUBLE"


def _text_type(values: Sequence[str]) -> str:
    for kind in ("DATE", "TIMESTAMP"):
        if all(_is_time(one, kind) for one in values):
            return kind
    return "STRING"


def _is_time(text: str, kind: str) -> bool:
    try:
        TimeNode(kind).read(text)
    except Misfit:
        return False
    return True


_KINDS: Final = {"boolean": bool, "number": Number, "constant": Constant, "object": Members, "array": list}
"""What `parse_document` returns; in this order, as some are kinds of others."""

_SIMPLE: Final = {"boolean": lambda _: "BOOLEAN", "number": _number_type, "text": _text_type}


def _group_of(columns: dict[str, str], rows: Sequence[Members]) -> str | None:
    """The text with the fewest values, if it has several and they repeat."""
    best: tuple[int, str] | None = None
    for name, kind in columns.items():
        if kind != "STRING":
            continue
        found = {value for row in rows for one, value in row if one == name}
        if 1 < len(found) <= min(GROUPS_MAX, len(rows) // 3) and (best is None or len(found) < best[0]):
            best = (len(found), name)
    return None if best is None else best[1]


def _measure_of(columns: dict[str, str], rows: Sequence[Members]) -> str | None:
    """A number that is no id: one that does not differ in every row."""
    for name, kind in columns.items():
        if kind == "BIGINT" or kind.startswith("DECIMAL"):
            found = [value for row in rows for one, value in row if one == name and value is not None]
            if not name.lower().endswith("id") and len(set(map(str, found))) < len(found):
                return name
    return None


# --- other values ---------------------------------------------------------------------------------------------------


def _of_texts(values: Sequence[bytes]) -> Proposal:
    if values and all(value[:1] == b"\0" and len(value) > 5 for value in values):
        ids = sorted({int.from_bytes(value[1:5], "big") for value in values})
        told = f"values name schemas of a registry ({', '.join(map(str, ids[:5]))}): use format='avro' with registry="
        return Proposal("raw", {}, None, notes=(told,))
    try:
        texts = [value.decode() for value in values]
    except UnicodeDecodeError:
        return Proposal("raw", {}, None, notes=("values are neither JSON nor text: use format='avro' or 'protobuf'",))
    for delimiter in _DELIMITERS:
        found = _csv_rows(texts, delimiter)
        if found is not None:
            return _of_csv(found, delimiter)
    return Proposal("text", {}, None)


def _csv_rows(texts: Sequence[str], delimiter: str) -> list[list[str]] | None:
    """The fields, if every text is one record with the same number of them, two or more."""
    rows: list[list[str]] = []
    for text in texts:
        read = list(csv.reader(io.StringIO(text), delimiter=delimiter, strict=False))
        if len(read) != 1 or (rows and len(read[0]) != len(rows[0])):
            return None
        rows.append(read[0])
    return rows if len(rows) > 1 and len(rows[0]) > 1 else None


def _of_csv(rows: list[list[str]], delimiter: str) -> Proposal:
    columns: dict[str, str] = {}
    for number in range(len(rows[0])):
        texts = [row[number] for row in rows if row[number]]
        kind = (
            "BIGINT"
            if texts and all(_WHOLE.fullmatch(one) for one in texts)
            else _text_type(texts)
            if texts
            else "STRING"
        )
        columns[f"c{number + 1}"] = kind
    options = {} if delimiter == "," else {"delimiter": delimiter}
    return Proposal("csv", columns, None, options, ("CSV has no names here: rename c1, c2, …",))


# --- keys -----------------------------------------------------------------------------------------------------------


def _with_key(found: Proposal, records: Sequence[tuple[bytes | None, bytes | None]]) -> Proposal:
    keys = [key for key, _ in records if key is not None]
    if not keys or len(keys) < len(records):
        return found
    if found.format == "debezium":
        names = [name for name in _key_fields(keys) if name in found.columns]
        return _keyed(found, names[0]) if len(names) == 1 else found
    texts = [text for text in map(_text, keys) if text is not None]
    if len(texts) < len(keys):
        return _keyed(found, "key", "BINARY", "keys are no text: key= names a BINARY column for them")
    same = _same_field(found, records, texts) if found.format == "json" else None
    return _keyed(found, same or next(name for name in ("key", "record_key", "the_key") if name not in found.columns))


def _same_field(
    found: Proposal, records: Sequence[tuple[bytes | None, bytes | None]], texts: Sequence[str]
) -> str | None:
    """The field that has the key in every record, in a type whose one spelling the keys have."""
    pairs = [(text, dict(document)) for text, document in _paired(records)]
    for name, kind in found.columns.items():
        if all(document.get(name) is not None and str(document[name]) == text for text, document in pairs) and (
            kind == "STRING" or (kind == "BIGINT" and all(map(_WHOLE.fullmatch, texts)))
        ):
            return name
    return None


def _paired(records: Sequence[tuple[bytes | None, bytes | None]]) -> list[tuple[str | None, Members]]:
    """Keys with their documents."""
    found = []
    for key, value in records:
        document = None if value is None else _document(value)
        if document is not None:
            found.append((_text(key or b""), document))
    return found


def _key_fields(keys: Sequence[bytes | None]) -> list[str]:
    for key in keys:
        document = None if key is None else _document(key)
        if document is not None:
            inside = dict(document).get("payload")
            return [name for name, _ in (inside if isinstance(inside, Members) else document)]
    return []


def _keyed(found: Proposal, key: str, kind: str | None = None, note: str | None = None) -> Proposal:
    columns = found.columns if kind is None else {key: kind, **found.columns}
    notes = found.notes if note is None else (*found.notes, note)
    group = None if found.group == key else found.group
    measure = None if found.measure == key else found.measure
    return Proposal(found.format, columns, key, found.options, notes, group, measure)


def _text(key: bytes) -> str | None:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None
