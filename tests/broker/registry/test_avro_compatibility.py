"""Avro's rules of schema resolution: a table by hand, and generated pairs against the `avro` package's own checker."""

from __future__ import annotations

import json
from typing import Any

import avro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from hypothesis import given, settings
from hypothesis import strategies as st

from foldlog.broker.registry.avro_schemas import AvroSchema
from foldlog.broker.registry.refusals import INVALID_SCHEMA, RegistryRefusal


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def reads(reader: Any, writer: Any) -> bool:
    return not AvroSchema.parse(json.dumps(reader)).unreadable(AvroSchema.parse(json.dumps(writer)))


A: dict[str, Any] = {"name": "a", "type": "int"}
B_DEFAULT: dict[str, Any] = {"name": "b", "type": "string", "default": ""}
ENUM: dict[str, Any] = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        (record(A, B_DEFAULT), record(A), True),  # added with a default
        (record(A, {"name": "b", "type": "string"}), record(A), False),  # added without one
        (record(A), record(A, B_DEFAULT), True),  # removed
        ("long", "int", True),
        ("int", "long", False),
        ("double", "float", True),
        ("float", "double", False),
        ("string", "bytes", True),
        ("bytes", "string", True),
        (["null", "int"], "int", True),
        ("int", ["null", "int"], False),
        (["null", "long"], ["null", "int"], True),
        (["null", "string"], ["null", "int"], False),
        (ENUM, {**ENUM, "symbols": ["X", "Y", "Z"]}, False),
        ({**ENUM, "default": "X"}, {**ENUM, "symbols": ["X", "Y", "Z"]}, True),
        ({**ENUM, "symbols": ["X", "Y", "Z"]}, ENUM, True),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, True),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, False),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}, False),
        (record(A, name="S"), record(A), False),
        (record(A, name="S", aliases=["R"]), record(A), True),
        (record({"name": "b", "type": "int", "aliases": ["a"]}), record(A), True),
        (
            record({"name": "next", "type": ["null", "R"], "default": None}, A),
            record({"name": "next", "type": ["null", "R"], "default": None}, A),
            True,
        ),
    ],
)
def test_a_reader_reads_what_avro_says_it_reads(reader: Any, writer: Any, expected: bool) -> None:
    assert reads(reader, writer) is expected


_NAMES = st.sampled_from(["a", "b", "c"])
_PRIMITIVES = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
_ENUMS = st.builds(
    lambda symbols, default: (
        {"type": "enum", "name": "E", "symbols": symbols} | ({"default": symbols[0]} if default else {})
    ),
    st.lists(st.sampled_from(["X", "Y", "Z"]), min_size=1, unique=True),
    st.booleans(),
)
_FIXED = st.builds(lambda size: {"type": "fixed", "name": "F", "size": size}, st.integers(1, 2))
_DEFAULTS: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 0.5,
    "double": 0.5,
    "bytes": "x",
    "string": "y",
    "array": [],
    "map": {},
}


def _unions(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def kind(one: Any) -> str:
        return one if isinstance(one, str) else str(one["type"])

    return st.lists(of, min_size=1, max_size=3, unique_by=kind)


def _default(of: Any) -> Any:
    first = of[0] if isinstance(of, list) else of
    if isinstance(first, dict) and first["type"] == "enum":
        return first["symbols"][0]
    if isinstance(first, dict) and first["type"] == "fixed":
        return "x" * first["size"]
    return _DEFAULTS[first if isinstance(first, str) else first["type"]]


_INNER = st.one_of(
    _PRIMITIVES,
    st.builds(lambda of: {"type": "array", "items": of}, _PRIMITIVES),
    st.builds(lambda of: {"type": "map", "values": of}, _PRIMITIVES),
)
_TYPES = st.one_of(_INNER, _unions(_INNER))
_FIELDS = st.lists(
    st.tuples(_NAMES, st.one_of(_TYPES, _ENUMS, _FIXED), st.booleans()), max_size=3, unique_by=lambda one: one[0]
)


@st.composite
def _records(draw: st.DrawFn) -> dict[str, Any]:
    fields, seen = [], set()
    for name, of, has_default in draw(_FIELDS):
        if isinstance(of, dict) and "name" in of:
            if of["name"] in seen:
                continue  # a name is defined once
            seen.add(of["name"])
        fields.append({"name": name, "type": of} | ({"default": _default(of)} if has_default else {}))
    return record(*fields)


@settings(max_examples=100, deadline=None)
@given(_records(), _records())
def test_generated_pairs_are_compatible_where_the_avro_package_says_so(
    reader: dict[str, Any], writer: dict[str, Any]
) -> None:
    parsed: list[Any] = [avro.schema.parse(json.dumps(one)) for one in (reader, writer)]
    oracle = ReaderWriterCompatibilityChecker().get_compatibility(*parsed)  # type: ignore[no-untyped-call]
    assert reads(reader, writer) is (oracle.compatibility is SchemaCompatibilityType.compatible)


@given(_records())
@settings(max_examples=50, deadline=None)
def test_a_canonical_text_is_the_text_of_the_same_schema(schema: dict[str, Any]) -> None:
    first = AvroSchema.parse(json.dumps(schema, indent=3))
    assert AvroSchema.parse(first.canonical).canonical == first.canonical
    assert avro.schema.parse(first.canonical) == avro.schema.parse(json.dumps(schema))
    assert AvroSchema.parse(first.normalized()).normalized() == first.normalized()


def test_names_are_written_as_java_writes_them() -> None:
    inner = {"type": "record", "name": "x.y.In", "fields": [{"name": "n", "type": ["null", "x.Out"]}]}
    given = {"name": "Out", "namespace": "x", "type": "record", "fields": [{"type": inner, "name": "in"}]}
    assert AvroSchema.parse(json.dumps(given)).canonical == (
        '{"type":"record","name":"Out","namespace":"x","fields":[{"name":"in","type":{"type":"record","name":"In",'
        '"namespace":"x.y","fields":[{"name":"n","type":["null","x.Out"]}]}}]}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        "[]]",
        "3",
        "null",
        '"nothing"',
        '{"type":"record","name":"R"}',
        '{"type":"record","name":"R","fields":[{"name":"a"}]}',
        '{"type":"record","name":"1R","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}',
        '{"type":"enum","name":"E","symbols":["A","A"]}',
        '["int","int"]',
        '["int",["null"]]',
        '{"type":"array"}',
        "[" * 5000,
        '{"type":' * 800 + '"int"' + "}" * 800,
    ],
)
def test_what_is_no_schema_is_refused_in_a_sentence(text: str) -> None:
    from foldlog.broker.registry.schemas import parse_schema

    with pytest.raises(RegistryRefusal) as refusal:
        parse_schema("AVRO", text)
    assert refusal.value.code == INVALID_SCHEMA
