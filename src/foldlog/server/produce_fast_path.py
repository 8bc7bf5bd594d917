"""The fast path of a Produce request: one plain batch for one open partition, appended without building messages.

All other requests, and all failures, take the long path through `handlers.produce`: nothing has been done then. What
was found in the batch is passed on, so that it is checked once, and a refusal costs no more than a write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.topics.names import KAFKA_OWN_TOPICS
from foldlog.client.fold_bulletin import FOLDS_TOPIC
from foldlog.errors import FoldlogError, InvalidBatch, RecordTooLarge
from foldlog.log.config import AS_PRODUCED
from foldlog.log.partition import ExpandsFurther, Partition
from foldlog.records.batch import Compression, codec_of, is_transactional
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.frames import encode_response
from foldlog.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from foldlog.wire.produce_fast_path import FastProduce, fast_answer, fast_produce

if TYPE_CHECKING:
    from foldlog.server.call import Caller
    from foldlog.server.node import BrokerNode
    from foldlog.wire.codec import Chunk
    from foldlog.wire.schema import Records

INLINE_WEIGHT: Final = 1 << 20
"""The most that is appended on the loop itself, in bytes of plain batches: that takes half a millisecond. (Measured
with batches of 16 KB to 500 KB, plain and in lz4, on two cores: with a thread in between, each takes twice the
processor time, and longer.)"""

_GZIP_WEIGHT: Final = 8
_RECOMPRESSED_WEIGHT: Final = 64
"""How much longer than a plain byte one takes that is in gzip, or has to be recompressed for its topic."""

TIMED_OUT: Final = "not synced within the request's timeout"

ZSTD_FROM: Final = 7
"""The version of Produce that a batch in zstd needs: clients that ask in an older one could not read it back."""

_ALL: Final = -1
_KNOWN_MAX: Final = 10_000
"""Remembered partitions, by the name or id that clients use; unknown names are not remembered."""


def weight(partition: Partition, records: Records) -> int:
    """How long the batch would occupy the loop, in bytes of a plain one."""
    if partition.config.compression != AS_PRODUCED:
        return _RECOMPRESSED_WEIGHT * len(records)
    return _GZIP_WEIGHT * len(records) if codec_of(records) == Compression.GZIP else len(records)


Found = ExpandsFurther | InvalidBatch | RecordTooLarge
"""Why the batch of a request was not appended, if that is in its bytes: another check would find it again."""


class FastAppend(NamedTuple):
    """A batch that is written, and the frame that acknowledges it."""

    asked: FastProduce
    partition: Partition
    next_offset: int
    answer: bytes

    @property
    def waits_for_sync(self) -> bool:
        return self.asked.acks == _ALL

    def refusal(self, code: ErrorCode, message: str) -> list[Chunk]:
        """The frame for a batch that is not acknowledged."""
        asked = self.asked
        only = PartitionProduceResponse(
            index=asked.partition, error_code=code, base_offset=-1, log_append_time_ms=-1, error_message=message
        )
        topic = TopicProduceResponse(partition_responses=[only])
        if asked.names_topic_by_id:
            topic.topic_id = asked.topic
        else:
            topic.name = asked.topic.decode()
        return encode_response(ProduceResponse(responses=[topic]), asked.version, asked.correlation_id)


class FastAcknowledgement:
    """Calls `done` once with the frame to send and whether it is a refusal: when the partition acknowledged the batch
    or failed, or when the request timed out. Event loop only."""

    def __init__(self, node: BrokerNode, fast: FastAppend, done: Callable[[list[Chunk], bool], None]) -> None:
        self._node = node
        self._fast = fast
        self._done: Callable[[list[Chunk], bool], None] | None = done
        self._timer = node.loop.call_later(max(1, fast.asked.timeout_ms) / 1000, self._timed_out)
        node.syncs.wait(fast.partition, fast.next_offset, self._acknowledged)

    def _acknowledged(self, error: FoldlogError | None) -> None:
        self._timer.cancel()
        if error is None:
            self._finish([self._fast.answer], False)
        else:
            self._node.storage_failed("a batch", *self._fast.partition.label, error)
            self._finish(self._fast.refusal(code_of(error), str(error)), True)

    def _timed_out(self) -> None:
        """The disk takes longer than the client waits. The batch is written, and may still become durable."""
        self._finish(self._fast.refusal(ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT), True)

    def _finish(self, chunks: list[Chunk], is_refusal: bool) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(chunks, is_refusal)


class ProduceFastPath:
    """Tries the fast path for each Produce of every connection. Event loop only.

    Promises that a batch it appends is checked, authorized and acknowledged as on the long path. May leave any request
    to the handler.
    """

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._known: dict[tuple[bytes, int, bool], tuple[Partition, str]] = {}

    def append(self, caller: Caller, frame: memoryview, start: int, end: int) -> FastAppend | Found | None:
        """Append the batch if possible; else None, or what was found in it, with nothing done."""
        # An earlier batch of this connection is on a thread: appended here, this one would overtake it, and an
        # idempotent producer's batch would be refused as out of order.
        if caller.append_queue.is_busy:
            return None
        asked = fast_produce(frame, start, end)
        if asked is None or asked.acks not in (1, _ALL):
            return None
        key = (asked.topic, asked.partition, asked.names_topic_by_id)
        # By the bytes of the request, so that the usual case decodes no name. A remembered partition may have been
        # closed since: the append raises then. A topic that was made again under its name has new partitions, and the
        # old ones are closed; under its old id it is not found.
        known = self._known.get(key) or self._look_up(key)
        if known is None:
            return None
        partition, name = known
        records = frame[asked.records_start : asked.records_end]
        size = len(records)
        # A transactional batch in a request without a transactional id: the handler refuses it.
        is_old_zstd = asked.version < ZSTD_FROM and codec_of(records) == Compression.ZSTD
        if weight(partition, records) > INLINE_WEIGHT or is_transactional(records) or is_old_zstd:
            return None
        if not self._node.authorizer.allows(caller.who, AclOperation.WRITE, ResourceType.TOPIC, name):
            return None
        try:
            appended = partition.append(records, foreign=True, nowait=True)
        # Nothing is done yet in all these cases: an append writes all of it or none, and with `nowait` it raises before
        # it assigns the first offset. So the long path may start from the beginning.
        except (ExpandsFurther, InvalidBatch, RecordTooLarge) as found:
            return found
        except (FoldlogError, BlockingIOError):
            self._known.pop(key, None)  # it may be closed because its topic was deleted
            return None
        # The answer is built now, and sent after the sync: only whether it is sent can still change.
        base_offset, next_offset, append_time_ms, is_duplicate = appended
        if not is_duplicate:
            self._node.metrics.produced(next_offset - base_offset, size)
        answer = fast_answer(asked, base_offset, append_time_ms, partition.log_start_offset)
        return FastAppend(asked, partition, next_offset, answer)

    def _look_up(self, key: tuple[bytes, int, bool]) -> tuple[Partition, str] | None:
        topic, number, is_id = key
        try:
            name = self._node.topic_ids.name_of(topic) if is_id else topic.decode()
        except UnicodeDecodeError:
            return None
        if name is None or name in KAFKA_OWN_TOPICS or name == FOLDS_TOPIC:
            return None
        partition = self._node.open_partition(name, number)
        if partition is None:
            return None
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[key] = (partition, name)
        return self._known[key]
