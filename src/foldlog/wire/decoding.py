"""Generates the source of the function that decodes one version of a message.

The function is flat: nested structs are nested loops, neighbouring fields of fixed size are one call of `struct`, and a
position walks over the buffer. Three rules keep a hostile frame harmless:

- A length or a count is compared with the bytes that are left, divided by the smallest item, before anything is made.
- A value that was read past `end` is never returned: each later length or count fails, and so does the end.
- All array items and tagged fields of a message together are limited: an item of two bytes becomes an object of a
  hundred, and takes half a microsecond.

A second form of it is a generator that pauses after every STEP_ITEMS items, so that a server's event loop decodes a
large request between other work.
"""

from __future__ import annotations

import struct
from itertools import repeat
from typing import Final

from foldlog.errors import MalformedBytes
from foldlog.limits import REQUEST_ITEMS_MAX, RESPONSE_ITEMS_MAX, STEP_ITEMS, STRUCT_TAGS_MAX
from foldlog.wire.layout import (
    FIXED_FORMATS,
    LENGTH_FORMATS,
    STRING_BYTES_MAX,
    MessageLayout,
    SourceText,
    is_fixed,
    run_format,
)
from foldlog.wire.schema import Field, Message, Request

VARINT_BYTES_MAX: Final = 5
LONG_VARINT: Final = "a varint is over five bytes or 32 bits"
TOO_MANY: Final = "it has more items than a message may have"
ITEMS_MAX: Final = {11: 1000, 14: 1 << 16, 16: 1000, 55: 1000, 57: 1000, 66: 10_000, 75: 1 << 16}
"""By API key, where all of a request has to be looked at in one go: JoinGroup (the protocols of a client), SyncGroup
(the members of a group), filters of ListGroups and ListTransactions, DescribeQuorum, UpdateFeatures, and the names
that DescribeTopicPartitions sorts."""

LONG_TAG: Final = "a tagged field is longer than what is left"


class DecodeFault(Exception):
    """The fault, without the message and the position, which the caller adds. Stays inside this package."""


def long_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """The unsigned varint at the position, and where it ends."""
    value = 0
    for index in range(VARINT_BYTES_MAX):
        byte = buffer[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >= 1 << 32:
                break
            return value, position + index + 1
    raise DecodeFault(LONG_VARINT)


def skip_tags(buffer: memoryview, position: int, end: int, count_max: int) -> tuple[int, int]:
    """How many tagged fields begin at the position, and where they end: unknown ones are skipped.

    They take two bytes at least, and a loop over them is slow: so they are limited, like items.
    """
    count, position = long_varint(buffer, position)
    if count > count_max:
        raise DecodeFault(TOO_MANY)
    for _ in repeat(None, count):
        _, position = long_varint(buffer, position)
        size, position = long_varint(buffer, position)
        if size > end - position:
            raise DecodeFault(LONG_TAG)
        position += size
    return count, position


def decoder_source(layout: MessageLayout, *, in_steps: bool = False) -> SourceText:
    """Source of `decode(buffer, position, end)`: the message in these bytes, or MalformedBytes."""
    return _Writer(layout, in_steps).write()


class _Writer:
    """Writes one function. `m0` is the message, `m1` a struct inside it, and so on; `p` is the position."""

    def __init__(self, layout: MessageLayout, in_steps: bool) -> None:
        self.layout = layout
        self.in_steps = in_steps
        self.out = SourceText()
        self.depth = 0

    def write(self) -> SourceText:
        out = self.out
        top = self.layout.top
        items_max = ITEMS_MAX.get(top.API_KEY, REQUEST_ITEMS_MAX) if issubclass(top, Request) else RESPONSE_ITEMS_MAX
        out.names.update(
            WHAT=self.layout.what,
            ITEMS_MAX=items_max,
            STEP_ITEMS=STEP_ITEMS,
            STRING_BYTES_MAX=STRING_BYTES_MAX,
            new=object.__new__,
            repeat=repeat,
            unpack_from=struct.unpack_from,
            long_varint=long_varint,
            skip_tags=skip_tags,
            MalformedBytes=MalformedBytes,
            StructError=struct.error,
            DecodeFault=DecodeFault,
        )
        out.add("def decode(buffer, position, end):")
        out.indent()
        if self.in_steps:
            out.add("left = STEP_ITEMS", "if not left:", "    yield")  # a generator, even if nothing can be many
        out.add("b = memoryview(buffer)", "p = position", "items = 0", "try:")
        out.indent()
        self.struct(self.layout.top)
        out.dedent()
        self.handler("(IndexError, StructError)", "it ends in the middle of a field")
        self.handler("UnicodeDecodeError", "a string is not UTF-8")
        out.add("except DecodeFault as error:")
        out.add("    raise MalformedBytes(WHAT, str(error), p - position) from error")
        if issubclass(self.layout.top, Request):
            # Brokers ignore bytes behind a request, and librdkafka relies on it: when it asks for all topics in version
            # 9 or later, three extra bytes follow.
            out.add("if p > end:")
            self.fail("it is longer than its bytes")
        else:
            out.add("if p != end:")
            self.fail("it is longer or shorter than its bytes")
        out.add("return m0")
        return out

    def pause(self, items: str = "1") -> None:
        """Code that pauses where so many more items make a step full."""
        if self.in_steps:
            self.out.add(f"left -= {items}", "if left < 0:", "    left = STEP_ITEMS", "    yield")

    def handler(self, error: str, reason: str) -> None:
        self.out.add(f"except {error} as error:")
        self.out.add(f"    raise MalformedBytes(WHAT, {reason!r}, p - position) from error")

    def fail(self, reason: str) -> None:
        self.out.add(f"    raise MalformedBytes(WHAT, {reason!r}, p - position)")

    def struct(self, kind: type[Message]) -> None:
        """Code that decodes a struct into `m<depth>`."""
        out, message = self.out, f"m{self.depth}"
        out.add(f"{message} = new({out.name(kind.__name__, kind)})")
        defaults = kind()
        for name in self.layout.absent(kind):
            out.add(f"{message}.{name} = {getattr(defaults, name)!r}")
        for run in self.layout.runs(kind):
            if is_fixed(run[0]):
                self.fixed(run, message)
            else:
                self.field(run[0], f"{message}.{run[0].name}")
        if self.layout.is_flexible:
            self.tags(kind, message, defaults)

    def fixed(self, run: list[Field], message: str) -> None:
        form, size = run_format(run)
        unpack = self.out.name(f"unpack_{form[1:].replace('?', 'B')}", struct.Struct(form).unpack_from)
        targets = ", ".join(f"{message}.{field.name}" for field in run)
        if len(run) == 1:
            targets += ","  # a tuple of one
        self.out.add(f"{targets} = {unpack}(b, p)", f"p += {size}")

    def field(self, field: Field, target: str) -> None:
        if field.is_array:
            self.array(field, target)
        elif field.item is not None:
            self.nullable_struct(field.item, field, target)
        elif is_fixed(field):
            form, size = run_format([field])
            self.out.add(f"({target},) = unpack_from({form!r}, b, p)", f"p += {size}")
        else:
            self.sized(field, target)

    def nullable_struct(self, kind: type[Message], field: Field, target: str) -> None:
        out = self.out
        if not field.is_nullable:
            self.inner(kind, target + " = {}")
            return
        out.add("n = b[p]", "p += 1", "if n == 255:", f"    {target} = None", "elif n == 1:")
        out.indent()
        self.inner(kind, target + " = {}")
        out.dedent()
        out.add("else:")
        self.fail(f"{field.name} is neither there nor null")

    def inner(self, kind: type[Message], keep: str) -> None:
        self.depth += 1
        self.struct(kind)
        self.out.add(keep.format(f"m{self.depth}"))
        self.depth -= 1

    def varint(self, target: str) -> None:
        self.out.add(f"{target} = b[p]", "p += 1", f"if {target} > 127:")
        self.out.add(f"    {target}, p = long_varint(b, p - 1)")

    def length(self, letter: str) -> None:
        """Code that reads a length into `n`; -1 is null."""
        if self.layout.is_flexible:
            self.varint("n")
            self.out.add("n -= 1")
        else:
            size = struct.calcsize(">" + letter)
            unpack = self.out.name(f"unpack_{letter}", struct.Struct(">" + letter).unpack_from)
            self.out.add(f"n, = {unpack}(b, p)", f"p += {size}")

    def null(self, field: Field, target: str) -> None:
        """Code for null and negative lengths; the next line is the `else`."""
        out = self.out
        out.add("if n < 0:")
        out.indent()
        if field.is_nullable:
            if not self.layout.is_flexible:
                out.add("if n != -1:")
                self.fail(f"the length of {field.name} is negative")
            out.add(f"{target} = None")
        else:
            out.add(f"raise MalformedBytes(WHAT, {f'{field.name} is null or its length is negative'!r}, p - position)")
        out.dedent()

    def sized(self, field: Field, target: str) -> None:
        out = self.out
        self.length(LENGTH_FORMATS[field.kind])
        self.null(field, target)
        out.add("else:")
        out.indent()
        out.add("q = p + n", "if q > end:")
        self.fail(f"{field.name} is longer than what is left")
        if field.kind == "string":
            if self.layout.is_flexible:
                out.add("if n > STRING_BYTES_MAX:")
                self.fail(f"{field.name} is longer than a string may be")
            out.add(f"{target} = b[p:q].tobytes().decode()")
        elif field.kind == "bytes":
            out.add(f"{target} = b[p:q].tobytes()")
        else:
            out.add(f"{target} = b[p:q]")
        out.add("p = q")
        out.dedent()

    def array(self, field: Field, target: str) -> None:
        out, items = self.out, f"a{self.depth}"
        self.length("i")
        self.null(field, target)
        out.add(f"elif n > (end - p) // {self.layout.item_size_min(field)}:")
        self.fail(f"{field.name} has more items than what is left can hold")
        out.add("else:")
        out.indent()
        out.add("items += n", "if items > ITEMS_MAX:")
        self.fail(TOO_MANY)
        if field.kind in FIXED_FORMATS:
            letter, size = FIXED_FORMATS[field.kind]
            form = f"'>' + '{letter}' * n" if field.kind == "uuid" else f"f'>{{n}}{letter}'"
            out.add(f"{target} = list(unpack_from({form}, b, p))", f"p += n * {size}")
            self.pause("n")  # to decode them is quick; to handle them is not
        else:
            out.add(f"{items} = []", f"{target} = {items}", "for _ in repeat(None, n):")
            out.indent()
            if field.item is not None:
                self.inner(field.item, items + ".append({})")
            else:
                item = f"v{self.depth}"
                self.sized(field._replace(is_array=False, is_nullable=False), item)
                out.add(f"{items}.append({item})")
            self.pause()
            out.dedent()
        out.dedent()

    def tags(self, kind: type[Message], message: str, defaults: Message) -> None:
        """As in Kafka: in any order, and of two with the same tag the last one counts."""
        out = self.out
        tagged = self.layout.tagged(kind)
        for _, field in tagged:
            out.add(f"{message}.{field.name} = {getattr(defaults, field.name)!r}")
        if not tagged:
            out.add("if b[p]:", f"    n, p = skip_tags(b, p, end, min({STRUCT_TAGS_MAX}, ITEMS_MAX - items))")
            out.indent()
            out.add("items += n")
            self.pause("n")
            out.dedent()
            out.add("else:", "    p += 1")
            return
        count, tag, size, stop = (f"{name}{self.depth}" for name in ("count", "tag", "size", "stop"))
        self.varint(count)
        out.add(f"items += {count}", "if items > ITEMS_MAX:")
        self.fail(TOO_MANY)
        out.add(f"for _ in repeat(None, {count}):")
        out.indent()
        self.varint(tag)
        self.varint(size)
        out.add(f"{stop} = p + {size}", f"if {stop} > end:")
        self.fail(LONG_TAG)
        for number, field in tagged:
            out.add(f"{'if' if number == tagged[0][0] else 'elif'} {tag} == {number}:")
            out.indent()
            self.field(field, f"{message}.{field.name}")
            out.dedent()
        out.add("else:", f"    p = {stop}", f"if p != {stop}:")
        self.fail("a tagged field is not as long as it declares")
        self.pause()
        out.dedent()
