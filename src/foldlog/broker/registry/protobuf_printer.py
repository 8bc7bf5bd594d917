"""A FileDescriptorProto as the text of a .proto file: what `protobuf_parser` reads back to an equal one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from foldlog.broker.registry.protobuf_parser import SCALARS, Field, default_json_name

_NAMES_OF_SCALARS: Final = {number: name for name, number in SCALARS.items()}
_LABELS: Final = {
    Field.LABEL_REQUIRED: "required ",
    Field.LABEL_REPEATED: "repeated ",
    Field.LABEL_OPTIONAL: "optional ",
}
_FIELD_NUMBER_MAX: Final = (1 << 29) - 1
_ENUM_NUMBER_MAX: Final = (1 << 31) - 1
_INDENT: Final = "  "


def print_file(file: pb.FileDescriptorProto) -> str:
    """The file's text. Comments are not in a descriptor; custom options that were compiled are left out."""
    return "\n".join(_Printer(file).lines()) + "\n"


class _Printer:
    """Prints one file."""

    def __init__(self, file: pb.FileDescriptorProto) -> None:
        self._file = file
        self._is_proto3 = file.syntax == "proto3"
        self._has_edition = file.syntax == "editions"

    def lines(self) -> Iterator[str]:
        file = self._file
        if self._has_edition:
            yield f'edition = "{pb.Edition.Name(file.edition).removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        for number, name in enumerate(file.dependency):
            kind = "public " if number in file.public_dependency else ""
            kind = "weak " if number in file.weak_dependency else kind
            yield f"import {kind}{_quoted(name.encode())};"
        yield from _option_lines(file.options)
        for enum in file.enum_type:
            yield from ("", *self._enum(enum))
        for message in file.message_type:
            if not _is_group(message, file.extension):
                yield from ("", *self._message(message))
        yield from self._extensions(file.extension, file.message_type)
        for service in file.service:
            yield from ("", *self._service(service))

    def _message(self, message: pb.DescriptorProto) -> Iterator[str]:
        yield f"message {message.name} {{"
        yield from _indented(self._message_body(message))
        yield "}"

    def _message_body(self, message: pb.DescriptorProto) -> Iterator[str]:
        yield from _option_lines(message.options)
        yield from _reserved(message.reserved_range, message.reserved_name, _FIELD_NUMBER_MAX, 1, self._has_edition)
        for one in message.extension_range:
            options = _options_of(one.options)
            shown = f" [{', '.join(options)}]" if options else ""
            yield f"extensions {_range(one.start, one.end - 1, _FIELD_NUMBER_MAX)}{shown};"
        for enum in message.enum_type:
            yield from self._enum(enum)
        fields = (*message.field, *message.extension)
        for nested in message.nested_type:
            if not nested.options.map_entry and not _is_group(nested, fields):
                yield from self._message(nested)
        maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        shown_oneofs: set[int] = set()
        for field in message.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                if field.oneof_index not in shown_oneofs:
                    shown_oneofs.add(field.oneof_index)
                    yield from self._oneof(message, field.oneof_index)
            else:
                yield from self._field(field, maps, message.nested_type)
        yield from self._extensions(message.extension, message.nested_type)

    def _oneof(self, message: pb.DescriptorProto, number: int) -> Iterator[str]:
        oneof = message.oneof_decl[number]
        yield f"oneof {oneof.name} {{"
        yield from _indented(_option_lines(oneof.options))
        for field in message.field:
            if field.HasField("oneof_index") and field.oneof_index == number:
                yield from _indented(self._field(field, {}, message.nested_type, in_oneof=True))
        yield "}"

    def _field(
        self,
        field: pb.FieldDescriptorProto,
        maps: dict[str, pb.DescriptorProto],
        nested: Iterable[pb.DescriptorProto],
        *,
        in_oneof: bool = False,
    ) -> Iterator[str]:
        options = self._field_options(field)
        shown = f" [{', '.join(options)}]" if options else ""
        entry = maps.get(field.type_name.rpartition(".")[2]) if field.type == Field.TYPE_MESSAGE else None
        label = "" if in_oneof else self._label(field)
        if entry is not None:
            key, value = entry.field
            yield f"map<{_type(key)}, {_type(value)}> {field.name} = {field.number}{shown};"
        elif field.type == Field.TYPE_GROUP:
            name = field.type_name.rpartition(".")[2]
            body = next(one for one in nested if one.name == name)
            yield f"{label}group {name} = {field.number}{shown} {{"
            yield from _indented(self._message_body(body))
            yield "}"
        else:
            yield f"{label}{_type(field)} {field.name} = {field.number}{shown};"

    def _label(self, field: pb.FieldDescriptorProto) -> str:
        if field.label == Field.LABEL_OPTIONAL and (self._is_proto3 or self._has_edition) and not field.proto3_optional:
            return ""
        return _LABELS[field.label]

    def _field_options(self, field: pb.FieldDescriptorProto) -> list[str]:
        options = []
        if field.HasField("default_value"):
            value = field.default_value
            if field.type == Field.TYPE_STRING:
                value = _quoted(value.encode())
            elif field.type == Field.TYPE_BYTES:
                value = f'"{value}"'
            options.append(f"default = {value}")
        if field.json_name and field.json_name != default_json_name(field.name) and not field.extendee:
            options.append(f"json_name = {_quoted(field.json_name.encode())}")
        return options + _options_of(field.options)

    def _enum(self, enum: pb.EnumDescriptorProto) -> Iterator[str]:
        yield f"enum {enum.name} {{"
        yield from _indented(_option_lines(enum.options))
        yield from _indented(_reserved(enum.reserved_range, enum.reserved_name, _ENUM_NUMBER_MAX, 0, self._has_edition))
        for value in enum.value:
            options = _options_of(value.options)
            shown = f" [{', '.join(options)}]" if options else ""
            yield f"{_INDENT}{value.name} = {value.number}{shown};"
        yield "}"

    def _extensions(
        self, extensions: Iterable[pb.FieldDescriptorProto], nested: Iterable[pb.DescriptorProto]
    ) -> Iterator[str]:
        for field in extensions:
            yield f"extend {field.extendee} {{"
            yield from _indented(self._field(field, {}, nested))
            yield "}"

    def _service(self, service: pb.ServiceDescriptorProto) -> Iterator[str]:
        yield f"service {service.name} {{"
        yield from _indented(_option_lines(service.options))
        for method in service.method:
            given = ("stream " if method.client_streaming else "") + method.input_type
            returned = ("stream " if method.server_streaming else "") + method.output_type
            options = list(_option_lines(method.options))
            line = f"{_INDENT}rpc {method.name}({given}) returns ({returned})"
            if options:
                yield f"{line} {{"
                yield from _indented(_indented(options))
                yield f"{_INDENT}}}"
            else:
                yield f"{line};"
        yield "}"


def _is_group(message: pb.DescriptorProto, fields: Iterable[pb.FieldDescriptorProto]) -> bool:
    return any(one.type == Field.TYPE_GROUP and one.type_name.rpartition(".")[2] == message.name for one in fields)


def _type(field: pb.FieldDescriptorProto) -> str:
    return field.type_name or _NAMES_OF_SCALARS[field.type]


def _reserved(ranges: Any, names: Any, most: int, beyond: int, are_bare: bool) -> Iterator[str]:
    if ranges:
        yield f"reserved {', '.join(_range(one.start, one.end - beyond, most) for one in ranges)};"
    if names:
        yield f"reserved {', '.join(one if are_bare else _quoted(one.encode()) for one in names)};"


def _range(first: int, last: int, most: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last == most else last}"


def _option_lines(options: Any) -> Iterator[str]:
    return (f"option {one};" for one in _options_of(options))


def _options_of(options: Any, prefix: str = "") -> list[str]:
    found = []
    for field, value in options.ListFields():
        if field.is_extension or (field.name == "map_entry" and not prefix):
            continue
        if field.name == "uninterpreted_option":
            found += [_uninterpreted(one) for one in value]
        elif field.message_type is not None:
            if not field.is_repeated:
                found += _options_of(value, f"{prefix}{field.name}.")
        else:
            values = value if field.is_repeated else [value]
            found += [f"{prefix}{field.name} = {_option_value(field, one)}" for one in values]
    return found


def _option_value(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | bytes):
        return _quoted(value.encode() if isinstance(value, str) else value)
    return str(value)


def _uninterpreted(option: pb.UninterpretedOption) -> str:
    name = ".".join(f"({one.name_part})" if one.is_extension else one.name_part for one in option.name)
    if option.HasField("aggregate_value"):
        return f"{name} = {{ {option.aggregate_value} }}"
    if option.HasField("string_value"):
        return f"{name} = {_quoted(option.string_value)}"
    for kind in ("identifier_value", "positive_int_value", "negative_int_value", "double_value"):
        if option.HasField(kind):
            return f"{name} = {getattr(option, kind)}"
    return f"{name} = {{ }}"


def _quoted(data: bytes) -> str:
    """
    >>> _quoted("caf\\u00e9 \\"x\\"".encode())
    '"caf\\\\303\\\\251 \\\\"x\\\\""'
    """
    named = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 92: "\\\\"}
    return '"' + "".join(named.get(one) or (chr(one) if 32 <= one < 127 else f"\\{one:03o}") for one in data) + '"'


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"{_INDENT}{line}" if line else line for line in lines)
