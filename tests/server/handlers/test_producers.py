"""Ids for idempotent producers, and what a partition knows of those who have one."""

from __future__ import annotations

import pytest

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.errors import LockLost
from foldlog.files.memory import MemoryFiles
from foldlog.records.loops import BatchBuilder, pack
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from foldlog.wire.messages.init_producer_id import InitProducerIdRequest
from server.small_node import DIRECTORY, Denies, SmallNode

IDEMPOTENT_WRITE = (AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
WRITE = (AclOperation.WRITE, ResourceType.TOPIC)


def new_id(small: SmallNode, version: int = 5) -> int:
    answer = small.ask(InitProducerIdRequest(transactional_id=None), version)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
    return int(answer.producer_id)


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(small: SmallNode, version: int) -> None:
    ids = [new_id(small, version) for _ in range(3)]
    assert len(set(ids)) == 3
    assert min(ids) >= 0


def test_no_id_is_given_out_twice_also_when_the_next_have_to_be_reserved_and_after_a_restart() -> None:
    files = MemoryFiles()
    given: list[int] = []
    for _ in range(2):
        small = SmallNode(files)
        given += [new_id(small) for _ in range(1100)]
        small.close()
    assert len(set(given)) == len(given)


@pytest.mark.parametrize("version", range(3, 6))
def test_a_producer_that_lost_track_gets_another_id(small: SmallNode, version: int) -> None:
    known = new_id(small)
    request = InitProducerIdRequest(transactional_id=None, producer_id=known, producer_epoch=5)
    answer = small.ask(request, version)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
    assert answer.producer_id != known


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, -1), (-1, 7)])
def test_an_id_without_an_epoch_is_no_request(small: SmallNode, producer_id: int, epoch: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
    answer = small.ask(request, 4)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize(
    ("denied", "error"),
    [
        ((IDEMPOTENT_WRITE,), ErrorCode.NONE),  # who may write to some topic may do it idempotently
        ((WRITE,), ErrorCode.NONE),
        ((IDEMPOTENT_WRITE, WRITE), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_who_may_write_nowhere_gets_no_id(
    denied: tuple[tuple[AclOperation, ResourceType], ...], error: ErrorCode
) -> None:
    small = SmallNode(authorizer=Denies(*denied))
    small.broker.create_topic("events", 1)
    assert small.ask(InitProducerIdRequest(transactional_id=None), 4).error_code == error
    small.close()


def test_a_broker_that_cannot_give_an_id_now_lets_producers_ask_again(small: SmallNode) -> None:
    small.broker.close()
    answer = small.ask(InitProducerIdRequest(transactional_id=None), 4)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)


def test_a_lost_lock_is_told_with_the_code_that_writes_get() -> None:
    files = MemoryFiles()
    small = SmallNode(files)
    small.broker.create_topic("events", 1)
    assert small.ask(InitProducerIdRequest(transactional_id=None), 4).error_code == 0
    files.unlink(f"{DIRECTORY}/.lock")
    with pytest.raises(LockLost):
        small.node.partition("events", 0).append(pack([(5, b"k", b"v", ())]))
    answer = small.ask(InitProducerIdRequest(transactional_id=None), 4)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert code_of(LockLost("data")) == answer.error_code
    small.close()


# --- what is known of them --------------------------------------------------------------------------------------------


def write_as(small: SmallNode, producer_id: int, epoch: int, sequence: int, *values: bytes) -> None:
    builder = BatchBuilder(1 << 16)
    for value in values:
        builder.append(small.clock.now_ms(), None, value)
    partition = small.node.partition("events", 0)
    appended = partition.append(builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))
    partition.wait_acknowledged(appended.next_offset)


def test_a_partition_tells_how_far_each_of_its_producers_has_got(small: SmallNode) -> None:
    small.broker.create_topic("events", 2)
    write_as(small, 70, 0, 0, b"a", b"b", b"c")
    write_as(small, 71, 3, 0, b"d")
    small.clock.advance(1000)
    write_as(small, 70, 0, 3, b"e")
    request = DescribeProducersRequest(
        topics=[
            TopicRequest(name="events", partition_indexes=[0, 1, 2]),
            TopicRequest(name="nothing", partition_indexes=[0]),
        ]
    )
    events, nothing = small.ask(request, 0).topics
    assert [partition.error_code for partition in events.partitions] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [partition.error_code for partition in nothing.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    now_ms = small.clock.now_ms()
    assert [
        (state.producer_id, state.producer_epoch, state.last_sequence, state.last_timestamp)
        for state in events.partitions[0].active_producers
    ] == [(70, 0, 3, now_ms), (71, 3, 0, now_ms - 1000)]
    assert {
        (state.coordinator_epoch, state.current_txn_start_offset) for state in events.partitions[0].active_producers
    } == {(-1, -1)}
    assert events.partitions[1].active_producers == []


def test_who_may_not_read_a_topic_hears_nothing_of_its_producers() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.READ, ResourceType.TOPIC)))
    small.broker.create_topic("events", 1)
    request = DescribeProducersRequest(topics=[TopicRequest(name="events", partition_indexes=[0])])
    (partition,) = small.ask(request, 0).topics[0].partitions
    assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    small.close()
