"""The topic `_schemas` of a log: made when something is first registered, replayed when it is first asked for.

The topic is the truth: a change is appended, waited for until it is durable, and only then read back into the state. So
an answer never says what a crash could take back, and records that something else has written (a copy of another
registry's topic) are taken, too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from foldlog.broker.registry.state import DEFAULT_CONTEXT, RegistryState, StoredRecord
from foldlog.broker.topics.names import SCHEMAS_TOPIC
from foldlog.errors import CorruptLog, InvalidConfig, RecordTooLarge, TopicExists
from foldlog.limits import REGISTRY_RECORD_BYTES_MAX
from foldlog.records.loops import BatchBuilder, decode

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.broker.registry.schemas import SchemaText

logger = logging.getLogger("foldlog.registry")

_READ_BYTES: Final = 1 << 20
_TOPIC_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "flush.messages": "1",  # whatever the broker's default is: an answer is durable
    "max.message.bytes": str(REGISTRY_RECORD_BYTES_MAX),
}


Seen = tuple[str, int]
"""The id of the topic of schemas, and the offset up to which it was read."""


class SchemaStore:
    """The state of the registry of one log. Any thread; `lock` is held by who reads or changes the state."""

    def __init__(self, broker: Broker) -> None:
        self.lock = threading.RLock()
        self._broker = broker
        self._state = RegistryState()
        self._topic_id = ""
        self._next_offset = 0
        self._seen: Seen = ("", 0)

    @property
    def seen(self) -> Seen:
        """How far the state goes; takes no lock."""
        return self._seen

    def is_current(self, seen: Seen) -> bool:
        """Whether nothing was registered or deleted since. Waits for nothing: False if that is not known at once."""
        topic = self._broker.find_topic(SCHEMAS_TOPIC)
        partition = self._broker.opened_partition(SCHEMAS_TOPIC, 0)
        return topic is not None and partition is not None and seen == (topic.topic_id, partition.high_watermark)

    def state(self) -> RegistryState:
        """The state as of now: what was appended since the last call is read first. Under `lock`. Raises StorageError
        if the topic cannot be read."""
        topic = self._broker.find_topic(SCHEMAS_TOPIC)
        found_id = "" if topic is None else topic.topic_id
        if found_id != self._topic_id:
            self._state, self._topic_id, self._next_offset = RegistryState(), found_id, 0
        if topic is None:
            return self._state
        partition = self._broker.partition(SCHEMAS_TOPIC, 0)
        self._next_offset = max(self._next_offset, partition.log_start_offset)
        while self._next_offset < partition.high_watermark:
            piece = partition.read(self._next_offset, _READ_BYTES)
            if not piece.data:
                break
            records, next_offset = decode(piece.data, SCHEMAS_TOPIC, 0, start_offset=self._next_offset)
            if next_offset <= self._next_offset:
                raise CorruptLog(partition.path, 0, f"{SCHEMAS_TOPIC} cannot be read on from offset {next_offset}")
            for record in records:
                why = self._state.apply(record.key or b"", record.value)
                if why is not None:
                    logger.warning("offset %d of %s is skipped: %s", record.offset, SCHEMAS_TOPIC, why)
            self._next_offset = next_offset
        self._seen = (self._topic_id, self._next_offset)
        return self._state

    def begin(self) -> None:
        """Before it is served: read the topic, and set right what somebody else has made of it. Raises InvalidConfig if
        it has several partitions, StorageError if it cannot be read."""
        with self.lock:
            topic = self._broker.find_topic(SCHEMAS_TOPIC)
            if topic is not None and topic.partition_count != 1:
                raise InvalidConfig(
                    f"topic {SCHEMAS_TOPIC!r} has {topic.partition_count} partitions, which have no order among them;"
                    " the registry needs one: copy its records into a topic with one partition"
                )
            given = {} if topic is None else topic.config.effective()
            changes = {name: value for name, value in _TOPIC_SETTINGS.items() if topic and given[name] != value}
            if changes:
                self._broker.alter_topic(SCHEMAS_TOPIC, changes)
                logger.warning("topic %s had settings that lose schemas: %s changed", SCHEMAS_TOPIC, ", ".join(changes))
            self.state()

    def append(self, records: Sequence[StoredRecord]) -> RegistryState:
        """Append these together, all or none, and return the state with them. Durable on return. Under `lock`."""
        if self._broker.find_topic(SCHEMAS_TOPIC) is None:
            try:
                self._broker.create_topic(SCHEMAS_TOPIC, 1, _TOPIC_SETTINGS)
            except TopicExists:
                pass  # somebody else was as quick
        builder = BatchBuilder(REGISTRY_RECORD_BYTES_MAX)
        now_ms = self._broker.clock.now_ms()
        for key, value in records:
            if builder.append(now_ms, key, value) < 0:
                raise RecordTooLarge(len(key) + len(value or b""), REGISTRY_RECORD_BYTES_MAX)
        partition = self._broker.writable_partition(SCHEMAS_TOPIC, 0)
        appended = partition.append(builder.build())
        partition.wait_acknowledged(appended.next_offset)
        return self.state()

    def of_id(self, schema_id: int) -> tuple[SchemaText, set[str]] | None:
        """The schema of the default context with that id, and the subjects that it is in. Of a deleted one, too, until
        it is deleted for good."""
        with self.lock:
            state = self.state()
            schema = state.schema(DEFAULT_CONTEXT, schema_id)
            return None if schema is None else (schema, state.subjects_of_id(DEFAULT_CONTEXT, schema_id))
