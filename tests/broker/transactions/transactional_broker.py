"""A broker without a background, and producers that write to it in transactions."""

from __future__ import annotations

from collections.abc import Iterable

from broker.small_broker import at, writable
from foldlog.broker.broker import Broker
from foldlog.log.partition import Appended
from foldlog.log.transactions import Aborted
from foldlog.records.loops import BatchBuilder, decode, walk

TIMEOUT_MS = 60_000


def batch(producer: tuple[int, int], sequence: int, values: Iterable[bytes], now_ms: int) -> bytearray:
    builder = BatchBuilder(1 << 20)
    for value in values:
        builder.append(now_ms, value, value)
    return builder.build(
        producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, transactional=True
    )


class Producer:
    """A client with a transactional id, of transaction version 1 or 2."""

    def __init__(self, broker: Broker, name: str = "t", *, version: int = 2, timeout_ms: int = TIMEOUT_MS) -> None:
        self.broker = broker
        self.name = name
        self.version = version
        self.timeout_ms = timeout_ms
        self.sequences: dict[tuple[str, int], int] = {}
        self.identity = (-1, -1)
        self.init()

    def init(self, *, continues: bool = False) -> None:
        producer_id, epoch = self.identity if continues else (-1, -1)
        self.identity = self.broker.transactions.init_producer(
            self.name, self.timeout_ms, producer_id=producer_id, producer_epoch=epoch, client_version=self.version
        )
        self.sequences.clear()

    def add(self, *partitions: tuple[str, int]) -> None:
        self.broker.transactions.add_partitions(self.name, *self.identity, partitions, client_version=self.version)

    def send(self, topic: str, number: int, *values: bytes) -> Appended:
        """Append one batch and wait until it is acknowledged; a client of version 1 adds the partition before."""
        if self.version == 1:
            self.add((topic, number))
        return self.produce(topic, number, *values)

    def produce(self, topic: str, number: int, *values: bytes) -> Appended:
        sequence = self.sequences.get((topic, number), 0)
        records = batch(self.identity, sequence, values, self.broker.clock.now_ms())
        partition = writable(self.broker, topic, number)
        appended = self.broker.transactions.append(self.name, partition, records, add=self.version == 2)
        partition.wait_acknowledged(appended.next_offset)
        self.sequences[topic, number] = sequence + len(values)
        return appended

    def commit_offsets(self, group: str, offset: int, topic: str = "orders", number: int = 0) -> None:
        if self.version == 1:
            self.broker.transactions.add_offsets(self.name, *self.identity, group, client_version=1)
        self.broker.transactions.commit_offsets(
            self.name, *self.identity, group, {(topic, number): at(offset)}, add=self.version == 2
        )

    def end(self, *, commit: bool) -> None:
        before = self.identity
        self.identity = self.broker.transactions.end(
            self.name, *self.identity, commit=commit, client_version=self.version
        )
        if self.identity != before:
            self.sequences.clear()

    def commit(self) -> None:
        self.end(commit=True)

    def abort(self) -> None:
        self.end(commit=False)


def read_committed(broker: Broker, topic: str, number: int = 0) -> list[bytes]:
    """The values of committed records, as a client finds them: up to the last stable offset, without aborted ones."""
    partition = writable(broker, topic, number)
    values: list[bytes] = []
    offset = partition.log_start_offset
    while True:
        found = partition.read(offset, committed=True)
        if found.next_offset == offset:
            return values
        aborted = Aborted(found.aborted)
        for header in walk(found.data).headers:
            if not aborted.holds(header):
                data = memoryview(found.data)[header.position : header.position + header.size]
                values += [record.value for record in decode(data, topic, number, start_offset=offset)[0]]
        offset = found.next_offset
