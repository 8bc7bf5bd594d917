"""The fast path of Produce requests: every whole one that a connection has received, appended and answered as one run.

What is done once a batch or a request is compiled (`wire/produce_frames.pyx`, `ProducedBatches` of the loops): reading
the frames, checking the batches, numbering them, writing the answers. Here is what is done once a run, and once for
each partition of it. All other requests, and all refusals, take the long path through `handlers.produce`: nothing has
been done for them then. What was found in a batch is passed on, so that it is checked once, and a refusal costs no more
than a write. Where the compiled modules were not built, every request takes the long path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.topics.names import KAFKA_OWN_TOPICS, SCHEMAS_TOPIC
from foldlog.client.fold_bulletin import FOLDS_TOPIC
from foldlog.environment import PURE_PYTHON
from foldlog.errors import DecompressedTooLarge, FoldlogError, InvalidBatch, RecordTooLarge
from foldlog.limits import RUN_PARTITIONS_MAX
from foldlog.log.config import AS_PRODUCED
from foldlog.log.partition import Partition
from foldlog.log.produced import (
    ExpandsFurther,
    Written,
    append_run,
    check_run,
    expands_further,
    quick_limit_of,
)
from foldlog.records.batch import Compression, codec_of
from foldlog.server.call import has_error
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.frames import decode_response, encode_response
from foldlog.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from foldlog.records.kernels import ProducedBatches
    from foldlog.server.call import Caller
    from foldlog.server.node import BrokerNode
    from foldlog.wire.produce_frames import ProduceFrames
    from foldlog.wire.schema import Records

INLINE_WEIGHT: Final = 1 << 20
"""The most that is appended on the loop itself, in bytes of plain batches: that takes half a millisecond. (Measured
with batches of 16 KB to 500 KB, plain and in lz4, on two cores: with a thread in between, each takes twice the
processor time, and longer.)"""

_FRAMES_SLACK_BYTES: Final = 64 << 10
"""What the frames of a run may have around their batches."""

_GZIP_WEIGHT: Final = 8
_RECOMPRESSED_WEIGHT: Final = 64
"""How much longer than a plain byte one takes that is in gzip, or has to be recompressed for its topic."""

TIMED_OUT: Final = "not synced within the request's timeout"

ZSTD_FROM: Final = 7
"""The version of Produce that a batch in zstd needs: clients that ask in an older one could not read it back."""

_ALL: Final = -1
_KNOWN_MAX: Final = 10_000
"""Remembered partitions, by the name or id that clients use; unknown names are not remembered."""

_LENGTH: Final = Struct(">i")
_TARGET: Final = Struct(">H")

Chunk = bytes | memoryview
Refusals = Mapping[int, tuple[ErrorCode, str]]
"""Of the partitions of a run, by their place in it."""


def weight(partition: Partition, records: Records) -> int:
    """How long the batch would occupy the loop, in bytes of a plain one."""
    if partition.config.validates_schemas:
        return INLINE_WEIGHT + len(records)  # never on the loop: the registry's lock may have to be waited for
    if partition.config.compression != AS_PRODUCED:
        return _RECOMPRESSED_WEIGHT * len(records)
    return _GZIP_WEIGHT * len(records) if codec_of(records) == Compression.GZIP else len(records)


Found = ExpandsFurther | InvalidBatch | RecordTooLarge
"""Why the batch of a request was not appended, if that is in its bytes: another check would find it again."""


class ProducedRun:
    """Requests whose batches are written: the frames that answer them, and what has to be durable first."""

    __slots__ = ("_targets", "acks", "answers", "end", "errors", "requests", "timeout_ms", "version", "written")

    def __init__(self, frames: ProduceFrames, written: list[tuple[int, Partition, int]]) -> None:
        """`written`: of each partition its place in the run, and the offset after its batches."""
        self.version = frames.version
        self.acks = frames.acks
        self.timeout_ms = frames.timeout_ms
        self.requests = frames.batches.frames
        self.end = frames.end
        # Built now, and sent after the syncs: only whether they are sent can still change.
        self.answers = frames.answers()
        self.written = written
        self.errors = 0  # requests that are refused, for one of their partitions or more
        self._targets = frames.batches.targets_of_batches() if frames.batches.target_count > 1 else None

    @property
    def waits_for_sync(self) -> bool:
        return self.acks == _ALL and bool(self.written)

    def refuse(self, refusals: Refusals) -> None:
        """Answer with these errors for these partitions. The answers are read and written again by the codec."""
        answers, out, position, batch = self.answers, [], 0, 0
        self.errors = 0
        while position < len(answers):
            end = position + _LENGTH.size + _LENGTH.unpack_from(answers, position)[0]
            frame = answers[position + _LENGTH.size : end]
            correlation_id, message = decode_response(ProduceResponse, self.version, frame)
            for topic in message.responses:
                for answer in topic.partition_responses:
                    refusal = refusals.get(self._target(batch))
                    batch += 1
                    if refusal is not None:
                        answer.error_code, answer.error_message = refusal
                        answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
            out += encode_response(message, self.version, correlation_id)
            self.errors += has_error(message)
            position = end
        self.answers = b"".join(out)

    def _target(self, batch: int) -> int:
        if self._targets is None:
            return 0
        return int(_TARGET.unpack_from(self._targets, _TARGET.size * batch)[0])


class RunAcknowledgement:
    """Calls `done` once, when the run's answers may be sent: its partitions have acknowledged their batches or failed,
    or the requests timed out. Event loop only."""

    __slots__ = ("_done", "_missing", "_node", "_refusals", "_run", "_timer")

    def __init__(self, node: BrokerNode, run: ProducedRun, done: Callable[[], None]) -> None:
        self._node = node
        self._run = run
        self._done: Callable[[], None] | None = done
        self._refusals: dict[int, tuple[ErrorCode, str]] = {}
        self._missing = len(run.written)
        self._timer = node.loop.call_later(max(1, run.timeout_ms) / 1000, self._timed_out)
        if self._missing == 1:  # as most have
            _, partition, next_offset = run.written[0]
            node.syncs.wait(partition, next_offset, self._acknowledged)
        else:
            for place, (_, partition, next_offset) in enumerate(run.written):
                node.syncs.wait(partition, next_offset, _OneOfSeveral(self, place))

    def _acknowledged(self, error: FoldlogError | None, place: int = 0) -> None:
        self._missing -= 1
        if error is not None:
            target, partition, _ = self._run.written[place]
            self._node.storage_failed("a batch", *partition.label, error)
            self._refusals[target] = code_of(error), str(error)
        if not self._missing:
            self._finish()

    def acknowledged(self, error: FoldlogError | None, place: int) -> None:
        self._acknowledged(error, place)

    def _timed_out(self) -> None:
        """The disk takes longer than the client waits. The batches are written, and may still become durable."""
        for target, partition, next_offset in self._run.written:
            if not partition.acks_when_written and partition.durable_offset < next_offset:
                self._refusals[target] = ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT
        self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        done, self._done = self._done, None
        if done is not None:
            if self._refusals:
                self._run.refuse(self._refusals)
            done()


class _OneOfSeveral:
    """What waits for one partition of a run."""

    __slots__ = ("_place", "_whole")

    def __init__(self, whole: RunAcknowledgement, place: int) -> None:
        self._whole = whole
        self._place = place

    def __call__(self, error: FoldlogError | None) -> None:
        self._whole.acknowledged(error, self._place)


class _OpenPartitions(dict[int, "Partition | None"]):
    """The open partitions of a topic by number, each remembered when it is first asked for; None for others."""

    def __init__(self, node: BrokerNode, name: str) -> None:
        super().__init__()
        self._node = node
        self.name = name

    def __missing__(self, number: int) -> Partition | None:
        partition = self._node.open_partition(self.name, number)
        if partition is not None:
            self[number] = partition
        return partition


class ProduceFastPath:
    """Tries the fast path for the Produce requests of every connection. Event loop only.

    Promises that a batch it appends is checked, authorized and acknowledged as on the long path. May leave any request
    to the handler.
    """

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._frames = _new_frames()
        # By the bytes of the request, so that the usual case decodes no name. A remembered partition may have been
        # closed since: it is not ready then. A topic that was made again under its name has new partitions, and the
        # old ones are closed; under its old id it is not found.
        self._names: dict[bytes, _OpenPartitions] = {}
        self._ids: dict[bytes, _OpenPartitions] = {}

    def append(
        self, caller: Caller, view: memoryview, position: int, end: int, frames_max: int
    ) -> ProducedRun | Found | None:
        """Append the batches of the frames from `position` on, as many as go together. None, or what was found in the
        only batch of the first frame, if that one takes the long path; nothing has been done for it then."""
        # An earlier batch of this connection is on a thread: appended here, this one would overtake it, and an
        # idempotent producer's batch would be refused as out of order.
        if self._frames is None or caller.append_queue.is_busy:
            return None
        frames, size_max = self._frames, self._node.settings.socket_request_max_bytes
        try:
            if not frames.read(view, position, end, size_max, frames_max, INLINE_WEIGHT + _FRAMES_SLACK_BYTES):
                return None
            return self._append(caller, frames, view) if frames.acks in (1, _ALL) else None
        finally:
            frames.batches.end()

    def _append(self, caller: Caller, frames: ProduceFrames, view: memoryview) -> ProducedRun | Found | None:
        batches = frames.batches
        topics = [self._partitions(caller, topic, is_id=frames.names_topics_by_id) for topic in frames.topics]
        partitions: list[Partition] = batches.place(topics)
        if not batches.frames or len(partitions) > RUN_PARTITIONS_MAX:
            return None
        appends = [partition.produced for partition in partitions]
        error, is_quick = check_run(
            appends,
            batches,
            self._node.clock.now_ms(),
            weight_max=INLINE_WEIGHT,
            gzip_weight=_GZIP_WEIGHT,
            takes_zstd=frames.version >= ZSTD_FROM,
            takes_transactions=self._may_use(caller, frames.transactional_id),
        )
        if any(partition.config.validates_schemas for partition in partitions):
            self._cut_unknown_schemas(batches, partitions, view)
        if not batches.frames:
            return self._found(error, is_quick, view, frames, partitions)
        outcomes = append_run(appends, batches)
        if not batches.frames:
            self._forget(frames)
            return None
        return self._run(frames, partitions, outcomes)

    def _cut_unknown_schemas(self, batches: ProducedBatches, partitions: list[Partition], view: memoryview) -> None:
        """End the run before the first frame with a schema that has to be looked up: the handler does, on a thread."""
        seen = [0] * len(partitions)
        for index, (target,) in enumerate(_TARGET.iter_unpack(batches.targets_of_batches())):
            partition = partitions[target]
            if partition.config.validates_schemas:
                start, end = batches.span(index)
                if not self._node.schema_guard.knows(partition.label[0], partition.config, view[start:end]):
                    batches.cut(batches.frame_of(target, seen[target]))
                    return
            seen[target] += 1

    def _run(self, frames: ProduceFrames, partitions: list[Partition], outcomes: list[Written]) -> ProducedRun:
        written: list[tuple[int, Partition, int]] = []
        failed: dict[int, tuple[ErrorCode, str]] = {}
        records, size_bytes = frames.batches.records, frames.batches.size_bytes
        for target, (partition, outcome) in enumerate(zip(partitions, outcomes, strict=True)):
            if isinstance(outcome, int):
                written.append((target, partition, outcome))
            elif outcome is not None:
                self._node.storage_failed("a batch", *partition.label, outcome)
                failed[target] = code_of(outcome), str(outcome)
                _, lost_bytes, lost_records = frames.batches.size_of(target)
                records, size_bytes = records - lost_records, size_bytes - lost_bytes
        self._node.metrics.produced(records, size_bytes)
        run = ProducedRun(frames, written)
        if failed:
            run.refuse(failed)
        return run

    def _partitions(self, caller: Caller, topic: bytes, *, is_id: bool) -> _OpenPartitions | None:
        """The open partitions of the topic, if the client may write there."""
        known = self._ids if is_id else self._names
        found = known.get(topic)
        if found is None:
            try:
                name = self._node.topic_ids.name_of(topic) if is_id else topic.decode()
            except UnicodeDecodeError:
                return None
            if name is None or name in KAFKA_OWN_TOPICS or name in (FOLDS_TOPIC, SCHEMAS_TOPIC):
                return None
            found = _OpenPartitions(self._node, name)
            if len(known) >= _KNOWN_MAX or sum(map(len, known.values())) >= _KNOWN_MAX:
                known.clear()
            if self._node.has_partition(name, 0):
                known[topic] = found
        if not self._node.authorizer.allows(caller.who, AclOperation.WRITE, ResourceType.TOPIC, found.name):
            return None
        return found

    def _may_use(self, caller: Caller, transactional_id: bytes | None) -> bool:
        """Whether the client may write in transactions of that id."""
        try:
            name = (transactional_id or b"").decode()
        except UnicodeDecodeError:
            return False
        allows = self._node.authorizer.allows
        return bool(name) and allows(caller.who, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name)

    def _found(
        self,
        error: Exception | None,
        is_quick: bool,
        view: memoryview,
        frames: ProduceFrames,
        partitions: list[Partition],
    ) -> Found | None:
        if isinstance(error, DecompressedTooLarge) and is_quick:
            start, end = frames.batches.span(0)
            records = view[start:end]
            try:
                return expands_further(records, quick_limit_of(len(records)), partitions[0].config.decompressed_limit)
            except DecompressedTooLarge as beyond:
                return beyond
        return error if isinstance(error, InvalidBatch | RecordTooLarge) else None

    def _forget(self, frames: ProduceFrames) -> None:
        """A partition did not take a batch: it may be closed because its topic was deleted."""
        known = self._ids if frames.names_topics_by_id else self._names
        for topic in frames.topics:
            known.pop(topic, None)


def _new_frames() -> ProduceFrames | None:
    if PURE_PYTHON:
        return None
    try:
        from foldlog.wire.produce_frames import ProduceFrames
    except ImportError:
        return None  # it was not built
    return ProduceFrames()
