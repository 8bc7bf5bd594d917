"""ShareFetch, versions 1 and 2: a member of a share group (KIP-932) acknowledges records and acquires further ones.

2: exactly as many records as wanted, if the member asks for that (KIP-1206), and more time for some (KIP-1222).

Acknowledgements come first, and are durable before anything is answered. Then records are acquired, if there are any,
or waited for: until a partition moves, others give records back, or the time is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from foldlog.broker.share.store import Saved, Taken
from foldlog.errors import FoldlogError
from foldlog.log.partition import Partition
from foldlog.server.call import Call, Later
from foldlog.server.share_sessions import FIRST_EPOCH, LAST_EPOCH, SessionRequest, ShareSession, TopicIdPartition
from foldlog.server.shares import DONE, ShareOutcome, acknowledge, readable, refusal_of
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

_RECORD_LIMIT: Final = 1
"""The acquire mode in which no more records are wanted than the limit says."""

NO_LEADER: Final = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)


async def handle(call: Call, request: ShareFetchRequest) -> ShareFetchResponse | Later:
    refused = refusal_of(call, request.group_id, request.member_id)
    received: dict[TopicIdPartition, Any] = {}
    async for topic, some in call.node.turns.within(request.topics, lambda topic: topic.partitions):
        received.update({(topic.topic_id, one.partition_index): one.acknowledgement_batches for one in some})
    acknowledged = {one: batches for one, batches in received.items() if batches}
    if refused is DONE:
        refused = _refuse(request, acknowledged)
    if refused is not DONE:
        return ShareFetchResponse(error_code=refused.error, error_message=refused.message)
    asked = SessionRequest(
        request.group_id or "",
        request.member_id or "",
        request.share_session_epoch,
        received,
        [(topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions],
    )
    session = call.node.shares.sessions.fetching(asked, call.caller)
    if isinstance(session, ErrorCode):
        return ShareFetchResponse(error_code=session)
    if request.share_session_epoch == FIRST_EPOCH:
        await _begin(call, session)
    outcomes = await acknowledge(call, session, acknowledged, is_renewal=request.is_renew_ack)
    if request.share_session_epoch == LAST_EPOCH:
        call.node.shares.end(session)
    fetching = ShareFetching(call, request, session, outcomes)
    if request.share_session_epoch == LAST_EPOCH or request.max_bytes <= 0 or request.max_records <= 0:
        return await fetching.response({}, {})
    return call.node.loop.create_task(fetching.run())


async def _begin(call: Call, session: ShareSession) -> None:
    """A group that was never in a partition begins when its first member does, not when records are there to take."""
    found = await call.node.turns.each(lambda one: (readable(call, one), one[1]), list(session.partitions))
    with suppress(FoldlogError):  # told when records are taken
        await call.node.shares.begin(
            session.group, [(name, number) for (name, refused), number in found if refused is DONE]
        )


def _refuse(request: ShareFetchRequest, acknowledged: Mapping[TopicIdPartition, object]) -> ShareOutcome:
    if request.share_session_epoch == FIRST_EPOCH and acknowledged:
        return ShareOutcome(ErrorCode.INVALID_REQUEST, "the first request of a session has nothing to acknowledge")
    wants = request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records
    if request.is_renew_ack and wants:
        return ShareOutcome(
            ErrorCode.INVALID_REQUEST, "who asks for more time for records may not fetch with that request"
        )
    return DONE


class ShareFetching:
    """A ShareFetch whose acknowledgements are done. Event loop only."""

    def __init__(
        self,
        call: Call,
        request: ShareFetchRequest,
        session: ShareSession,
        acknowledged: Mapping[TopicIdPartition, ShareOutcome],
    ) -> None:
        self._call = call
        self._node = call.node
        self._request = request
        self._session = session
        self._acknowledged = acknowledged
        self._is_first = request.share_session_epoch == FIRST_EPOCH
        self._until = call.node.loop.time() + max(0, request.max_wait_ms) / 1000
        self._watched: dict[Partition, None] = {}
        self._news = asyncio.Event()

    def moved(self) -> None:
        self._news.set()

    async def run(self) -> ShareFetchResponse:
        self._node.shares.wait(self._session.group, self)
        try:
            while True:
                self._news.clear()
                taken, errors = await self._take()
                left_s = self._until - self._node.loop.time()
                is_final = taken or errors or not self._session.partitions
                if is_final or left_s <= 0 or self._node.is_leaving or any(map(_failed, self._acknowledged.values())):
                    return await self.response(taken, errors)
                try:
                    await asyncio.wait_for(self._news.wait(), left_s)
                except TimeoutError:
                    return await self.response({}, {})
        finally:
            self._forget()

    async def _take(self) -> tuple[dict[TopicIdPartition, Taken], dict[TopicIdPartition, ShareOutcome]]:
        """One pass over the partitions: what was acquired, and what went wrong."""
        request = self._request
        room_bytes = min(request.max_bytes, self._node.settings.fetch_max_bytes, self._node.memory.answer_bytes())
        wanted = request.max_records
        taken: dict[TopicIdPartition, Taken] = {}
        errors: dict[TopicIdPartition, ShareOutcome] = {}
        async for one in self._node.turns.over(self._session.in_turns()):
            if taken and (room_bytes <= 0 or wanted <= 0):
                break
            name, outcome = readable(self._call, one)
            if outcome is not DONE:
                errors[one] = outcome
                continue
            self._watch(name, one[1])  # before the look: what comes meanwhile is news
            try:
                got = await self._node.shares.take(
                    self._session.group,
                    self._session.member,
                    name,
                    one[1],
                    max_bytes=room_bytes,
                    records_max=wanted,
                    whole_batches=request.share_acquire_mode != _RECORD_LIMIT,
                )
            except FoldlogError as error:
                self._node.storage_failed("a share fetch", name, one[1], error)
                errors[one] = ShareOutcome(code_of(error), str(error))
                continue
            if self._watch(name, one[1]):
                self._news.set()  # it was opened by this look, and may have moved since
            if got.acquired:
                taken[one] = got
                room_bytes -= len(got.data)
                wanted -= got.record_count
        await self._durable(taken, errors)
        return taken, errors

    async def _durable(
        self, taken: dict[TopicIdPartition, Taken], errors: dict[TopicIdPartition, ShareOutcome]
    ) -> None:
        saved: Sequence[Saved | None] = [got.saved for got in taken.values()]
        error = await self._node.shares.durable(saved)
        if error is not None:
            errors.update(dict.fromkeys(taken, ShareOutcome(ErrorCode.KAFKA_STORAGE_ERROR, str(error))))
            taken.clear()

    def _watch(self, name: str, number: int) -> bool:
        """Be woken when the partition moves. Whether that is new."""
        partition = self._node.open_partition(name, number)
        if partition is None:
            return False
        if partition.log_end_offset > partition.high_watermark:
            self._node.syncs.sync_now(partition)
        if partition in self._watched:
            return False
        self._watched[partition] = None
        self._node.fetch_purgatory.wait(partition, self)
        return True

    def _forget(self) -> None:
        self._node.shares.forget(self._session.group, self)
        for partition in self._watched:
            self._node.fetch_purgatory.forget(partition, self)

    async def response(
        self, taken: Mapping[TopicIdPartition, Taken], errors: Mapping[TopicIdPartition, ShareOutcome]
    ) -> ShareFetchResponse:
        size_bytes = sum(len(got.data) for got in taken.values())
        if size_bytes:
            self._node.metrics.fetched(size_bytes, sum(got.record_count for got in taken.values()))
        # In the first answer every partition has a place, later only those that there is something to say of.
        told: dict[TopicIdPartition, None] = dict.fromkeys(self._session.partitions if self._is_first else ())
        told.update(dict.fromkeys([*self._acknowledged, *taken, *errors]))
        topics: dict[bytes, list[PartitionData]] = {}
        async for one in self._node.turns.over(list(told)):
            topics.setdefault(one[0], []).append(
                _partition(one[1], taken.get(one), errors.get(one, DONE), self._acknowledged.get(one, DONE))
            )
        config = self._node.broker.group_configs.share(self._session.group)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=config.limits.record_lock_duration_ms,
            responses=[
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )


def _failed(outcome: ShareOutcome) -> bool:
    return outcome.error is not ErrorCode.NONE


def _partition(number: int, got: Taken | None, fetched: ShareOutcome, acknowledged: ShareOutcome) -> PartitionData:
    acquired: Iterable[tuple[int, int, int]] = () if got is None else got.acquired
    return PartitionData(
        partition_index=number,
        error_code=fetched.error,
        error_message=fetched.message,
        acknowledge_error_code=acknowledged.error,
        acknowledge_error_message=acknowledged.message,
        current_leader=NO_LEADER,
        records=b"" if got is None else got.data,
        acquired_records=[
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in acquired
        ],
    )
