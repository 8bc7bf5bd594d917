"""JSON Schema: Confluent's table of what may change, and generated pairs: whatever the older schema allows, a newer one
that is called compatible has to allow, as `jsonschema` judges."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from foldlog.broker.registry.json_schemas import JsonSchema
from foldlog.broker.registry.refusals import INVALID_SCHEMA, RegistryRefusal
from foldlog.broker.registry.schemas import Referenced, parse_schema

INT, TEXT, NUMBER = {"type": "integer"}, {"type": "string"}, {"type": "number"}


def obj(closed: Any = None, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": properties}
    if closed is not None:
        made["additionalProperties"] = closed
    if required:
        made["required"] = list(required)
    return made


def why_not(new: Any, old: Any) -> list[str]:
    found = JsonSchema.parse(json.dumps(new)).unreadable(JsonSchema.parse(json.dumps(old)))
    return [one.kind for one in found]


@pytest.mark.parametrize(
    ("new", "old", "kind"),
    [
        # Open, closed and partly open objects: Confluent's documentation, "JSON Schema compatibility rules".
        (obj(a=INT, b=TEXT), obj(a=INT), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
        (obj(a=INT, b={}), obj(a=INT), None),
        (obj(a=INT), obj(a=INT, b=TEXT), None),
        (obj(False, a=INT, b=TEXT), obj(False, a=INT), None),
        (obj(False, ("b",), a=INT, b=TEXT), obj(False, a=INT), "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"),
        (obj(False, ("b",), a=INT, b={**TEXT, "default": ""}), obj(False, a=INT), None),
        (obj(False, a=INT), obj(False, a=INT, b=TEXT), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
        (obj(TEXT, a=INT, b=TEXT), obj(TEXT, a=INT), None),
        (obj(TEXT, a=INT, b=INT), obj(TEXT, a=INT), "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        (obj(TEXT, a=INT), obj(TEXT, a=INT, b=TEXT), None),
        (obj(TEXT, a=INT), obj(TEXT, a=INT, b=INT), "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        (obj(a=INT), obj(False, a=INT), None),
        (obj(False, a=INT), obj(a=INT), "ADDITIONAL_PROPERTIES_REMOVED"),
        (obj(None, ("a",), a=INT), obj(a=INT), "REQUIRED_ATTRIBUTE_ADDED"),
        (obj(a=INT), obj(None, ("a",), a=INT), None),
        (obj(a=NUMBER), obj(a=INT), None),
        (obj(a=INT), obj(a=NUMBER), "TYPE_NARROWED"),
        (obj(a=TEXT), obj(a=INT), "TYPE_CHANGED"),
        ({"type": ["string", "null"]}, TEXT, None),
        (TEXT, {"type": ["string", "null"]}, "TYPE_NARROWED"),
        ({"type": "string", "enum": ["a", "b"]}, {"type": "string", "enum": ["a"]}, None),
        ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a", "b"]}, "ENUM_ARRAY_NARROWED"),
        ({"const": 1}, {"const": 1.0}, None),
        ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 4}, None),
        ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 4}, "MAX_LENGTH_DECREASED"),
        ({"type": "string", "maxLength": 3}, TEXT, "MAX_LENGTH_ADDED"),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 0}, "MINIMUM_INCREASED"),
        ({"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 4}, None),
        ({"type": "integer", "multipleOf": 4}, {"type": "integer", "multipleOf": 2}, "MULTIPLE_OF_CHANGED"),
        ({"type": "string", "pattern": "a"}, TEXT, "PATTERN_ADDED"),
        ({"type": "array", "items": NUMBER}, {"type": "array", "items": INT}, None),
        ({"type": "array", "items": INT}, {"type": "array", "items": NUMBER}, "TYPE_NARROWED"),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}, "UNIQUE_ITEMS_ADDED"),
        ({"oneOf": [INT, TEXT]}, INT, None),
        (INT, {"oneOf": [INT, TEXT]}, "TYPE_CHANGED"),
        ({"oneOf": [INT, TEXT]}, {"oneOf": [INT, TEXT, {"type": "null"}]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
        ({"oneOf": [INT, TEXT, {"type": "null"}]}, {"oneOf": [TEXT, INT]}, None),
        ({}, TEXT, None),
        (TEXT, {}, "TYPE_NARROWED"),
        (True, TEXT, None),
        (False, TEXT, "SCHEMA_REMOVED"),
        ({"not": INT}, {"not": {"type": ["integer", "string"]}}, None),
        ({"not": NUMBER}, {"not": INT}, "NOT_TYPE_EXTENDED"),
    ],
)
def test_the_table_of_changes(new: Any, old: Any, kind: str | None) -> None:
    found = why_not(new, old)
    assert found == ([] if kind is None else [kind]) or (kind in found)
    assert bool(found) is (kind is not None)


_LEAVES = st.sampled_from(
    [
        INT,
        TEXT,
        NUMBER,
        {"type": "null"},
        {"type": "boolean"},
        {"type": ["integer", "null"]},
        {"type": "integer", "minimum": 1},
        {"type": "integer", "maximum": 1, "multipleOf": 2},
        {"type": "string", "minLength": 1},
        {"type": "string", "maxLength": 1},
        {"enum": ["x", 1]},
        {"const": 1},
        {},
        False,
    ]
)


def _objects(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda properties, required, others: (
            {"type": "object", "properties": properties, "required": sorted(required)}
            | ({} if others is None else {"additionalProperties": others})
        ),
        st.dictionaries(st.sampled_from(["a", "b"]), of, max_size=2),
        st.sets(st.sampled_from(["a", "b"])),
        st.sampled_from([None, True, False, INT, TEXT]),
    )


_SCHEMAS = st.recursive(
    _LEAVES,
    lambda of: st.one_of(
        _objects(of),
        st.builds(lambda one: {"type": "array", "items": one}, of),
        st.builds(lambda some: {"anyOf": some}, st.lists(of, min_size=1, max_size=2)),
        st.builds(lambda some: {"allOf": some}, st.lists(of, min_size=1, max_size=2)),
    ),
    max_leaves=4,
)
_VALUES: list[Any] = [
    *(None, True, 0, 1, 2, 1.5, "", "x", "xy", [], [1], ["x"], [None, 2]),
    *({}, {"a": 1}, {"a": "x"}, {"b": 1}, {"a": 1, "b": "x"}, {"a": {}, "b": []}, {"a": None, "c": 1}, {"c": "x"}),
]


@settings(max_examples=100, deadline=None)
@given(_SCHEMAS, _SCHEMAS)
def test_a_compatible_schema_allows_what_the_older_one_allowed(new: Any, old: Any) -> None:
    if why_not(new, old):
        return
    before, after = Draft7Validator(old), Draft7Validator(new)
    for value in _VALUES:
        if before.is_valid(value):
            assert after.is_valid(value), f"{value!r} was allowed"


@settings(max_examples=50, deadline=None)
@given(_SCHEMAS)
def test_a_schema_is_compatible_with_itself(schema: Any) -> None:
    assert why_not(schema, json.loads(json.dumps(schema))) == []


def test_a_reference_is_followed_into_another_schema() -> None:
    money = Referenced(
        "http://shop/money.json", json.dumps({"$id": "http://shop/money.json", "definitions": {"m": INT}})
    )
    text = json.dumps(obj(False, price={"$ref": "http://shop/money.json#/definitions/m"}))
    wider = json.dumps(obj(False, price=NUMBER))
    old, new = JsonSchema.parse(text, [money]), JsonSchema.parse(wider)
    assert new.unreadable(old) == []
    assert [one.kind for one in old.unreadable(new)] == ["TYPE_NARROWED"]


def test_a_schema_that_holds_itself_is_compared() -> None:
    tree = obj(False, next={"$ref": "#"}, n=INT)
    wider = obj(False, next={"$ref": "#"}, n=NUMBER)
    assert why_not(wider, tree) == []
    assert why_not(tree, wider)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        '{"type":"nothing"}',
        '{"type":3}',
        '{"properties":[]}',
        '{"$ref":"#/definitions/gone"}',
        '{"$ref":"http://elsewhere/x.json"}',
        '{"minimum":"x"}',
        "[" * 5000,
        '{"not":' * 3000 + "{}" + "}" * 3000,
    ],
)
def test_what_is_no_schema_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(RegistryRefusal) as refusal:
        parse_schema("JSON", text)
    assert refusal.value.code == INVALID_SCHEMA


def test_a_pattern_cannot_keep_the_registry_busy() -> None:
    old = {"type": "object", "patternProperties": {"^(a+)+$": TEXT}, "additionalProperties": False}
    new = {**old, "properties": {"a" * 60 + "b": INT, "a" * 60: INT}}
    assert why_not(new, old) == ["PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]
