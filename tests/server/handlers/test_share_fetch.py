"""ShareFetch, ShareAcknowledge and what administrators ask of share groups, request by request: sessions and their
epochs, acknowledgements that are not allowed, and who gets what when a member goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.small_broker import write
from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages import alter_share_group_offsets as alter
from foldlog.wire.messages import delete_share_group_offsets as forget
from foldlog.wire.messages import describe_share_group_offsets as offsets
from foldlog.wire.messages import share_acknowledge as acknowledge
from foldlog.wire.messages import share_fetch as fetch
from foldlog.wire.messages.share_group_describe import ShareGroupDescribeRequest
from foldlog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from server.small_node import Denies, SmallNode

GROUP, TOPIC = "workers", "jobs"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LOCK_MS = 30_000


class Shared:
    """A topic with ten records, and members that ask for them."""

    def __init__(self, **settings: Any) -> None:
        self.small = SmallNode(**settings)
        self.broker = self.small.broker
        self.broker.create_topic(TOPIC, 2)
        self.topic_id = bytes.fromhex(self.broker.topic(TOPIC).topic_id)
        write(self.broker, TOPIC, 0, *(b"%d" % number for number in range(10)))
        self.broker.group_configs.change(GROUP, lambda own: {"share.auto.offset.reset": "earliest"})

    def request(self, member: str, epoch: int, *said: tuple[int, int, int], **more: Any) -> fetch.ShareFetchRequest:
        batches = [
            fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in said
        ]
        partition = fetch.FetchPartition(partition_index=0, acknowledgement_batches=batches)
        wants = {"max_bytes": 1 << 20, "max_records": 4, "share_acquire_mode": 1, "min_bytes": 1, **more}
        topics = [fetch.FetchTopic(topic_id=self.topic_id, partitions=[partition])]
        return fetch.ShareFetchRequest(
            group_id=GROUP, member_id=member, share_session_epoch=epoch, topics=topics, **wants
        )

    def fetch(self, member: str, epoch: int, *said: tuple[int, int, int], **more: Any) -> Any:
        return self.small.ask(self.request(member, epoch, *said, **more), 2)

    def acquired(self, member: str, epoch: int, *said: tuple[int, int, int], **more: Any) -> list[tuple[int, int, int]]:
        answer = self.fetch(member, epoch, *said, **more)
        assert answer.error_code == ErrorCode.NONE
        return [
            (one.first_offset, one.last_offset, one.delivery_count)
            for topic in answer.responses
            for partition in topic.partitions
            for one in partition.acquired_records
        ]

    def say(self, member: str, epoch: int, first: int, last: int, *types: int, **more: Any) -> Any:
        batch = acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        partition = acknowledge.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        request = acknowledge.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=member,
            share_session_epoch=epoch,
            topics=[acknowledge.AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])],
            **more,
        )
        return self.small.ask(request, 2)

    def said(self, member: str, epoch: int, first: int, last: int, *types: int, **more: Any) -> ErrorCode:
        """The error of the one partition."""
        answer = self.say(member, epoch, first, last, *types, **more)
        assert answer.error_code == ErrorCode.NONE
        return ErrorCode(answer.responses[0].partitions[0].error_code)


@pytest.fixture
def shared() -> Iterator[Shared]:
    made = Shared()
    yield made
    made.small.close()


def test_members_are_given_different_records_with_the_batches_they_are_in(shared: Shared) -> None:
    answer = shared.fetch("ann", 0)
    (partition,) = answer.responses[0].partitions
    assert [(one.first_offset, one.last_offset) for one in partition.acquired_records] == [(0, 3)]
    assert len(partition.records) > 0
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (-1, -1)
    assert answer.acquisition_lock_timeout_ms == LOCK_MS
    assert shared.acquired("ben", 0) == [(4, 7, 1)]
    assert shared.acquired("ann", 1) == [(8, 9, 1)]


def test_whole_batches_are_given_where_that_is_wanted(shared: Shared) -> None:
    assert shared.acquired("ann", 0, share_acquire_mode=0) == [(0, 9, 1)]


def test_a_session_has_its_epochs(shared: Shared) -> None:
    assert shared.fetch("ann", 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert shared.say("ann", 1, 0, 0, ACCEPT).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert shared.say("ann", 0, 0, 0, ACCEPT).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a fetch opens it"
    shared.acquired("ann", 0)
    assert shared.fetch("ann", 5).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert shared.fetch("ann", 0, (0, 0, ACCEPT)).error_code == ErrorCode.INVALID_REQUEST
    assert shared.said("ann", 1, 0, 3, ACCEPT) is ErrorCode.NONE
    assert shared.say("ann", 1, 0, 3, ACCEPT).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert shared.acquired("ann", 2) == [(4, 7, 1)]


def test_there_are_no_more_sessions_than_allowed(shared: Shared) -> None:
    shared.small.node.shares.sessions._sessions_max = 1  # group.share.max.share.sessions
    shared.acquired("ann", 0)
    assert shared.fetch("ben", 0).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert shared.acquired("ann", 0) == [(4, 7, 1)], "its own is replaced"


def test_what_was_accepted_with_a_fetch_is_done_and_the_end_of_a_session_gives_back_the_rest(shared: Shared) -> None:
    shared.acquired("ann", 0)
    answer = shared.fetch("ann", -1, (0, 1, ACCEPT))
    (partition,) = answer.responses[0].partitions
    assert (partition.acknowledge_error_code, list(partition.acquired_records)) == (ErrorCode.NONE, [])
    assert shared.acquired("ben", 0) == [(2, 3, 2), (4, 5, 1)]


def test_a_member_that_is_disconnected_gives_everything_back(shared: Shared) -> None:
    later = shared.small.begin(shared.request("ann", 0), 2)
    shared.small.answer(later, 2)
    (session,) = shared.small.node.shares.sessions._sessions.values()
    shared.small.node.shares.disconnected(session.caller)
    assert len(shared.small.node.shares.sessions) == 0
    assert shared.acquired("ben", 0) == [(0, 3, 2)]


def test_a_fetch_waits_for_records_that_come_or_are_given_back(shared: Shared) -> None:
    assert shared.acquired("ann", 0, max_records=10) == [(0, 9, 1)]
    waiting = shared.small.begin(shared.request("ben", 0, max_wait_ms=20_000), 2)
    shared.small.turn()
    assert not waiting.done()
    assert shared.said("ann", 1, 2, 2, RELEASE) is ErrorCode.NONE
    assert shared.small.answer(waiting, 2).responses[0].partitions[0].acquired_records[0].first_offset == 2
    waiting = shared.small.begin(shared.request("ben", 1, max_wait_ms=20_000), 2)
    shared.small.turn()
    write(shared.broker, TOPIC, 0, b"new")
    assert shared.small.answer(waiting, 2).responses[0].partitions[0].acquired_records[0].first_offset == 10
    waiting = shared.small.begin(shared.request("ben", 2, max_wait_ms=20_000), 2)
    shared.small.turn()
    shared.small.advance(LOCK_MS)
    assert shared.small.answer(waiting, 2).responses[0].partitions[0].acquired_records[0].first_offset == 0


@pytest.mark.parametrize(
    ("first", "last", "types", "code"),
    [
        (4, 4, [ACCEPT], ErrorCode.INVALID_RECORD_STATE),
        (0, 3, [5], ErrorCode.INVALID_REQUEST),
        (0, 3, [RENEW], ErrorCode.INVALID_REQUEST),
        (0, 3, [], ErrorCode.INVALID_REQUEST),
        (0, 3, [ACCEPT, ACCEPT], ErrorCode.INVALID_REQUEST),
        (3, 0, [ACCEPT], ErrorCode.INVALID_REQUEST),
    ],
)
def test_acknowledgements_that_are_not_allowed_change_nothing(
    shared: Shared, first: int, last: int, types: list[int], code: ErrorCode
) -> None:
    shared.acquired("ann", 0)
    assert shared.said("ann", 1, first, last, *types) is code
    assert shared.said("ann", 2, 0, 3, ACCEPT, REJECT, GAP, ACCEPT) is ErrorCode.NONE


def test_a_member_may_ask_for_more_time_unless_the_group_forbids_it(shared: Shared) -> None:
    shared.acquired("ann", 0)
    shared.small.advance(LOCK_MS - 1)
    assert shared.said("ann", 1, 0, 1, RENEW, is_renew_ack=True) is ErrorCode.NONE
    shared.small.advance(LOCK_MS - 1)
    assert shared.said("ann", 2, 0, 1, ACCEPT) is ErrorCode.NONE
    assert shared.said("ann", 3, 2, 3, ACCEPT) is ErrorCode.INVALID_RECORD_STATE, "their locks timed out"
    assert shared.fetch("ann", 4, is_renew_ack=True).error_code == ErrorCode.INVALID_REQUEST
    shared.broker.group_configs.change(GROUP, lambda own: {**own, "share.renew.acknowledge.enable": "false"})
    assert shared.acquired("ann", 4, max_records=1) == [(2, 2, 2)]
    assert shared.said("ann", 5, 2, 2, RENEW, is_renew_ack=True) is ErrorCode.INVALID_REQUEST


def test_a_topic_that_is_gone_is_said_so_and_its_state_dies_with_it(shared: Shared) -> None:
    shared.acquired("ann", 0)
    shared.broker.delete_topic(TOPIC)
    answer = shared.fetch("ann", 1)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert shared.broker.shares.groups() == []


def test_who_may_not_read_gets_nothing() -> None:
    for kind, code in (
        (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ):
        shared = Shared(authorizer=Denies((AclOperation.READ, kind)))
        answer = shared.fetch("ann", 0)
        found = answer.error_code or answer.responses[0].partitions[0].error_code
        assert found == code
        shared.small.close()


def test_administrators_see_move_and_forget_where_a_group_without_members_is(shared: Shared) -> None:
    beat = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="ann", member_epoch=0, subscribed_topic_names=[TOPIC])
    joined = shared.small.ask(beat, 1)
    assert [sorted(one.partitions) for one in joined.assignment.topic_partitions] == [[0, 1]]
    described = shared.small.ask(ShareGroupDescribeRequest(group_ids=[GROUP, "others"]), 1).groups
    assert [(one.error_code, one.group_state) for one in described] == [
        (ErrorCode.NONE, "Stable"),
        (ErrorCode.GROUP_ID_NOT_FOUND, ""),
    ]
    shared.acquired("ann", 0)
    shared.said("ann", 1, 0, 1, ACCEPT)
    assert where(shared) == {0: (2, 8)}
    assert moved(shared, 5) == ErrorCode.NON_EMPTY_GROUP
    beat.member_epoch = -1
    beat.subscribed_topic_names = None
    assert shared.small.ask(beat, 1).member_epoch == -1
    assert moved(shared, 5) == ErrorCode.NONE
    assert where(shared) == {0: (5, 5)}
    assert moved(shared, 99) == ErrorCode.INVALID_REQUEST
    topics = [forget.DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)]
    gone = shared.small.ask(forget.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=topics), 0)
    assert (gone.error_code, gone.responses[0].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert where(shared) == {}


def where(shared: Shared) -> dict[int, tuple[int, int]]:
    """Start offset and lag of each partition that the group was in."""
    group = offsets.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
    (found,) = shared.small.ask(offsets.DescribeShareGroupOffsetsRequest(groups=[group]), 1).groups
    assert found.error_code == ErrorCode.NONE
    return {one.partition_index: (one.start_offset, one.lag) for topic in found.topics for one in topic.partitions}


def moved(shared: Shared, offset: int) -> int:
    """The error of moving partition 0."""
    partition = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    topic = alter.AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[partition])
    answer = shared.small.ask(alter.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic]), 0)
    return int(answer.error_code or answer.responses[0].partitions[0].error_code)
