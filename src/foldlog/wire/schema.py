"""The building blocks of messages, for the generated modules in `foldlog.wire.messages`.

A message is a class with a line for each field: `group_id: str = field("string", 0, 4)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, ClassVar, Final, NamedTuple, dataclass_transform

ZERO_UUID: Final = bytes(16)
"""No topic id."""

_SECRET: Final = frozenset({"auth_bytes"})
"""Fields that are hidden when a message is shown: they may hold a password."""

Records = bytes | bytearray | memoryview
"""Record batches, uncopied: a view into their frame, or into what was read from a segment."""


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


class _Declared(NamedTuple):
    """A field as a message's class declares it, for all its versions at once."""

    kind: str
    item: type[Message] | None
    first: int
    last: int
    is_array: bool
    nullable_from: int | None
    tag: int | None
    tagged_from: int
    default: object

    def spans(self, name: str) -> Iterator[Field]:
        """One Field for each run of versions in which it is written alike."""
        turns = {self.first, self.last + 1}
        if self.nullable_from is not None:
            turns.add(self.nullable_from)
        if self.tag is not None:
            turns.add(self.tagged_from)
        for first, beyond in pairwise(sorted(turns)):
            is_nullable = self.nullable_from is not None and first >= self.nullable_from
            tag = self.tag if first >= self.tagged_from else None
            yield Field(name, self.kind, first, beyond - 1, self.item, self.is_array, is_nullable, tag)

    @property
    def is_always_there(self) -> bool:
        """Whether it is a struct that some version writes even if it was not given."""
        if self.item is None or self.is_array:
            return False
        without_tag = self.tag is None or self.tagged_from > self.first
        return without_tag and (self.nullable_from is None or self.nullable_from > self.first)


def field(
    kind: str | type[Message],
    first: int,
    last: int,
    *,
    is_array: bool = False,
    nullable_from: int | None = None,
    tag: int | None = None,
    tagged_from: int | None = None,
    default: object,
) -> Any:
    """Declare a field of the versions `first` to `last`: of a kind that `Field` names, or a struct by its class.

    It may be null from one version on, and tagged instead of positional from another.
    """
    name, item = (kind, None) if isinstance(kind, str) else ("struct", kind)
    tagged_from = first if tagged_from is None else tagged_from
    return _Declared(name, item, first, last, is_array, nullable_from, tag, tagged_from, default)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class _MessageType(type):
    """Creates slots, a schema and a constructor from the fields that a class declares, like dataclasses."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **facts: Any) -> _MessageType:
        declared = {key: value for key, value in namespace.items() if isinstance(value, _Declared)}
        for key in declared:
            del namespace[key]
        namespace["SCHEMA"] = tuple(span for key, one in declared.items() for span in one.spans(key))
        namespace["__slots__"] = tuple(declared)

        def compile_first(self: Message, **given: Any) -> None:
            # Most structs of a module are never instantiated: compiling all of them was half of an import.
            constructor = _constructor(declared)
            made.__init__ = constructor  # type: ignore[misc]
            constructor(self, **given)

        namespace["__init__"] = compile_first
        made = super().__new__(mcs, name, bases, namespace)
        return made

    def __init__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int | None = None,
        versions: tuple[int, int] | None = None,
        flexible_from: int | None = None,
    ) -> None:
        super().__init__(name, bases, namespace)
        if api_key is not None:
            cls.API_KEY, cls.VERSIONS, cls.FLEXIBLE_FROM = api_key, versions, flexible_from


def _constructor(declared: dict[str, _Declared]) -> Callable[..., None]:
    """`def __init__(self, *, name=default, …)`, compiled: it is called for every struct of every request."""
    known: dict[str, Any] = {f"_{key}": one.default for key, one in declared.items()}
    lines = []
    for key, one in declared.items():
        value = key
        if one.is_always_there:
            known[f"_item_{key}"] = one.item
            value = f"_item_{key}() if {key} is None else {key}"
        lines.append(f"    self.{key} = {value}")
    parameters = "".join(f", {key}=_{key}" for key in declared)
    text = f"def __init__(self{', *' if declared else ''}{parameters}):\n" + ("\n".join(lines) or "    pass")
    exec(text, known)
    made: Callable[..., None] = known["__init__"]
    return made


class Message(metaclass=_MessageType):
    """A request, a response, or a struct inside one, with the fields of all versions.

    Encoding writes the fields that its version has; decoding leaves the others at their defaults. A plain mutable
    value, owned by its creator.
    """

    SCHEMA: ClassVar[tuple[Field, ...]]
    __slots__: ClassVar[tuple[str, ...]]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = (f"{name}={'...' if name in _SECRET else repr(getattr(self, name))}" for name in self.__slots__)
        return f"{type(self).__name__}({', '.join(shown)})"


class ApiMessage(Message):
    """A whole message: its API, the versions that the schema has, and the first one with compact types and tags."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE_FROM: ClassVar[int | None]


class Request(ApiMessage):
    """A request of a client."""


class Response(ApiMessage):
    """A response of a broker."""


def _same(one: object, other: object) -> bool:
    # An array may be any sequence: a decoded one is a list, a default the empty tuple.
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return list(one) == list(other)
    return one == other
