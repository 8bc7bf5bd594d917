"""Schemas as the registry keeps them, and what every kind of schema can do. Pure.

To add a kind: a class with the members of `ParsedSchema`, and a row in `parse_schema`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, Self

from foldlog.broker.registry.refusals import invalid_schema
from foldlog.errors import brief_repr

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
