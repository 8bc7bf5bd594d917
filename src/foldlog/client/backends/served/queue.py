"""A queue of a directory that another process writes: asks that process, as any Kafka client would.

Its share session lives as long as its connection. If that is lost, what was taken goes to others, and the queue joins
again with its next take.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from foldlog.broker.groups.consumer.messages import JOIN_EPOCH, LEAVE_EPOCH
from foldlog.broker.share.messages import AcknowledgedBatch, AcknowledgeType, AcquiredRange
from foldlog.client.backends.served.connection import Connection
from foldlog.client.backends.served.search import WriterSearch
from foldlog.client.groups import not_of_a_queue
from foldlog.client.queue.queue import TAKE_MAX_BYTES, QueueSettings, TakenRecord, by_partition, unpacked
from foldlog.client.wire.refusals import Passing, check_code, check_group_code
from foldlog.errors import FoldlogError, InvalidRecordState, MalformedBytes
from foldlog.limits import WRITER_ANSWER_MS
from foldlog.records.loops import Record
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from foldlog.wire.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from foldlog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

_FIRST_EPOCH: Final = 0
_RECORD_LIMIT: Final = 1
_WAIT_MAX_MS: Final = 1000
"""How long one request waits for records: heartbeats go over the same connection."""

_PAUSE_S: Final = 0.05
"""Between two tries to reach a writer that is starting again."""


class ServedTaking:
    """A member of a share group whose coordinator is in another process. One thread at a time."""

    def __init__(self, search: WriterSearch, settings: QueueSettings, topic_ids: Mapping[str, bytes]) -> None:
        """`topic_ids` are those of the wanted topics, by name."""
        self._search = search
        self._settings = settings
        self._ids = topic_ids
        self._names = {topic_id: name for name, topic_id in topic_ids.items()}
        self._member = str(uuid.uuid4())
        self._connection: Connection | None = None
        self._member_epoch = JOIN_EPOCH
        self._session_epoch = _FIRST_EPOCH
        self._assigned: list[tuple[bytes, int]] = []
        self._fetched: set[tuple[bytes, int]] = set()
        self._report_at_s = 0.0
        self._report()
        self._fetch(max_records=0, wait_ms=0)  # the group begins here, where it was never before

    def take(self, max_records: int, timeout_ms: float | None) -> list[TakenRecord]:
        until_s = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while True:
            left_ms = _WAIT_MAX_MS if until_s is None else max(0, int(1000 * (until_s - time.monotonic())))
            try:
                self._report()
                found = self._fetch(max_records, min(left_ms, _WAIT_MAX_MS))
            except (OSError, MalformedBytes) as error:
                found = []
                self._lost(error, is_over=until_s is not None and time.monotonic() >= until_s)
            if found or (until_s is not None and time.monotonic() >= until_s):
                return found

    def acknowledge(self, records: Sequence[Record], kind: AcknowledgeType) -> None:
        batches = {(self._ids[topic], number): said for (topic, number), said in by_partition(records, kind).items()}
        try:
            if kind is AcknowledgeType.RENEW and self._connection is not None:
                self._report()  # a member that is taken for gone loses its locks, however new they are
            self._acknowledge(batches, is_renewal=kind is AcknowledgeType.RENEW)
        except (OSError, MalformedBytes) as error:
            holder = None if self._connection is None else self._connection.holder
            self._drop()
            why = f"{str(error) or type(error).__name__}; whether it knows what became of the records is not known"
            raise self._search.lost(holder, why) from error

    def renew(self, records: Sequence[Record]) -> None:
        self.acknowledge(records, AcknowledgeType.RENEW)

    def close(self) -> None:
        with suppress(OSError, MalformedBytes, FoldlogError, Passing):
            if self._connection is not None:
                self._heartbeat(LEAVE_EPOCH)
        self._drop()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._search.connect()
            self._session_epoch = _FIRST_EPOCH
            self._fetched = set()
        if self._connection is None:
            raise self._search.lost(None, "nobody writes the directory now")
        return self._connection

    def _lost(self, error: Exception, *, is_over: bool) -> None:
        holder = None if self._connection is None else self._connection.holder
        self._drop()
        if is_over:
            raise self._search.lost(holder, str(error) or type(error).__name__) from error
        time.sleep(_PAUSE_S)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._report_at_s = 0.0
        if connection is not None:
            connection.close()

    def _report(self) -> None:
        if time.monotonic() < self._report_at_s:
            return
        answer = self._heartbeat(self._member_epoch)
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            answer = self._heartbeat(JOIN_EPOCH)
        if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise not_of_a_queue(self._settings.group)
        try:
            check_group_code(answer.error_code, self._settings.group)
        except Passing as passing:
            raise passing.error from None
        self._member_epoch = answer.member_epoch
        self._report_at_s = time.monotonic() + answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self._assigned = [
                (topic.topic_id, number)
                for topic in answer.assignment.topic_partitions
                if topic.topic_id in self._names
                for number in topic.partitions
            ]

    def _heartbeat(self, epoch: int) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self._settings.group,
            member_id=self._member,
            member_epoch=epoch,
            subscribed_topic_names=list(self._settings.topics) if epoch == JOIN_EPOCH else None,
        )
        return self._connected().call(request, ShareGroupHeartbeatResponse, WRITER_ANSWER_MS / 1000)

    def _fetch(self, max_records: int, wait_ms: int) -> list[TakenRecord]:
        connection = self._connected()
        wanted = dict.fromkeys(self._assigned)
        request = ShareFetchRequest(
            group_id=self._settings.group,
            member_id=self._member,
            share_session_epoch=self._session_epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=TAKE_MAX_BYTES,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=_RECORD_LIMIT,
            topics=[
                FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=number)])
                for topic_id, number in wanted
                if (topic_id, number) not in self._fetched
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=[number])
                for topic_id, number in self._fetched
                if (topic_id, number) not in wanted
            ],
        )
        answer = connection.call(request, ShareFetchResponse, (WRITER_ANSWER_MS + wait_ms) / 1000)
        if answer.error_code in (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH):
            raise ConnectionError("the share session is over")  # as with the connection: the next one is another
        self._check(answer.error_code, answer.error_message)
        self._session_epoch += 1
        self._fetched = set(wanted)
        return self._unpack(answer)

    def _unpack(self, answer: ShareFetchResponse) -> list[TakenRecord]:
        found: list[TakenRecord] = []
        gaps: dict[tuple[bytes, int], list[AcknowledgedBatch]] = {}
        for topic in answer.responses:
            for one in topic.partitions:
                if one.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    continue  # deleted: the next heartbeat says so
                self._check(one.error_code, one.error_message)
                acquired = [
                    AcquiredRange(at.first_offset, at.last_offset, at.delivery_count) for at in one.acquired_records
                ]
                name = self._names[topic.topic_id]
                records, missing = unpacked(name, one.partition_index, bytes(one.records), acquired)
                found += records
                if missing:
                    gaps[topic.topic_id, one.partition_index] = missing
        if gaps:
            self._acknowledge(gaps)
        return found

    def _acknowledge(
        self, batches: Mapping[tuple[bytes, int], Sequence[AcknowledgedBatch]], *, is_renewal: bool = False
    ) -> None:
        if self._connection is None:
            raise InvalidRecordState(
                f"the connection to the writer of {self._search.path} was lost, and with it the locks of what was"
                " taken: others are given it"
            )
        request = ShareAcknowledgeRequest(
            group_id=self._settings.group,
            member_id=self._member,
            share_session_epoch=self._session_epoch,
            is_renew_ack=is_renewal,
            topics=[
                AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=number,
                            acknowledgement_batches=[
                                AcknowledgementBatch(
                                    first_offset=one.first, last_offset=one.last, acknowledge_types=list(one.types)
                                )
                                for one in said
                            ],
                        )
                    ],
                )
                for (topic_id, number), said in batches.items()
            ],
        )
        answer = self._connection.call(request, ShareAcknowledgeResponse, WRITER_ANSWER_MS / 1000)
        self._check(answer.error_code, answer.error_message)
        self._session_epoch += 1
        for topic in answer.responses:
            for one in topic.partitions:
                self._check(one.error_code, one.error_message)

    def _check(self, code: int, message: str | None) -> None:
        try:
            check_code(code, message, group=self._settings.group)
        except Passing as passing:
            raise passing.error from None
