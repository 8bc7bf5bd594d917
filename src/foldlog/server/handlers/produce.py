"""Produce: appends batches to their partitions, and acknowledges them when they are as safe as `acks` asks for.

To follow a batch: `handle`, `_append`, then `Partition.append`; with acks=all back through `_Acknowledgements`. The
batches of a connection are appended in the order in which they came: on the loop, or on its queue while that is busy.

A transactional batch goes the same way while its producer's transaction is open in the partition. The first one there
is appended by the coordinator (`TransactionStore.append`), on a thread: it knows whether the partition was added to the
transaction, or, from version 12 on (transaction version 2), adds it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.topics.names import KAFKA_OWN_TOPICS
from foldlog.client.fold_bulletin import FOLDS_TOPIC
from foldlog.errors import FoldlogError, RefusedBatch, TransactionNotOpen, brief_repr
from foldlog.log.config import AS_PRODUCED
from foldlog.log.partition import Partition
from foldlog.log.produced import ExpandsFurther
from foldlog.records.batch import RECORDS_AT, Compression, codec_of, is_transactional, producer_of
from foldlog.server.call import Call, Disconnect, Later, Reply
from foldlog.server.produce_fast_path import INLINE_WEIGHT, TIMED_OUT, ZSTD_FROM, Found, weight
from foldlog.server.transactions import append_error_code, transaction_refusal
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from foldlog.wire.schema import Records

if TYPE_CHECKING:
    from foldlog.server.node import BrokerNode

logger = logging.getLogger("foldlog.server")

_NO_ACKS: Final = 0
_ALL: Final = -1
_ABORTABLE_FROM: Final = 11
_VERSION_2_FROM: Final = 12
_TOPIC_IDS_FROM: Final = 13
_WITHOUT_START: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals that do not say where the log starts, as in Kafka: the batch or the partition was not looked into."""
_OF_ITS_RECORDS: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_RECORD})
"""Refusals of a transactional batch that say it: for others it did not come to the partition."""


class _Batch(NamedTuple):
    """The batch for one partition, or the error if it is refused."""

    topic: str
    topic_at: int
    number: int
    records: Records
    partition: Partition | None
    error: ErrorCode
    message: str | None


def handle(call: Call, request: ProduceRequest) -> Reply:
    """Append small batches here, on the loop: that is a copy into the page cache. Large ones go to a thread."""
    batches = [
        _placed(call, at, topic, data.index, data.records or b"")
        for at, topic in enumerate(request.topic_data)
        for data in topic.partition_data
    ]
    refused = _refuse_whole(call, request, batches)
    if refused is not None:
        code, message = refused
        batches = [batch._replace(partition=None, error=code, message=message) for batch in batches]
    if any(map(_must_open, batches)):
        return _open_and_append(call, request, _owned(call, batches))
    if call.caller.append_queue.is_busy or sum(map(_weight, batches)) > INLINE_WEIGHT:
        return _QueuedAppend(call, request, _owned(call, batches)).later
    found = call.found  # about the only batch, if any
    outcomes: list[_Outcome] = []
    for at, batch in enumerate(batches):
        try:
            outcomes.append(_append(call, request, batch, nowait=True, found=found))
        except TransactionNotOpen:
            return _begin_and_append(call, request, _owned(call, batches[at:]), outcomes)
        except BlockingIOError as error:  # segment full, partition locked, or batch expands further
            call.caller.append_queue.is_steep |= isinstance(error, ExpandsFurther) and error.is_steep
            return _QueuedAppend(call, request, _owned(call, batches[at:]), outcomes).later
    return _acknowledge(call.node, request, outcomes)


def _refuse_whole(call: Call, request: ProduceRequest, batches: Sequence[_Batch]) -> tuple[ErrorCode, str] | None:
    if request.acks not in (_NO_ACKS, 1, _ALL):
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks} is none of 0, 1 and all (-1)"
    transactional = [batch.records for batch in batches if is_transactional(batch.records)]
    if not transactional:
        return None
    error = transaction_refusal(call, request.transactional_id)
    if error is not ErrorCode.NONE:
        return error, "a transactional batch needs a transactional.id that the client may use"
    if len({producer_of(records) for records in transactional if len(records) >= RECORDS_AT}) > 1:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional batches of a request are of several producers"
    return None


def _placed(call: Call, at: int, topic: TopicProduceData, index: int, records: Records) -> _Batch:
    """Find the batch's partition."""
    node = call.node
    name = topic.name if call.version < _TOPIC_IDS_FROM else node.topic_ids.name_of(topic.topic_id)
    if name is None:
        return _Batch("", at, index, records, None, ErrorCode.UNKNOWN_TOPIC_ID, None)
    if not call.allows(AclOperation.WRITE, ResourceType.TOPIC, name):
        return _Batch(name, at, index, records, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    if name in KAFKA_OWN_TOPICS:
        message = f"topic {name!r} is written by the log itself"
        return _Batch(name, at, index, records, None, ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    kept = node.schema_guard.refusal(name)
    if kept is not None:
        return _Batch(name, at, index, records, None, ErrorCode.INVALID_TOPIC_EXCEPTION, kept)
    if name == FOLDS_TOPIC:
        refusal = node.fold_guard.refusal(records)
        if refusal is not None:
            return _Batch(name, at, index, records, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, refusal)
    if call.version < ZSTD_FROM and codec_of(records) == Compression.ZSTD:
        message = f"zstd comes with version {ZSTD_FROM} of Produce"
        return _Batch(name, at, index, records, None, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)
    partition = node.open_partition(name, index)
    if partition is None and not node.has_partition(name, index):
        message = f"there is no partition {index} of topic {brief_repr(name)}"
        return _Batch(name, at, index, records, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return _Batch(name, at, index, records, partition, ErrorCode.NONE, None)


def _owned(call: Call, batches: Sequence[_Batch]) -> list[_Batch]:
    """Move them into memory of the queue: the views end with this call, as their buffer receives the next frame."""
    views = call.caller.append_queue.own([batch.records for batch in batches])
    return [batch._replace(records=view) for batch, view in zip(batches, views, strict=True)]


def _must_open(batch: _Batch) -> bool:
    return batch.partition is None and batch.error is ErrorCode.NONE


def _weight(batch: _Batch) -> int:
    return 0 if batch.partition is None else weight(batch.partition, batch.records)


def _expanded_bytes(batch: _Batch) -> int:
    """How much memory checking the batch may take, as far as its header shows."""
    if batch.partition is None:
        return 0
    config = batch.partition.config
    if codec_of(batch.records) == Compression.NONE:
        return 0 if config.compression == AS_PRODUCED else len(batch.records)
    return config.decompressed_limit


async def _begin_and_append(
    call: Call, request: ProduceRequest, batches: Sequence[_Batch], before: Sequence[_Outcome]
) -> Later:
    """Append where a transaction begins: not on the queue, whose threads are few, since it waits for the disk. The
    connection waits, too, so that no later batch comes before."""
    queued = _QueuedAppend(call, request, batches, before, begins_transaction=True)
    await queued.appended
    return queued.later


async def _open_and_append(call: Call, request: ProduceRequest, batches: Sequence[_Batch]) -> Later:
    """Opening uses a worker thread, since it may take long; then the batches go to the queue, behind earlier ones.

    If the connection is lost meanwhile nothing is appended; from then on, what is appended is synced.
    """
    opened = await call.node.run(_open_all, call.node, batches)
    return _QueuedAppend(call, request, opened).later


def _open_all(node: BrokerNode, batches: Sequence[_Batch]) -> list[_Batch]:
    return [_opened(node, batch) if _must_open(batch) else batch for batch in batches]


def _opened(node: BrokerNode, batch: _Batch) -> _Batch:
    try:
        return batch._replace(partition=node.partition(batch.topic, batch.number))
    except FoldlogError as error:
        node.storage_failed("a batch", batch.topic, batch.number, error)
        return batch._replace(error=code_of(error), message=str(error))


class _QueuedAppend:
    """Appends on the connection's queue, which owns the batches, while the loop goes on. `before`: outcomes of batches
    of the request that are done already. `begins_transaction`: on another thread, until `appended` is done."""

    def __init__(
        self,
        call: Call,
        request: ProduceRequest,
        batches: Sequence[_Batch],
        before: Sequence[_Outcome] = (),
        *,
        begins_transaction: bool = False,
    ) -> None:
        self._node = call.node
        self._call = call
        self._request = request
        for topic in request.topic_data:
            for data in topic.partition_data:
                data.records = None  # the wait for the sync needs no records, and must not keep them
        self._queue = call.caller.append_queue
        self._before = before
        self._batches = batches
        self.later: Later = call.node.loop.create_future()
        self.appended: Later = call.node.loop.create_future()
        if begins_transaction:
            self._queue.begin()
            call.node.run(self._append)
        else:
            self._queue.submit(self._append, max(map(_expanded_bytes, self._batches), default=0))

    def _append(self) -> None:
        try:
            outcomes = [*self._before, *(_append(self._call, self._request, batch) for batch in self._batches)]
        except Exception as error:  # noqa: BLE001  passed to the connection, which logs it
            self._node.soon(self._failed, error)
        else:
            self._node.soon(self._appended, outcomes)

    def _appended(self, outcomes: list[_Outcome]) -> None:
        outcomes = [outcome._replace(batch=outcome.batch._replace(records=b"")) for outcome in outcomes]
        self._give_back()
        try:
            reply = _acknowledge(self._node, self._request, outcomes, self.later)
        except Disconnect as error:
            self._fail(error)
            return
        if reply is not self.later and not self.later.done():
            self.later.set_result(reply)

    def _failed(self, error: Exception) -> None:
        self._give_back()
        self._fail(error)

    def _give_back(self) -> None:
        batches, self._batches = self._batches, ()
        self._queue.done([memoryview(batch.records) for batch in batches])
        if not self.appended.done():
            self.appended.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self.later.done():
            self.later.set_exception(error)


class _Outcome(NamedTuple):
    """The result for a batch; nothing is durable yet."""

    batch: _Batch
    partition: Partition | None
    next_offset: int
    answer: PartitionProduceResponse
    new_records: int = 0
    new_bytes: int = 0


def _append(
    call: Call, request: ProduceRequest, batch: _Batch, *, nowait: bool = False, found: Found | None = None
) -> _Outcome:
    """Append one batch. With `nowait` raises TransactionNotOpen, with nothing done, if it begins a transaction."""
    node, partition = call.node, batch.partition
    if partition is None:
        return _refused(batch, batch.error, batch.message)
    try:
        if found is not None:
            raise found
        if partition.config.validates_schemas:
            node.schema_guard.check(batch.topic, partition.config, batch.records)
        if nowait or not is_transactional(batch.records):
            appended = partition.append(batch.records, foreign=True, nowait=nowait)
        else:
            appended = node.broker.transactions.append(
                request.transactional_id, partition, batch.records, add=call.version >= _VERSION_2_FROM
            )
    except TransactionNotOpen as error:
        if nowait:
            raise
        return _refused(batch, code_of(error), str(error))
    except FoldlogError as error:
        logger.debug("%s-%d: a batch is refused: %s", batch.topic, batch.number, error)
        node.storage_failed("a batch", batch.topic, batch.number, error)
        outcome = _refused(batch, _code(call, batch, error), str(error))
        if _says_start(batch, outcome.answer.error_code):
            outcome.answer.log_start_offset = partition.log_start_offset
        if isinstance(error, RefusedBatch):
            outcome.answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
                for index, why in error.record_errors
            ]
        return outcome
    answer = PartitionProduceResponse(
        index=batch.number,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time_ms,
        log_start_offset=partition.log_start_offset,
    )
    if appended.is_duplicate:
        return _Outcome(batch, partition, appended.next_offset, answer)
    new_records = appended.next_offset - appended.base_offset
    return _Outcome(batch, partition, appended.next_offset, answer, new_records, len(batch.records))


def _code(call: Call, batch: _Batch, error: FoldlogError) -> ErrorCode:
    if not is_transactional(batch.records):
        return code_of(error)
    return append_error_code(
        error, is_version_2=call.version >= _VERSION_2_FROM, knows_abortable=call.version >= _ABORTABLE_FROM
    )


def _says_start(batch: _Batch, code: int) -> bool:
    return code in _OF_ITS_RECORDS if is_transactional(batch.records) else code not in _WITHOUT_START


def _refused(batch: _Batch, code: ErrorCode, message: str | None) -> _Outcome:
    answer = PartitionProduceResponse(
        index=batch.number, error_code=code, base_offset=-1, log_append_time_ms=-1, error_message=message
    )
    return _Outcome(batch, None, -1, answer)


def _acknowledge(
    node: BrokerNode, request: ProduceRequest, outcomes: list[_Outcome], later: Later | None = None
) -> ProduceResponse | Later | None:
    """The answer, or `later` (or a new future) if it has to wait for syncs."""
    written = [outcome for outcome in outcomes if outcome.partition is not None]
    for outcome in written:
        if outcome.new_records:  # counted here, on the loop: concurrent threads would lose counts
            node.metrics.produced(outcome.new_records, outcome.new_bytes)
    if request.acks == _ALL and written:
        return _Acknowledgements(node, request, outcomes, written, later or node.loop.create_future()).later
    for outcome in written:
        if outcome.partition is not None:
            node.syncs.written(outcome.partition, outcome.next_offset)
    if request.acks != _NO_ACKS:
        return _response(request, outcomes)
    for outcome in outcomes:
        if outcome.answer.error_code:
            # There is no answer to carry the error: closing the connection makes the client look again.
            raise Disconnect(
                f"a batch for {outcome.batch.topic}-{outcome.batch.number} sent with acks=0 is refused:"
                f" {ErrorCode(outcome.answer.error_code).name}"
            )
    return None


class _Acknowledgements:
    """Answers once the partitions have acknowledged every batch of the request."""

    def __init__(
        self,
        node: BrokerNode,
        request: ProduceRequest,
        outcomes: list[_Outcome],
        written: Sequence[_Outcome],
        later: Later,
    ) -> None:
        self._node = node
        self._request = request
        self._outcomes = outcomes
        self._missing = len(written)
        self.later = later
        self._timer = node.loop.call_later(max(1, request.timeout_ms) / 1000, self._timed_out)
        for outcome in written:
            if outcome.partition is not None:
                node.syncs.wait(outcome.partition, outcome.next_offset, partial(self._acknowledged, outcome))

    def _acknowledged(self, outcome: _Outcome, error: FoldlogError | None) -> None:
        self._missing -= 1
        if error is not None:
            self._node.storage_failed("a batch", outcome.batch.topic, outcome.batch.number, error)
            _spoil(outcome.answer, code_of(error), str(error))
        if not self._missing:
            self._finish()

    def _timed_out(self) -> None:
        """The disk takes longer than the client waits. The batches are written, and may still become durable."""
        for outcome in self._outcomes:
            partition = outcome.partition
            if (
                partition is not None
                and not partition.acks_when_written
                and partition.durable_offset < outcome.next_offset
            ):
                _spoil(outcome.answer, ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT)
        self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        if not self.later.done():
            self.later.set_result(_response(self._request, self._outcomes))


def _spoil(answer: PartitionProduceResponse, code: ErrorCode, message: str) -> None:
    answer.error_code = code
    answer.error_message = message
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1


def _response(request: ProduceRequest, outcomes: Sequence[_Outcome]) -> ProduceResponse:
    partitions: list[list[PartitionProduceResponse]] = [[] for _ in request.topic_data]
    for outcome in outcomes:
        partitions[outcome.batch.topic_at].append(outcome.answer)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=found)
            for topic, found in zip(request.topic_data, partitions, strict=True)
        ]
    )
