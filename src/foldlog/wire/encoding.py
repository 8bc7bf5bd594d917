"""Generates the source of the function that encodes one version of a message.

The function appends to a bytearray, neighbouring fields of fixed size with one call of `struct`. Records are not copied
unless they are small: the bytes so far go to a list of chunks, then the records as they are, and the function goes on
with an empty bytearray. A second form of it is a generator that pauses after every STEP_ITEMS items.
"""

from __future__ import annotations

import struct

from foldlog.errors import InvalidArgument
from foldlog.limits import RECORDS_INLINE_BYTES_MAX, STEP_ITEMS
from foldlog.wire.layout import (
    FIXED_FORMATS,
    LENGTH_FORMATS,
    STRING_BYTES_MAX,
    MessageLayout,
    SourceText,
    is_fixed,
    run_format,
)
from foldlog.wire.schema import Field, Message


def varint_bytes(value: int) -> bytes:
    """An unsigned varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def check_string(value: bytes) -> bytes:
    if len(value) > STRING_BYTES_MAX:
        raise InvalidArgument(f"a string of {len(value)} bytes is over {STRING_BYTES_MAX}; cut it before it is sent")
    return value


def encoder_source(layout: MessageLayout, *, in_steps: bool = False) -> SourceText:
    """Source of `encode(m0, out, chunks)`: appends to `out`; returns the bytearray with the end of the message."""
    return _Writer(layout, in_steps).write()


class _Writer:
    """Writes one function. `m0` is the message, `m1` a struct inside it, and so on."""

    def __init__(self, layout: MessageLayout, in_steps: bool) -> None:
        self.layout = layout
        self.in_steps = in_steps
        self.out = SourceText()
        self.depth = 0

    def write(self) -> SourceText:
        self.out.names.update(
            varint_bytes=varint_bytes,
            check_string=check_string,
            pack=struct.pack,
            RECORDS_INLINE_BYTES_MAX=RECORDS_INLINE_BYTES_MAX,
            STEP_ITEMS=STEP_ITEMS,
        )
        self.out.add("def encode(m0, out, chunks):")
        self.out.indent()
        if self.in_steps:
            self.out.add("left = STEP_ITEMS", "if not left:", "    yield")  # a generator, even if nothing can be many
        self.struct(self.layout.top, "out")
        self.out.add("return out")
        return self.out

    def struct(self, kind: type[Message], to: str) -> None:
        """Code that encodes `m<depth>` into the bytearray `to`."""
        message = f"m{self.depth}"
        for run in self.layout.runs(kind):
            if is_fixed(run[0]):
                values = ", ".join(f"{message}.{field.name}" for field in run)
                self.out.add(f"{to} += {self.pack(run_format(run)[0])}({values})")
            else:
                self.out.add(f"v = {message}.{run[0].name}")
                self.field(run[0], to)
        if self.layout.is_flexible:
            self.tags(kind, message, to)

    def pack(self, form: str) -> str:
        return self.out.name(f"pack_{form[1:].replace('?', 'B')}", struct.Struct(form).pack)

    def field(self, field: Field, to: str) -> None:
        """Code that encodes `v` into the bytearray `to`."""
        out = self.out
        if field.is_nullable:
            out.add("if v is None:", f"    {self.null(field, to)}", "else:")
            out.indent()
        if field.is_array:
            self.array(field, to)
        elif field.item is not None:
            if field.is_nullable:
                out.add(f"{to}.append(1)")
            self.inner(field.item, "v", to)
        elif is_fixed(field):
            out.add(f"{to} += {self.pack(run_format([field])[0])}(v)")
        else:
            self.sized(field, to)
        if field.is_nullable:
            out.dedent()

    def null(self, field: Field, to: str) -> str:
        if field.item is not None and not field.is_array:
            return f"{to}.append(255)"
        if self.layout.is_flexible:
            return f"{to}.append(0)"
        letter = "i" if field.is_array else LENGTH_FORMATS[field.kind]
        return f"{to} += {struct.pack('>' + letter, -1)!r}"

    def inner(self, kind: type[Message], value: str, to: str) -> None:
        self.depth += 1
        self.out.add(f"m{self.depth} = {value}")
        self.struct(kind, to)
        self.depth -= 1

    def length(self, letter: str, to: str) -> None:
        """Code that writes `n`, a count or a length that is not null."""
        if self.layout.is_flexible:
            self.out.add("if n < 127:", f"    {to}.append(n + 1)", "else:", f"    {to} += varint_bytes(n + 1)")
        else:
            self.out.add(f"{to} += {self.pack('>' + letter)}(n)")

    def sized(self, field: Field, to: str) -> None:
        out = self.out
        if field.kind == "string":
            out.add("v = v.encode()")
        out.add("n = len(v)")
        if field.kind == "string":
            out.add("if n > 127:", "    check_string(v)")
        self.length(LENGTH_FORMATS[field.kind], to)
        if field.kind == "records":
            out.add("if n > RECORDS_INLINE_BYTES_MAX:", f"    chunks += {to}, v", f"    {to} = bytearray()", "else:")
            out.add(f"    {to} += v")
        else:
            out.add(f"{to} += v")

    def array(self, field: Field, to: str) -> None:
        out, items = self.out, f"a{self.depth}"
        out.add(f"{items} = v", "n = len(v)")
        self.length("i", to)
        if field.kind in FIXED_FORMATS:
            letter, _ = FIXED_FORMATS[field.kind]
            form = f"'>' + '{letter}' * n" if field.kind == "uuid" else f"f'>{{n}}{letter}'"
            out.add(f"{to} += pack({form}, *v)")
            return
        if field.item is not None:
            out.add(f"for m{self.depth + 1} in {items}:")
            out.indent()
            self.depth += 1
            self.struct(field.item, to)
            self.depth -= 1
        else:
            out.add(f"for v in {items}:")
            out.indent()
            self.sized(field, to)
        if self.in_steps:
            out.add("left -= 1", "if left < 0:", "    left = STEP_ITEMS", "    yield")
        out.dedent()

    def tags(self, kind: type[Message], message: str, to: str) -> None:
        """Code for the tagged fields that differ from their defaults, in the order of their tags."""
        out = self.out
        tagged = self.layout.tagged(kind)
        if not tagged:
            out.add(f"{to}.append(0)")
            return
        defaults = kind()
        values = {field.name: getattr(defaults, field.name) for _, field in tagged}
        out.add(f"if {' or '.join(differs(f'{message}.{name}', value) for name, value in values.items())}:")
        out.indent()
        written, one = f"written{self.depth}", f"one{self.depth}"
        out.add(f"{written} = []")
        for tag, field in tagged:
            out.add(f"v = {message}.{field.name}", f"if {self.is_set(field, values[field.name])}:")
            out.indent()
            out.add(f"{one} = bytearray()")
            self.field(field, one)
            out.add(f"{written}.append({varint_bytes(tag)!r} + varint_bytes(len({one})) + {one})")
            out.dedent()
        out.add(f"{to}.append(len({written}))", f"for {one} in {written}:", f"    {to} += {one}")
        out.dedent()
        out.add("else:", f"    {to}.append(0)")

    def is_set(self, field: Field, default: object) -> str:
        """An expression: whether `v` differs from the value that a reader would assume."""
        if field.item is None or field.is_array:
            return differs("v", default)
        inner = field.item()
        names = [f.name for f in self.layout.fields(field.item)] + [f.name for _, f in self.layout.tagged(field.item)]
        return f"v is not None and ({' or '.join(differs(f'v.{name}', getattr(inner, name)) for name in names)})"


def differs(value: str, default: object) -> str:
    """An expression: whether the value is not the default. An empty array is, whatever its type."""
    if default is None:
        return f"{value} is not None"
    if default == ():
        return f"len({value}) != 0"
    return f"{value} != {default!r}"
