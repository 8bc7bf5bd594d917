"""Avro schemas: parsed and checked with fastavro, written as Java's Avro writes them, and compared by Avro's rules of
schema resolution.

To follow a schema: `AvroSchema.parse`, `_Reader` (JSON to `_Type`s and to the canonical text in one walk). To follow a
comparison: `AvroSchema.unreadable`, `_Comparison`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from foldlog.broker.registry.refusals import RegistryRefusal, invalid_schema
from foldlog.broker.registry.schemas import Difference, Referenced
from foldlog.errors import MissingDependency, brief_repr

_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_PROMOTIONS: Final = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""What a reader of a type reads besides: Avro's promotions."""

_MEMBERS: Final = {
    "record": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "error": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "enum": ("type", "name", "namespace", "doc", "symbols", "default", "aliases"),
    "fixed": ("type", "name", "namespace", "doc", "size", "aliases"),
    "array": ("type", "items"),
    "map": ("type", "values"),
}
_FIELD_MEMBERS: Final = ("name", "type", "doc", "default", "order", "aliases")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True, eq=False)
class _Type:
    """A type of a schema. Mutable while it is read: a record may hold itself."""

    kind: str
    name: str = ""
    aliases: frozenset[str] = frozenset()
    fields: list[_Field] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    has_default: bool = False
    size: int = 0
    inner: list[_Type] = field(default_factory=list)
    """The branches of a union, or the one type of an array or a map."""

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(slots=True, eq=False)
class _Field:
    """A field of a record."""

    name: str
    aliases: frozenset[str]
    type: _Type
    has_default: bool


class AvroSchema:
    """A parsed schema. See `ParsedSchema`."""

    def __init__(self, canonical: str, root: _Type) -> None:
        self.canonical = canonical
        self._root = root

    @property
    def identity(self) -> str:
        return self.canonical

    @classmethod
    def parse(cls, text: str, referenced: Sequence[Referenced] = ()) -> AvroSchema:
        """Raises RegistryRefusal if it is not an Avro schema."""
        try:
            from fastavro.schema import SchemaParseException, UnknownType, parse_schema
        except ImportError as error:
            raise MissingDependency("a registry of Avro schemas", "fastavro", "registry") from error
        checked: dict[str, Any] = {}
        reader = _Reader()
        canonical: Any = None
        root = _Type("null")
        for one in (*referenced, Referenced("", text)):
            raw = _loaded(one.text)
            try:
                # First: what fastavro has taken, the walk below can rely on.
                parse_schema(raw, named_schemas=checked, _write_hint=False)
                root, canonical = reader.read(raw, "")
            except UnknownType as error:
                raise invalid_schema(f"there is no type {brief_repr(error.name)}") from None
            except RegistryRefusal:
                raise
            except (SchemaParseException, ValueError, LookupError, TypeError, AttributeError) as error:
                raise invalid_schema(f"it is not an Avro schema: {error}") from None
        return cls(_compact(canonical), root)

    def normalized(self) -> str:
        return _compact(_ordered(json.loads(self.canonical)))

    def unreadable(self, writer: AvroSchema) -> list[Difference]:
        return _Comparison().differences(self._root, writer._root)

    def formatted(self, form: str) -> str:
        return self.canonical


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise invalid_schema(f"it is not JSON: {error}") from None


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _ordered(node: Any, key: str = "") -> Any:
    """With extra members of each type and field by name: their order means nothing. Defaults stay as they are."""
    if key == "default":
        return node
    if isinstance(node, list):
        return [_ordered(one) for one in node]
    if not isinstance(node, dict):
        return node
    known: tuple[str, ...] = _FIELD_MEMBERS if "name" in node and isinstance(node.get("type"), list | dict) else ()
    kind = node.get("type")
    if isinstance(kind, str):
        known = _MEMBERS.get(kind, _FIELD_MEMBERS)
    first = [name for name in known if name in node]
    return {name: _ordered(node[name], name) for name in [*first, *sorted(set(node) - set(first))]}


# --- reading ----------------------------------------------------------------------------------------------------------


class _Reader:
    """Makes types of JSON, and JSON as Java's Avro writes it: its order of members, and no more names than needed."""

    def __init__(self) -> None:
        self._named: dict[str, _Type] = {}

    def read(self, node: Any, namespace: str) -> tuple[_Type, Any]:
        if isinstance(node, str):
            return self._reference(node, namespace)
        if isinstance(node, list):
            return self._union(node, namespace)
        kind = node["type"]
        if not isinstance(kind, str):
            return self.read(kind, namespace)  # {"type": {...}}, which only wraps
        if kind in _NAMED:
            return self._definition(kind, node, namespace)
        if kind in ("array", "map"):
            of = "items" if kind == "array" else "values"
            inner, shown = self.read(node[of], namespace)
            return _Type(kind, inner=[inner]), {"type": kind, of: shown, **_extras(node, _MEMBERS[kind])}
        found, shown = self._reference(kind, namespace)
        extras = _extras(node, ("type",))
        return found, {"type": shown, **extras} if extras else shown

    def _reference(self, name: str, namespace: str) -> tuple[_Type, Any]:
        if name in _PRIMITIVES:
            return _Type(name), name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise invalid_schema(f"there is no type {brief_repr(name)}")
        return found, _shown_name(found.name, namespace)

    def _union(self, branches: list[Any], namespace: str) -> tuple[_Type, Any]:
        read = [self.read(one, namespace) for one in branches]
        types = [one for one, _ in read]
        names = [one.name or one.kind for one in types]
        if any(one.kind == "union" for one in types):
            raise invalid_schema("a union holds a union")
        for name in names:
            if names.count(name) > 1:
                raise invalid_schema(f"a union holds {brief_repr(name)} twice")
        return _Type("union", inner=types), [shown for _, shown in read]

    def _definition(self, kind: str, node: dict[str, Any], namespace: str) -> tuple[_Type, Any]:
        full = _full_name(node, namespace)
        if not all(_NAME.fullmatch(part) for part in full.split(".")):
            raise invalid_schema(f"{brief_repr(full)} is not a name")
        own = full.rpartition(".")[0]
        aliases = frozenset(one if "." in one or not own else f"{own}.{one}" for one in node.get("aliases", ()))
        made = self._named[full] = _Type("record" if kind == "error" else kind, full, aliases)
        shown: dict[str, Any] = {"type": kind, "name": made.short_name}
        if own != namespace:
            shown["namespace"] = own
        if node.get("doc") is not None:
            shown["doc"] = node["doc"]
        if kind == "enum":
            made.symbols = tuple(node["symbols"])
            made.has_default = node.get("default") is not None
            shown["symbols"] = list(made.symbols)
            if made.has_default:
                shown["default"] = node["default"]
        elif kind == "fixed":
            made.size = shown["size"] = node["size"]
        else:
            read = [self._field(one, own) for one in node["fields"]]
            made.fields = [one for one, _ in read]
            shown["fields"] = [text for _, text in read]
        shown.update(_extras(node, _MEMBERS[kind]))
        if node.get("aliases"):
            shown["aliases"] = [
                _shown_name(one if "." in one or not own else f"{own}.{one}", own) for one in node["aliases"]
            ]
        return made, shown

    def _field(self, node: dict[str, Any], namespace: str) -> tuple[_Field, Any]:
        of, shown_type = self.read(node["type"], namespace)
        shown = {"name": node["name"], "type": shown_type}
        shown.update({name: node[name] for name in ("doc", "default") if name in node})
        if node.get("order", "ascending") != "ascending":
            shown["order"] = node["order"]
        if node.get("aliases"):
            shown["aliases"] = node["aliases"]
        shown.update(_extras(node, _FIELD_MEMBERS))
        return _Field(node["name"], frozenset(node.get("aliases", ())), of, "default" in node), shown


def _extras(node: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in node.items() if name not in known}


def _full_name(node: dict[str, Any], namespace: str) -> str:
    name = node["name"]
    if "." in name:
        return str(name)
    space = node.get("namespace", namespace)
    return f"{space}.{name}" if space else str(name)


def _shown_name(full: str, namespace: str) -> str:
    space, _, name = full.rpartition(".")
    return name if space == namespace else full


# --- comparing --------------------------------------------------------------------------------------------------------


class _Comparison:
    """Why a reader's type cannot read a writer's, by the rules of Avro's schema resolution."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Difference]] = {}

    def differences(self, reader: _Type, writer: _Type, path: str = "/") -> list[Difference]:
        pair = (id(reader), id(writer))
        if pair not in self._known:
            self._known[pair] = []  # a record inside itself agrees with itself, as far as that place goes
            self._known[pair] = self._compare(reader, writer, path)
        return self._known[pair]

    def _compare(self, reader: _Type, writer: _Type, path: str) -> list[Difference]:
        if writer.kind == "union":
            return self._of_union(reader, writer, path)
        if reader.kind == "union":
            if any(not self.differences(branch, writer, path) for branch in reader.inner):
                return []
            return [_missing_branch(writer, path)]
        if reader.kind != writer.kind:
            if writer.kind in _PROMOTIONS.get(reader.kind, ()):
                return []
            described = f"The type (path {path!r}) of a field in the new schema does not match with the old schema"
            return [Difference("TYPE_MISMATCH", _quoted(f"{described}: {writer.kind} is not read as {reader.kind}"))]
        if reader.kind in ("array", "map"):
            return self.differences(reader.inner[0], writer.inner[0], _below(path, reader.kind))
        if reader.name:
            return self._of_named(reader, writer, path)
        return []

    def _of_union(self, reader: _Type, writer: _Type, path: str) -> list[Difference]:
        found: list[Difference] = []
        for number, branch in enumerate(writer.inner):
            why = self.differences(reader, branch, _below(path, str(number)))
            if why:
                found += [_missing_branch(branch, _below(path, str(number)))] if reader.kind == "union" else why
        return found

    def _of_named(self, reader: _Type, writer: _Type, path: str) -> list[Difference]:
        if reader.short_name != writer.short_name and writer.name not in reader.aliases:
            return [
                Difference(
                    "NAME_MISMATCH", f"The name of the schema has changed from {writer.name} to {reader.name} at {path}"
                )
            ]
        if reader.kind == "fixed" and reader.size != writer.size:
            return [Difference("FIXED_SIZE_MISMATCH", f"The size of FIXED type {reader.name} at {path} has changed")]
        if reader.kind == "enum":
            lost = [one for one in writer.symbols if one not in reader.symbols]
            if lost and not reader.has_default:
                described = f"The new schema is missing enum symbols {lost} at path {path} in the old schema"
                return [Difference("MISSING_ENUM_SYMBOLS", _quoted(described))]
        return self._of_fields(reader, writer, path)

    def _of_fields(self, reader: _Type, writer: _Type, path: str) -> list[Difference]:
        found: list[Difference] = []
        written = {one.name: one for one in writer.fields}
        for number, one in enumerate(reader.fields):
            where = _below(path, f"fields/{number}")
            names = [one.name, *sorted(one.aliases)]
            other = next((written[name] for name in names if name in written), None)
            if other is not None:
                found += self.differences(one.type, other.type, where + "/type")
            elif not one.has_default:
                lacks = "in the new schema has no default value and is missing in the old schema"
                described = f"The field {one.name!r} at path {where!r} {lacks}"
                found.append(Difference("READER_FIELD_MISSING_DEFAULT_VALUE", _quoted(described)))
        return found


def _missing_branch(writer: _Type, path: str) -> Difference:
    described = f"The new schema is missing a type inside a union field at path {path!r} in the old schema"
    return Difference("MISSING_UNION_BRANCH", _quoted(f"{described}: {writer.name or writer.kind}"))


def _below(path: str, part: str) -> str:
    return f"{path.rstrip('/')}/{part}"


def _quoted(described: str) -> str:
    return described.replace("'", "`")
