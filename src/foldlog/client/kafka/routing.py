"""Which partition of a cluster's topic a record goes to, and what it has to be: the rules of the log's own producer."""

from __future__ import annotations

import time
from typing import Final

from foldlog.broker.topic_names import refuse_user_write, require_text
from foldlog.client.kafka.groups import KafkaGroups
from foldlog.client.outgoing import Outgoing, check_size
from foldlog.client.partitioners import Partitioner, checked_partition, emptiest, partition_for_key
from foldlog.errors import InvalidArgument, RefusedByBroker
from foldlog.records.batch import MAX_INT32

CLIENT_MAX_BYTES: Final = "message.max.bytes"
"""librdkafka's name for the most that a client sends; a topic's is max.message.bytes."""

_KNOWN_FOR_S: Final = 300.0
"""Kafka's metadata.max.age.ms: how long a topic is taken to be as it was."""


class Route:
    """A topic as a producer knows it. Belongs to whoever locks it."""

    def __init__(
        self, name: str, count: int, max_message_bytes: int, is_compacted: bool, first: int, as_of: int
    ) -> None:
        self.name = name
        self.as_of = as_of
        self.count = count
        self.max_message_bytes = max_message_bytes
        self.client_max_bytes = MAX_INT32
        self.is_compacted = is_compacted
        self.keyless = first
        self.keyless_bytes = 0
        self.keyless_records = 0
        self.keyless_since_s = 0.0
        self.known_until_s = time.monotonic() + _KNOWN_FOR_S

    def check(self, record: Outgoing) -> None:
        """What the log would refuse. A partition is checked where it is chosen."""
        check_size(record, self.max_message_bytes)
        check_size(record, self.client_max_bytes, CLIENT_MAX_BYTES)
        if self.is_compacted and record.key is None:
            raise InvalidArgument(f"topic {self.name!r} is compacted: every record in it needs a key")

    def advance(self) -> None:
        """Keyless records go to the next partition from here on."""
        self.keyless = (self.keyless + 1) % self.count
        self.keyless_bytes = self.keyless_records = 0


class Router:
    """Routes of one producer. Its lock is held by who calls, but for `ask`, which is the caller's own code."""

    def __init__(
        self,
        log: KafkaGroups,
        partitioner: Partitioner | None,
        *,
        round_robin: bool,
        linger_ms: float,
        batch_bytes: int,
        batch_records: int,
        client_max_bytes: int = MAX_INT32,
    ) -> None:
        self._log = log
        self._client_max_bytes = client_max_bytes
        self._partitioner = partitioner
        self._round_robin = round_robin
        self._linger_s = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records
        self._routes: dict[str, Route] = {}

    def of(self, topic: str) -> Route:
        """UnknownTopic if there is none."""
        known = self._routes.get(require_text(topic))
        if known is None or known.as_of != self._log.changes or time.monotonic() > known.known_until_s:
            refuse_user_write(topic)
            known = self._routes[topic] = self._looked_up(topic, known)
            known.client_max_bytes = self._client_max_bytes
        return known

    def _looked_up(self, topic: str, known: Route | None) -> Route:
        as_of = self._log.changes
        try:
            config = self._log.topic(topic)
            count, limits = config.partition_count, config.config.log
            max_message_bytes, is_compacted = limits.max_message_bytes, limits.compact
        except RefusedByBroker:
            # Who may write need not be allowed to see the settings: the brokers refuse what is wrong, then.
            count, max_message_bytes, is_compacted = self._log.partition_count(topic), MAX_INT32, False
        if known is not None and known.count == count:
            first = known.keyless
        else:
            ends = self._log.offsets(topic)
            first = emptiest([ends[number][1] for number in range(count)])
        return Route(topic, count, max_message_bytes, is_compacted, first, as_of)

    def forget(self, topic: str) -> None:
        """It was not as it was thought to be: ask again before the next record."""
        self._routes.pop(topic, None)

    def ask(self, topic: str, key: bytes | None, count: int) -> int | None:
        """What the caller's partitioner says, if there is one."""
        if self._partitioner is None:
            return None
        try:
            return self._partitioner(topic, key, count)
        except Exception as error:
            raise InvalidArgument(f"the partitioner failed for a record of topic {topic!r}: {error!r}") from error

    def choose(self, route: Route, record: Outgoing) -> int:
        """The partition that is named, else by key, else the keyless rule."""
        if record.partition is not None:
            return checked_partition(route.name, record.partition, route.count)
        if record.key is not None:
            return partition_for_key(record.key, route.count)
        now_s = time.monotonic()
        if route.keyless_records and not self._round_robin and now_s > route.keyless_since_s + self._linger_s:
            route.advance()  # the batch that the last ones stuck to is closed
        if not route.keyless_records:
            route.keyless_since_s = now_s
        chosen = route.keyless
        route.keyless_records += 1
        route.keyless_bytes += len(record.value or b"")
        is_full = route.keyless_bytes >= self._batch_bytes or route.keyless_records >= self._batch_records
        if self._round_robin or is_full:
            route.advance()
        return chosen
