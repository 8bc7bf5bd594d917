"""Keys and values in Confluent's wire format as documents to read: Avro, JSON Schema and Protobuf, by their schema id.

A `ValueDecoder` is a decoder of `records/decoding.py`: bytes to what JSON can hold, or ValueError with the reason. Its
schemas come from whoever has them: a registry's URL (`lookups`), or the topic `_schemas` of a log (`TopicSchemas`).
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from foldlog.broker.registry.refusals import RegistryRefusal
from foldlog.broker.registry.schemas import AVRO, JSON, Referenced
from foldlog.broker.registry.state import DEFAULT_CONTEXT, RegistryState
from foldlog.broker.topics.names import SCHEMAS_TOPIC
from foldlog.client.schemas.lookups import RegisteredSchema
from foldlog.errors import InvalidArgument, MissingDependency, UnknownTopic
from foldlog.records.decoding import from_json
from foldlog.records.schema_ids import NotFramed, read_header, read_message_path

if TYPE_CHECKING:
    from foldlog.broker.registry.protobuf_schemas import ProtobufSchema
    from foldlog.client.log import Log

Lookup = Callable[[int], RegisteredSchema | None]
"""The schema of an id, or None if nobody has registered it."""

_KNOWN_MAX: Final = 1000
_BROKEN: Final = (EOFError, LookupError, ValueError, ArithmeticError, TypeError, struct.error)


class ValueDecoder:
    """Used by one thread at a time."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._readers: dict[int, Callable[[bytes, int], Any]] = {}

    def __call__(self, data: bytes) -> Any:
        """The document; ValueError if the bytes name no known schema, or are not of it."""
        try:
            schema_id, start = read_header(data)
        except NotFramed as error:
            raise ValueError(str(error)) from None
        reader = self._readers.get(schema_id)
        if reader is None:
            schema = self._lookup(schema_id)
            if schema is None:
                raise ValueError(f"schema {schema_id} is not registered")
            if len(self._readers) >= _KNOWN_MAX:
                self._readers.clear()
            reader = self._readers[schema_id] = _reader_of(schema)
        return reader(data, start)


def _reader_of(schema: RegisteredSchema) -> Callable[[bytes, int], Any]:
    if schema.kind == AVRO:
        return _avro_reader(schema)
    if schema.kind == JSON:
        return lambda data, start: from_json(data[start:])
    return _protobuf_reader(schema)


def _avro_reader(schema: RegisteredSchema) -> Callable[[bytes, int], Any]:
    try:
        from fastavro import parse_schema, schemaless_reader
    except ImportError as error:
        raise MissingDependency("decoding Avro", "fastavro", "registry") from error
    named: dict[str, Any] = {}
    for text in schema.references:
        parse_schema(json.loads(text), named_schemas=named)
    parsed = parse_schema(json.loads(schema.text), named_schemas=named)

    def read(data: bytes, start: int) -> Any:
        stream = io.BytesIO(data)
        stream.seek(start)
        try:
            found = schemaless_reader(stream, parsed, None)
        except _BROKEN as error:
            raise ValueError(f"not Avro of its schema: {error}") from None
        if stream.tell() != len(data):
            raise ValueError("not Avro of its schema: bytes are left over")
        return _documented(found)

    return read


def _documented(value: Any) -> Any:
    """With what JSON cannot hold in words."""
    if isinstance(value, dict):
        return {str(name): _documented(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_documented(one) for one in value]
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def _parsed_protobuf(schema: RegisteredSchema) -> ProtobufSchema:
    try:
        from foldlog.broker.registry.protobuf_schemas import ProtobufSchema
    except ImportError as error:
        raise MissingDependency("decoding Protobuf", "protobuf", "registry") from error
    named = zip(schema.names, schema.references, strict=True)
    try:
        return ProtobufSchema.parse(schema.text, [Referenced(name, text) for name, text in named])
    except RegistryRefusal as error:
        raise ValueError(str(error)) from None


def descriptor_set(schema: RegisteredSchema) -> tuple[bytes, str]:
    """A Protobuf schema as the bytes of a FileDescriptorSet, and the name of its first message."""
    parsed = _parsed_protobuf(schema)
    if not parsed.file.message_type:
        raise InvalidArgument("this Protobuf schema has no message")
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    package = f"{parsed.file.package}." if parsed.file.package else ""
    files: bytes = FileDescriptorSet(file=[*parsed.imported.values(), parsed.file]).SerializeToString()
    return files, package + parsed.file.message_type[0].name


def _protobuf_reader(schema: RegisteredSchema) -> Callable[[bytes, int], Any]:
    file = _parsed_protobuf(schema).built()
    from google.protobuf import json_format, message_factory
    from google.protobuf.message import DecodeError

    def read(data: bytes, start: int) -> Any:
        try:
            path, begin = read_message_path(data, start)
            descriptor: Any = None
            for index in path:
                inside = list(file.message_types_by_name.values()) if descriptor is None else descriptor.nested_types
                descriptor = inside[index]
            message = message_factory.GetMessageClass(descriptor)()
            message.ParseFromString(data[begin:])
            return json_format.MessageToDict(message, preserving_proto_field_name=True)
        except (NotFramed, DecodeError, LookupError, ValueError, TypeError) as error:
            raise ValueError(f"not a message of its schema: {error}") from None

    return read


def resolved(state: RegistryState, schema_id: int, context: str = DEFAULT_CONTEXT) -> RegisteredSchema | None:
    """The schema of an id with those that it refers to, each after those that it refers to itself."""
    schema = state.schema(context, schema_id)
    if schema is None:
        return None
    found: dict[tuple[str, int], tuple[str, str]] = {}

    def add(references: Any) -> None:
        for one in references:
            version = state.subjects.get(one.subject, {}).get(one.version)
            if version is not None and (one.subject, one.version) not in found:
                add(version.schema.references)
                found[one.subject, one.version] = (one.name, version.schema.text)

    add(schema.references)
    names, texts = zip(*found.values(), strict=True) if found else ((), ())
    return RegisteredSchema(schema.text, texts, schema.kind, names)


class TopicSchemas:
    """The schemas in the topic `_schemas` of a log: of foldlog's registry, or of Confluent's on a cluster. Reads on
    when an id is not known yet."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._state = RegistryState()
        self._next_offset = 0

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        found = resolved(self._state, schema_id)
        if found is None:
            self._read_on()
            found = resolved(self._state, schema_id)
        return found

    def _read_on(self) -> None:
        try:
            for record in self._log.read(SCHEMAS_TOPIC, 0, start=self._next_offset):
                self._state.apply(record.key or b"", record.value)
                self._next_offset = record.offset + 1
        except UnknownTopic:
            return
