"""Packed batches on their way to a broker: their numbers, the requests that carry them, and what the answers say. Pure.

Two senders use it, since their callers want different things. `ClusterProducer` is one thread that follows leaders, and
takes nothing more after a refusal: a copy or a task of Spark's begins again from what it knows to be written.
`backends.served.produce.ProduceLink` sends for any number of threads to one writer, tells each what became of its
batch, and goes on after a refusal with those behind it numbered anew. One engine for both would ask at each of these
places whose it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from foldlog.client.wire.refusals import topic_error
from foldlog.errors import FoldlogError, MalformedBytes, UnknownTopic
from foldlog.records.batch import MAX_INT32, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

EPOCH_MAX: Final = (1 << 15) - 1

UNNUMBERED: Final = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
"""Producer id, epoch and base sequence of a batch that has none."""

_ACKS_ALL: Final = -1


class Numbering:
    """The numbers that the batches of one partition carry, in the order in which they are sent: a log that has a batch
    knows it by them when it comes again. Belongs to its sender."""

    __slots__ = ("epoch", "next_sequence", "producer_id")

    def __init__(self, producer_id: int = NO_PRODUCER_ID, epoch: int = 0, next_sequence: int = 0) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.next_sequence = next_sequence & MAX_INT32

    def take(self, offset_count: int) -> tuple[int, int, int]:
        """Producer id, epoch and base sequence of the next batch; UNNUMBERED without an id."""
        if self.producer_id == NO_PRODUCER_ID:
            return UNNUMBERED
        numbers = (self.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + offset_count) & MAX_INT32
        return numbers

    def begin_epoch(self) -> None:
        """Number from 0 on: the log accepts that from a newer epoch, whatever it has of the older one. Where there is
        no newer one the id is used up."""
        self.next_sequence = 0
        self.epoch += 1
        if self.epoch > EPOCH_MAX:
            self.epoch = 0
            self.producer_id = NO_PRODUCER_ID


class AddressedBatch(NamedTuple):
    """A batch, and the partition that it goes to."""

    topic: str
    topic_id: bytes
    partition: int
    data: bytearray


def produce_request(batches: Iterable[AddressedBatch], timeout_ms: int) -> ProduceRequest:
    """Of different partitions, as a request has at most one batch of each. Acknowledged by all in-sync replicas."""
    by_topic: dict[tuple[str, bytes], list[PartitionProduceData]] = {}
    for batch in batches:
        data = PartitionProduceData(index=batch.partition, records=batch.data)
        by_topic.setdefault((batch.topic, batch.topic_id), []).append(data)
    topics = [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=found)
        for (name, topic_id), found in by_topic.items()
    ]
    return ProduceRequest(transactional_id=None, acks=_ACKS_ALL, timeout_ms=timeout_ms, topic_data=topics)


def results_in(answer: ProduceResponse, batches: Sequence[AddressedBatch]) -> list[PartitionProduceResponse]:
    """What the answer says of each batch of its request. Up to version 12 it names topics, later it has their ids."""
    told = {
        (topic.name or topic.topic_id, one.index): one
        for topic in answer.responses
        for one in topic.partition_responses
    }
    found = [
        told.get((batch.topic, batch.partition)) or told.get((batch.topic_id, batch.partition)) for batch in batches
    ]
    results = [one for one in found if one is not None]
    if not len(results) == len(batches) == len(told):
        raise MalformedBytes("Produce response", "it is not about the batches that were sent", 0)
    return results


def refusal_in(result: PartitionProduceResponse, topic: str, partition: int) -> FoldlogError:
    """What a batch was refused with."""
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
        return UnknownTopic(topic)
    return topic_error(result.error_code, result.error_message, topic, partition)
