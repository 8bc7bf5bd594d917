"""The answers of the JSON-lines node: a function from a message to an answer, over a log. Reads no input itself.

Served: `init`; `partition_append`, `partition_read`, `partition_info`; `commit_offset`, `fetch_offset`; and the kafka
workload of Maelstrom: `send`, `poll`, `commit_offsets`, `list_committed_offsets`.

Several nodes with the same directory share one log: the first to open it writes it, and the others go through it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from foldlog.broker.groups.committed import OffsetAndMetadata, check_offsets
from foldlog.broker.groups.messages import check_group_name
from foldlog.broker.topics.names import is_internal
from foldlog.cli.node import messages
from foldlog.cli.node.messages import Fields, NodeErrorCode, RequestError
from foldlog.cli.wording import node_error_text
from foldlog.client.backends.backend import DirectoryBroker, WritablePartition
from foldlog.client.consumer.arrivals import AnyPartition
from foldlog.errors import FoldlogError, TopicExists, UnknownTopic
from foldlog.limits import DECODED_BYTES
from foldlog.log.partition import Appended, Partition
from foldlog.records.loops import decode, pack

logger = logging.getLogger("foldlog.node")

SEGMENT_RECORDS: Final = "foldlog.segment.records"
WORKLOAD_GROUP: Final = "maelstrom"
"""The group of the kafka workload's committed offsets: the workload itself has none."""

POLL_RECORDS_MAX: Final = 1000
"""The maximum number of records per key in the answer to one poll."""

NEW_PARTITIONS_MAX: Final = 64
"""The maximum number of partitions that one append creates: each is a directory, and a number may be a typing error."""


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Options of the command line. `segment_records` 0: segments do not roll by count. `shared`: other nodes may use
    the log's directory, too."""

    segment_records: int = 0
    short_names: bool = False
    verbose: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that may still have to wait: `settle` returns once the fields may be sent, or raises.

    Many appends can be begun before the first is settled: they then share one sync.
    """

    source: object
    destination: object
    request: Fields
    fields: Fields
    settle: Callable[[], None]

    def body(self) -> Fields:
        """The answer, once it holds what it promises."""
        try:
            self.settle()
        except FoldlogError as error:
            return _refusal(self.request, error)
        return self.fields


def _refusal(request: Fields, error: FoldlogError) -> Fields:
    return messages.error_body(request.get("msg_id"), messages.code_of(error), node_error_text(error))


def _nothing() -> None:
    """The `settle` of answers that need not wait."""


Handled = tuple[Fields, Callable[[], None]]


class LogNode:
    """One node. One thread. Topics are created by their first append or commit; a higher partition number grows them.

    Not promised: whether an append that was begun and not settled is in the log.
    """

    def __init__(self, log: DirectoryBroker, options: NodeOptions) -> None:
        self._log = log
        self._options = options
        self._node_id: str | None = None
        self._refusal: RequestError | None = None
        self._configured: set[str] = set()
        self._handlers: dict[str, Callable[[Fields], Handled]] = {
            "init": self._init,
            "partition_append": self._append,
            "partition_read": self._read,
            "partition_info": self._info,
            "commit_offset": self._commit_offset,
            "fetch_offset": self._fetch_offset,
            "send": self._send,
            "poll": self._poll,
            "commit_offsets": self._commit_offsets,
            "list_committed_offsets": self._list_committed_offsets,
        }

    def handle(self, line: bytes) -> Fields | None:
        """The body of the answer to one line, durable if it says so; None if it needs none."""
        answer = self.begin(line)
        return None if answer is None else answer.body()

    def begin(self, line: bytes) -> Answer | None:
        """Start what a line asks for, without waiting until it is durable: see Answer. Every line is answered, unless
        it is an answer itself or for another node."""
        message: Fields = {}
        request: Fields = {}
        try:
            message = messages.parse_line(line)
            if self._is_for_another(message):
                return None
            if isinstance(message.get("body"), dict):
                request = message["body"]  # set before it is checked, so that an error can name its msg_id
            request = messages.body_of(message)
            if messages.is_answer(request):
                return None
            fields, settle = self._dispatch(request)
            body = messages.ok_body(request, fields)
        except RequestError as error:
            body, settle = messages.error_body(request.get("msg_id"), error.code, str(error)), _nothing
        except FoldlogError as error:
            body, settle = _refusal(request, error), _nothing
        except Exception as error:
            # A node that stops answering is worse than one that reports a failure; the trace is for its log.
            logger.exception("a request failed")
            body, settle = messages.error_body(request.get("msg_id"), NodeErrorCode.CRASH, repr(error)), _nothing
        source = self._node_id if self._node_id is not None else message.get("dest")
        return Answer(source, message.get("src"), request, body, settle)

    def _is_for_another(self, message: Fields) -> bool:
        """Whether the message is for another node: it is not answered, as the answer would carry this node's name."""
        destination = message.get("dest")
        if self._node_id is None or destination is None or destination == self._node_id:
            return False
        logger.warning("a message for %r is left unanswered: this is node %r", destination, self._node_id)
        return True

    def _dispatch(self, request: Fields) -> Handled:
        if self._refusal is not None and request["type"] != "init":
            raise self._refusal
        handler = self._handlers.get(request["type"])
        if handler is None:
            known = ", ".join(sorted(self._handlers))
            raise RequestError(NodeErrorCode.NOT_SUPPORTED, f"{request['type']!r:.64} is not served; there are {known}")
        return handler(request)

    def _init(self, request: Fields) -> Handled:
        node_id = messages.text_field(request, "node_id")
        others = len(messages.node_ids_field(request)) - 1
        if self._node_id not in (None, node_id):
            # Otherwise clients that know the old name would talk to a node that answers under the new one.
            raise RequestError(
                NodeErrorCode.PRECONDITION_FAILED,
                f"this is node {self._node_id!r} already; start another process for {node_id!r:.64}",
            )
        self._node_id = node_id
        self._refusal = None
        if others > 0 and not self._options.shared:
            # Each would assign its own offsets: the same offset twice for one key.
            self._refusal = RequestError(
                NodeErrorCode.NOT_SUPPORTED,
                f"{self._node_id} is one of {others + 1} nodes, and each would keep a log of its own: start all of"
                " them with the same --dir, and they serve one log",
            )
            raise self._refusal
        return {}, _nothing

    # The partition protocol

    def _append(self, request: Fields) -> Handled:
        topic, number = _partition_of(request)
        message = messages.value_field(request, "message")
        partition = self._partition_to_append(topic, number)
        appended, now_ms = self._write(partition, message)
        fields: Fields = {"offset": appended.base_offset}
        if self._is_verbose(request):
            fields["segment"] = self._segment_name(self._log.partition(topic, number), appended.base_offset)
            fields["timestamp"] = now_ms // 1000
        return fields, lambda: partition.wait_acknowledged(appended.next_offset)

    def _read(self, request: Fields) -> Handled:
        topic, number = _partition_of(request)
        wanted = messages.number_field(request, "offset")
        found = _records(self._settled_partition(topic, number), wanted, 1)
        if not found:
            raise RequestError(
                NodeErrorCode.KEY_DOES_NOT_EXIST,
                f"offset {wanted} of {topic}-{number} is not written yet; read it later",
            )
        offset, message = found[0]
        fields: Fields = {"message": message, "offset": offset}
        if self._is_verbose(request):
            fields["next_offset"] = offset + 1
        return fields, _nothing

    def _info(self, request: Fields) -> Handled:
        partition = self._settled_partition(*_partition_of(request))
        return {
            "start_offset": partition.log_start_offset,
            "end_offset": partition.log_end_offset,
            "segments": partition.segment_count,
            "total_bytes": partition.size_bytes,
        }, _nothing

    def _commit_offset(self, request: Fields) -> Handled:
        group, partition = messages.text_field(request, "group"), _partition_of(request)
        offset = messages.number_field(request, "offset")
        self._commit(group, {partition: OffsetAndMetadata(offset)})
        return {}, _nothing

    def _fetch_offset(self, request: Fields) -> Handled:
        group, partition = messages.text_field(request, "group"), _partition_of(request)
        committed = self._log.committed(group, [partition]).get(partition)
        return {"offset": 0 if committed is None else committed.offset}, _nothing

    # The kafka workload

    def _send(self, request: Fields) -> Handled:
        key, message = messages.key_field(request), messages.value_field(request, "msg")
        partition = self._partition_to_append(messages.topic_of_key(key), 0)
        appended, _ = self._write(partition, message)
        return {"offset": appended.base_offset}, lambda: partition.wait_acknowledged(appended.next_offset)

    def _poll(self, request: Fields) -> Handled:
        found: dict[str, list[list[Any]]] = {}
        for key, offset in messages.offsets_field(request).items():
            try:
                partition = self._settled_partition(messages.topic_of_key(key), 0)
            except UnknownTopic:
                continue  # nothing was sent with this key yet
            start = max(offset, partition.log_start_offset)
            records = _records(partition, start, POLL_RECORDS_MAX) if start <= partition.high_watermark else []
            found[key] = [[at, message] for at, message in records]
        return {"msgs": found}, _nothing

    def _commit_offsets(self, request: Fields) -> Handled:
        # Inclusive here, the next offset in the log: 5 is done, so 6 comes next.
        wanted = {
            (messages.topic_of_key(key), 0): OffsetAndMetadata(offset + 1)
            for key, offset in messages.offsets_field(request).items()
        }
        if wanted:
            self._commit(WORKLOAD_GROUP, wanted)
        return {}, _nothing

    def _list_committed_offsets(self, request: Fields) -> Handled:
        keys = {(messages.topic_of_key(key), 0): key for key in messages.keys_field(request)}
        committed = self._log.committed(WORKLOAD_GROUP, list(keys))
        return {"offsets": {keys[partition]: found.offset - 1 for partition, found in committed.items()}}, _nothing

    # The log

    def _commit(self, group: str, offsets: dict[tuple[str, int], OffsetAndMetadata]) -> None:
        """Commit, creating missing topics and partitions: a client may commit before anything was written."""
        check_group_name(group)
        check_offsets(offsets)
        for topic, number in offsets:
            self._have_partition(topic, number)
        self._log.commit_offsets(group, offsets)

    def _partition_to_append(self, topic: str, number: int) -> WritablePartition:
        """The partition, created if it does not exist."""
        self._have_partition(topic, number)
        if topic not in self._configured:
            self._configure(topic)
        return self._log.writable_partition(topic, number)

    def _have_partition(self, topic: str, number: int) -> None:
        """Create the topic or the partition if it does not exist; another node may do so at the same moment."""
        try:
            count = self._log.topic(topic).partition_count
        except UnknownTopic:
            _limit_growth(topic, number, 0)
            settings = {SEGMENT_RECORDS: self._options.segment_records} if self._options.segment_records else None
            with suppress(TopicExists):
                self._log.create_topic(topic, number + 1, settings)
            count = self._log.topic(topic).partition_count
        if number >= count:
            _limit_growth(topic, number, count)
            try:
                self._log.grow_topic(topic, number + 1)
            except FoldlogError:
                if number >= self._log.topic(topic).partition_count:
                    raise

    def _configure(self, topic: str) -> None:
        """Apply this run's option to a topic of an earlier run."""
        wanted = self._options.segment_records
        if wanted and self._log.topic(topic).config.log.segment_records != wanted:
            self._log.alter_topic(topic, {SEGMENT_RECORDS: wanted})
        self._configured.add(topic)

    def _settled_partition(self, topic: str, number: int) -> AnyPartition:
        """The partition, after everything begun in it has become durable, and so readable."""
        partition = self._log.partition(topic, number)
        if isinstance(partition, Partition):
            partition.wait_acknowledged(partition.log_end_offset)
        return partition

    def _write(self, partition: WritablePartition, message: Any) -> tuple[Appended, int]:
        now_ms = self._log.clock.now_ms()
        return partition.append(pack([(now_ms, None, messages.to_record(message), ())])), now_ms

    def _is_verbose(self, request: Fields) -> bool:
        return self._options.verbose or request.get("verbose") is True

    def _segment_name(self, partition: AnyPartition, offset: int) -> str:
        base_offset = max(segment.base_offset for segment in partition.segments() if segment.base_offset <= offset)
        return f"{base_offset:0{8 if self._options.short_names else 20}d}.log"


def _partition_of(request: Fields) -> tuple[str, int]:
    topic, number = messages.text_field(request, "topic"), messages.number_field(request, "partition")
    if is_internal(topic):
        raise messages.malformed(f"topic {topic!r} is kept by the log itself; choose another name")
    if number < 0:
        raise messages.malformed(f'{request["type"]} needs "partition", an integer from 0 on, not {number}')
    return topic, number


def _limit_growth(topic: str, number: int, count: int) -> None:
    if number - count >= NEW_PARTITIONS_MAX:
        raise RequestError(
            NodeErrorCode.PRECONDITION_FAILED,
            f"topic {topic!r} has {count} partitions, and one append makes at most {NEW_PARTITIONS_MAX} more;"
            f" partition {number} is too far beyond them",
        )


def _records(partition: AnyPartition, offset: int, max_records: int) -> list[tuple[int, Any]]:
    """(offset, message) of the first records at or after `offset`, from one slice at most."""
    while True:
        piece = partition.read(offset)
        records, _ = decode(
            piece.data,
            *partition.label,
            start_offset=offset,
            max_records=max_records,
            decompressed_limit=partition.decompressed_limit,
            enough_bytes=DECODED_BYTES,
        )
        if records or piece.next_offset == offset:
            return [(record.offset, messages.from_record(record.value, record.offset)) for record in records]
        offset = piece.next_offset  # a batch without data records, such as a transaction's marker
