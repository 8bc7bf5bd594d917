"""Committed offsets over the wire: what is answered is durable, what cannot be committed is said per partition.

Every version commits and fetches; disks fail and lose power under a commit; a topic goes away in the middle of one.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping

import pytest

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.errors import InvalidArgument
from foldlog.server.handlers import offset_commit
from foldlog.testing.power_loss import Fate, PowerLossFiles
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from foldlog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from foldlog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from server.group_client import GROUP, GroupClient, settle
from server.small_node import Denies, SmallNode

COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
Offsets = Mapping[tuple[str, int], OffsetAndMetadata]
Errors = dict[tuple[str, int], int]
Fetched = dict[tuple[str, int], object]


def id_of(small: SmallNode, topic: str) -> bytes:
    known = small.broker.find_topic(topic)
    return b"\x01" * 16 if known is None else bytes.fromhex(known.topic_id)


def commit_request(small: SmallNode, offsets: Offsets, member: GroupClient | None = None) -> OffsetCommitRequest:
    topics = sorted({topic for topic, _ in offsets})
    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1 if member is None else member.generation,
        member_id="" if member is None else member.member_id,
        group_instance_id=None if member is None else member.instance_id,
        retention_time_ms=1,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=id_of(small, topic),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offset.offset,
                        committed_leader_epoch=offset.leader_epoch,
                        committed_metadata=offset.metadata,
                    )
                    for (name, number), offset in offsets.items()
                    if name == topic
                ],
            )
            for topic in topics
        ],
    )


def commit(small: SmallNode, offsets: Offsets, version: int = 9, member: GroupClient | None = None) -> Errors:
    """The error code of each partition."""
    answer = small.ask(commit_request(small, offsets, member), version)
    names = {id_of(small, topic): topic for topic, _ in offsets}
    return {
        (names[topic.topic_id] if version >= 10 else topic.name, partition.partition_index): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }


def fetch(
    small: SmallNode, partitions: list[tuple[str, int]] | None, version: int = 9
) -> dict[tuple[str, int], object]:
    """Offset, leader epoch, metadata and error code of each partition answered."""
    topics = None if partitions is None else sorted({topic for topic, _ in partitions})

    def numbers(topic: str) -> list[int]:
        return [number for name, number in partitions or () if name == topic]

    if version < 8:
        named = None if topics is None else [
            OffsetFetchRequestTopic(name=topic, partition_indexes=numbers(topic)) for topic in topics
        ]  # fmt: skip
        answer = small.ask(OffsetFetchRequest(group_id=GROUP, topics=named, require_stable=version >= 7), version)
        assert answer.error_code == ErrorCode.NONE
        found = answer.topics
    else:
        wanted = None if topics is None else [
            OffsetFetchRequestTopics(name=topic, topic_id=id_of(small, topic), partition_indexes=numbers(topic))
            for topic in topics
        ]  # fmt: skip
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=wanted)])
        answer = small.ask(request, version)
        assert (answer.groups[0].group_id, answer.groups[0].error_code) == (GROUP, ErrorCode.NONE)
        found = answer.groups[0].topics
    names = {id_of(small, topic): topic for topic in small.broker.topics()}
    return {
        (names.get(topic.topic_id, "?") if version >= 10 else topic.name, partition.partition_index): (
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.metadata,
            partition.error_code,
        )
        for topic in found
        for partition in topic.partitions
    }


def at(offset: int, leader_epoch: int = -1, metadata: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, leader_epoch, metadata)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_what_any_version_commits_is_committed_when_it_is_answered(small: SmallNode, version: int) -> None:
    small.broker.create_topic("events", 2)
    errors = commit(small, {("events", 0): at(7, 3, "a note"), ("events", 1): at(0)}, version)
    assert errors == {("events", 0): 0, ("events", 1): 0}
    kept_epoch = 3 if version >= 6 else -1
    assert small.broker.committed(GROUP) == {("events", 0): at(7, kept_epoch, "a note"), ("events", 1): at(0)}


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_any_version_fetches_what_was_committed_and_hears_of_what_was_not(small: SmallNode, version: int) -> None:
    small.broker.create_topic("events", 3)
    commit(small, {("events", 1): at(7, 3, "a note")})
    epoch = 3 if version >= 5 else -1
    assert fetch(small, [("events", 0), ("events", 1), ("events", 9)], version) == {
        ("events", 0): (-1, -1, "", 0),
        ("events", 1): (7, epoch, "a note", 0),
        ("events", 9): (-1, -1, "", 0),
    }


@pytest.mark.parametrize("version", FETCH_VERSIONS[1:])
def test_who_asks_for_no_topics_in_particular_gets_all_that_was_committed(small: SmallNode, version: int) -> None:
    for topic in ("events", "orders"):
        small.broker.create_topic(topic, 2)
    commit(small, {("orders", 1): at(4), ("events", 0): at(7)})
    assert fetch(small, None, version) == {("events", 0): (7, -1, "", 0), ("orders", 1): (4, -1, "", 0)}


def test_many_groups_are_fetched_at_once_each_with_its_own_answer(small: SmallNode) -> None:
    small.broker.create_topic("events", 1)
    commit(small, {("events", 0): at(7)})
    wanted = [OffsetFetchRequestTopics(name="events", partition_indexes=[0])]
    answer = small.ask(
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id=group, topics=wanted, member_id="m", member_epoch=4)
                for group in (GROUP, "others", "")
            ]
        ),
        9,
    )
    assert [group.error_code for group in answer.groups] == [0, 0, ErrorCode.INVALID_GROUP_ID]
    assert [group.topics[0].partitions[0].committed_offset for group in answer.groups[:2]] == [7, -1]
    assert answer.groups[2].topics == []


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_partitions_that_are_not_there_are_told_one_by_one_and_the_others_committed(
    small: SmallNode, version: int
) -> None:
    small.broker.create_topic("events", 2)
    errors = commit(small, {("events", 1): at(1), ("events", 2): at(2), ("nothing", 0): at(3)}, version)
    assert errors == {
        ("events", 1): ErrorCode.NONE,
        ("events", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert small.broker.committed(GROUP) == {("events", 1): at(1)}


def test_a_topic_id_that_is_not_there_is_told_when_offsets_are_fetched(small: SmallNode) -> None:
    assert fetch(small, [("nothing", 0)], 10) == {("?", 0): (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)}


def test_notes_that_are_too_long_are_refused_and_the_others_committed(small: SmallNode) -> None:
    small.broker.create_topic("events", 3)
    errors = commit(
        small,
        {("events", 0): at(1, metadata="x" * 4096), ("events", 1): at(2, metadata="é" * 2049)},
    )
    assert list(errors.values()) == [0, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert list(small.broker.committed(GROUP)) == [("events", 0)]


@pytest.mark.parametrize("offset", [-1, -2])
def test_a_negative_offset_is_told_again_and_is_no_commit_to_the_library(small: SmallNode, offset: int) -> None:
    """KafkaJS resets a group by committing -2 or -1, and Kafka keeps what it is given."""
    small.broker.create_topic("events", 1)
    assert commit(small, {("events", 0): at(7)}) == {("events", 0): 0}
    assert commit(small, {("events", 0): at(offset)}) == {("events", 0): 0}
    assert fetch(small, [("events", 0)]) == {("events", 0): (offset, -1, "", 0)}
    assert small.broker.committed(GROUP) == {}
    with pytest.raises(InvalidArgument, match="offsets start at 0"):
        small.broker.commit_offsets(GROUP, {("events", 0): at(offset)})


def test_a_broker_may_allow_shorter_notes() -> None:
    small = SmallNode(settings={"offset.metadata.max.bytes": 10})
    small.broker.create_topic("events", 2)
    errors = commit(small, {("events", 0): at(1, metadata="x" * 10), ("events", 1): at(2, metadata="x" * 11)})
    assert errors == {("events", 0): 0, ("events", 1): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert list(small.broker.committed(GROUP)) == [("events", 0)]
    small.close()


def test_only_members_of_the_current_generation_commit(small: SmallNode) -> None:
    small.broker.create_topic("events", 1)
    member = GroupClient(small)
    settle(member)
    offsets = {("events", 0): at(5)}
    assert commit(small, offsets) == {("events", 0): ErrorCode.UNKNOWN_MEMBER_ID}
    member.generation += 1
    assert commit(small, offsets, member=member) == {("events", 0): ErrorCode.ILLEGAL_GENERATION}
    member.generation -= 1
    assert commit(small, offsets, member=member) == {("events", 0): ErrorCode.NONE}
    member.begin_join()
    member.generation += 1
    assert commit(small, offsets, member=member) == {("events", 0): ErrorCode.REBALANCE_IN_PROGRESS}


def test_a_commit_is_a_sign_of_life(small: SmallNode) -> None:
    small.broker.create_topic("events", 1)
    member = GroupClient(small, session_timeout_ms=6_000)
    settle(member)
    for _ in range(3):
        small.advance(5_000)
        assert commit(small, {("events", 0): at(5)}, member=member) == {("events", 0): ErrorCode.NONE}


def test_an_answered_commit_survives_a_power_cut() -> None:
    files = PowerLossFiles()
    small = SmallNode(files)
    small.broker.create_topic("events", 1)
    for offset in range(3):
        assert commit(small, {("events", 0): at(offset)}) == {("events", 0): 0}
        image = files.image([Fate.DROPPED] * len(files.unsynced()), random.Random(0))
        survivor = SmallNode(PowerLossFiles(image))
        assert fetch(survivor, None) == {("events", 0): (offset, -1, "", 0)}
        survivor.close()
    small.close()


def test_a_commit_that_cannot_be_made_durable_is_not_answered_as_one() -> None:
    files = PowerLossFiles()
    small = SmallNode(files)
    small.broker.create_topic("events", 1)
    commit(small, {("events", 0): at(1)})
    files.fail_next_sync()
    assert commit(small, {("events", 0): at(2)}) == {("events", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert fetch(small, None) == {("events", 0): (1, -1, "", 0)}
    small.close()


def test_a_topic_that_is_deleted_during_a_commit_takes_no_other_with_it(small: SmallNode) -> None:
    for topic in ("events", "gone"):
        small.broker.create_topic(topic, 1)
    commit(small, {("events", 0): at(1)})
    request = commit_request(small, {("events", 0): at(2), ("gone", 0): at(3)})

    held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with small.broker.group_lock:
            held.set()
            may_end.wait(30)

    threads = [threading.Thread(target=hold), threading.Thread(target=small.broker.delete_topic, args=("gone",))]
    threads[0].start()
    assert held.wait(30)
    # It has looked the topics up and waits, on a thread, for the lock that the deletion needs, too.
    asked = small.loop.create_task(offset_commit.handle(small.call(9), request))
    small.turn()
    threads[1].start()
    while small.broker.find_topic("gone") is not None:
        small.turn()
    may_end.set()
    later = small.run(asyncio.wait_for(asked, 30))
    assert isinstance(later, asyncio.Future)
    answer = small.answer(later, 9)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    for thread in threads:
        thread.join(30)
    assert small.broker.committed(GROUP) == {("events", 0): at(2)}


def test_a_connection_that_is_gone_before_its_commit_is_durable_leaves_it_committed(small: SmallNode) -> None:
    small.broker.create_topic("events", 1)
    commit(small, {("events", 0): at(1)})
    small.begin(commit_request(small, {("events", 0): at(2)}), 9).cancel()
    assert commit(small, {}) == {}
    commit(small, {("events", 0): at(2)})
    assert small.broker.committed(GROUP) == {("events", 0): at(2)}


# --- deleting --------------------------------------------------------------------------------------------------------


def delete_request(*partitions: tuple[str, int]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=number)])
            for topic, number in partitions
        ],
    )


def delete(small: SmallNode, *partitions: tuple[str, int]) -> tuple[int, list[int]]:
    """The error of the group, and of each partition."""
    answer = small.ask(delete_request(*partitions), 0)
    return answer.error_code, [partition.error_code for topic in answer.topics for partition in topic.partitions]


def test_offsets_are_deleted_where_nobody_reads(small: SmallNode) -> None:
    for topic in ("events", "orders"):
        small.broker.create_topic(topic, 2)
    commit(small, {("events", 0): at(1), ("orders", 0): at(2), ("orders", 1): at(3)})
    settle(GroupClient(small))  # subscribed to events
    assert delete(small, ("events", 0), ("orders", 0), ("orders", 7), ("nothing", 0)) == (
        ErrorCode.NONE,
        [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ],
    )
    assert small.broker.committed(GROUP) == {("events", 0): at(1), ("orders", 1): at(3)}


def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted(small: SmallNode) -> None:
    small.broker.create_topic("events", 1)
    assert delete(small, ("events", 0)) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


# --- who may ---------------------------------------------------------------------------------------------------------


def test_who_may_not_read_a_group_commits_nothing_in_it() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.READ, ResourceType.GROUP)))
    small.broker.create_topic("events", 1)
    errors = commit(small, {("events", 0): at(1), ("nothing", 0): at(1)})
    assert set(errors.values()) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert small.broker.committed(GROUP) == {}
    small.close()


def test_who_may_not_read_a_topic_commits_nothing_in_it() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.READ, ResourceType.TOPIC)))
    small.broker.create_topic("events", 1)
    assert commit(small, {("events", 0): at(1)}) == {("events", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert delete(small, ("events", 0))[0] == ErrorCode.GROUP_ID_NOT_FOUND
    small.close()


def test_who_may_not_describe_a_topic_does_not_hear_what_was_committed_in_it() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.DESCRIBE, ResourceType.TOPIC)))
    small.broker.create_topic("events", 1)
    commit(small, {("events", 0): at(1)})
    assert fetch(small, [("events", 0)]) == {("events", 0): (-1, -1, "", ErrorCode.TOPIC_AUTHORIZATION_FAILED)}
    assert fetch(small, None) == {}
    small.close()


@pytest.mark.parametrize("version", [1, 2, 7, 8])
def test_who_may_not_describe_a_group_hears_it_where_its_version_has_errors(version: int) -> None:
    small = SmallNode(authorizer=Denies((AclOperation.DESCRIBE, ResourceType.GROUP)))
    topics = [OffsetFetchRequestTopic(name="events", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=[OffsetFetchRequestTopics(name="events")])]
    answer = small.ask(OffsetFetchRequest(group_id=GROUP, topics=topics, groups=groups), version)
    if version == 1:
        code = answer.topics[0].partitions[0].error_code
    elif version < 8:
        assert answer.topics == []
        code = answer.error_code
    else:
        code = answer.groups[0].error_code
    assert code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    small.close()


def test_who_may_not_delete_a_group_deletes_no_offsets_of_it() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.DELETE, ResourceType.GROUP)))
    assert delete(small, ("events", 0)) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
    small.close()
