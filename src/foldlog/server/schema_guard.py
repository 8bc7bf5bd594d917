"""What the schema registry asks of other clients: to leave its topic alone, and to name schemas that it knows.

A topic with `foldlog.value.schema.validation=true` takes values only in Confluent's wire format (a zero byte, then the
schema's id in four bytes), with an id that is registered under the subject of the topic's strategy;
`foldlog.key.schema.validation` asks the same of keys. Nulls are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from foldlog.broker.registry.schemas import record_names
from foldlog.broker.topics.config import ANY_SUBJECT, RECORD_NAME_STRATEGY, TOPIC_NAME_STRATEGY
from foldlog.broker.topics.names import SCHEMAS_TOPIC
from foldlog.errors import FoldlogError, RefusedBatch
from foldlog.records.loops import beginnings, decode, validate
from foldlog.records.schema_ids import HEADER_BYTES, NotFramed, read_header

if TYPE_CHECKING:
    from foldlog.broker.registry.store import SchemaStore, Seen
    from foldlog.log.config import LogConfig
    from foldlog.wire.schema import Records

_KEPT: Final = f"topic {SCHEMAS_TOPIC!r} is written by the schema registry, which this broker serves; use its REST API"


_ACCEPTED_MAX: Final = 10_000

_Use = tuple[str, str, str, bytes]
"""A topic, whether it is a key or a value, the strategy for its subject, and the beginning of the data."""


def _uses(topic: str, config: LogConfig, records: Records) -> set[_Use]:
    """Which schemas a batch uses. Raises InvalidBatch."""
    # A batch has few schemas. To decode all its records for them cost eight times what the append does.
    keys, values = beginnings(records, HEADER_BYTES, decompressed_limit=config.decompressed_limit)
    found: set[_Use] = set()
    if config.validates_keys:
        found |= {(topic, "key", config.key_subject_strategy, data) for data in keys}
    if config.validates_values:
        found |= {(topic, "value", config.value_subject_strategy, data) for data in values}
    return found


class SchemaGuard:
    """Any thread. `is_served`: this broker serves the registry."""

    def __init__(self, schemas: SchemaStore, *, is_served: bool) -> None:
        self._schemas = schemas
        self._is_served = is_served
        # What was found right, and how far the registry was read for it. Replaced as a whole: the loop reads it.
        self._accepted: tuple[Seen, frozenset[_Use]] = ("", 0), frozenset()

    def knows(self, topic: str, config: LogConfig, records: Records) -> bool:
        """Whether all schemas of the batch were looked up before, and the registry has not changed since: without
        waiting for its lock or the disk. False says nothing; `check` does."""
        seen, accepted = self._accepted
        if not accepted or not self._schemas.is_current(seen):
            return False
        try:
            return accepted.issuperset(_uses(topic, config, records))
        except FoldlogError:
            return False

    def refusal(self, topic: str) -> str | None:
        """Why a client may not write or change the topic; None if it may. Another writer could give an id twice."""
        return _KEPT if self._is_served and topic == SCHEMAS_TOPIC else None

    def check(self, topic: str, config: LogConfig, records: Records) -> None:
        """Raises RefusedBatch, with the reason for each record, unless the schemas of all records are known. May wait
        for the disk."""
        try:
            uses = _uses(topic, config, records)
        except FoldlogError:
            return  # the append refuses it, with the right error
        with self._schemas.lock:
            self._schemas.state()
            now = self._schemas.seen
            is_right = all(self._why_not(*use) is None for use in uses)
            if is_right and now == self._schemas.seen:  # so that all answers are of one state
                seen, accepted = self._accepted
                is_kept = seen == now and len(accepted) < _ACCEPTED_MAX
                self._accepted = now, (accepted if is_kept else frozenset()) | uses
        if not is_right:
            self._refuse(topic, config, records)

    def _refuse(self, topic: str, config: LogConfig, records: Records) -> None:
        """Raise RefusedBatch with the reason for each record."""
        try:
            headers = validate(records, max_batch_bytes=len(records), decompressed_limit=config.decompressed_limit)
            found = decode(records, "", 0, decompressed_limit=config.decompressed_limit)[0]
        except FoldlogError:
            return  # the append refuses it, with the right error
        # A batch whose base offset hides its records from `decode` would still be appended.
        if len(found) != sum(header.record_count for header in headers):
            raise RefusedBatch("its base offset is not 0, so that its schemas cannot be looked at", 0)
        errors: dict[int, str] = {}
        if config.validates_keys:
            keys = [record.key for record in found]
            errors.update(self._errors(topic, "key", config.key_subject_strategy, keys))
        if config.validates_values:
            values = [record.value for record in found]
            errors = {**self._errors(topic, "value", config.value_subject_strategy, values), **errors}
        if errors:
            told = tuple(sorted(errors.items()))
            refused = RefusedBatch(told[0][1], 0)
            refused.record_errors = told
            raise refused

    def _errors(self, topic: str, what: str, strategy: str, found: Sequence[bytes | None]) -> dict[int, str]:
        headers = {data[:HEADER_BYTES] for data in found if data is not None}
        whys = {header: self._why_not(topic, what, strategy, header) for header in headers}
        if not any(whys.values()):
            return {}
        told = ((index, whys[data[:HEADER_BYTES]]) for index, data in enumerate(found) if data is not None)
        return {index: why for index, why in told if why is not None}

    def _why_not(self, topic: str, what: str, strategy: str, header: bytes) -> str | None:
        try:
            schema_id = read_header(header).schema_id
        except NotFramed as error:
            return f"the {what} names no schema: it {error}"
        found = self._schemas.of_id(schema_id)
        named = f"the {what} names schema {schema_id}, which is not registered"
        if found is None:
            return named
        schema, subjects = found
        if strategy == ANY_SUBJECT:
            return None
        if strategy == TOPIC_NAME_STRATEGY:
            wanted = {f"{topic}-{what}"}
        else:
            begin = "" if strategy == RECORD_NAME_STRATEGY else f"{topic}-"
            wanted = {begin + name for name in record_names(schema)}
        if subjects & wanted:
            return None
        if not wanted:
            return f"the {what} names schema {schema_id}, which has no name to be registered under"
        return f"{named} under {' or '.join(sorted(map(repr, wanted)))}"
