"""The layout of one version of a message on the wire: fields in order, sizes, and what is compact or tagged.

Used by the two code generators, `decoding` and `encoding`, when a version is used for the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from foldlog.errors import InvalidArgument
from foldlog.wire.schema import ApiMessage, Field, Message

FIXED_FORMATS: Final = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Fields of fixed size: the letter of the `struct` module, and the bytes."""

LENGTH_FORMATS: Final = {"string": "h", "bytes": "i", "records": "i"}
"""The letter of the length before a value of variable size, if it is not a varint."""

STRING_BYTES_MAX: Final = (1 << 15) - 1
"""A string's length is an int16, and Kafka limits compact strings to the same."""


@dataclass(frozen=True, slots=True)
class MessageLayout:
    """One version of a top-level message."""

    top: type[ApiMessage]
    version: int
    is_flexible: bool

    @property
    def what(self) -> str:
        return f"{self.top.__name__} v{self.version}"

    def fields(self, struct: type[Message]) -> list[Field]:
        """The fields that every message of this version has, in order."""
        return [field for field in self._present(struct) if field.tag is None]

    def tagged(self, struct: type[Message]) -> list[tuple[int, Field]]:
        """The fields that are left out when they have their defaults, by tag."""
        found = [(field.tag, field) for field in self._present(struct) if field.tag is not None]
        return sorted(found, key=lambda pair: pair[0])

    def absent(self, struct: type[Message]) -> list[str]:
        """The names of the fields that other versions have and this one does not."""
        present = {field.name for field in self._present(struct)}
        return [name for name in struct.__slots__ if name not in present]

    def runs(self, struct: type[Message]) -> Iterator[list[Field]]:
        """The untagged fields, with neighbours of fixed size grouped: one call of `struct` reads or writes them."""
        run: list[Field] = []
        for field in self.fields(struct):
            if is_fixed(field):
                run.append(field)
                continue
            if run:
                yield run
                run = []
            yield [field]
        if run:
            yield run

    def size_min(self, struct: type[Message]) -> int:
        """The fewest bytes that such a struct takes."""
        return sum(self._field_size_min(field) for field in self.fields(struct)) + self.is_flexible

    def item_size_min(self, field: Field) -> int:
        """The fewest bytes of one item of an array; at least one, so that the bytes limit the count."""
        if field.item is not None:
            return max(1, self.size_min(field.item))
        return max(1, self._value_size_min(field.kind))

    def _present(self, struct: type[Message]) -> list[Field]:
        return [field for field in struct.SCHEMA if field.first <= self.version <= field.last]

    def _field_size_min(self, field: Field) -> int:
        if field.is_array:
            return 1 if self.is_flexible else 4
        if field.item is not None:
            return 1 if field.is_nullable else self.size_min(field.item)
        return self._value_size_min(field.kind)

    def _value_size_min(self, kind: str) -> int:
        if kind in FIXED_FORMATS:
            return FIXED_FORMATS[kind][1]
        if self.is_flexible:
            return 1
        return 2 if kind == "string" else 4


def layout_of(top: type[ApiMessage], version: int) -> MessageLayout:
    first, last = top.VERSIONS
    if not first <= version <= last:
        raise InvalidArgument(f"{top.__name__} has versions {first} to {last}, not {version}; choose one of those")
    is_flexible = top.FLEXIBLE_FROM is not None and version >= top.FLEXIBLE_FROM
    return MessageLayout(top, version, is_flexible)


def is_fixed(field: Field) -> bool:
    return field.kind in FIXED_FORMATS and not field.is_array


def run_format(run: list[Field]) -> tuple[str, int]:
    """The `struct` format of neighbouring fields of fixed size, and their bytes together."""
    letters = "".join(FIXED_FORMATS[field.kind][0] for field in run)
    return ">" + letters, sum(FIXED_FORMATS[field.kind][1] for field in run)


class SourceText:
    """The lines of a function that is being generated, and the names it uses. Owned by its generator."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, object] = {}
        self._depth = 0

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self._depth + line for line in lines]

    def indent(self) -> None:
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def name(self, name: str, value: object) -> str:
        """Make `value` a global of the function. A name always has the same value: it is a class or a format."""
        self.names.setdefault(name, value)
        return name

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
