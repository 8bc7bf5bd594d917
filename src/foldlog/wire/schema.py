"""What a message is made of: the vocabulary of the generated modules in `foldlog.wire.messages`."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

ZERO_UUID: Final = bytes(16)
"""No topic id."""

_SECRET: Final = frozenset({"auth_bytes"})
"""Fields that are not shown where a message is: a password may be in there."""

Records = bytes | bytearray | memoryview
"""Record batches, as they are: a view into the frame they came in, or into what was read from a segment."""


class Field(NamedTuple):
    """How a field is written in the versions `first` to `last`.

    A field that looks different in other versions has several of these. `kind` is one of bool, int8, int16, uint16,
    int32, int64, float64, string, bytes, uuid (16 bytes), records, or struct, whose class is `item`. A field with a
    `tag` is left out when it has its default; a struct with a tag that is None has only defaults.
    """

    name: str
    kind: str
    first: int
    last: int
    item: type[Message] | None = None
    is_array: bool = False
    is_nullable: bool = False
    tag: int | None = None


class Message:
    """A request, a response, or a struct inside one, with the fields of all versions.

    Encoding writes the fields that its version has; decoding leaves the others at their defaults. A plain mutable
    value: whoever made it owns it.
    """

    __slots__: tuple[str, ...] = ()
    SCHEMA: ClassVar[tuple[Field, ...]] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = (f"{name}={'...' if name in _SECRET else repr(getattr(self, name))}" for name in self.__slots__)
        return f"{type(self).__name__}({', '.join(shown)})"


class ApiMessage(Message):
    """A whole message: its API, the versions that the schema knows, and the first with compact types and tags."""

    __slots__ = ()
    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE_FROM: ClassVar[int | None]


class Request(ApiMessage):
    """What a client asks."""

    __slots__ = ()


class Response(ApiMessage):
    """What a broker answers."""

    __slots__ = ()


def _same(one: object, other: object) -> bool:
    # An array is any sequence: a decoded one is a list, a default the empty tuple.
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return list(one) == list(other)
    return one == other
