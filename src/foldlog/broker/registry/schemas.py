"""Schemas as the registry keeps them, and what every kind of schema can do. Pure.

To add a kind: a class with the members of `ParsedSchema`, and a row in `parse_schema`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, Self

from foldlog.broker.registry.refusals import invalid_schema
from foldlog.errors import brief_repr
from foldlog.limits import REGISTRY_PARSED_MAX

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
TYPES: Final = (JSON, PROTOBUF, AVRO)
"""In the order in which Confluent's registry lists them."""


class Reference(NamedTuple):
    """A schema that another one uses: `name` is a full name in Avro, a URI in JSON Schema, a file name in Protobuf."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as somebody wrote it."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


class Referenced(NamedTuple):
    """The text of a reference, under the name by which the schema knows it."""

    name: str
    text: str


class Difference(NamedTuple):
    """A reason why a reader cannot read what a writer wrote: Confluent's name for it, and a sentence."""

    kind: str
    description: str

    def __str__(self) -> str:
        return f"{{errorType:'{self.kind}', description:'{self.description}'}}"


class ParsedSchema(Protocol):
    """A schema that was understood. Immutable; any thread."""

    @property
    def canonical(self) -> str:
        """The text that is stored and shown."""
        ...

    @property
    def identity(self) -> str:
        """Two schemas are one if this is equal."""
        ...

    def normalized(self) -> str:
        """The text, without differences of order that mean nothing."""
        ...

    def unreadable(self, writer: Self) -> list[Difference]:
        """Why this schema cannot read what was written with `writer`; empty if it can."""
        ...

    def formatted(self, form: str) -> str:
        """The text in the form that `?format=` asks for; an unknown form is the stored text."""
        ...


def parse_schema(kind: str, text: str, referenced: Sequence[Referenced] = ()) -> ParsedSchema:
    """Understand a text. Raises RegistryRefusal with the reason if it is not a schema of its kind.

    `referenced` are all schemas that it refers to, each after those that it refers to itself.
    """
    try:
        if kind == AVRO:
            from foldlog.broker.registry.avro_schemas import AvroSchema

            return AvroSchema.parse(text, referenced)
        if kind == JSON:
            from foldlog.broker.registry.json_schemas import JsonSchema

            return JsonSchema.parse(text, referenced)
        if kind == PROTOBUF:
            from foldlog.broker.registry.protobuf_schemas import ProtobufSchema

            return ProtobufSchema.parse(text, referenced)
    except RecursionError:
        raise invalid_schema("it is nested too deeply") from None
    raise invalid_schema(f"there is no schema type {brief_repr(kind)}; there are {', '.join(TYPES)}")


@lru_cache(REGISTRY_PARSED_MAX)
def record_names(schema: SchemaText) -> frozenset[str]:
    """The names that a schema gives what it describes: the name of an Avro schema, the title of a JSON Schema, the
    messages of a Protobuf file. Empty if it has none.

    >>> sorted(record_names(SchemaText(AVRO, '{"type": "record", "name": "Order", "namespace": "shop", "fields": []}')))
    ['shop.Order']
    >>> sorted(record_names(SchemaText(JSON, '{"title": "Order"}')))
    ['Order']
    """
    if schema.kind == PROTOBUF:
        from foldlog.broker.registry.protobuf_schemas import message_names

        return frozenset(message_names(schema.text))
    try:
        root = json.loads(schema.text)
    except ValueError:
        root = schema.text
    if schema.kind == JSON:
        name = root.get("title") if isinstance(root, dict) else None
    elif isinstance(root, dict):
        name, space = root.get("name", root.get("type")), root.get("namespace")
        name = f"{space}.{name}" if space and isinstance(name, str) and "." not in name else name
    else:
        name = root  # "string" and other types without a name of their own
    return frozenset([name] if isinstance(name, str) else [])
