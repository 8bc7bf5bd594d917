"""Committed offsets are durable when the call returns, survive a restart, and belong to members that may commit them.

Real logs in memory; for what fails, files that fail on request. Group metadata is written too, so that members of a
restarted broker go on without a rebalance.
"""

from __future__ import annotations

import errno
import threading
from dataclasses import replace

import pytest

from broker.small_broker import at, die, open_broker, write
from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.consumer.messages import MemberHeartbeat
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import (
    GroupListing,
    GroupState,
    GroupSummary,
    JoinRequest,
    JoinResult,
    MemberSummary,
    SyncRequest,
    SyncResult,
)
from foldlog.broker.topics.names import OFFSETS_TOPIC
from foldlog.broker.upkeep import Job
from foldlog.errors import (
    FoldlogError,
    GroupError,
    GroupNotEmpty,
    IllegalGeneration,
    InvalidArgument,
    InvalidTopicName,
    MetadataTooLarge,
    PartitionPoisoned,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.files.memory import MemoryFiles
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles, Kind
from foldlog.testing.sim_clock import SimClock

KEY = ("orders", 0)


@pytest.fixture
def broker() -> Broker:
    broker = open_broker(MemoryFiles())
    broker.create_topic("orders", 2)
    return broker


def reopened(broker: Broker) -> Broker:
    files = broker._storage.files
    broker.close()
    return open_broker(files)


def killed(broker: Broker) -> Broker:
    """The process died: nothing was closed."""
    files = broker._storage.files
    assert isinstance(files, MemoryFiles)
    die(files)
    return open_broker(files)


def join(broker: Broker, group: str = "g", session_timeout_ms: int = 10_000) -> tuple[str, int]:
    """The one member of a group, joined and with its assignment; its id and generation."""
    joined: list[JoinResult] = []
    synced: list[SyncResult] = []
    with broker.coordinator() as coordinator:
        request = JoinRequest(group, "consumer", (("range", b""),), session_timeout_ms, session_timeout_ms)
        coordinator.join(request, joined.append)
        member, generation = joined[0].member_id, joined[0].generation
        coordinator.sync(SyncRequest(group, member, generation, {member: b"mine"}), synced.append)
    assert synced == [SyncResult(GroupErrorCode.NONE, b"mine", synced[0].protocol_type, synced[0].protocol)]
    return member, generation


def test_a_commit_is_answered_with_its_note_also_after_a_restart(broker: Broker) -> None:
    committed = {KEY: OffsetAndMetadata(5, 3, "a note"), ("orders", 1): at(0)}
    broker.commit_offsets("g", committed)
    for restart in (lambda same: same, reopened, killed):
        broker = restart(broker)
        assert broker.committed("g") == committed
        assert broker.committed("g", [KEY, ("orders", 7)]) == {KEY: committed[KEY]}
        assert broker.committed("other") == {}


def test_the_newest_commit_counts_and_two_groups_do_not_disturb_each_other(broker: Broker) -> None:
    for offset in (1, 9, 4):
        broker.commit_offsets("g", {KEY: at(offset)})
    broker.commit_offsets("h", {KEY: at(7)})
    broker = reopened(broker)
    assert broker.committed("g") == {KEY: at(4)}
    assert broker.committed("h") == {KEY: at(7)}
    assert broker.group_names() == ["g", "h"]


def test_the_offsets_topic_appears_with_the_first_commit_and_is_the_logs_own(broker: Broker) -> None:
    assert broker.committed("g") == {}
    assert OFFSETS_TOPIC not in broker.topics(include_internal=True)
    broker.commit_offsets("g", {KEY: at(1)})
    topic = broker.topic(OFFSETS_TOPIC)
    assert (topic.partition_count, topic.config.log.compact, topic.config.log.segment_bytes) == (1, True, 16 << 20)
    assert broker.topics() == ["orders"]
    with pytest.raises(InvalidTopicName):
        broker.delete_topic(OFFSETS_TOPIC)
    with pytest.raises(InvalidTopicName):
        broker.grow_topic(OFFSETS_TOPIC, 2)
    with pytest.raises(InvalidTopicName):
        broker.create_topic(OFFSETS_TOPIC)


def test_commits_survive_the_compaction_of_their_topic(broker: Broker) -> None:
    for offset in range(20):
        broker.commit_offsets("g", {KEY: at(offset)})
    broker.compact(OFFSETS_TOPIC)
    broker = reopened(broker)
    assert broker.committed("g") == {KEY: at(19)}


def test_what_cannot_be_right_is_refused_whole(broker: Broker) -> None:
    for offsets, error in (
        ({KEY: at(1), ("orders", 2): at(1)}, UnknownPartition),
        ({KEY: at(1), ("others", 0): at(1)}, UnknownTopic),
        ({KEY: at(1), ("orders", 1): at(-1)}, InvalidArgument),
        ({KEY: at(1), ("orders", 1): at(1, "x" * 5000)}, MetadataTooLarge),
    ):
        with pytest.raises(error):
            broker.commit_offsets("g", offsets)
    for group in ("", None, 5):
        with pytest.raises(InvalidArgument):
            broker.commit_offsets(group, {KEY: at(1)})  # type: ignore[arg-type]
    assert broker.committed("g") == {}
    broker.commit_offsets("g", {})
    assert broker.group_names() == []


def test_a_large_commit_is_split_into_batches_and_loaded_whole(broker: Broker) -> None:
    broker.create_topic("wide", 500)
    offsets = {("wide", number): at(number, "x" * 4000) for number in range(500)}
    broker.commit_offsets("g", offsets)
    assert broker.committed("g") == offsets
    assert reopened(broker).committed("g") == offsets


def test_a_member_commits_and_who_is_not_or_was_one_does_not(broker: Broker) -> None:
    member, generation = join(broker)
    broker.commit_offsets("g", {KEY: at(1)}, member_id=member, generation=generation)
    with pytest.raises(UnknownMember):
        broker.commit_offsets("g", {KEY: at(2)})
    with pytest.raises(UnknownMember):
        broker.commit_offsets("g", {KEY: at(2)}, member_id="stranger", generation=generation)
    with pytest.raises(IllegalGeneration):
        broker.commit_offsets("g", {KEY: at(2)}, member_id=member, generation=generation - 1)
    assert broker.committed("g") == {KEY: at(1)}


def test_a_group_is_moved_with_nobody_in_between_and_those_who_went_are_told(broker: Broker) -> None:
    """What a member commits of its old place afterwards is refused, and the move is durable."""
    member, generation = join(broker)
    broker.commit_offsets("g", {KEY: at(5)}, member_id=member, generation=generation)
    gone: list[str] = []

    def note(members: tuple[MemberSummary, ...]) -> None:
        gone.extend(one.member_id for one in members)

    with pytest.raises(UnknownMember):
        broker.move_offsets("g", {KEY: at(1)}, on_evicted=note)
    assert (broker.committed("g"), gone) == ({KEY: at(5)}, [])
    broker.move_offsets("g", {KEY: at(1)}, evict=True, on_evicted=note)
    assert gone == [member]
    assert broker.describe_group("g").members == ()
    with pytest.raises(GroupError):
        broker.commit_offsets("g", {KEY: at(6)}, member_id=member, generation=generation)
    assert reopened(broker).committed("g") == {KEY: at(1)}


def test_moving_a_group_that_is_not_there_makes_it(broker: Broker) -> None:
    broker.move_offsets("new", {KEY: at(3)}, evict=True)
    assert broker.committed("new") == {KEY: at(3)}


def test_members_go_on_after_a_restart_without_joining_again(broker: Broker) -> None:
    member, generation = join(broker)
    broker = reopened(broker)
    broker.commit_offsets("g", {KEY: at(1)}, member_id=member, generation=generation)
    with broker.coordinator() as coordinator:
        assert coordinator.heartbeat("g", member, generation) is GroupErrorCode.NONE


def test_a_silent_member_is_dropped_in_time_by_the_background_or_by_whoever_asks() -> None:
    clock = SimClock()
    broker = open_broker(MemoryFiles(), clock)
    broker.create_topic("orders")
    join(broker)
    clock.advance(9_999)
    assert Job.GROUPS not in broker.run_due()
    clock.advance(1)
    assert Job.GROUPS in broker.run_due()
    with broker.group_lock:
        assert broker.groups.describe("g").members == ()
    member, generation = join(broker)
    clock.advance(10_000)
    with pytest.raises(UnknownMember):
        broker.commit_offsets("g", {KEY: at(1)}, member_id=member, generation=generation)


def test_once_the_lock_is_free_what_a_reply_tells_is_in_the_log(broker: Broker) -> None:
    """A reply that waits for the lock before it leaves the process never tells what a crash would take back."""
    broker.commit_offsets("g", {KEY: at(1)})  # the topic exists
    log = broker.partition(OFFSETS_TOPIC, 0)
    ends_before, ends_when_free = [log.log_end_offset], []

    def leave_the_process() -> None:
        with broker.group_lock:
            ends_when_free.append(log.log_end_offset)

    threads: list[threading.Thread] = []

    def reply(result: SyncResult) -> None:
        assert log.log_end_offset == ends_before[0], "inside the block nothing is stored yet"
        threads.append(threading.Thread(target=leave_the_process))
        threads[-1].start()

    joined: list[JoinResult] = []
    with broker.coordinator() as coordinator:
        coordinator.join(JoinRequest("g", "consumer", (("range", b""),), 10_000, 10_000), joined.append)
        member = joined[0].member_id
        coordinator.sync(SyncRequest("g", member, 1, {member: b"mine"}), reply)
    for thread in threads:
        thread.join()
    assert ends_when_free == [ends_before[0] + 1]
    again = killed(broker)
    with again.coordinator() as coordinator:
        assert coordinator.heartbeat("g", member, 1) is GroupErrorCode.NONE


def test_what_a_timer_decides_is_stored_before_the_lock_is_free() -> None:
    clock = SimClock()
    broker = open_broker(MemoryFiles(), clock)
    broker.create_topic("orders")
    join(broker)
    log = broker.partition(OFFSETS_TOPIC, 0)
    before = log.log_end_offset
    clock.advance(10_000)
    broker.run_due()
    assert log.log_end_offset == before + 1
    again = killed(broker)
    assert again.describe_group("g").state is GroupState.EMPTY
    assert again.describe_group("g").generation == 2


def test_groups_are_listed_and_described_whether_they_have_members_or_only_offsets(broker: Broker) -> None:
    broker.commit_offsets("only-offsets", {KEY: at(1)})
    member, generation = join(broker, "with-member")
    assert broker.list_groups() == [
        GroupListing("only-offsets", "", GroupState.EMPTY),
        GroupListing("with-member", "consumer", GroupState.STABLE),
    ]
    assert broker.describe_group("only-offsets") == GroupSummary("only-offsets", GroupState.EMPTY)
    described = broker.describe_group("with-member")
    assert (described.state, described.generation) == (GroupState.STABLE, generation)
    assert [(one.member_id, one.assignment) for one in described.members] == [(member, b"mine")]
    assert broker.describe_group("nobody").state is GroupState.DEAD
    broker.commit_offsets("only-offsets", {KEY: at(2)})  # syncs what was written about the other group, too
    with open_broker(broker._storage.files, mode="r") as reader:
        assert reader.list_groups() == broker.list_groups()


def test_a_group_without_members_can_be_deleted_with_its_offsets(broker: Broker) -> None:
    broker.commit_offsets("g", {KEY: at(1)})
    broker.commit_offsets("h", {KEY: at(1)})
    join(broker, "busy")
    broker.delete_group("g")
    with pytest.raises(UnknownGroup):
        broker.delete_group("g")
    with pytest.raises(GroupNotEmpty):
        broker.delete_group("busy")
    broker = reopened(broker)
    assert broker.group_names() == ["busy", "h"]
    broker.delete_offsets("h", [KEY, ("orders", 1)])
    assert reopened(broker).committed("h") == {}


def test_a_commit_that_could_not_be_synced_is_an_error_and_is_not_answered() -> None:
    files = FaultyFiles(MemoryFiles())
    broker = open_broker(files)
    broker.create_topic("orders")
    broker.commit_offsets("g", {KEY: at(1)})
    files.fault = Fault(
        lambda operation: errno.EIO if operation.kind is Kind.SYNC and OFFSETS_TOPIC in operation.path else 0
    )
    with pytest.raises(PartitionPoisoned):
        broker.commit_offsets("g", {KEY: at(2)})
    assert broker.committed("g") == {KEY: at(1)}
    files.fault = NO_FAULT
    with pytest.raises(PartitionPoisoned):
        broker.commit_offsets("g", {KEY: at(3)})
    write(broker, "orders", 0, b"topics go on")
    broker.close()
    with open_broker(files) as again:
        assert again.committed("g") == {KEY: at(1)}
        again.commit_offsets("g", {KEY: at(4)})


def test_a_commit_may_be_begun_without_waiting(broker: Broker) -> None:
    told: list[FoldlogError | None] = []
    done = threading.Event()

    def acknowledged(error: FoldlogError | None) -> None:
        told.append(error)
        done.set()

    broker.begin_commit_offsets("g", {KEY: at(3)}, acknowledged)
    assert done.wait(60)
    assert told == [None]
    assert broker.committed("g") == {KEY: at(3)}
    broker.begin_commit_offsets("g", {}, told.append)
    assert told == [None, None]


def test_many_threads_commit_at_once_and_each_finds_its_own(broker: Broker) -> None:
    faults: list[BaseException] = []

    def commit(group: str) -> None:
        try:
            for offset in range(30):
                broker.commit_offsets(group, {KEY: at(offset)})
                assert broker.committed(group) == {KEY: at(offset)}
        except BaseException as error:  # noqa: BLE001  told to the test below
            faults.append(error)

    threads = [threading.Thread(target=commit, args=(f"g{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []
    broker = reopened(broker)
    assert {group: broker.committed(group)[KEY].offset for group in broker.group_names()} == {
        f"g{number}": 29 for number in range(8)
    }


def test_a_damaged_offsets_topic_stops_groups_and_not_topics(broker: Broker) -> None:
    broker.commit_offsets("g", {KEY: at(1)})
    files = broker._storage.files
    broker.close()
    log = files.open(f"data/{OFFSETS_TOPIC}-0/{0:020d}.log", write=True)
    log.truncate(10)
    with open_broker(files) as again:
        with pytest.raises(FoldlogError, match=OFFSETS_TOPIC):
            again.committed("g")
        again.create_topic("more")
        write(again, "more", 0, b"a")
        again.delete_topic("orders")
        assert again.topics() == ["more"]
        assert [text for text in again.warnings() if OFFSETS_TOPIC in text]


def test_closing_answers_who_waits_for_a_rebalance(broker: Broker) -> None:
    join(broker)
    waiting: list[JoinResult] = []
    with broker.coordinator() as coordinator:
        coordinator.join(JoinRequest("g", "consumer", (("range", b""),), 10_000, 10_000), waiting.append)
    assert waiting == []
    broker.close()
    assert [answer.error for answer in waiting] == [GroupErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_what_a_full_disk_kept_of_a_consumer_group_is_written_with_what_comes_next() -> None:
    """Its records are parts: the next one does not replace what could not be written."""
    files = FaultyFiles(MemoryFiles())
    broker = open_broker(files, SimClock())
    broker.create_topic("orders", 2)
    beat = MemberHeartbeat(
        "g", "first", 0, rebalance_timeout_ms=1_000, topics=("orders",), owned=frozenset(), client_host="h"
    )
    with broker.coordinator() as coordinator:
        coordinator.consumer_heartbeat(beat)
    files.fault = Fault(lambda operation: errno.ENOSPC if operation.kind is Kind.WRITE else 0)
    with broker.coordinator() as coordinator:
        coordinator.consumer_heartbeat(replace(beat, member_id="second"))
    files.fault = NO_FAULT
    with broker.coordinator() as coordinator:
        coordinator.consumer_heartbeat(replace(beat, member_epoch=1, owned=None, topics=None))
    before = broker.describe_group("g")
    assert len(before.members) == 2
    assert broker.warnings(), "the owner hears of it"
    broker.close()
    with open_broker(files, SimClock()) as again:
        assert again.describe_group("g") == before
