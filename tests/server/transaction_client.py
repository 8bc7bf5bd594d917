"""A transactional producer as a client program is one: it sends the requests of one transaction version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from foldlog.records.loops import decode, pack
from foldlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from foldlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from foldlog.wire.messages.end_txn import EndTxnRequest
from foldlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from foldlog.wire.messages.init_producer_id import InitProducerIdRequest
from foldlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from foldlog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

Place = tuple[str, int]

STAMP_MS = 5
"""The time of every record, unless a test says another one."""


class Asked(Protocol):
    """A broker: a SmallNode, or a RawClient's."""

    def ask(self, request: Any, version: int) -> Any: ...


class Versions(NamedTuple):
    """The versions of requests that a client sends together."""

    init: int
    produce: int
    add_partitions: int
    add_offsets: int
    commit_offsets: int
    end: int

    @property
    def is_2(self) -> bool:
        return self.produce >= 12


LIBRDKAFKA = Versions(4, 10, 0, 0, 3, 1)
JAVA_3 = Versions(4, 11, 3, 3, 3, 3)
JAVA_4 = Versions(5, 12, 3, 4, 5, 5)


class TransactionClient:
    """One producer. Each method but `write` sends one request and returns its error codes."""

    def __init__(
        self, broker: Asked, versions: Versions, transactional_id: str = "tx", stamp_ms: int = STAMP_MS
    ) -> None:
        self.stamp_ms = stamp_ms
        self.broker = broker
        self.versions = versions
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self._sequences: dict[Place, int] = {}
        self._added: set[Place] = set()

    def init(self, timeout_ms: int = 60_000, **changes: Any) -> int:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms, **changes
        )
        answer = self.broker.ask(request, self.versions.init)
        if not answer.error_code:
            self._moved_to(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    def add(self, *places: Place) -> list[int]:
        """The codes of the partitions, in their order."""
        topics: dict[str, list[int]] = {}
        for topic, number in places:
            topics.setdefault(topic, []).append(number)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in topics.items()
            ],
        )
        answer = self.broker.ask(request, self.versions.add_partitions)
        return [
            partition.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        ]

    def batch(self, place: Place, values: Sequence[bytes], **changes: Any) -> bytes:
        fields = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": self._sequences.get(place, 0),
            "transactional": True,
            **changes,
        }
        return bytes(pack([(self.stamp_ms, b"k", value, ()) for value in values], **fields))

    def produce(self, place: Place, *values: bytes, records: bytes | None = None) -> int:
        data = PartitionProduceData(index=place[1], records=records or self.batch(place, values))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=place[0], partition_data=[data])],
        )
        answer = self.broker.ask(request, self.versions.produce)
        code = int(answer.responses[0].partition_responses[0].error_code)
        if not code:
            self._sequences[place] = self._sequences.get(place, 0) + len(values)
        return code

    def write(self, place: Place, *values: bytes) -> None:
        """Produce, after the partition is added if this client has to do that."""
        if not self.versions.is_2 and place not in self._added:
            assert self.add(place) == [0]
            self._added.add(place)
        assert self.produce(place, *values) == 0

    def add_offsets(self, group: str) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return int(self.broker.ask(request, self.versions.add_offsets).error_code)

    def commit_offsets(self, group: str, offsets: Mapping[Place, int], **member: Any) -> list[int]:
        """The codes of the partitions, in their order."""
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, number), offset in offsets.items():
            partition = TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=offset)
            topics.setdefault(topic, []).append(partition)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=found) for name, found in topics.items()],
            **member,
        )
        answer = self.broker.ask(request, self.versions.commit_offsets)
        return [partition.error_code for topic in answer.topics for partition in topic.partitions]

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

    def end(self, *, commit: bool) -> int:
        answer = self.broker.ask(self.end_request(commit=commit), self.versions.end)
        self._added.clear()
        if not answer.error_code and self.versions.is_2:
            self._moved_to(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    def _moved_to(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
            self._added.clear()
        self.producer_id, self.epoch = producer_id, epoch


def fetch_request(place: Place, offset: int = 0, *, committed: bool, **changes: Any) -> FetchRequest:
    wanted = FetchPartition(partition=place[1], fetch_offset=offset, partition_max_bytes=1 << 20)
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **changes}
    return FetchRequest(
        isolation_level=int(committed), topics=[FetchTopic(topic=place[0], partitions=[wanted])], **fields
    )


def fetched(broker: Asked, place: Place, offset: int = 0, *, committed: bool) -> PartitionData:
    answer = broker.ask(fetch_request(place, offset, committed=committed), 12)
    (found,) = answer.responses[0].partitions
    assert isinstance(found, PartitionData)
    assert found.error_code == 0
    return found


def values_of(data: PartitionData) -> list[bytes | None]:
    """The values of an answer, those of aborted transactions too."""
    return [record.value for record in decode(data.records or b"", "events", 0)[0]]


def aborted_in(data: PartitionData) -> list[tuple[int, int]]:
    """(producer id, first offset) of the transactions that a reader has to leave out."""
    return [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
