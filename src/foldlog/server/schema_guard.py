"""What the schema registry asks of other clients: to leave its topic alone, and to name schemas that it knows.

A topic with `foldlog.value.schema.validation=true` takes values only in Confluent's wire format (a zero byte, then the
schema's id in four bytes), with an id that is registered; `foldlog.key.schema.validation` asks the same of keys. Nulls
are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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

    def check(self, config: LogConfig, records: Records) -> None:
        """Raises RefusedBatch, with the reason for each record, unless the schemas of all records are known. May wait
        for the disk."""
        try:
            headers = validate(records, max_batch_bytes=len(records), decompressed_limit=config.decompressed_limit)
            found = decode(records, "", 0, decompressed_limit=config.decompressed_limit)[0]
        except FoldlogError:
            return  # the append refuses it, with the right error
        # A batch whose base offset hides its records from `decode` would still be appended.
        if len(found) != sum(header.record_count for header in headers):
            raise RefusedBatch("its base offset is not 0, so that its schemas cannot be looked at", 0)
        known: dict[int, bool] = {}
        errors: list[tuple[int, str]] = []
        for index, record in enumerate(found):
            for what, data, is_checked in (
                ("key", record.key, config.validates_keys),
                ("value", record.value, config.validates_values),
            ):
                why = self._why_not(what, data, known) if is_checked and data is not None else None
                if why is not None:
                    errors.append((index, why))
                    break
        if errors:
            refused = RefusedBatch(errors[0][1], 0)
            refused.record_errors = tuple(errors)
            raise refused

    def _why_not(self, what: str, data: bytes, known: dict[int, bool]) -> str | None:
        try:
            schema_id = read_header(data).schema_id
        except NotFramed as error:
            return f"the {what} names no schema: it {error}"
        if schema_id not in known:
            known[schema_id] = self._schemas.knows_id(schema_id)
        return None if known[schema_id] else f"the {what} names schema {schema_id}, which is not registered"
