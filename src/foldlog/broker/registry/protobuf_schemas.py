"""Protobuf schemas: parsed from the text of a .proto file, or from a FileDescriptorProto in base64 as Confluent's
clients send it; checked by Protobuf's own descriptor pool; compared by Confluent's rules.

The rules are about bytes on the wire: a field is known by its number, and two scalar types are one if each reads what
the other wrote.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Final

from foldlog.broker.registry.refusals import invalid_schema
from foldlog.broker.registry.schemas import Difference, Referenced
from foldlog.errors import MissingDependency, brief_repr

try:
    from google.protobuf import descriptor_pb2 as pb
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError
except ImportError as error:
    raise MissingDependency("a registry of Protobuf schemas", "protobuf", "registry") from error

from foldlog.broker.registry.protobuf_parser import Field, ProtoSyntaxError, link, parse_file
from foldlog.broker.registry.protobuf_printer import print_file

FILE_NAME: Final = "default.proto"
SERIALIZED: Final = "serialized"
"""The form of a schema that is a FileDescriptorProto in base64."""

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_BUILT_IN: Final = re.compile(r"google/(?:protobuf|type)/[a-z_]+\.proto")
"""Files that every compiler of Protobuf has, and those that Confluent's registry has besides."""

_ALIKE: Final = tuple(
    frozenset(getattr(Field, f"TYPE_{name}") for name in names.split())
    for names in (
        "INT32 UINT32 INT64 UINT64 BOOL ENUM",
        "SINT32 SINT64",
        "STRING BYTES",
        "FIXED32 SFIXED32",
        "FIXED64 SFIXED64",
    )
)
"""Types whose bytes can be read as each other's."""


class ProtobufSchema:
    """A parsed schema. See `ParsedSchema`."""

    def __init__(
        self, canonical: str, file: pb.FileDescriptorProto, imported: dict[str, pb.FileDescriptorProto]
    ) -> None:
        self.canonical = canonical
        self.file = file
        self.imported = imported
        self.identity = print_file(file)

    @classmethod
    def parse(cls, text: str, referenced: Sequence[Referenced] = ()) -> ProtobufSchema:
        """Raises RegistryRefusal if it is not a Protobuf schema."""
        known: dict[str, pb.FileDescriptorProto] = {}
        for one in referenced:
            known[one.name] = _compiled(one.text, one.name, known)[0]
        file, shown = _compiled(text, FILE_NAME, known)
        return cls(shown, file, _imports(file, known))

    def normalized(self) -> str:
        file = pb.FileDescriptorProto.FromString(self.file.SerializeToString())
        _in_order(file)
        return print_file(file)

    def unreadable(self, writer: ProtobufSchema) -> list[Difference]:
        return _Comparison(self, writer).differences()

    def built(self) -> Any:
        """The file as Protobuf's library has it, to read messages with."""
        return _check(self.file, self.imported)

    def formatted(self, form: str) -> str:
        if form == SERIALIZED:
            return base64.b64encode(self.file.SerializeToString()).decode()
        return self.canonical


def _compiled(text: str, name: str, known: dict[str, pb.FileDescriptorProto]) -> tuple[pb.FileDescriptorProto, str]:
    """The file, and the text to show."""
    file = _unpacked(text)
    shown = text
    try:
        if file is None:
            file = parse_file(text, name)
            link(file, _visible(file, known))
        else:
            shown = print_file(file)
        file.name = name
    except ProtoSyntaxError as error:
        raise invalid_schema(f"it is not a .proto file: {error}") from None
    _check(file, _imports(file, known))
    return file, shown


def _unpacked(text: str) -> pb.FileDescriptorProto | None:
    """The descriptor, if the text is one in base64."""
    text = text.strip()
    if not _BASE64.fullmatch(text):
        return None
    try:
        return pb.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError):
        return None


def _imports(
    file: pb.FileDescriptorProto, known: dict[str, pb.FileDescriptorProto]
) -> dict[str, pb.FileDescriptorProto]:
    """All files that it imports, directly or not, each after those that it imports itself."""
    found: dict[str, pb.FileDescriptorProto] = {}

    def add(name: str) -> None:
        if name in found:
            return
        one = known.get(name) or _built_in(name)
        if one is None:
            raise invalid_schema(f"it imports {brief_repr(name)}, which is not among its references")
        for dependency in one.dependency:
            add(dependency)
        found[name] = one

    for name in file.dependency:
        add(name)
    return found


def _visible(
    file: pb.FileDescriptorProto, known: dict[str, pb.FileDescriptorProto]
) -> Iterator[pb.FileDescriptorProto]:
    """The files whose types it may use: those that it imports, and what they import publicly."""
    imported = _imports(file, known)
    waiting, seen = list(file.dependency), set()
    while waiting:
        one = imported[waiting.pop()]
        if one.name not in seen:
            seen.add(one.name)
            yield one
            waiting += [one.dependency[number] for number in one.public_dependency]


def _built_in(name: str) -> pb.FileDescriptorProto | None:
    if not _BUILT_IN.fullmatch(name):
        return None
    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return None
    file = pb.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def _check(file: pb.FileDescriptorProto, imported: dict[str, pb.FileDescriptorProto]) -> Any:
    """Have Protobuf's own library build it; what it has built."""
    pool = DescriptorPool()
    built: Any = None
    try:
        for one in (*imported.values(), file):
            pool.AddSerializedFile(one.SerializeToString())
            built = pool.FindFileByName(one.name)
    except (TypeError, KeyError, ValueError) as error:
        raise invalid_schema(f"it is not a valid .proto file: {str(error)[:300]}") from None
    return built


def _in_order(node: Any) -> None:
    """Sort what has no order of its own: imports, messages, enums and services by name, fields by number."""
    if isinstance(node, pb.FileDescriptorProto):
        if not node.public_dependency and not node.weak_dependency:
            _sort(node.dependency, None)
        for repeated in (node.message_type, node.enum_type, node.service):
            _sort(repeated, "name")
        for message in node.message_type:
            _in_order(message)
        for enum in node.enum_type:
            _sort_values(enum)
        return
    for nested in node.nested_type:
        _in_order(nested)
    for enum in node.enum_type:
        _sort_values(enum)
    _sort(node.nested_type, "name")
    _sort(node.enum_type, "name")
    _sort(node.field, "number")


def _sort(repeated: Any, by: str | None) -> None:
    repeated.sort(key=(lambda one: one) if by is None else (lambda one: getattr(one, by)))


def _sort_values(enum: pb.EnumDescriptorProto) -> None:
    # The first value is the default one, which has to stay.
    first, rest = enum.value[0], sorted(enum.value[1:], key=lambda one: one.number)
    kept = [pb.EnumValueDescriptorProto.FromString(one.SerializeToString()) for one in (first, *rest)]
    del enum.value[:]
    enum.value.extend(kept)


# --- comparing --------------------------------------------------------------------------------------------------------


class _Types:
    """The messages of a schema and of what it imports, by their full names."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self.messages: dict[str, pb.DescriptorProto] = {}
        for file in (*schema.imported.values(), schema.file):
            self._add(file.message_type, f".{file.package}" if file.package else "")
        package = schema.file.package
        self.own = dict(_own(schema.file.message_type, ""))
        self.scope = f".{package}" if package else ""

    def _add(self, messages: Any, scope: str) -> None:
        for message in messages:
            self.messages[f"{scope}.{message.name}"] = message
            self._add(message.nested_type, f"{scope}.{message.name}")


def _own(messages: Any, scope: str) -> Iterator[tuple[str, pb.DescriptorProto]]:
    for message in messages:
        if not message.options.map_entry:
            yield f"{scope}.{message.name}", message
            yield from _own(message.nested_type, f"{scope}.{message.name}")


def message_names(text: str) -> list[str]:
    """The full names of the messages of a file; none if it is not a file."""
    try:
        file = _unpacked(text) or parse_file(text, "")
    except ProtoSyntaxError:
        return []
    scope = f".{file.package}" if file.package else ""
    return [name.removeprefix(".") for name, _ in _own(file.message_type, scope)]


class _Comparison:
    """Why a reader cannot read what a writer wrote. A changed package alone is no reason, as with Confluent."""

    def __init__(self, reader: ProtobufSchema, writer: ProtobufSchema) -> None:
        self._reader = _Types(reader)
        self._writer = _Types(writer)
        self._seen: set[tuple[int, int]] = set()

    def differences(self) -> list[Difference]:
        found: list[Difference] = []
        for name, message in self._writer.own.items():
            other = self._reader.own.get(name)
            if other is None:
                found.append(
                    Difference("MESSAGE_REMOVED", f"The new schema is missing message {name[1:]} of the old one")
                )
            else:
                found += self._of_messages(other, message, name[1:])
        return found

    def _of_messages(self, reader: pb.DescriptorProto, writer: pb.DescriptorProto, path: str) -> list[Difference]:
        pair = (id(reader), id(writer))
        if pair in self._seen:
            return []
        self._seen.add(pair)
        mine = {field.number: field for field in reader.field}
        theirs = {field.number: field for field in writer.field}
        found = _of_oneofs(reader, writer, path)
        for number, field in sorted(mine.items()):
            if number in theirs:
                found += self._of_fields(field, theirs[number], f"{path}.{field.name}")
            elif field.label == Field.LABEL_REQUIRED:
                found.append(
                    _difference("REQUIRED_FIELD_ADDED", path, f"required field {field.name} ({number}) is new")
                )
        for number, field in sorted(theirs.items()):
            if number not in mine and field.label == Field.LABEL_REQUIRED:
                found.append(_difference("REQUIRED_FIELD_REMOVED", path, f"required field {field.name} is gone"))
        return found

    def _of_fields(
        self, reader: pb.FieldDescriptorProto, writer: pb.FieldDescriptorProto, path: str
    ) -> list[Difference]:
        is_message = {Field.TYPE_MESSAGE: True, Field.TYPE_GROUP: True}
        mine, theirs = is_message.get(reader.type, False), is_message.get(writer.type, False)
        if mine != theirs:
            return [_difference("FIELD_KIND_CHANGED", path, "a message became a scalar, or the other way round")]
        if mine:
            return self._of_message_fields(reader, writer, path)
        if reader.type != writer.type and not any({reader.type, writer.type} <= one for one in _ALIKE):
            return [_difference("FIELD_SCALAR_KIND_CHANGED", path, "the bytes of its type are not the same")]
        is_repeated = reader.label == Field.LABEL_REPEATED
        is_text = reader.type in (Field.TYPE_STRING, Field.TYPE_BYTES)
        if is_repeated != (writer.label == Field.LABEL_REPEATED) and not is_text:
            return [_difference("FIELD_NUMERIC_LABEL_CHANGED", path, "it became repeated, or is not any more")]
        return []

    def _of_message_fields(
        self, reader: pb.FieldDescriptorProto, writer: pb.FieldDescriptorProto, path: str
    ) -> list[Difference]:
        mine = self._reader.messages.get(reader.type_name)
        theirs = self._writer.messages.get(writer.type_name)
        if mine is None or theirs is None:
            return []
        if mine.options.map_entry != theirs.options.map_entry:
            return [_difference("FIELD_KIND_CHANGED", path, "a map became a message, or the other way round")]
        if mine.options.map_entry:
            return self._of_messages(mine, theirs, path)
        names = reader.type_name.removeprefix(self._reader.scope), writer.type_name.removeprefix(self._writer.scope)
        if names[0] != names[1]:
            return [_difference("FIELD_NAMED_TYPE_CHANGED", path, f"it was {names[1][1:]} and is {names[0][1:]}")]
        return self._of_messages(mine, theirs, names[0][1:])


def _of_oneofs(reader: pb.DescriptorProto, writer: pb.DescriptorProto, path: str) -> list[Difference]:
    found: list[Difference] = []
    mine, theirs = _oneofs(reader), _oneofs(writer)
    kept = {field.number for field in reader.field}
    for name, numbers in theirs.items():
        others = mine.get(name)
        if others is None:
            continue
        lost = sorted(numbers - others - kept)
        if lost:
            found.append(_difference("ONEOF_FIELD_REMOVED", f"{path}.{name}", f"fields {lost} are gone from the oneof"))
    fields = {field.number for field in writer.field}
    inside = {number for numbers in theirs.values() for number in numbers}
    for name, numbers in mine.items():
        moved = sorted((numbers & fields) - inside)
        if len(moved) > 1:
            why = f"fields {moved} could be set together, and now exclude each other"
            found.append(_difference("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}.{name}", why))
    return found


def _oneofs(message: pb.DescriptorProto) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            found.setdefault(message.oneof_decl[field.oneof_index].name, set()).add(field.number)
    return found


def _difference(kind: str, path: str, why: str) -> Difference:
    return Difference(kind, f"at {path}: {why}".replace("'", "`"))
