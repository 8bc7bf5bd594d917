"""JSON Schemas: checked with `jsonschema` against the metaschema of their draft; `$ref`s resolved in the schema and in
what it refers to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from foldlog.broker.registry.refusals import RegistryRefusal, invalid_schema
from foldlog.broker.registry.schemas import Difference, Referenced
from foldlog.errors import MissingDependency, brief_repr

_DATA: Final = frozenset({"const", "default", "enum", "examples"})
"""Members that hold data: a `$ref` in there is none."""


class JsonSchema:
    """A parsed schema. See `ParsedSchema`."""

    def __init__(self, root: Any, documents: dict[str, Any]) -> None:
        self.root = root
        self._documents = documents

    @classmethod
    def parse(cls, text: str, referenced: Sequence[Referenced] = ()) -> JsonSchema:
        """Raises RegistryRefusal if it is not a JSON Schema, or a reference in it leads nowhere."""
        documents: dict[str, Any] = {}
        root: Any = None
        for one in (*referenced, Referenced("", text)):
            root = _checked(one.text)
            documents.update(_identified(root, one.name))
            documents[one.name] = root
        made = cls(root, documents)
        for base, pointer in _references(root, ""):
            made.resolve(pointer, base)
        return made

    @property
    def canonical(self) -> str:
        return json.dumps(self.root, separators=(",", ":"), ensure_ascii=False)

    @property
    def identity(self) -> str:
        return self.canonical

    def normalized(self) -> str:
        return json.dumps(self.root, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def unreadable(self, writer: JsonSchema) -> list[Difference]:
        from foldlog.broker.registry.json_compatibility import differences

        return differences(self, writer)

    def formatted(self, form: str) -> str:
        return self.canonical

    def resolve(self, pointer: str, base: str = "") -> tuple[Any, str]:
        """The schema that a `$ref` names, and the base of the references in it."""
        target, fragment = urldefrag(urljoin(base, pointer) if base else pointer)
        document = self._documents.get(target, self._documents.get(target.rstrip("#")))
        if document is None and target == base:
            document = self.root
        if document is None:
            raise invalid_schema(f"nothing is known of the reference {brief_repr(pointer)}; list it in references")
        if not fragment:
            return document, target
        named = self._documents.get(f"{target}#{fragment}")
        if named is not None:
            return named, target
        found = document
        for part in fragment.lstrip("/").split("/"):
            part = unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(part)] if isinstance(found, list) else found[part]
            except (KeyError, IndexError, TypeError, ValueError):
                raise invalid_schema(f"the reference {brief_repr(pointer)} leads nowhere") from None
        return found, target


def _checked(text: str) -> Any:
    try:
        from jsonschema import SchemaError
        from jsonschema.validators import Draft7Validator, validator_for
    except ImportError as error:
        raise MissingDependency("a registry of JSON Schemas", "jsonschema", "registry") from error
    try:
        root = json.loads(text)
    except ValueError as error:
        raise invalid_schema(f"it is not JSON: {error}") from None
    if not isinstance(root, dict | bool):
        raise invalid_schema("a JSON Schema is an object, true or false")
    try:
        validator_for(root, default=Draft7Validator).check_schema(root)
    except SchemaError as error:
        where = "/".join(map(str, error.absolute_path))
        raise invalid_schema(f"it is not a JSON Schema: {error.message[:300]} (at /{where})") from None
    except RegistryRefusal:
        raise
    except (ValueError, TypeError, LookupError) as error:
        raise invalid_schema(f"it is not a JSON Schema: {error}") from None
    return root


def _walk(node: Any, base: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in a schema that may be a schema, with the base of its references."""
    if isinstance(node, list):
        for one in node:
            yield from _walk(one, base)
    elif isinstance(node, dict):
        own = node.get("$id")
        if isinstance(own, str) and not own.startswith("#"):
            base = urldefrag(urljoin(base, own))[0]
        yield base, node
        for name, one in node.items():
            if name not in _DATA:
                yield from _walk(one, base)


def _identified(root: Any, name: str) -> dict[str, Any]:
    """The schemas inside that have an `$id` or an `$anchor`, by it."""
    found: dict[str, Any] = {}
    for base, node in _walk(root, name):
        if isinstance(own := node.get("$id"), str):
            found[base if not own.startswith("#") else f"{base}{own}"] = node
        if isinstance(anchor := node.get("$anchor"), str):
            found[f"{base}#{anchor}"] = node
    return found


def _references(root: Any, name: str) -> Iterator[tuple[str, str]]:
    for base, node in _walk(root, name):
        pointer = node.get("$ref")
        if isinstance(pointer, str):
            yield base, pointer
