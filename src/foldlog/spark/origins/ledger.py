"""Writes of a runner into the log: bookmarks as committed offsets of a group, dead letters, statuses.

Reading goes through `Origin`; these few writes are done by the driver only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple, Protocol

from foldlog.client.backends.directory import directory_of
from foldlog.client.backends.served.broker import RemoteBroker
from foldlog.client.fold_bulletin import FOLDS_TOPIC, mending
from foldlog.client.log import Log, open_shared
from foldlog.client.outgoing import partition_for_key
from foldlog.client.wire.cluster import Cluster
from foldlog.client.wire.produce import ClusterProducer
from foldlog.clock import Clock, SystemClock
from foldlog.errors import FoldlogError, InvalidArgument, TopicExists, UnknownGroup
from foldlog.records.loops import pack
from foldlog.spark.origins.origin import OriginSpec

Headers = tuple[tuple[str, bytes], ...]


class LedgerEntry(NamedTuple):
    """One record to append; the key decides its partition."""

    key: bytes
    value: bytes | None
    headers: Headers = ()


class Ledger(Protocol):
    """Writes of the driver. Each call is durable on return; after an error, a write may or may not have happened."""

    def ensure_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic unless it exists."""
        ...

    def append(self, topic: str, entries: Iterable[LedgerEntry]) -> None:
        """Append the entries in order."""
        ...

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set the group's committed offsets, for tools that show lag. The group has no members."""
        ...

    def delete_group(self, group: str) -> None:
        """Delete a group, if it exists."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """A block in which several writes cost little more than one."""
        ...

    def close(self) -> None: ...


def open_ledger(spec: OriginSpec) -> Ledger:
    """The ledger of the log that `spec` names."""
    return WireLedger.open(spec) if spec.path is None else PathLedger.open(spec)


class PathLedger:
    """The ledger of a directory: through its writer if there is one, else as its writer for the moment."""

    def __init__(self, log: Log) -> None:
        """Use `open`."""
        self._log = log

    @classmethod
    def open(cls, spec: OriginSpec) -> PathLedger:
        if spec.path is None:
            raise InvalidArgument("a path is needed")
        return cls(open_shared(spec.path))

    def ensure_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        if name in self._log.topics(include_internal=True):
            changes = mending(self._log.topic(name).config.settings) if name == FOLDS_TOPIC else {}
            if changes and self._log.bootstrap is None:  # a server has done so itself
                self._log.alter_topic(name, changes)
            return
        try:
            self._log.create_topic(name, partitions, config)
        except TopicExists:
            pass  # another runner has created it meanwhile

    def append(self, topic: str, entries: Iterable[LedgerEntry]) -> None:
        with self._log.producer() as producer:
            futures = [
                producer.send(topic, value=entry.value, key=entry.key, headers=entry.headers) for entry in entries
            ]
            producer.flush()
        for future in futures:
            future.result()

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self._log.reset_group(group, {(topic, partition): offset for partition, offset in offsets.items()})

    def delete_group(self, group: str) -> None:
        try:
            self._log.delete_group(group)
        except UnknownGroup:
            pass

    def together(self) -> AbstractContextManager[None]:
        broker = directory_of(self._log).broker
        return broker.kept_moment() if isinstance(broker, RemoteBroker) else nullcontext()

    def close(self) -> None:
        self._log.close()


_BATCH_BYTES: Final = 256 << 10
"""Entries are batched up to this size; a larger one is sent alone, and the broker may refuse it."""

_RECORD_OVERHEAD_BYTES: Final = 32
"""The maximum size of lengths and deltas around a record, and around a header."""


class WireLedger:
    """The ledger of a cluster. Its appends are in the log exactly once, even if connections break."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        """Use `open`."""
        self._cluster = cluster
        self._clock = clock
        self._producer: ClusterProducer | None = None  # kept: each new one costs the brokers memory

    @classmethod
    def open(cls, spec: OriginSpec, clock: Clock | None = None) -> WireLedger:
        """BrokerUnreachable if no broker answers."""
        if spec.bootstrap is None:
            raise InvalidArgument("the address of a broker is needed")
        return cls(Cluster.open(spec.bootstrap, spec.properties), clock or SystemClock())

    def ensure_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self._cluster.ensure_topic(name, partitions, config)

    def append(self, topic: str, entries: Iterable[LedgerEntry]) -> None:
        count = self._cluster.partition_count(topic)
        producer = self._producer = self._producer or self._cluster.producer()
        try:
            batches = _batches(entries, count, self._clock.now_ms())
            producer.send_all((topic, partition, batch) for partition, batch in batches)
            producer.flush()
        except FoldlogError:
            self._producer = None  # it accepts nothing more
            raise

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self._cluster.commit(group, topic, offsets)

    def delete_group(self, group: str) -> None:
        try:
            self._cluster.delete_group(group)
        except UnknownGroup:
            pass

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
        self._cluster.close()


def _batches(entries: Iterable[LedgerEntry], partition_count: int, now_ms: int) -> Iterator[tuple[int, bytearray]]:
    """The entries as batches, in order within each partition."""
    gathered: dict[int, list[LedgerEntry]] = {}
    sizes_bytes: dict[int, int] = {}
    for entry in entries:
        partition = partition_for_key(entry.key, partition_count)
        size_bytes = _size_bytes(entry)
        if partition in gathered and sizes_bytes[partition] + size_bytes > _BATCH_BYTES:
            yield partition, _packed(gathered.pop(partition), now_ms)
        sizes_bytes[partition] = size_bytes + (sizes_bytes[partition] if partition in gathered else 0)
        gathered.setdefault(partition, []).append(entry)
    for partition, held in gathered.items():
        yield partition, _packed(held, now_ms)


def _packed(entries: Iterable[LedgerEntry], now_ms: int) -> bytearray:
    return pack((now_ms, entry.key, entry.value, entry.headers) for entry in entries)


def _size_bytes(entry: LedgerEntry) -> int:
    headers_bytes = sum(len(name) + len(value) + _RECORD_OVERHEAD_BYTES for name, value in entry.headers)
    return len(entry.key) + len(entry.value or b"") + headers_bytes + _RECORD_OVERHEAD_BYTES
