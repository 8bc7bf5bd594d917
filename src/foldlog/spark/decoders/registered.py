"""A topic's columns from the schema that is registered for it: `fl.topic(..., schema="registry", registry=URL)`.

The subject's newest version, or the one that is asked for, is the schema to read with. Values of other versions are
read with it, by the rules of their format: Avro's schema resolution, Protobuf's field numbers, JSON's names. So a
version that is registered while a fold runs changes nothing until the fold is declared again, at its next start; a
running fold says what it will do then (`FollowedSchema.news`), and the start logs what it does (`effect_of`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from foldlog.client.schemas.lookups import RegisteredSchema, SchemaRegistry
from foldlog.client.schemas.values import descriptor_set
from foldlog.errors import InvalidArgument, brief_repr
from foldlog.records.schema_ids import HEADER_BYTES
from foldlog.spark.decoders.decoder import Decoder, decoder_for

logger = logging.getLogger("foldlog.folds")

REGISTRY: Final = "registry"
_OPTIONS: Final = ("registry", "subject", "version", "message", "on_new_column")
_SCALARS: Final = {"string": "STRING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
_DEPTH_MAX: Final = 32


class TakenSchema(NamedTuple):
    """How values are read: a schema in Spark's DDL if the format needs one, the format, and its options."""

    schema: str | None
    format: str
    options: dict[str, Any]


def taken_schema(topic: str, options: Mapping[str, Any]) -> TakenSchema:
    """Ask the registry for the schema of a topic's values. Raises InvalidArgument if it has none, RegistryUnavailable
    if it does not answer."""
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise InvalidArgument(
            f"schema='registry' of topic {topic!r} has no option {unknown[0]!r}; it has registry=URL,"
            " subject=, version= and, for Protobuf, message="
        )
    rule, wanted = options.get("on_new_column", "add"), options.get("version")
    if rule != "add" or ("on_new_column" in options and wanted is not None):
        raise InvalidArgument(
            f"schema='registry' of topic {topic!r} takes the columns of a registered version: leave on_new_column out,"
            " and each start takes the newest (that is 'add'), or keep to one with version=3"
        )
    url = options.get("registry")
    if not isinstance(url, str | SchemaRegistry):
        raise InvalidArgument(f"say where the schema of topic {topic!r} is: registry='http://127.0.0.1:8081'")
    registry = url if isinstance(url, SchemaRegistry) else SchemaRegistry(url)
    subject = options.get("subject") or f"{topic}-value"
    number, schema = _version(registry, subject, wanted)
    message = options.get("message")
    taken = _of_kind(registry, schema, message)
    _newest.pop(topic, None)
    if wanted is None:
        _newest[topic] = FollowedSchema(topic, registry, subject, message, number, taken)
    if number > 1:
        before = registry.version(subject, number - 1)
        if before is not None and before[1].kind == schema.kind:
            for line in effect_of(_columns(_of_kind(registry, before[1], message)), _columns(taken)):
                logger.info("topic %s is read with version %d of %s: %s", topic, number, subject, line)
    return taken


class FollowedSchema:
    """The newest version of a subject when a topic was declared, and those that have come since. One thread."""

    def __init__(
        self,
        topic: str,
        registry: SchemaRegistry,
        subject: str,
        message: str | None,
        number: int,
        taken: TakenSchema,
    ) -> None:
        self._topic = topic
        self._registry = registry
        self._subject = subject
        self._message = message
        self._number = number
        self._told = number
        self._taken = taken

    def is_of(self, schema: object, form: str) -> bool:
        """Whether a topic of that schema and format is this one: it may have been declared again, by hand."""
        return (self._taken.schema, self._taken.format) == (schema, form)

    def news(self) -> str | None:
        """What a version does that was registered since the last call, in a sentence; None if there is none. Raises
        RegistryUnavailable if the registry does not answer."""
        found = self._registry.version(self._subject, "latest")
        if found is None or found[0] <= self._told:
            return None
        self._told, schema = found
        told = f"version {self._told} of {self._subject} is registered; topic {self._topic!r} is read with version"
        told += f" {self._number} until its folds start again"
        try:
            after = _columns(_of_kind(self._registry, schema, self._message))
        except InvalidArgument as error:
            return f"{told}, which then fails: {error}"
        effects = _pending_effects(_columns(self._taken), after)
        return f"{told}: {'; '.join(effects)}" if effects else f"{told}: its columns are those that the folds have"


_newest: dict[str, FollowedSchema] = {}
"""By topic; like topics themselves, a name has the last one that was declared."""


def followed_schema(topic: str) -> FollowedSchema | None:
    """What is followed for a topic that was declared with the newest version of its schema."""
    return _newest.get(topic)


def _pending_effects(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What a version does to running folds, which read with the one before it.

    >>> print(*_pending_effects({"a": "int64", "b": "string"}, {"a": "string", "c": "string"}), sep="\\n")
    its column 'c' is left out until then
    its values have no column 'b': null, its default, or a dead letter if it has none
    its column 'a' is string, here int64: values that do not fit are dead letters, and the view has to be rebuilt
    """
    lines = [f"its column {name!r} is left out until then" for name in after if name not in before]
    lines += [
        f"its values have no column {name!r}: null, its default, or a dead letter if it has none"
        for name in before
        if name not in after
    ]
    lines += [
        f"its column {name!r} is {after[name]}, here {before[name]}: values that do not fit are dead letters, and the"
        " view has to be rebuilt"
        for name in after
        if name in before and before[name] != after[name]
    ]
    return lines


def _version(registry: SchemaRegistry, subject: str, wanted: object) -> tuple[int, RegisteredSchema]:
    if wanted is not None and (type(wanted) is not int or wanted < 1):
        raise InvalidArgument(f"version={brief_repr(wanted)} is not a version of a schema, such as 3")
    found = registry.version(subject, "latest" if wanted is None else int(str(wanted)))
    if found is None:
        which = "" if wanted is None else f" version {wanted} of"
        raise InvalidArgument(
            f"the registry at {registry.location} has no{which} subject {subject!r}; register a schema first, or name"
            " the subject: subject='...'"
        )
    return found


def _of_kind(registry: SchemaRegistry, schema: RegisteredSchema, message: str | None) -> TakenSchema:
    if schema.kind == "AVRO":
        return TakenSchema(None, "avro", {"reader_schema": schema, "registry": registry})
    if schema.kind == "PROTOBUF":
        files, first = descriptor_set(schema)
        return TakenSchema(None, "protobuf", {"descriptors": files, "message": message or first, "confluent": True})
    return TakenSchema(_ddl(schema), "json", {"confluent": True})


def effect_of(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What a new version of a schema does to a view of it, a sentence for each column that differs.

    >>> effect_of({"a": "int64", "b": "string"}, {"a": "int64", "c": "string"})
    ["column 'c' is new: null in rows of before, until the view is rebuilt", "column 'b' is gone: null in new rows"]
    """
    lines = [
        f"column {name!r} is new: null in rows of before, until the view is rebuilt"
        for name in after
        if name not in before
    ]
    lines += [f"column {name!r} is gone: null in new rows" for name in before if name not in after]
    lines += [
        f"column {name!r} was {before[name]} and is {after[name]}: a view that holds it has to be rebuilt"
        for name in after
        if name in before and before[name] != after[name]
    ]
    return lines


def _columns(taken: TakenSchema) -> dict[str, str]:
    if taken.schema is not None:
        return _fields_of(taken.schema)
    return {one.name: str(one.type) for one in decoder_for(taken.format, None, **taken.options).schema}


def _fields_of(ddl: str) -> dict[str, str]:
    """The columns of a DDL that `_ddl` has written."""
    found: dict[str, str] = {}
    for line in ddl.split(",\n"):
        name, _, kind = line.removeprefix("`").partition("` ")
        found[name.replace("``", "`")] = kind
    return found


# --- JSON Schema ------------------------------------------------------------------------------------------------------


def _ddl(schema: RegisteredSchema) -> str:
    """Spark's DDL of an object's properties, one a line."""
    root = json.loads(schema.text)
    if not isinstance(root, dict) or not root.get("properties"):
        raise InvalidArgument("columns come from the properties of an object, and this JSON Schema names none")
    return ",\n".join(f"{_quoted(name)} {_type(one, root, name, 0)}" for name, one in root["properties"].items())


def _type(node: Any, root: dict[str, Any], path: str, depth: int) -> str:
    refuse = InvalidArgument(
        f"property {path!r} of this JSON Schema is not one type that a column can have; declare the columns:"
        " fl.topic(..., schema='...', confluent=True)"
    )
    if not isinstance(node, dict) or depth > _DEPTH_MAX:
        raise refuse
    pointer = node.get("$ref")
    if isinstance(pointer, str):
        return _type(_followed(pointer, root, refuse), root, path, depth + 1)
    for word in ("anyOf", "oneOf"):
        some = [one for one in node.get(word, ()) if one != {"type": "null"}]
        if len(some) == 1:
            return _type(some[0], root, path, depth + 1)
    kinds = node.get("type")
    kinds = [one for one in ([kinds] if isinstance(kinds, str) else kinds or []) if one != "null"]
    if len(kinds) != 1:
        raise refuse
    if kinds[0] in _SCALARS:
        return _SCALARS[kinds[0]]
    if kinds[0] == "array":
        return f"ARRAY<{_type(node.get('items'), root, path + '[]', depth + 1)}>"
    properties = node.get("properties")
    if isinstance(properties, dict) and properties:
        inner = (
            f"{_quoted(name)}: {_type(one, root, f'{path}.{name}', depth + 1)}" for name, one in properties.items()
        )
        return f"STRUCT<{', '.join(inner)}>"
    return f"MAP<STRING, {_type(node.get('additionalProperties'), root, path + '.*', depth + 1)}>"


def _followed(pointer: str, root: dict[str, Any], refuse: InvalidArgument) -> Any:
    found: Any = root
    if not pointer.startswith("#/"):
        raise refuse
    for part in pointer[2:].split("/"):
        if not isinstance(found, dict) or part not in found:
            raise refuse
        found = found[part]
    return found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class FramedDecoder:
    """Takes Confluent's header off values, and has another decoder read the rest. See `Decoder`."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner

    @property
    def schema(self) -> pa.Schema:
        return self._inner.schema

    def decode(self, values: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray | None]:
        # By hand: Arrow's binary_slice fails on values that are shorter than where it begins.
        listed = values.to_pylist()
        framed = [one is None or (len(one) >= HEADER_BYTES and one[0] == 0) for one in listed]
        rest = [one if one is None else one[HEADER_BYTES:] for one in listed]
        columns, reasons = self._inner.decode(pa.array(rest, pa.binary()))
        if all(framed):
            return columns, reasons
        is_framed = pa.array(framed)
        told = pa.nulls(len(values), pa.string()) if reasons is None else reasons
        told = pc.if_else(is_framed, told, "does not begin with 0 and a schema id")
        return [pc.if_else(is_framed, one, pa.scalar(None, one.type)) for one in columns], told
