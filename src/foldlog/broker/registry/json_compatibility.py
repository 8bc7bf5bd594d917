"""Whether values that one JSON Schema allows are allowed by another: Confluent's rules, and its names for what differs.

`differences` asks: is every value of the writer's schema a value of the reader's? Objects decide most of it, by what
they do with properties that they do not name:

- open (no `additionalProperties`, or true): a property that the reader adds may have been written with any type;
- closed (`additionalProperties: false`): the writer cannot have written it, so an optional one can be added, and none
  can be removed;
- partly open (a schema for the others): the added or removed property has to agree with that schema.

As with Confluent, a required property that has a default can be added.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from foldlog.broker.registry.schemas import Difference
from foldlog.broker.regular_expressions import compile_regex
from foldlog.errors import InvalidArgument

if TYPE_CHECKING:
    from foldlog.broker.registry.json_schemas import JsonSchema

_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_DEPTH_MAX: Final = 100

_UPPER: Final = {
    "maxLength": ("string", "MAX_LENGTH"),
    "maxItems": ("array", "MAX_ITEMS"),
    "maxProperties": ("object", "MAX_PROPERTIES"),
    "maximum": ("number", "MAXIMUM"),
    "exclusiveMaximum": ("number", "EXCLUSIVE_MAXIMUM"),
}
_LOWER: Final = {
    "minLength": ("string", "MIN_LENGTH"),
    "minItems": ("array", "MIN_ITEMS"),
    "minProperties": ("object", "MIN_PROPERTIES"),
    "minimum": ("number", "MINIMUM"),
    "exclusiveMinimum": ("number", "EXCLUSIVE_MINIMUM"),
}

Schema = dict[str, Any] | bool


def differences(reader: JsonSchema, writer: JsonSchema) -> list[Difference]:
    """Why the reader's schema refuses values that the writer's allows; empty if it refuses none."""
    return _Comparison(reader, writer).compare(_Node(reader.root, ""), _Node(writer.root, ""), "#/", 0)


class _Node:
    """A schema, and the base of the references in it."""

    __slots__ = ("base", "schema")

    def __init__(self, schema: Schema, base: str) -> None:
        self.schema = schema
        self.base = base

    def get(self, name: str) -> Any:
        return self.schema.get(name) if isinstance(self.schema, dict) else None

    def below(self, schema: Schema) -> _Node:
        return _Node(schema, self.base)

    @property
    def is_everything(self) -> bool:
        """Whether it allows all values, as far as one sees without looking into references."""
        if isinstance(self.schema, bool):
            return self.schema
        return not (set(self.schema) - _ANNOTATIONS)

    @property
    def types(self) -> frozenset[str]:
        """The types of JSON that it allows, as far as `type`, `const` and `enum` say."""
        given = self.get("type")
        named = {given} if isinstance(given, str) else set(given or _TYPES)
        if "number" in named:
            named.add("integer")
        for values in (self.get("enum"), [self.get("const")] if self._has("const") else None):
            if values is not None:
                named &= {_type_of(one) for one in values}
        return frozenset(named)

    def _has(self, name: str) -> bool:
        return isinstance(self.schema, dict) and name in self.schema

    @property
    def values(self) -> list[Any] | None:
        """The values that it allows at most, if it lists them."""
        if self._has("const"):
            return [self.get("const")]
        listed = self.get("enum")
        return listed if isinstance(listed, list) else None


_ANNOTATIONS: Final = frozenset(
    {"$id", "$schema", "$comment", "$anchor", "$defs", "definitions", "title", "description", "default", "examples"}
    | {"deprecated", "readOnly", "writeOnly", "contentMediaType", "contentEncoding", "format"}
)


class _Comparison:
    """One comparison: the schemas that are under way are not compared again inside themselves."""

    def __init__(self, reader: JsonSchema, writer: JsonSchema) -> None:
        self._reader = reader
        self._writer = writer
        self._under_way: set[tuple[int, int]] = set()

    def compare(self, reader: _Node, writer: _Node, path: str, depth: int) -> list[Difference]:
        """Why a value of `writer` may be no value of `reader`."""
        reader, writer = self._resolved(reader, self._reader), self._resolved(writer, self._writer)
        if reader.is_everything or writer.schema is False:
            return []
        if reader.schema is False:
            return [_difference("SCHEMA_REMOVED", path, "the new schema allows nothing")]
        pair = (id(reader.schema), id(writer.schema))
        if pair in self._under_way or depth > _DEPTH_MAX:
            return []  # a schema inside itself agrees, as far as that place goes
        self._under_way.add(pair)
        try:
            return self._compare(reader, writer, path, depth + 1)
        finally:
            self._under_way.discard(pair)

    def _resolved(self, node: _Node, home: JsonSchema) -> _Node:
        for _ in range(_DEPTH_MAX):
            pointer = node.get("$ref")
            if not isinstance(pointer, str):
                break
            node = _Node(*home.resolve(pointer, node.base))
        return node

    def _compare(self, reader: _Node, writer: _Node, path: str, depth: int) -> list[Difference]:
        combined = self._combined(reader, writer, path, depth)
        if combined is not None:
            return combined
        lost = writer.types - reader.types
        if lost:
            named = ", ".join(sorted(lost))
            kind = "TYPE_CHANGED" if not writer.types & reader.types else "TYPE_NARROWED"
            return [_difference(kind, path, f"the new schema does not allow the type {named}")]
        found = _of_values(reader, writer, path)
        found += _of_bounds(reader, writer, path)
        if "object" in writer.types:
            found += self._of_objects(reader, writer, path, depth)
        if "array" in writer.types:
            found += self._of_arrays(reader, writer, path, depth)
        return found

    # --- anyOf, oneOf, allOf, not -----------------------------------------------------------------------------------

    def _combined(self, reader: _Node, writer: _Node, path: str, depth: int) -> list[Difference] | None:
        """What differs if one of them combines schemas; None if neither does."""
        if any(reader.get(word) is not None for word in _COMBINING) and _are_one(reader, writer):
            return []  # which part of the one is which of the other need not be found out
        for word in ("anyOf", "oneOf"):
            branches = writer.get(word)
            if isinstance(branches, list):
                found: list[Difference] = []
                for one in self._each(writer, word, branches):
                    found += self.compare(reader, one, f"{path}{word}/", depth)
                return found
        if isinstance(reader.get("allOf"), list):
            found = self.compare(_without(reader, "allOf"), writer, path, depth)
            for one in reader.get("allOf"):
                found += self.compare(reader.below(one), writer, f"{path}allOf/", depth)
            return found
        for word in ("anyOf", "oneOf"):
            branches = reader.get(word)
            if isinstance(branches, list):
                found = self.compare(_without(reader, word), writer, path, depth)
                if not any(not self.compare(reader.below(one), writer, path, depth) for one in branches):
                    found.append(
                        _difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path + word, "no branch allows it all")
                    )
                return found
        if isinstance(writer.get("allOf"), list):
            parts = [_without(writer, "allOf"), *map(writer.below, writer.get("allOf"))]
            if any(not self.compare(reader, one, path, depth) for one in parts):
                return []  # one part alone is narrow enough
            merged = _merged(parts)
            if merged is None:
                return [_difference("PRODUCT_TYPE_NARROWED", path + "allOf", "the old schema combines others")]
            return self.compare(reader, merged, path, depth)
        return self._negated(reader, writer, path, depth)

    def _each(self, node: _Node, word: str, branches: list[Any]) -> Iterator[_Node]:
        """Each branch with what stands beside the word, which holds for all of them."""
        rest = _without(node, word)
        for branch in branches:
            one = self._resolved(node.below(branch), self._writer)
            merged = one if rest.is_everything else _merged([rest, one])
            yield one if merged is None else merged

    def _negated(self, reader: _Node, writer: _Node, path: str, depth: int) -> list[Difference] | None:
        mine, theirs = reader.get("not"), writer.get("not")
        if mine is None:
            return None
        if theirs is not None and not _Comparison(self._writer, self._reader).compare(
            writer.below(theirs), reader.below(mine), path, depth
        ):
            return self.compare(_without(reader, "not"), _without(writer, "not"), path, depth)
        return [_difference("NOT_TYPE_EXTENDED", path + "not", "the new schema excludes more")]

    # --- objects ----------------------------------------------------------------------------------------------------

    def _of_objects(self, reader: _Node, writer: _Node, path: str, depth: int) -> list[Difference]:
        found: list[Difference] = []
        mine, theirs = _properties(reader), _properties(writer)
        required = set(reader.get("required") or ())
        given = set(writer.get("required") or ())
        for name in sorted(required - given):
            schema = mine.get(name)
            has_default = isinstance(schema, dict) and "default" in schema
            if not has_default and (name in theirs or name not in mine):
                found.append(
                    _difference("REQUIRED_ATTRIBUTE_ADDED", f"{path}required/{name}", "the new schema requires it")
                )
        for name, schema in mine.items():
            where = f"{path}properties/{name}"
            if name in theirs:
                found += self.compare(reader.below(schema), writer.below(theirs[name]), where + "/", depth)
            else:
                found += self._added(reader, writer, name, where, name in required, depth)
        for name in theirs:
            if name not in mine:
                found += self._removed(reader, writer, name, f"{path}properties/{name}", depth)
        return found + self._of_others(reader, writer, path, depth) + self._of_rules(reader, writer, path, depth)

    def _added(
        self, reader: _Node, writer: _Node, name: str, where: str, is_required: bool, depth: int
    ) -> list[Difference]:
        schema = _properties(reader)[name]
        other = _others(writer, name)
        has_default = isinstance(schema, dict) and "default" in schema
        if is_required and not has_default:
            kind = "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL" if other is False else "REQUIRED_ATTRIBUTE_ADDED"
            return [_difference(kind, where, "the new schema requires a property that the old one does not name")]
        if other is False or reader.below(schema).is_everything:
            return []
        if writer.below(other).is_everything:
            return [
                _difference(
                    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
                    where,
                    "the old schema has an open content model, and allows anything there",
                )
            ]
        if self.compare(reader.below(schema), writer.below(other), where + "/", depth):
            kind = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            return [_difference(kind, where, "the old schema allows more there")]
        return []

    def _removed(self, reader: _Node, writer: _Node, name: str, where: str, depth: int) -> list[Difference]:
        other = _others(reader, name)
        schema = _properties(writer)[name]
        if schema is False or reader.below(other).is_everything:
            return []
        if other is False:
            kind = "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
            return [_difference(kind, where, "the new schema does not name it and allows no others")]
        if self.compare(reader.below(other), writer.below(schema), where + "/", depth):
            kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            return [_difference(kind, where, "the new schema allows less there")]
        return []

    def _of_others(self, reader: _Node, writer: _Node, path: str, depth: int) -> list[Difference]:
        """Of properties that neither names."""
        mine, theirs = reader.get("additionalProperties"), writer.get("additionalProperties")
        where = path + "additionalProperties"
        found = []
        if mine is False and theirs is not False:
            found = [_difference("ADDITIONAL_PROPERTIES_REMOVED", where, "the new schema allows no other properties")]
        elif isinstance(mine, dict) and theirs is not False:
            other: Schema = True if theirs is None else theirs
            if self.compare(reader.below(mine), writer.below(other), where + "/", depth):
                found = [_difference("ADDITIONAL_PROPERTIES_NARROWED", where, "the new schema allows less there")]
        patterns = writer.get("patternProperties") or {}
        for pattern, schema in (reader.get("patternProperties") or {}).items():
            where = f"{path}patternProperties/{pattern}"
            if pattern in patterns:
                found += self.compare(reader.below(schema), writer.below(patterns[pattern]), where + "/", depth)
            elif theirs is not False and not reader.below(schema).is_everything:
                found.append(_difference("PATTERN_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", where, "it allows less there"))
        for pattern, schema in patterns.items():
            if pattern not in (reader.get("patternProperties") or {}) and mine is not None and mine is not True:
                where = f"{path}patternProperties/{pattern}"
                if mine is False or self.compare(reader.below(mine), writer.below(schema), where + "/", depth):
                    found.append(_difference("PATTERN_PROPERTY_REMOVED", where, "the new schema allows less there"))
        return found

    def _of_rules(self, reader: _Node, writer: _Node, path: str, depth: int) -> list[Difference]:
        """Rules that only a reader without them, or with an equal one, is sure to keep."""
        found = [
            _difference(kind, path + word, "the new schema has another rule")
            for word, kind in _RULES.items()
            if reader.get(word) is not None and _text(reader.get(word)) != _text(writer.get(word))
        ]
        names = reader.get("propertyNames")
        if names is not None:
            other = writer.get("propertyNames")
            named: Schema = {"type": "string"} if other is None else other
            found += self.compare(reader.below(names), writer.below(named), path + "propertyNames/", depth)
        return found

    # --- arrays -----------------------------------------------------------------------------------------------------

    def _of_arrays(self, reader: _Node, writer: _Node, path: str, depth: int) -> list[Difference]:
        found = []
        if reader.get("uniqueItems") and not writer.get("uniqueItems"):
            found.append(_difference("UNIQUE_ITEMS_ADDED", path + "uniqueItems", "the new schema refuses equal items"))
        if reader.get("contains") is not None and _text(reader.get("contains")) != _text(writer.get("contains")):
            found.append(_difference("CONTAINS_CHANGED", path + "contains", "the new schema has another rule"))
        (mine, my_rest), (theirs, their_rest) = _items(reader), _items(writer)
        for number in range(max(len(mine), len(theirs))):
            one = mine[number] if number < len(mine) else my_rest
            other = theirs[number] if number < len(theirs) else their_rest
            found += self.compare(reader.below(one), writer.below(other), f"{path}items/{number}/", depth)
        return found + self.compare(reader.below(my_rest), writer.below(their_rest), path + "items/", depth)


_RULES: Final = {
    "dependencies": "DEPENDENCY_CHANGED",
    "dependentRequired": "DEPENDENCY_CHANGED",
    "dependentSchemas": "DEPENDENCY_CHANGED",
    "if": "CONDITION_CHANGED",
    "unevaluatedProperties": "UNEVALUATED_PROPERTIES_CHANGED",
    "unevaluatedItems": "UNEVALUATED_ITEMS_CHANGED",
}


_COMBINING: Final = ("allOf", "anyOf", "oneOf", "not")


def _are_one(reader: _Node, writer: _Node) -> bool:
    text = _text(reader.schema)
    return '"$ref"' not in text and text == _text(writer.schema)


def _of_values(reader: _Node, writer: _Node, path: str) -> list[Difference]:
    """Of `const`, `enum` and `pattern`."""
    found = []
    allowed, written = reader.values, writer.values
    if allowed is not None:
        known = {_text(one) for one in allowed}
        if written is None:
            found.append(_difference("ENUM_ARRAY_ADDED", path + "enum", "the new schema allows only some values"))
        elif any(_text(one) not in known for one in written):
            found.append(
                _difference("ENUM_ARRAY_NARROWED", path + "enum", "the new schema lacks values of the old one")
            )
    pattern = reader.get("pattern")
    if "string" in writer.types and pattern is not None and pattern != writer.get("pattern"):
        kind = "PATTERN_ADDED" if writer.get("pattern") is None else "PATTERN_CHANGED"
        if not _all_match(pattern, written):
            found.append(_difference(kind, path + "pattern", "the new schema asks for another pattern"))
    return found


def _all_match(pattern: str, values: list[Any] | None) -> bool:
    if values is None or not values:
        return False
    try:
        expression = compile_regex(pattern)
        return all(expression.search(one) is not None for one in values if isinstance(one, str))
    except InvalidArgument:
        return False


def _of_bounds(reader: _Node, writer: _Node, path: str) -> list[Difference]:
    found = []
    looks: tuple[tuple[dict[str, tuple[str, str]], Callable[[Any, Any], bool], str], ...] = (
        (_UPPER, lambda mine, theirs: mine < theirs, "DECREASED"),
        (_LOWER, lambda mine, theirs: mine > theirs, "INCREASED"),
    )
    for words, is_narrower, change in looks:
        for word, (of, kind) in words.items():
            mine, theirs = reader.get(word), writer.get(word)
            if not _is_number(mine) or not (of in writer.types or (of == "number" and "integer" in writer.types)):
                continue
            if not _is_number(theirs):
                if word in ("minLength", "minItems", "minProperties") and mine <= 0:
                    continue
                found.append(_difference(f"{kind}_ADDED", path + word, f"the new schema has a bound, {mine}"))
            elif is_narrower(mine, theirs):
                found.append(_difference(f"{kind}_{change}", path + word, f"it was {theirs} and is {mine}"))
    step, before = reader.get("multipleOf"), writer.get("multipleOf")
    if _is_number(step) and writer.types & {"number", "integer"}:
        is_whole = before is None and "number" not in writer.types and step == 1
        if not (_is_number(before) and before % step == 0) and not is_whole:
            kind = "MULTIPLE_OF_ADDED" if before is None else "MULTIPLE_OF_CHANGED"
            found.append(_difference(kind, path + "multipleOf", "the new schema asks for other multiples"))
    return found


def _properties(node: _Node) -> dict[str, Schema]:
    return node.get("properties") or {}


def _others(node: _Node, name: str) -> Schema:
    """What a schema asks of a property that it does not name."""
    for pattern, schema in (node.get("patternProperties") or {}).items():
        try:
            if compile_regex(pattern).search(name):
                return schema  # type: ignore[no-any-return]
        except InvalidArgument:
            continue
    given = node.get("additionalProperties")
    return True if given is None else given


def _items(node: _Node) -> tuple[list[Schema], Schema]:
    """The schemas of the first items, and that of the rest: in the words of all drafts."""
    items, prefix = node.get("items"), node.get("prefixItems")
    if isinstance(prefix, list):
        return prefix, True if items is None else items
    if isinstance(items, list):
        rest = node.get("additionalItems")
        return items, True if rest is None else rest
    return [], True if items is None else items


def _without(node: _Node, word: str) -> _Node:
    return node.below(
        {name: one for name, one in node.schema.items() if name != word}
        if isinstance(node.schema, dict)
        else node.schema
    )


def _merged(parts: list[_Node]) -> _Node | None:
    """One schema that allows no less than all of them together; None if they cannot be put into one."""
    merged: dict[str, Any] = {}
    for part in parts:
        if isinstance(part.schema, bool):
            if not part.schema:
                return part
            continue
        for name, value in part.schema.items():
            known = merged.get(name)
            if known is None or name in _ANNOTATIONS:
                merged[name] = value
            elif name == "properties" and not set(known) & set(value):
                merged[name] = {**known, **value}
            elif name == "required":
                merged[name] = sorted({*known, *value})
            elif known != value:
                return None
    return parts[0].below(merged)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    """Equal for equal values of JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    kinds = {int: "integer", str: "string", list: "array", dict: "object", type(None): "null"}
    return kinds[type(value)]


def _difference(kind: str, path: str, why: str) -> Difference:
    return Difference(kind, f"at path {path}: {why}".replace("'", "`"))
