"""What the topic `_schemas` says: subjects with their versions, schemas by id, compatibility levels and modes. Pure.

The state is a function of the topic's records and nothing else; `apply` takes them in order. Keys and values are JSON,
with the names that Confluent's registry uses, so each can read the other's topic:

    {"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}   a version; without a value it never was
    {"keytype":"CONFIG","subject":null,"magic":0}                         a level; subject null: of all subjects
    {"keytype":"MODE","subject":null,"magic":0}                           a mode
    {"keytype":"DELETE_SUBJECT","subject":"orders-value","magic":0}       versions up to one are deleted
    {"keytype":"NOOP","magic":0}                                          the highest ids given so far: `noted_ids`

A subject may be in a context, `:.CONTEXT:SUBJECT`; each context numbers its schemas by itself. `.` is the default one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from foldlog.broker.registry.schemas import AVRO, Reference, SchemaText

DEFAULT_CONTEXT: Final = "."
_CONTEXT_BEGIN: Final = ":."

StoredRecord = tuple[bytes, bytes | None]


def context_of(subject: str) -> str:
    """
    >>> context_of("orders-value"), context_of(":.eu:orders-value"), context_of(":.:orders-value")
    ('.', '.eu', '.')
    """
    if not subject.startswith(_CONTEXT_BEGIN):
        return DEFAULT_CONTEXT
    return subject[1:].partition(":")[0]


def unqualified(subject: str) -> str:
    """The subject's name in its context.

    >>> unqualified(":.eu:orders-value")
    'orders-value'
    """
    return subject[1:].partition(":")[2] if subject.startswith(_CONTEXT_BEGIN) else subject


def qualified(context: str, subject: str) -> str:
    return subject if context == DEFAULT_CONTEXT else f":{context}:{subject}"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject. `identity` is equal for schemas that are one, whatever their text."""

    subject: str
    number: int
    id: int
    schema: SchemaText
    identity: str
    is_deleted: bool = False

    def record(self) -> StoredRecord:
        value: dict[str, Any] = {"subject": self.subject, "version": self.number, "id": self.id}
        if self.schema.kind != AVRO:
            value["schemaType"] = self.schema.kind
        if self.schema.references:
            value["references"] = [one.as_json() for one in self.schema.references]
        value.update(schema=self.schema.text, deleted=self.is_deleted, identity=self.identity)
        return version_key(self.subject, self.number), _packed(value)


class SubjectConfig(NamedTuple):
    """The settings of a subject, or of all; None for one that is not set."""

    compatibility: str | None = None
    normalize: bool | None = None


@dataclass(slots=True)
class _Context:
    """The schemas of one context."""

    schemas: dict[int, tuple[SchemaText, str]] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    """By the identity of the schema."""
    users: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """The subjects and versions that have an id, deleted ones too."""
    max_id: int = 0


class RegistryState:
    """Mutable, of one owner who also locks it."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        self.configs: dict[str | None, SubjectConfig] = {}
        self.modes: dict[str | None, str] = {}
        self._contexts: dict[str, _Context] = {}

    # --- looking ----------------------------------------------------------------------------------------------------

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject, in order; also deleted ones, if they are asked for."""
        known = self.subjects.get(subject, {})
        return [known[number] for number in sorted(known) if deleted or not known[number].is_deleted]

    def schema(self, context: str, schema_id: int) -> SchemaText | None:
        known = self._contexts.get(context)
        found = None if known is None else known.schemas.get(schema_id)
        return None if found is None else found[0]

    def id_of(self, context: str, identity: str) -> int | None:
        known = self._contexts.get(context)
        return None if known is None else known.ids.get(identity)

    def max_id(self, context: str) -> int:
        known = self._contexts.get(context)
        return 0 if known is None else known.max_id

    def versions_of_id(self, context: str, schema_id: int) -> list[Version]:
        """The versions that have an id, deleted ones too, by subject and number."""
        known = self._contexts.get(context)
        users = set() if known is None else known.users.get(schema_id, set())
        return [self.subjects[subject][number] for subject, number in sorted(users)]

    def subjects_of_id(self, context: str, schema_id: int) -> set[str]:
        """The subjects with a version that has the id, a deleted one too."""
        known = self._contexts.get(context)
        return set() if known is None else {subject for subject, _ in known.users.get(schema_id, ())}

    @property
    def contexts(self) -> list[str]:
        return sorted({DEFAULT_CONTEXT, *map(context_of, self.subjects)})

    def all_versions(self) -> Iterator[Version]:
        for subject in sorted(self.subjects):
            yield from self.versions(subject, deleted=True)

    def referring(self, subject: str, number: int) -> list[Version]:
        """The versions that use this one and are not deleted."""
        return [
            one
            for one in self.all_versions()
            if not one.is_deleted
            and any(to.subject == subject and to.version == number for to in one.schema.references)
        ]

    # --- following the topic ----------------------------------------------------------------------------------------

    def apply(self, key: bytes, value: bytes | None) -> str | None:
        """Take one record; why it means nothing, if it does not."""
        try:
            name = json.loads(key)
            said = None if value is None else json.loads(value)
            kind, subject = name["keytype"], name.get("subject")
            if kind == "SCHEMA":
                self._apply_schema(subject, int(name["version"]), said)
            elif kind == "CONFIG":
                self._set(self.configs, subject, None if said is None else _config_of(said))
            elif kind == "MODE":
                self._set(self.modes, subject, None if said is None else str(said["mode"]))
            elif kind == "DELETE_SUBJECT" and said is not None:
                self._delete_up_to(subject, int(said["version"]))
            elif kind == "CLEAR_SUBJECT":
                self._clear(subject)
            elif kind == "NOOP" and said is not None:
                for context, number in said.get("maxIds", {}).items():
                    self._raise_max_id(str(context), int(number))
            elif kind not in ("NOOP", "DELETE_SUBJECT"):
                return f"a key of type {kind!r} is not known"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return f"it is not a record of a schema registry: {error!r}"
        return None

    def _apply_schema(self, subject: str, number: int, said: dict[str, Any] | None) -> None:
        before = self.subjects.get(subject, {}).pop(number, None)
        if before is not None:
            self._forget_user(context_of(subject), before)
        if said is None:
            if subject in self.subjects and not self.subjects[subject]:
                del self.subjects[subject]
            return
        schema = SchemaText(
            said.get("schemaType") or AVRO,
            str(said["schema"]),
            tuple(
                Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
                for one in said.get("references") or ()
            ),
        )
        identity = said.get("identity") or identity_of(schema.kind, schema.text, schema.references)
        version = Version(subject, number, int(said["id"]), schema, identity, bool(said.get("deleted")))
        self.subjects.setdefault(subject, {})[number] = version
        context = self._context(context_of(subject))
        context.schemas[version.id] = (schema, identity)
        context.ids.setdefault(identity, version.id)
        context.users.setdefault(version.id, set()).add((subject, number))
        context.max_id = max(context.max_id, version.id)

    def _delete_up_to(self, subject: str, number: int) -> None:
        for version in self.versions(subject):
            if version.number <= number:
                self.subjects[subject][version.number] = replace(version, is_deleted=True)

    def _clear(self, subject: str) -> None:
        for version in self.versions(subject, deleted=True):
            if version.is_deleted:
                self._apply_schema(subject, version.number, None)

    def _forget_user(self, context: str, version: Version) -> None:
        """The version is gone, or another; with the last one that had its id, the schema goes too."""
        known = self._context(context)
        users = known.users[version.id]
        users.discard((version.subject, version.number))
        if not users:
            del known.users[version.id]
            _, identity = known.schemas.pop(version.id)
            if known.ids.get(identity) == version.id:
                del known.ids[identity]

    def _context(self, name: str) -> _Context:
        return self._contexts.setdefault(name, _Context())

    def _raise_max_id(self, context: str, number: int) -> None:
        known = self._context(context)
        known.max_id = max(known.max_id, number)

    @staticmethod
    def _set(where: dict[str | None, Any], subject: str | None, value: Any) -> None:
        if value is None:
            where.pop(subject, None)
        else:
            where[subject] = value

    def noted_ids(self) -> StoredRecord:
        """Says which ids were given. Written with a tombstone: once compaction has dropped both the schema and its
        tombstone, nothing else in the topic would keep the id from being given again."""
        highest = {name: one.max_id for name, one in self._contexts.items()}
        return _packed({"keytype": "NOOP", "magic": 0}), _packed({"maxIds": highest})


def version_key(subject: str, number: int) -> bytes:
    return _packed({"keytype": "SCHEMA", "subject": subject, "version": number, "magic": 1})


def deletion_record(subject: str, up_to: int | None) -> StoredRecord:
    """Deletes the versions up to a number; None takes an older such record back."""
    value = None if up_to is None else _packed({"subject": subject, "version": up_to})
    return _packed({"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}), value


def config_record(subject: str | None, config: SubjectConfig | None) -> StoredRecord:
    value = None
    if config is not None:
        said = {"compatibilityLevel": config.compatibility, "normalize": config.normalize}
        value = _packed({name: one for name, one in said.items() if one is not None})
    return _packed({"keytype": "CONFIG", "subject": subject, "magic": 0}), value


def mode_record(subject: str | None, mode: str | None) -> StoredRecord:
    value = None if mode is None else _packed({"mode": mode})
    return _packed({"keytype": "MODE", "subject": subject, "magic": 0}), value


def identity_of(kind: str, text: str, references: tuple[Reference, ...]) -> str:
    """A digest that is equal for schemas that are one."""
    told = json.dumps([kind, text, sorted(references)], ensure_ascii=True)
    return hashlib.sha256(told.encode()).hexdigest()


def _config_of(said: dict[str, Any]) -> SubjectConfig:
    level, normalize = said.get("compatibilityLevel"), said.get("normalize")
    return SubjectConfig(None if level is None else str(level), None if normalize is None else bool(normalize))


def _packed(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
