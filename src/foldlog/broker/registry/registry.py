"""The registry's operations: what Confluent's REST API promises, decided under the store's lock. No HTTP here.

To follow a registration: `Registry.register` (parse, look for the same schema, check compatibility), then
`SchemaStore.append`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.registry import refusals
from foldlog.broker.registry.refusals import RegistryRefusal
from foldlog.broker.registry.schemas import ParsedSchema, Reference, Referenced, SchemaText, parse_schema
from foldlog.broker.registry.state import (
    RegistryState,
    StoredRecord,
    SubjectConfig,
    Version,
    config_record,
    context_of,
    deletion_record,
    identity_of,
    mode_record,
    unqualified,
    version_key,
)
from foldlog.limits import REGISTRY_PARSED_MAX, REGISTRY_REFERENCES_MAX, REGISTRY_SUBJECT_CHARS_MAX

if TYPE_CHECKING:
    from foldlog.broker.registry.store import SchemaStore

ALL_CONTEXTS: Final = ":*:"
"""The prefix of the subjects of all contexts."""

NONE: Final = "NONE"
BACKWARD: Final = "BACKWARD"
LEVELS: Final = (
    NONE,
    BACKWARD,
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
READWRITE: Final = "READWRITE"
READONLY: Final = "READONLY"
READONLY_OVERRIDE: Final = "READONLY_OVERRIDE"
IMPORT: Final = "IMPORT"
MODES: Final = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)

LATEST: Final = -1
MAX_VERSION: Final = (1 << 31) - 1
GLOBAL_NAMES: Final = frozenset({"__GLOBAL", "__EMPTY"})


class NewSchema(NamedTuple):
    """What somebody wants to register. -1 for none: an `id` is for mode IMPORT; without that mode, `version` has to be
    the next one, for those who do not want to come after another writer."""

    schema: SchemaText
    normalize: bool = False
    id: int = -1
    version: int = -1


class Registry:
    """The schemas of one log. Any thread."""

    def __init__(self, store: SchemaStore) -> None:
        self._store = store
        self._parsed: OrderedDict[SchemaText, ParsedSchema] = OrderedDict()

    # --- registering and looking up -----------------------------------------------------------------------------------

    def register(self, subject: str, wanted: NewSchema) -> Version:
        """Register a schema. Durable on return. One that the subject has already is not registered again."""
        check_subject(subject)
        with self._store.lock:
            state = self._store.state()
            schema, parsed, identity = self._understood(state, subject, wanted)
            mode = self._mode(state, subject)
            known = next((one for one in state.versions(subject) if one.identity == identity), None)
            if known is not None and wanted.id in (-1, known.id) and wanted.version in (-1, 0, known.number):
                return known
            if mode in (READONLY, READONLY_OVERRIDE):
                raise RegistryRefusal(refusals.NOT_PERMITTED, f"Subject {subject} is in read-only mode")
            if mode == IMPORT:
                self._check_import(state, subject, wanted, identity)
            elif wanted.id >= 0:
                raise RegistryRefusal(refusals.NOT_PERMITTED, f"Subject {subject} is not in import mode")
            elif wanted.version > 0 and (known is not None or wanted.version != self._next_number(state, subject)):
                raise refusals.invalid_schema("Version is not one more than previous version")
            else:
                self._check_compatible(state, subject, parsed, schema)
            number = wanted.version if wanted.version > 0 else self._next_number(state, subject)
            schema_id = wanted.id if wanted.id >= 0 else state.id_of(context_of(subject), identity)
            if schema_id is None:
                schema_id = state.max_id(context_of(subject)) + 1
            version = Version(subject, number, schema_id, schema, identity)
            self._store.append([version.record()])
            return version

    def lookup(self, subject: str, wanted: NewSchema, *, deleted: bool = False) -> Version:
        """The version of the subject that has this schema. Raises RegistryRefusal if there is none."""
        with self._store.lock:
            state = self._store.state()
            versions = state.versions(subject, deleted=deleted)
            if not versions:
                raise refusals.subject_not_found(subject)
            _, _, identity = self._understood(state, subject, wanted)
            for version in reversed(versions):
                if version.identity == identity:
                    return version
            raise refusals.schema_not_found()

    def _understood(
        self, state: RegistryState, subject: str, wanted: NewSchema
    ) -> tuple[SchemaText, ParsedSchema, str]:
        """The schema as it is stored, and its identity."""
        given = wanted.schema
        parsed = self._parse(state, given)
        config = self._config(state, subject)
        text = parsed.canonical
        if wanted.normalize or config.normalize:
            text = parsed.normalized()
            parsed = self._parse(state, replace(given, text=text))
        return replace(given, text=text), parsed, identity_of(given.kind, parsed.identity, given.references)

    def _parse(self, state: RegistryState, schema: SchemaText) -> ParsedSchema:
        found = self._parsed.get(schema)
        if found is None:
            found = parse_schema(schema.kind, schema.text, self._referenced(state, schema))
            self._parsed[schema] = found
            if len(self._parsed) > REGISTRY_PARSED_MAX:
                self._parsed.popitem(last=False)
        else:
            self._parsed.move_to_end(schema)
        return found

    def _referenced(self, state: RegistryState, schema: SchemaText) -> list[Referenced]:
        """The texts of all schemas that it refers to, directly or not, each after those that it refers to itself."""
        found: dict[Reference, Referenced] = {}

        def add(references: Sequence[Reference]) -> None:
            for one in references:
                if one in found:
                    continue
                if len(found) >= REGISTRY_REFERENCES_MAX:
                    raise refusals.invalid_schema(f"it refers to over {REGISTRY_REFERENCES_MAX} schemas")
                version = state.subjects.get(one.subject, {}).get(one.version)
                if one.version == LATEST and state.versions(one.subject):
                    version = state.versions(one.subject)[-1]
                if version is None:
                    raise refusals.invalid_schema(
                        f'No schema reference found for subject "{one.subject}" and version {one.version}'
                    )
                if version.schema.kind != schema.kind:
                    raise refusals.invalid_schema(f"{one.subject!r} {one.version} is of type {version.schema.kind}")
                add(version.schema.references)
                found[one] = Referenced(one.name, version.schema.text)

        add(schema.references)
        return list(found.values())

    @staticmethod
    def _next_number(state: RegistryState, subject: str) -> int:
        return max((one.number for one in state.versions(subject, deleted=True)), default=0) + 1

    def _check_import(self, state: RegistryState, subject: str, wanted: NewSchema, identity: str) -> None:
        if wanted.id < 0:
            return
        known = state.id_of(context_of(subject), identity)
        taken = state.schema(context_of(subject), wanted.id)
        if taken is not None and known != wanted.id:
            raise RegistryRefusal(refusals.ID_TAKEN, f"Overwrite new schema with id {wanted.id} is not permitted.")

    # --- reading ------------------------------------------------------------------------------------------------------

    def subjects(self, *, prefix: str = "", deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """The subjects that have versions and begin with `prefix`; see `has_prefix`."""
        with self._store.lock:
            state = self._store.state()
            found = []
            for subject in sorted(state.subjects):
                if has_prefix(subject, prefix):
                    alive = bool(state.versions(subject))
                    if (deleted_only and not alive) or (not deleted_only and (alive or deleted)):
                        found.append(subject)
            return found

    def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[Version]:
        with self._store.lock:
            found = self._store.state().versions(subject, deleted=deleted or deleted_only)
            found = [one for one in found if one.is_deleted or not deleted_only]
            if not found:
                raise refusals.subject_not_found(subject)
            return found

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """One version, LATEST for the newest."""
        with self._store.lock:
            found = self._store.state().versions(subject, deleted=deleted)
            if not found:
                raise refusals.subject_not_found(subject)
            if number == LATEST:
                return found[-1]
            for one in found:
                if one.number == number:
                    return one
            raise refusals.version_not_found(number)

    def schema(self, schema_id: int, subject: str = "") -> tuple[SchemaText, list[str]]:
        """The schema of an id, and the subjects that have it: in the default context, or in that of `subject`."""
        with self._store.lock:
            state = self._store.state()
            contexts = [context_of(subject)]
            if subject and not subject.startswith(":."):
                # A client that knows only an unqualified name: the id may be of another context that has the subject.
                contexts += state.contexts
            for context in contexts:
                found = state.schema(context, schema_id)
                if found is not None:
                    return found, [one.subject for one in state.versions_of_id(context, schema_id)]
            raise refusals.schema_not_found(schema_id)

    def formatted(self, schema: SchemaText, form: str) -> str:
        """The text in the form that `?format=` names."""
        if not form:
            return schema.text
        with self._store.lock:
            return self._parse(self._store.state(), schema).formatted(form)

    def parsed(self, schema: SchemaText) -> ParsedSchema:
        with self._store.lock:
            return self._parse(self._store.state(), schema)

    def versions_of_id(self, schema_id: int, *, context: str = ".", deleted: bool = False) -> list[Version]:
        with self._store.lock:
            state = self._store.state()
            if state.schema(context, schema_id) is None:
                raise refusals.schema_not_found(schema_id)
            found = state.versions_of_id(context, schema_id)
            return [one for one in found if deleted or not one.is_deleted]

    def all_versions(self, *, deleted: bool = False) -> list[Version]:
        with self._store.lock:
            return [one for one in self._store.state().all_versions() if deleted or not one.is_deleted]

    def referring_ids(self, subject: str, number: int) -> list[int]:
        with self._store.lock:
            found = self.version(subject, number, deleted=True)
            return sorted({one.id for one in self._store.state().referring(subject, found.number)})

    def contexts(self) -> list[str]:
        with self._store.lock:
            return self._store.state().contexts

    def max_id(self, subject: str = "") -> int:
        with self._store.lock:
            return self._store.state().max_id(context_of(subject))

    # --- deleting -----------------------------------------------------------------------------------------------------

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions; `permanent`, once they are deleted, so that nothing is left but their ids."""
        with self._store.lock:
            state = self._store.state()
            everything = state.versions(subject, deleted=True)
            alive = state.versions(subject)
            if not everything:
                raise refusals.subject_not_found(subject)
            self._check_writable(state, subject)
            if permanent and alive:
                raise RegistryRefusal(
                    refusals.SUBJECT_NOT_SOFT_DELETED,
                    f"Subject '{subject}' was not deleted first before being permanently deleted",
                )
            if not permanent and not alive:
                raise RegistryRefusal(
                    refusals.SUBJECT_SOFT_DELETED,
                    f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
                )
            for one in everything if permanent else alive:
                self._check_unreferenced(state, one, others_only=True)
            if permanent:
                records: list[StoredRecord] = [state.noted_ids(), deletion_record(subject, None)]
                records += [(version_key(subject, one.number), None) for one in everything]
                self._store.append(records)
                return [one.number for one in everything]
            records = [deletion_record(subject, alive[-1].number)]
            if subject in state.configs:
                records.append(config_record(subject, None))
            if subject in state.modes:
                records.append(mode_record(subject, None))
            self._store.append(records)
            return [one.number for one in alive]

    def delete_version(self, subject: str, number: int, *, permanent: bool = False) -> int:
        with self._store.lock:
            state = self._store.state()
            everything = state.versions(subject, deleted=True)
            if not everything:
                raise refusals.subject_not_found(subject)
            if number == LATEST:
                latest = everything if permanent else state.versions(subject) or everything
                number = latest[-1].number
            version = next((one for one in everything if one.number == number), None)
            if version is None:
                raise refusals.version_not_found(number)
            self._check_writable(state, subject)
            named = f"Subject '{subject}' Version {number}"
            if permanent and not version.is_deleted:
                raise RegistryRefusal(
                    refusals.VERSION_NOT_SOFT_DELETED,
                    f"{named} was not deleted first before being permanently deleted",
                )
            if not permanent and version.is_deleted:
                raise RegistryRefusal(
                    refusals.VERSION_SOFT_DELETED,
                    f"{named} was soft deleted. Set permanent=true to delete permanently",
                )
            self._check_unreferenced(state, version)
            if permanent:
                self._store.append([state.noted_ids(), (version_key(subject, number), None)])
            else:
                self._store.append([replace(version, is_deleted=True).record()])
            return number

    @staticmethod
    def _check_unreferenced(state: RegistryState, version: Version, *, others_only: bool = False) -> None:
        users = [
            one
            for one in state.referring(version.subject, version.number)
            if not (others_only and one.subject == version.subject)
        ]
        if users:
            key = f"{{magic=1,keytype=SCHEMA,subject={version.subject},version={version.number}}}"
            raise RegistryRefusal(refusals.REFERENCED, f"One or more references exist to the schema {key}.")

    def _check_writable(self, state: RegistryState, subject: str) -> None:
        if self._mode(state, subject) in (READONLY, READONLY_OVERRIDE):
            raise RegistryRefusal(refusals.NOT_PERMITTED, f"Subject {subject} is in read-only mode")

    # --- compatibility ------------------------------------------------------------------------------------------------

    def _check_compatible(self, state: RegistryState, subject: str, parsed: ParsedSchema, schema: SchemaText) -> None:
        level = self._config(state, subject).compatibility or BACKWARD
        found = self._incompatible(state, state.versions(subject), parsed, schema, level)
        if found:
            raise RegistryRefusal(
                refusals.INCOMPATIBLE,
                f'Schema being registered is incompatible with an earlier schema for subject "{subject}",'
                f" details: [{', '.join(found)}]",
            )

    def incompatibilities(self, subject: str, wanted: NewSchema, number: int | None) -> list[str]:
        """Why the schema may not follow: version `number`, LATEST, or for None those that the level asks for."""
        with self._store.lock:
            state = self._store.state()
            versions = state.versions(subject)
            schema, parsed, _ = self._understood(state, subject, wanted)
            level = self._config(state, subject).compatibility or BACKWARD
            if number is None:
                return self._incompatible(state, versions, parsed, schema, level)
            if not versions:
                raise refusals.subject_not_found(subject)
            if number != LATEST:
                versions = [one for one in versions if one.number == number]
                if not versions:
                    raise refusals.version_not_found(number)
            return self._incompatible(state, versions[-1:], parsed, schema, level)

    def _incompatible(
        self, state: RegistryState, versions: list[Version], parsed: ParsedSchema, schema: SchemaText, level: str
    ) -> list[str]:
        if level == NONE or not versions:
            return []
        for version in reversed(versions if level.endswith("_TRANSITIVE") else versions[-1:]):
            if version.schema.kind != schema.kind:
                found = [f"{{errorType:'SCHEMA_TYPE_MISMATCH', description:'it was {version.schema.kind}'}}"]
            else:
                older = self._parse(state, version.schema)
                found = []
                if not level.startswith("FORWARD"):
                    found += [str(one) for one in parsed.unreadable(older)]
                if not level.startswith("BACKWARD"):
                    found += [str(one) for one in older.unreadable(parsed)]
            if found:
                return [
                    *found,
                    f"{{oldSchemaVersion: {version.number}}}",
                    f"{{oldSchema: '{version.schema.text}'}}",
                    f"{{compatibility: '{level}'}}",
                ]
        return []

    # --- settings -----------------------------------------------------------------------------------------------------

    def config(self, subject: str | None, *, or_global: bool = False) -> SubjectConfig:
        """The settings of a subject, or of all for None."""
        with self._store.lock:
            state = self._store.state()
            if subject is None or or_global:
                return self._config(state, subject)
            found = state.configs.get(subject)
            if found is None:
                raise RegistryRefusal(
                    refusals.NO_SUBJECT_CONFIG,
                    f"Subject '{subject}' does not have subject-level compatibility configured",
                )
            return found

    def set_config(self, subject: str | None, level: str | None, normalize: bool | None) -> SubjectConfig:
        if level is not None and level.upper() not in LEVELS:
            raise RegistryRefusal(
                refusals.INVALID_COMPATIBILITY,
                "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive,"
                " forward_transitive, and full_transitive",
            )
        if subject is not None:
            check_subject(subject)
        with self._store.lock:
            state = self._store.state()
            self._check_writable(state, subject or "")
            before = state.configs.get(subject, SubjectConfig())
            changed = SubjectConfig(
                before.compatibility if level is None else level.upper(),
                before.normalize if normalize is None else normalize,
            )
            self._store.append([config_record(subject, changed)])
            return changed

    def delete_config(self, subject: str | None) -> SubjectConfig:
        with self._store.lock:
            state = self._store.state()
            found = state.configs.get(subject)
            if found is None and subject is not None:
                raise refusals.subject_not_found(subject)
            if found is not None:
                self._check_writable(state, subject or "")
                self._store.append([config_record(subject, None)])
            return found or SubjectConfig(BACKWARD)

    @staticmethod
    def _config(state: RegistryState, subject: str | None) -> SubjectConfig:
        level, normalize = None, None
        context = None if subject is None else _context_subject(subject)
        for name in dict.fromkeys((subject, context, None)):
            found = state.configs.get(name, SubjectConfig())
            level = found.compatibility if level is None else level
            normalize = found.normalize if normalize is None else normalize
        return SubjectConfig(level or BACKWARD, normalize)

    def mode(self, subject: str | None, *, or_global: bool = False) -> str:
        with self._store.lock:
            state = self._store.state()
            if subject is None or or_global:
                return self._mode(state, subject)
            if subject not in state.modes:
                raise RegistryRefusal(
                    refusals.NO_SUBJECT_MODE, f"Subject '{subject}' does not have subject-level mode configured"
                )
            return state.modes[subject]

    def set_mode(self, subject: str | None, mode: str, *, force: bool = False) -> str:
        if mode.upper() not in MODES:
            raise RegistryRefusal(refusals.INVALID_MODE, f"Invalid mode. Valid values are {', '.join(MODES)}")
        if subject is not None:
            check_subject(subject)
        with self._store.lock:
            state = self._store.state()
            if mode.upper() == IMPORT and not force:
                taken = [one for one in state.subjects if subject in (None, one) and state.versions(one)]
                if taken:
                    raise RegistryRefusal(
                        refusals.NOT_PERMITTED, "Cannot import since found existing subjects; add ?force=true"
                    )
            self._store.append([mode_record(subject, mode.upper())])
            return mode.upper()

    def delete_mode(self, subject: str) -> str:
        with self._store.lock:
            state = self._store.state()
            found = state.modes.get(subject)
            if found is None:
                raise refusals.subject_not_found(subject)
            self._store.append([mode_record(subject, None)])
            return found

    @staticmethod
    def _mode(state: RegistryState, subject: str | None) -> str:
        if state.modes.get(None) == READONLY_OVERRIDE:
            return READONLY_OVERRIDE
        context = None if subject is None else _context_subject(subject)
        for name in (subject, context, None):
            if name in state.modes:
                return state.modes[name]
        return READWRITE


def has_prefix(subject: str, prefix: str) -> bool:
    """Whether the subject begins so. Without a context in the prefix, only subjects of the default one do.

    >>> [has_prefix(":.eu:orders", prefix) for prefix in ("", "orders", ":.eu:", ":.eu:or", ALL_CONTEXTS)]
    [False, False, True, True, True]
    """
    if prefix == ALL_CONTEXTS:
        return True
    return subject.startswith(prefix) and (bool(prefix) or not subject.startswith(":."))


def check_subject(subject: str) -> None:
    """Raises RegistryRefusal if a subject cannot have this name."""
    bare = unqualified(subject)
    is_control = any(ord(one) < 32 or ord(one) == 127 for one in subject)
    if is_control or len(subject) > REGISTRY_SUBJECT_CHARS_MAX or bare in GLOBAL_NAMES or not subject:
        raise RegistryRefusal(refusals.INVALID_SUBJECT, f"The specified subject '{subject[:100]}' is not a valid.")


def _context_subject(subject: str) -> str | None:
    """The name under which a context has its own settings: `:.CONTEXT:`."""
    context = context_of(subject)
    return None if context == "." else f":{context}:"
