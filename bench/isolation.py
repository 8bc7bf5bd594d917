"""Fetches of committed records beside fetches of all, by the raw protocol: in partitions without transactions, with few
large and with many small ones, and where half of those were aborted.

Both read the same bytes: whole transactions with their markers. What is compared is the broker's processor time for a
byte, and the speed. A client of its own would have to decode the records in both cases.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from bench.broker import batch_of
from bench.broker_load import LoadFailed, ask, connect, fetch_load, run_flat_out
from bench.broker_process import BrokerProcess
from bench.measuring import Turns
from bench.table import Row, bytes_per_second, duration
from crc32c import crc32c

from foldlog.records.batch import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    CRC_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL,
)
from foldlog.records.loops import control_batch
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages import add_partitions_to_txn, end_txn, init_producer_id, produce

TARGET = 0.95
UNCOMMITTED, COMMITTED = 0, 1
_WINDOW = 4
_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Filling:
    """What a partition is filled with: transactions of some batches, or those batches without transactions."""

    name: str
    size: str
    batches: int
    is_transactional: bool = True
    aborts_every: int = 0

    @property
    def topic(self) -> str:
        return self.name.replace(" ", "-").replace(",", "")


FILLINGS = (
    Filling("no transactions", "64 KB", 1, is_transactional=False),
    Filling("few transactions, 1 MB each", "64 KB", 16),
    Filling("many transactions, 4 KB each", "4 KB", 1),
    Filling("many transactions, half of them aborted", "4 KB", 1, aborts_every=2),
)


class Filled:
    """A partition with what it was filled with, as long as two fetches of the largest size."""

    def __init__(self, broker: BrokerProcess, filling: Filling, together_bytes: int) -> None:
        self._broker = broker
        self._filling = filling
        batch, records = batch_of(filling.size, "none")
        marker = len(control_batch(1, 0, 0, 0, 0)) if filling.is_transactional else 0
        self._unit_bytes = len(batch) * filling.batches + marker
        self._unit_records = records * filling.batches + bool(marker)
        self._units = 2 * self._together(together_bytes)
        broker.create_topic(filling.topic, 1)
        with connect(broker.address) as opened:
            if not filling.is_transactional:
                for _ in range(self._units):
                    produce_one(opened, filling.topic, batch)
                return
            producer = RawProducer(opened, f"bench-{filling.topic}", filling.topic)
            for number in range(self._units):
                is_aborted = bool(filling.aborts_every) and number % filling.aborts_every == 0
                producer.write(batch, records, filling.batches, commit=not is_aborted)

    def _together(self, size_bytes: int) -> int:
        """Transactions in a fetch: whole ones, and as many aborted in each."""
        step = max(1, self._filling.aborts_every)
        return max(1, size_bytes // self._unit_bytes // step) * step

    def turns(self, size_bytes: int, repeats: int, seconds: float) -> Mapping[str, Turns]:
        """Bytes a second, and bytes for a second of the broker's processor time: of committed records and of all."""
        together = self._together(size_bytes)
        every = self._filling.aborts_every
        aborted = together // every if every else 0
        unit = bytes(self._unit_bytes)
        common = (self._filling.topic, [self._units], unit, self._unit_records, _WINDOW, together)
        loads = {"committed": fetch_load(*common, aborted=aborted), "all": fetch_load(*common)}
        used: dict[str, list[float]] = {name: [] for name in loads}

        def run(name: str) -> float:
            before_s = self._broker.threads_cpu_s()
            figures = run_flat_out(self._broker.address, loads[name], 1, seconds, 1 << 60)
            used[name].append(figures.payload_bytes / max(self._broker.threads_cpu_s() - before_s, 1e-9))
            return figures.bytes_per_second

        speed = Turns(repeats, {name: partial(run, name) for name in loads}, warm_up=True)
        spent = Turns(repeats, {name: partial(_next, iter(used[name][1:])) for name in loads})
        return {"speed": speed, "processor": spent}


def _next(values: Iterator[float]) -> float:
    return next(values)


def rows(broker: BrokerProcess, repeats: int, seconds: float, size_bytes: int) -> list[Row]:
    """One row for each filling."""
    found = []
    for filling in FILLINGS:
        turns = Filled(broker, filling, size_bytes).turns(size_bytes, repeats, seconds)
        speed, spent = turns["speed"], turns["processor"]
        ratio = spent.ratio("committed", "all")
        row = Row(
            f"read_committed, raw fetches, {filling.name}",
            _told(speed, spent, "committed"),
            f"read_uncommitted {_told(speed, spent, 'all')}",
            ratio,
        )
        # Those that were aborted have to be named in the answer: there is no target for that.
        found.append(row if filling.aborts_every else replace(row, target=f">= {TARGET}", met=ratio >= TARGET))
    return found


def _told(speed: Turns, spent: Turns, name: str) -> str:
    return f"{bytes_per_second(speed.speed(name))}, {duration(1e9 / spent.speed(name))} of processor time a GB"


def produce_one(opened: socket.socket, topic: str, batch: bytes) -> None:
    """One batch to partition 0, acknowledged."""
    data = produce.TopicProduceData(name=topic, partition_data=[produce.PartitionProduceData(index=0, records=batch)])
    request = produce.ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data])
    answer = ask(opened, request, 9, produce.ProduceResponse)
    _check(*(one.error_code for topic in answer.responses for one in topic.partition_responses))


class RawProducer:
    """A producer with a transactional id, transaction version 1: it waits for each answer. Owned by one thread."""

    def __init__(self, opened: socket.socket, transactional_id: str, topic: str) -> None:
        self._opened = opened
        self._id = transactional_id
        self._topic = topic
        self._sequence = 0
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=_TIMEOUT_MS
        )
        answer = ask(opened, request, 4, init_producer_id.InitProducerIdResponse)
        _check(answer.error_code)
        self._producer = answer.producer_id, answer.producer_epoch

    def write(self, batch: bytes, records: int, batches: int, *, commit: bool) -> None:
        """One transaction: so many times the batch."""
        topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name=self._topic, partitions=[0])
        added = ask(
            self._opened,
            add_partitions_to_txn.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=self._producer[0],
                v3_and_below_producer_epoch=self._producer[1],
                v3_and_below_topics=[topic],
            ),
            3,
            add_partitions_to_txn.AddPartitionsToTxnResponse,
        )
        for result in added.results_by_topic_v3_and_below:
            _check(*(one.partition_error_code for one in result.results_by_partition))
        for _ in range(batches):
            self._produce(batch, records)
        ended = ask(
            self._opened,
            end_txn.EndTxnRequest(
                transactional_id=self._id,
                producer_id=self._producer[0],
                producer_epoch=self._producer[1],
                committed=commit,
            ),
            3,
            end_txn.EndTxnResponse,
        )
        _check(ended.error_code)

    def _produce(self, batch: bytes, records: int) -> None:
        numbered = _numbered(batch, *self._producer, self._sequence)
        data = produce.TopicProduceData(
            name=self._topic, partition_data=[produce.PartitionProduceData(index=0, records=numbered)]
        )
        request = produce.ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data])
        answer = ask(self._opened, request, 9, produce.ProduceResponse)
        _check(*(one.error_code for topic in answer.responses for one in topic.partition_responses))
        self._sequence += records


def _numbered(batch: bytes, producer_id: int, epoch: int, sequence: int) -> bytes:
    made = bytearray(batch)
    (attributes,) = struct.unpack_from(">h", made, ATTRIBUTES_AT)
    struct.pack_into(">h", made, ATTRIBUTES_AT, attributes | TRANSACTIONAL)
    struct.pack_into(">qh", made, PRODUCER_ID_AT, producer_id, epoch)
    struct.pack_into(">i", made, BASE_SEQUENCE_AT, sequence)
    struct.pack_into(">I", made, CRC_AT, crc32c(bytes(made[ATTRIBUTES_AT:])))
    return bytes(made)


def _check(*codes: int) -> None:
    for code in codes:
        if code:
            raise LoadFailed(f"the broker answered {ErrorCode(code).name}")
