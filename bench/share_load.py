"""A member of a share group (KIP-932), and a reader that commits, by the raw protocol: records taken and acknowledged a
second, beside records fetched and committed.

Nothing is decoded but the answer itself. Both wait for each answer: the next fetch of a queue carries the
acknowledgement of the last, or a request of its own does.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

from bench.broker_load import LoadFailed, ask, connect
from bench.group_load import PASSING, await_coordinator

from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages import fetch, metadata, share_acknowledge, share_fetch
from foldlog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from foldlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from foldlog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

_GROUP: Final = 32
_ACCEPT: Final = 1
_RECORD_LIMIT: Final = 1
_WAIT_MS: Final = 1_000
_MAX_BYTES: Final = 16 << 20
_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.1

Ranges = Sequence[tuple[int, int]]
"""First and last offsets."""


class ShareMember:
    """Takes records of one partition, in its order. Owned by one thread; it joins when it is made."""

    def __init__(self, address: tuple[str, int], group: str, topic: str) -> None:
        self._opened = connect(address)
        self._group = group
        self._member = str(uuid.uuid4())
        self._epoch = 0
        self._topic_id = topic_id(self._opened, topic)
        await_coordinator(self._opened, group)
        _begin_early(self._opened, group)
        self._member_epoch = 0
        self._report([topic])
        self.take(0, ())

    def _report(self, topics: Sequence[str] | None = None) -> None:
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            request = ShareGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._member,
                member_epoch=self._member_epoch,
                subscribed_topic_names=topics,
            )
            answer = ask(self._opened, request, 1, ShareGroupHeartbeatResponse)
            if answer.error_code not in PASSING or time.monotonic() > until_s:
                break
            time.sleep(_PAUSE_S)
        _check(answer.error_code)
        self._member_epoch = answer.member_epoch

    def first(self, records_max: int) -> Ranges:
        """Take for the first time: Apache Kafka makes the group's state after the first heartbeats, and until then has
        no records, or an error."""
        until_s = time.monotonic() + _PATIENCE_S
        why = LoadFailed("no records came")
        while time.monotonic() < until_s:
            try:
                taken = self.take(records_max, ())
                if taken:
                    return taken
            except LoadFailed as error:
                why = error
            self._report()
        raise why

    def take(self, records_max: int, accepted: Ranges) -> Ranges:
        """Accept what was taken last, and take more."""
        partition = share_fetch.FetchPartition(
            partition_index=0,
            acknowledgement_batches=[
                share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[_ACCEPT])
                for first, last in accepted
            ],
        )
        request = share_fetch.ShareFetchRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=self._epoch,
            max_wait_ms=_WAIT_MS if records_max else 0,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            max_records=records_max,
            batch_size=records_max,
            share_acquire_mode=_RECORD_LIMIT,
            topics=[share_fetch.FetchTopic(topic_id=self._topic_id, partitions=[partition])],
        )
        answer = ask(self._opened, request, 2, share_fetch.ShareFetchResponse)
        _check(answer.error_code)
        self._epoch += 1
        found: list[tuple[int, int]] = []
        for topic in answer.responses:
            for one in topic.partitions:
                _check(one.error_code, one.acknowledge_error_code)
                found += [(at.first_offset, at.last_offset) for at in one.acquired_records]
        return found

    def accept(self, taken: Ranges) -> None:
        """By a request of its own."""
        partition = share_acknowledge.AcknowledgePartition(
            partition_index=0,
            acknowledgement_batches=[
                share_acknowledge.AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=[_ACCEPT]
                )
                for first, last in taken
            ],
        )
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=self._epoch,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id=self._topic_id, partitions=[partition])],
        )
        answer = ask(self._opened, request, 2, share_acknowledge.ShareAcknowledgeResponse)
        _check(answer.error_code, *(one.error_code for topic in answer.responses for one in topic.partitions))
        self._epoch += 1

    def close(self) -> None:
        request = ShareGroupHeartbeatRequest(group_id=self._group, member_id=self._member, member_epoch=-1)
        ask(self._opened, request, 1, ShareGroupHeartbeatResponse)
        self._opened.close()


def taken_per_s(
    address: tuple[str, int], group: str, topic: str, records: int, records_max: int, *, apart: bool
) -> float:
    """Take and accept so many records, `records_max` at a time; `apart`: accept by requests of their own."""
    member = ShareMember(address, group, topic)
    try:
        taken = member.first(records_max)
        done, start = 0, time.perf_counter()
        while done < records:
            if not taken:
                raise LoadFailed(f"no records came after {done}")
            done += sum(last - first + 1 for first, last in taken)
            if apart:
                member.accept(taken)
                taken = ()
            taken = member.take(records_max, taken)
        return done / (time.perf_counter() - start)
    finally:
        member.close()


def committed_per_s(
    address: tuple[str, int], group: str, topic: str, records: int, batch_bytes: int, batch_records: int
) -> float:
    """Fetch batch by batch, and commit after each, as a consumer does that must not read a record again."""
    with connect(address) as opened:
        await_coordinator(opened, group)
        offsets = iter(range(0, records, batch_records))
        _fetch_and_commit(opened, group, topic, offsets, batch_bytes, batch_records, 1)
        start = time.perf_counter()
        count = _fetch_and_commit(opened, group, topic, offsets, batch_bytes, batch_records, records)
        return count * batch_records / (time.perf_counter() - start)


def _fetch_and_commit(
    opened: socket.socket,
    group: str,
    topic: str,
    offsets: Iterator[int],
    batch_bytes: int,
    batch_records: int,
    count_max: int,
) -> int:
    done = 0
    for offset in offsets:
        wanted = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=batch_bytes)
        request = fetch.FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=batch_bytes,
            topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])],
        )
        answer = ask(opened, request, 12, fetch.FetchResponse)
        _check(*(one.error_code for found in answer.responses for one in found.partitions))
        position = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset + batch_records)
        commit = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[position])],
        )
        told = ask(opened, commit, 8, OffsetCommitResponse)
        _check(*(one.error_code for found in told.topics for one in found.partitions))
        done += 1
        if done == count_max:
            break
    return done


def topic_id(opened: socket.socket, topic: str) -> bytes:
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=topic)])
    (found,) = ask(opened, request, 12, metadata.MetadataResponse).topics
    _check(found.error_code)
    return found.topic_id


def _begin_early(opened: socket.socket, group: str) -> None:
    """Let the group read from the beginning."""
    setting = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = AlterConfigsResource(resource_type=_GROUP, resource_name=group, configs=[setting])
    answer = ask(opened, IncrementalAlterConfigsRequest(resources=[resource]), 1, IncrementalAlterConfigsResponse)
    _check(*(one.error_code for one in answer.responses))


def _check(*codes: int) -> None:
    for code in codes:
        if code:
            raise LoadFailed(f"the broker answered {ErrorCode(code).name}")
