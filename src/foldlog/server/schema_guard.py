"""What the schema registry asks of other clients: to leave its topic alone, and to name schemas that it knows.

A topic with `foldlog.value.schema.validation=true` takes values only in Confluent's wire format (a zero byte, then the
schema's id in four bytes), with an id that is registered under the subject of the topic's strategy;
`foldlog.key.schema.validation` asks the same of keys. Nulls are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from foldlog.broker.registry.schemas import record_names
from foldlog.broker.topics.config import ANY_SUBJECT, RECORD_NAME_STRATEGY, TOPIC_NAME_STRATEGY
from foldlog.broker.topics.names import SCHEMAS_TOPIC
from foldlog.errors import FoldlogError, RefusedBatch
from foldlog.records.loops import decode, validate
from foldlog.records.schema_ids import NotFramed, read_header

if TYPE_CHECKING:
    from foldlog.broker.registry.store import SchemaStore
    from foldlog.log.config import LogConfig
    from foldlog.wire.schema import Records

_KEPT: Final = f"topic {SCHEMAS_TOPIC!r} is written by the schema registry, which this broker serves; use its REST API"


class SchemaGuard:
    """Any thread. `is_served`: this broker serves the registry."""

    def __init__(self, schemas: SchemaStore, *, is_served: bool) -> None:
        self._schemas = schemas
        self._is_served = is_served

    def refusal(self, topic: str) -> str | None:
        """Why a client may not write or change the topic; None if it may. Another writer could give an id twice."""
        return _KEPT if self._is_served and topic == SCHEMAS_TOPIC else None

    def check(self, topic: str, config: LogConfig, records: Records) -> None:
        """Raises RefusedBatch, with the reason for each record, unless the schemas of all records are known. May wait
        for the disk."""
        checks = [
            (at, _Check(self._schemas, topic, what, strategy))
            for at, what, strategy, is_on in (
                (0, "key", config.key_subject_strategy, config.validates_keys),
                (1, "value", config.value_subject_strategy, config.validates_values),
            )
            if is_on
        ]
        try:
            headers = validate(records, max_batch_bytes=len(records), decompressed_limit=config.decompressed_limit)
            found = decode(records, "", 0, decompressed_limit=config.decompressed_limit)[0]
        except FoldlogError:
            return  # the append refuses it, with the right error
        # A batch whose base offset hides its records from `decode` would still be appended.
        if len(found) != sum(header.record_count for header in headers):
            raise RefusedBatch("its base offset is not 0, so that its schemas cannot be looked at", 0)
        errors: list[tuple[int, str]] = []
        for index, record in enumerate(found):
            parts = (record.key, record.value)
            whys = (check.why_not(data) for at, check in checks if (data := parts[at]) is not None)
            why = next((one for one in whys if one is not None), None)
            if why is not None:
                errors.append((index, why))
        if errors:
            refused = RefusedBatch(errors[0][1], 0)
            refused.record_errors = tuple(errors)
            raise refused


class _Check:
    """Of the keys, or the values, of one batch: each id is looked up once."""

    def __init__(self, schemas: SchemaStore, topic: str, what: str, strategy: str) -> None:
        self._schemas = schemas
        self._topic = topic
        self._what = what
        self._strategy = strategy
        self._known: dict[int, str | None] = {}

    def why_not(self, data: bytes) -> str | None:
        try:
            schema_id = read_header(data).schema_id
        except NotFramed as error:
            return f"the {self._what} names no schema: it {error}"
        if schema_id not in self._known:
            self._known[schema_id] = self._why_not_id(schema_id)
        return self._known[schema_id]

    def _why_not_id(self, schema_id: int) -> str | None:
        found = self._schemas.of_id(schema_id)
        named = f"the {self._what} names schema {schema_id}, which is not registered"
        if found is None:
            return named
        schema, subjects = found
        if self._strategy == ANY_SUBJECT:
            return None
        if self._strategy == TOPIC_NAME_STRATEGY:
            wanted = {f"{self._topic}-{self._what}"}
        else:
            begin = "" if self._strategy == RECORD_NAME_STRATEGY else f"{self._topic}-"
            wanted = {begin + name for name in record_names(schema)}
        if subjects & wanted:
            return None
        if not wanted:
            return f"the {self._what} names schema {schema_id}, which has no name to be registered under"
        return f"{named} under {' or '.join(sorted(map(repr, wanted)))}"
