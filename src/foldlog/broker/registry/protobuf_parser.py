"""The language of .proto files, to a FileDescriptorProto: proto2, proto3 and editions. Pure.

`parse_file` reads the syntax; `link` gives the names of types their full form and kind, as protoc does. What is wrong
beyond that (numbers used twice, names that nothing has) is found by Protobuf's own descriptor pool. Custom options stay
uninterpreted, as in protoc's parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2 as pb

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<float>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<int>0[xX][0-9a-fA-F]+|[0-9]+)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>[{}()\[\]<>;=,.:+\-/])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_PLAIN_ESCAPES: Final = {
    "a": 7,
    "b": 8,
    "f": 12,
    "n": 10,
    "r": 13,
    "t": 9,
    "v": 11,
    "\\": 92,
    "'": 39,
    '"': 34,
    "?": 63,
}

Field = pb.FieldDescriptorProto
SCALARS: Final = {
    name: getattr(Field, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes"),
        *("uint32", "sfixed32", "sfixed64", "sint32", "sint64"),
    )
}
_LABELS: Final = {
    "optional": Field.LABEL_OPTIONAL,
    "required": Field.LABEL_REQUIRED,
    "repeated": Field.LABEL_REPEATED,
}
_FIELD_NUMBER_MAX: Final = (1 << 29) - 1
_ENUM_NUMBER_MAX: Final = (1 << 31) - 1
_DEPTH_MAX: Final = 64
_EDITIONS: Final = {"2023": pb.Edition.EDITION_2023, "2024": pb.Edition.EDITION_2024}


class ProtoSyntaxError(ValueError):
    """Not a .proto file; the message says what and where."""


class _Token(NamedTuple):
    """A word, number, text or sign, and its line."""

    kind: str
    text: str
    line: int


def parse_file(text: str, name: str) -> pb.FileDescriptorProto:
    """The file as protoc's parser has it, with type names as they were written. Raises ProtoSyntaxError."""
    return _Parser(text).file(name)


def _tokens(text: str) -> list[_Token]:
    found, at, line = [], 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ProtoSyntaxError(f"line {line}: {text[at : at + 20]!r} is not a part of a .proto file")
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(_Token(kind, match[0], line))
        line += match[0].count("\n")
        at = match.end()
    return found


class _Parser:
    """Reads one file, by recursive descent. Used once."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text.removeprefix("\ufeff"))
        self._at = 0
        self._depth = 0
        self._is_proto3 = False
        self._has_edition = False

    # --- tokens -----------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> _Token:
        if self._at < len(self._tokens):
            return self._tokens[self._at]
        return _Token("end", "the end", self._tokens[-1].line if self._tokens else 1)

    def _fail(self, wanted: str) -> ProtoSyntaxError:
        return ProtoSyntaxError(f"line {self._next.line}: {wanted} is missing before {self._next.text[:40]!r}")

    def _take(self, text: str) -> bool:
        if self._next.kind in ("sign", "name") and self._next.text == text:
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._fail(repr(text))

    def _name(self) -> str:
        if self._next.kind != "name":
            raise self._fail("a name")
        self._at += 1
        return self._tokens[self._at - 1].text

    def _full_name(self) -> str:
        name = "." if self._take(".") else ""
        name += self._name()
        while self._take("."):
            name += f".{self._name()}"
        return name

    def _integer(self) -> int:
        sign = -1 if self._take("-") else 1
        if self._next.kind != "int":
            raise self._fail("a whole number")
        text = self._next.text
        self._at += 1
        try:
            return sign * (int(text, 8) if text.startswith("0") and text.isdigit() and len(text) > 1 else int(text, 0))
        except ValueError:
            raise ProtoSyntaxError(f"line {self._next.line}: {text[:40]!r} is not a number") from None

    def _text(self) -> bytes:
        if self._next.kind != "text":
            raise self._fail("a text in quotes")
        found = b""
        while self._next.kind == "text":
            found += _unescaped(self._next.text[1:-1])
            self._at += 1
        return found

    def _string(self) -> str:
        return self._text().decode(errors="replace")

    def _body(self, one: Callable[[], None]) -> None:
        """Statements in braces."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise ProtoSyntaxError(f"line {self._next.line}: it is nested too deeply")
        self._expect("{")
        while not self._take("}"):
            if not self._take(";"):
                one()
        self._depth -= 1

    # --- files ------------------------------------------------------------------------------------------------------

    def file(self, name: str) -> pb.FileDescriptorProto:
        file = pb.FileDescriptorProto(name=name)
        if self._take("syntax"):
            self._expect("=")
            syntax = self._string()
            if syntax not in ("proto2", "proto3"):
                raise ProtoSyntaxError(f"there is no syntax {syntax[:40]!r}; there are proto2 and proto3")
            self._is_proto3 = syntax == "proto3"
            if self._is_proto3:
                file.syntax = syntax
            self._expect(";")
        elif self._next.text == "edition":
            self._edition(file)
        while self._next.kind != "end":
            if not self._take(";"):
                self._of_file(file)
        return file

    def _edition(self, file: pb.FileDescriptorProto) -> None:
        self._expect("edition")
        self._expect("=")
        edition = self._string()
        if edition not in _EDITIONS:
            raise ProtoSyntaxError(f"edition {edition[:40]!r} is not known; known are {', '.join(_EDITIONS)}")
        file.syntax, file.edition = "editions", _EDITIONS[edition]
        self._has_edition = True
        self._expect(";")

    def _of_file(self, file: pb.FileDescriptorProto) -> None:
        word = self._name()
        if word == "package":
            file.package = self._full_name()
            self._expect(";")
        elif word == "import":
            kind = self._name() if self._next.kind == "name" else ""
            if kind == "public":
                file.public_dependency.append(len(file.dependency))
            elif kind == "weak":
                file.weak_dependency.append(len(file.dependency))
            elif kind:
                raise ProtoSyntaxError(f"line {self._next.line}: there is no 'import {kind}'")
            file.dependency.append(self._string())
            self._expect(";")
        elif word == "option":
            self._option(file.options)
            self._expect(";")
        elif word == "message":
            self._message(file.message_type.add())
        elif word == "enum":
            self._enum(file.enum_type.add())
        elif word == "service":
            self._service(file.service.add())
        elif word == "extend":
            self._extend(file.extension, file.message_type)
        else:
            self._at -= 1
            raise self._fail("a message, an enum, a service, an import or an option")

    # --- messages ---------------------------------------------------------------------------------------------------

    def _message(self, message: pb.DescriptorProto) -> None:
        message.name = self._name()
        self._message_body(message)

    def _message_body(self, message: pb.DescriptorProto) -> None:
        self._body(lambda: self._of_message(message))
        _place_synthetic_oneofs(message)

    def _of_message(self, message: pb.DescriptorProto) -> None:
        following = self._tokens[self._at + 1].text if self._at + 1 < len(self._tokens) else ""
        word = self._next.text
        # A field's type may be named like a word of the language.
        if word == "option" and (following == "(" or self._is_option()):
            self._name()
            self._option(message.options)
            self._expect(";")
        elif word == "message" and self._ahead(2) == "{":
            self._name()
            self._message(message.nested_type.add())
        elif word == "enum" and self._ahead(2) == "{":
            self._name()
            self._enum(message.enum_type.add())
        elif word == "oneof" and self._ahead(2) == "{":
            self._name()
            self._oneof(message)
        elif word == "extend" and self._ahead(1) != "=":
            self._name()
            self._extend(message.extension, message.nested_type)
        elif word == "reserved" and self._ahead(2) != "=":
            self._name()
            self._reserved(message.reserved_range.add, message.reserved_name, _FIELD_NUMBER_MAX, 1)
        elif word == "extensions" and self._ahead(2) != "=":
            self._name()
            self._extensions(message)
        else:
            self._field(message.field.add(), message.nested_type)

    def _is_option(self) -> bool:
        return self._ahead(2) in ("=", ".") and self._ahead(1) != "="

    def _ahead(self, by: int) -> str:
        at = self._at + by
        return self._tokens[at].text if at < len(self._tokens) else ""

    def _field(self, field: pb.FieldDescriptorProto, beside: Any, *, label: int | None = None) -> None:
        """One field; `beside` takes the messages of a map and of a group."""
        word = self._next.text
        if word in _LABELS:
            self._name()
            if label is not None or (self._has_edition and word != "repeated"):
                raise ProtoSyntaxError(f"line {self._next.line}: {word!r} may not stand here")
            field.label = _LABELS[word]
            field.proto3_optional = self._is_proto3 and word == "optional"
            if not field.proto3_optional:
                field.ClearField("proto3_optional")
        elif label is not None or self._is_proto3 or self._has_edition or word == "map":
            field.label = Field.LABEL_OPTIONAL
        else:
            raise self._fail("'optional', 'required' or 'repeated' (of proto2)")
        if self._next.text == "map" and self._ahead(1) == "<":
            self._map(field, beside)
            return
        if self._next.text == "group" and self._ahead(2) == "=":
            self._group(field, beside)
            return
        self._type(field)
        field.name = self._name()
        self._expect("=")
        field.number = self._number(_FIELD_NUMBER_MAX)
        self._field_options(field)
        self._expect(";")

    def _type(self, field: pb.FieldDescriptorProto) -> None:
        name = self._full_name()
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name

    def _number(self, most: int) -> int:
        number = self._integer()
        if not -most - 1 <= number <= most:
            raise ProtoSyntaxError(f"line {self._next.line}: the number {number} is out of range")
        return number

    def _map(self, field: pb.FieldDescriptorProto, beside: Any) -> None:
        self._expect("map")
        self._expect("<")
        key, value = pb.FieldDescriptorProto(), pb.FieldDescriptorProto()
        self._type(key)
        self._expect(",")
        self._type(value)
        self._expect(">")
        field.name = self._name()
        self._expect("=")
        field.number = self._number(_FIELD_NUMBER_MAX)
        self._field_options(field)
        self._expect(";")
        entry = beside.add(name=f"{_camel(field.name)}Entry")
        entry.options.map_entry = True
        for one, name, number in ((key, "key", 1), (value, "value", 2)):
            one.name, one.number, one.label = name, number, Field.LABEL_OPTIONAL
            entry.field.append(one)
        field.label, field.type_name = Field.LABEL_REPEATED, entry.name

    def _group(self, field: pb.FieldDescriptorProto, beside: Any) -> None:
        self._expect("group")
        name = self._name()
        self._expect("=")
        field.name, field.type, field.type_name = name.lower(), Field.TYPE_GROUP, name
        field.number = self._number(_FIELD_NUMBER_MAX)
        self._field_options(field)
        self._message_body(beside.add(name=name))

    def _field_options(self, field: pb.FieldDescriptorProto) -> None:
        if not self._take("["):
            return
        while True:
            if self._next.text == "default" and self._ahead(1) == "=":
                self._at += 2
                field.default_value = self._default(field)
            elif self._next.text == "json_name" and self._ahead(1) == "=":
                self._at += 2
                field.json_name = self._string()
            else:
                self._option(field.options)
            if not self._take(","):
                break
        self._expect("]")

    def _default(self, field: pb.FieldDescriptorProto) -> str:
        if self._next.kind == "text":
            found = self._text()
            if field.type == Field.TYPE_BYTES:
                return "".join(
                    chr(byte) if 32 <= byte < 127 and byte not in b"\"'\\" else _c_escape(byte) for byte in found
                )
            return found.decode(errors="replace")
        sign = "-" if self._take("-") else ""
        token = self._next
        if token.kind not in ("name", "int", "float"):
            raise self._fail("a value")
        self._at += 1
        if field.type in (Field.TYPE_FLOAT, Field.TYPE_DOUBLE) and token.kind != "name":
            return sign + _shortest(float(int(token.text, 0) if token.kind == "int" else token.text))
        if token.kind == "int":
            self._at -= 1
            return sign + str(self._integer())
        return sign + token.text

    def _oneof(self, message: pb.DescriptorProto) -> None:
        number = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._name())

        def one() -> None:
            if self._next.text == "option" and (self._is_option() or self._ahead(1) == "("):
                self._name()
                self._option(oneof.options)
                self._expect(";")
                return
            field = message.field.add(oneof_index=number)
            self._field(field, message.nested_type, label=Field.LABEL_OPTIONAL)

        self._body(one)

    def _extend(self, extensions: Any, beside: Any) -> None:
        extendee = self._full_name()
        self._body(lambda: self._field(extensions.add(extendee=extendee), beside))

    def _extensions(self, message: pb.DescriptorProto) -> None:
        begin = len(message.extension_range)
        self._ranges(message.extension_range.add, _FIELD_NUMBER_MAX, 1)
        if self._take("["):
            options = pb.ExtensionRangeOptions()
            while True:
                self._option(options)
                if not self._take(","):
                    break
            self._expect("]")
            for one in message.extension_range[begin:]:
                one.options.CopyFrom(options)
        self._expect(";")

    def _reserved(self, add: Callable[..., Any], names: Any, most: int, beyond: int) -> None:
        if self._next.kind == "text" or (self._next.kind == "name" and self._has_edition):
            while True:
                names.append(self._string() if self._next.kind == "text" else self._name())
                if not self._take(","):
                    break
        else:
            self._ranges(add, most, beyond)
        self._expect(";")

    def _ranges(self, add: Callable[..., Any], most: int, beyond: int) -> None:
        """Ranges of numbers; `beyond`: what is added to their last one, which messages do and enums do not."""
        while True:
            first = last = self._number(most)
            if self._take("to"):
                last = most if self._take("max") else self._number(most)
            add(start=first, end=last + beyond)
            if not self._take(","):
                return

    # --- enums and services -----------------------------------------------------------------------------------------

    def _enum(self, enum: pb.EnumDescriptorProto) -> None:
        enum.name = self._name()

        def one() -> None:
            if self._next.text == "option" and self._ahead(1) != "=":
                self._name()
                self._option(enum.options)
                self._expect(";")
                return
            if self._next.text == "reserved" and self._ahead(1) != "=":
                self._name()
                self._reserved(enum.reserved_range.add, enum.reserved_name, _ENUM_NUMBER_MAX, 0)
                return
            value = enum.value.add(name=self._name())
            self._expect("=")
            value.number = self._number(_ENUM_NUMBER_MAX)
            if self._take("["):
                while True:
                    self._option(value.options)
                    if not self._take(","):
                        break
                self._expect("]")
            self._expect(";")

        self._body(one)

    def _service(self, service: pb.ServiceDescriptorProto) -> None:
        service.name = self._name()

        def one() -> None:
            if self._take("option"):
                self._option(service.options)
                self._expect(";")
                return
            self._expect("rpc")
            method = service.method.add(name=self._name())
            method.input_type, method.client_streaming = self._message_of_method()
            self._expect("returns")
            method.output_type, method.server_streaming = self._message_of_method()
            for name in ("client_streaming", "server_streaming"):
                if not getattr(method, name):
                    method.ClearField(name)
            if self._next.text == "{":
                method.options.SetInParent()
                self._body(lambda: self._option_of(method.options))
            else:
                self._expect(";")

        self._body(one)

    def _message_of_method(self) -> tuple[str, bool]:
        self._expect("(")
        is_stream = self._next.text == "stream" and self._ahead(1) != ")"
        if is_stream:
            self._name()
        name = self._full_name()
        self._expect(")")
        return name, is_stream

    def _option_of(self, options: Any) -> None:
        self._expect("option")
        self._option(options)
        self._expect(";")

    # --- options ----------------------------------------------------------------------------------------------------

    def _option(self, options: Any) -> None:
        """`NAME = VALUE`. An option of Protobuf's own is set; any other is kept as it was written."""
        parts: list[tuple[str, bool]] = []
        while True:
            if self._take("("):
                parts.append((self._full_name(), True))
                self._expect(")")
            else:
                parts.append((self._name(), False))
            if not self._take("."):
                break
        self._expect("=")
        target, field = options, None
        for index, (name, is_extension) in enumerate(parts):
            field = None if is_extension else target.DESCRIPTOR.fields_by_name.get(name)
            if field is None or name == "uninterpreted_option":
                break
            if index < len(parts) - 1 and field.message_type is None:
                field = None
                break
            if index < len(parts) - 1:
                target = getattr(target, name)
        if field is None or field.message_type is not None:
            self._uninterpreted(options, parts)
        else:
            self._own_option(target, field)

    def _own_option(self, target: Any, field: Any) -> None:
        value: Any
        if self._next.kind == "text":
            value = self._text() if field.type == Field.TYPE_BYTES else self._string()
        elif self._next.kind == "name":
            word = self._name()
            if field.enum_type is not None:
                found = field.enum_type.values_by_name.get(word)
                value = None if found is None else found.number
            else:
                value = {"true": True, "false": False}.get(word)
        else:
            value = self._integer()
        try:
            if field.is_repeated:
                getattr(target, field.name).append(value)
            else:
                setattr(target, field.name, value)
        except (TypeError, ValueError):
            raise ProtoSyntaxError(
                f"line {self._next.line}: the option {field.name} has a value that it cannot have"
            ) from None

    def _uninterpreted(self, options: Any, parts: Iterable[tuple[str, bool]]) -> None:
        kept = options.uninterpreted_option.add()
        for name, is_extension in parts:
            kept.name.add(name_part=name, is_extension=is_extension)
        if self._next.text == "{":
            kept.aggregate_value = self._aggregate()
            return
        if self._next.kind == "text":
            kept.string_value = self._text()
            return
        is_negative = self._take("-")
        token = self._next
        if token.kind == "name" and not is_negative:
            kept.identifier_value = self._name()
        elif token.kind == "float" or (token.kind == "name" and token.text in ("inf", "nan")):
            self._at += 1
            kept.double_value = -float(token.text) if is_negative else float(token.text)
        else:
            number = self._integer()
            if is_negative:
                kept.negative_int_value = -number
            else:
                kept.positive_int_value = number

    def _aggregate(self) -> str:
        """The text between braces, as protoc keeps it: its parts with spaces between them."""
        self._expect("{")
        depth = 1
        parts: list[str] = []
        while True:
            token = self._next
            if token.kind == "end":
                raise self._fail("'}'")
            self._at += 1
            depth += {"{": 1, "}": -1}.get(token.text, 0) if token.kind == "sign" else 0
            if not depth:
                return " ".join(parts)
            parts.append(token.text)


def _unescaped(text: str) -> bytes:
    found, at = b"", 0
    for match in _ESCAPE.finditer(text):
        found += text[at : match.start()].encode()
        hexadecimal, octal, short, long, plain = match.groups()
        if hexadecimal:
            found += bytes([int(hexadecimal, 16)])
        elif octal:
            found += bytes([int(octal, 8) & 0xFF])
        elif short or long:
            number = int(short or long, 16)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise ProtoSyntaxError(f"{match[0]!r} is not a character")
            found += chr(number).encode()
        elif plain in _PLAIN_ESCAPES:
            found += bytes([_PLAIN_ESCAPES[plain]])
        else:
            raise ProtoSyntaxError(f"{match[0]!r} is not an escape")
        at = match.end()
    return found + text[at:].encode()


def _c_escape(byte: int) -> str:
    named = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}
    return named.get(byte, f"\\{byte:03o}")


def _shortest(number: float) -> str:
    if number in (float("inf"), float("-inf")):
        return str(number)
    text = repr(number)
    return text.removesuffix(".0")


def _camel(name: str) -> str:
    """
    >>> _camel("my_field_2x")
    'MyField2x'
    """
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _place_synthetic_oneofs(message: pb.DescriptorProto) -> None:
    """Each `optional` of proto3 is a oneof of its own, after those that were written."""
    names = {one.name for one in message.field} | {one.name for one in message.oneof_decl}
    for field in message.field:
        if field.proto3_optional:
            name = f"_{field.name}"
            while name in names:
                name = f"X{name}"
            names.add(name)
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)


# --- linking ----------------------------------------------------------------------------------------------------------


def link(file: pb.FileDescriptorProto, imported: Iterable[pb.FileDescriptorProto]) -> None:
    """Give every type name its full form, and every field its type. Raises ProtoSyntaxError for a name nobody has."""
    kinds: dict[str, int] = {}
    for one in (*imported, file):
        _declare(one.message_type, one.enum_type, f".{one.package}" if one.package else "", kinds)
    _Links(kinds).file(file)


def _declare(messages: Any, enums: Any, scope: str, kinds: dict[str, int]) -> None:
    for message in messages:
        full = f"{scope}.{message.name}"
        kinds[full] = Field.TYPE_MESSAGE
        _declare(message.nested_type, message.enum_type, full, kinds)
    for enum in enums:
        kinds[f"{scope}.{enum.name}"] = Field.TYPE_ENUM


class _Links:
    """Looks names up in the scopes that they stand in."""

    def __init__(self, kinds: dict[str, int]) -> None:
        self._kinds = kinds
        self._scopes = {name[:at] for name in kinds for at in range(1, len(name)) if name[at] == "."}

    def file(self, file: pb.FileDescriptorProto) -> None:
        scope = f".{file.package}" if file.package else ""
        for field in file.extension:
            self._field(field, scope)
        for message in file.message_type:
            self._message(message, f"{scope}.{message.name}")
        for service in file.service:
            for method in service.method:
                method.input_type = self._full(method.input_type, scope)
                method.output_type = self._full(method.output_type, scope)

    def _message(self, message: pb.DescriptorProto, scope: str) -> None:
        for field in (*message.field, *message.extension):
            self._field(field, scope)
        for nested in message.nested_type:
            self._message(nested, f"{scope}.{nested.name}")

    def _field(self, field: pb.FieldDescriptorProto, scope: str) -> None:
        if field.extendee:
            field.extendee = self._full(field.extendee, scope)
        if field.type_name:
            field.type_name = self._full(field.type_name, scope)
            if field.type != Field.TYPE_GROUP:
                field.type = self._kinds[field.type_name]
        if not field.json_name:
            field.json_name = default_json_name(field.name)

    def _full(self, name: str, scope: str) -> str:
        """As C++ looks names up: from the innermost scope that has the first part of the name."""
        if name.startswith("."):
            candidates = [name]
        else:
            first, candidates = name.partition(".")[0], []
            while True:
                is_scope = "." in name and f"{scope}.{first}" in self._scopes
                candidates.append(f"{scope}.{name}")
                if is_scope and f"{scope}.{name}" not in self._kinds:
                    break  # a nearer scope hides those further out
                if not scope:
                    break
                scope = scope.rpartition(".")[0]
        for one in candidates:
            if one in self._kinds:
                return one
        raise ProtoSyntaxError(f"there is no type {name.lstrip('.')!r}; import the file that has it")


def default_json_name(name: str) -> str:
    """
    >>> default_json_name("amount_paise")
    'amountPaise'
    """
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
