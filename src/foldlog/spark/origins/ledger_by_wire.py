"""The ledger of a cluster: the driver's few writes, over the network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from foldlog.client.cluster import Cluster
from foldlog.client.cluster_produce import ClusterProducer
from foldlog.client.partitioners import partition_for_key
from foldlog.clock import Clock, SystemClock
from foldlog.errors import FoldlogError, InvalidArgument, UnknownGroup
from foldlog.records.loops import pack
from foldlog.spark.origins.ledger import Entry
from foldlog.spark.origins.origin import OriginSpec

_BATCH_BYTES: Final = 256 << 10
"""Entries go together up to this; a larger one goes alone, and the broker decides whether it takes it."""

_RECORD_OVERHEAD_BYTES: Final = 32
"""Lengths and deltas around a record, and around a header, at the most."""


class WireLedger:
    """See `Ledger`. Appends of one ledger are in the log once, whatever becomes of connections."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        """Use `open`."""
        self._cluster = cluster
        self._clock = clock
        self._producer: ClusterProducer | None = None  # kept: every new one costs the brokers an entry in memory

    @classmethod
    def open(cls, spec: OriginSpec, clock: Clock | None = None) -> WireLedger:
        """BrokerUnreachable where no broker answers."""
        if spec.bootstrap is None:
            raise InvalidArgument("the address of a broker is needed")
        return cls(Cluster.open(spec.bootstrap, spec.properties), clock or SystemClock())

    def ensure_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self._cluster.ensure_topic(name, partitions, config)

    def append(self, topic: str, entries: Iterable[Entry]) -> None:
        count = self._cluster.partition_count(topic)
        producer = self._producer = self._producer or self._cluster.producer()
        try:
            for partition, batch in _batches(entries, count, self._clock.now_ms()):
                producer.send(topic, partition, batch)
            producer.flush()
        except FoldlogError:
            self._producer = None  # it takes nothing more
            raise

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self._cluster.commit(group, topic, offsets)

    def delete_group(self, group: str) -> None:
        try:
            self._cluster.delete_group(group)
        except UnknownGroup:
            pass

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
        self._cluster.close()


def _batches(entries: Iterable[Entry], partition_count: int, now_ms: int) -> Iterator[tuple[int, bytearray]]:
    """The entries packed, in order within each partition."""
    gathered: dict[int, list[Entry]] = {}
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


def _packed(entries: Iterable[Entry], now_ms: int) -> bytearray:
    return pack((now_ms, entry.key, entry.value, entry.headers) for entry in entries)


def _size_bytes(entry: Entry) -> int:
    headers_bytes = sum(len(name) + len(value) + _RECORD_OVERHEAD_BYTES for name, value in entry.headers)
    return len(entry.key) + len(entry.value or b"") + headers_bytes + _RECORD_OVERHEAD_BYTES
