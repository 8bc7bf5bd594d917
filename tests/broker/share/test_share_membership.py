"""Members of share groups, one thing at a time: joining, epochs, sharing partitions, silence, and what survives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.groups.consumer.assignors import Candidate
from foldlog.broker.groups.consumer.messages import HeartbeatResult, MemberHeartbeat
from foldlog.broker.groups.consumer.topics import ImagedTopic, TopicsImage
from foldlog.broker.groups.coordinator import GroupCoordinator
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import GroupSettings, GroupState, GroupType, JoinRequest, JoinResult
from foldlog.broker.share.assignor import assign_simple
from foldlog.broker.share.messages import ShareGroupSettings, ShareHeartbeat
from foldlog.testing.sim_clock import SimClock

A, B = b"a" * 16, b"b" * 16
SESSION_MS = 45_000


class Coordinated:
    """A coordinator with two topics, and who was reported to be gone."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.clock = SimClock()
        self.settings = settings
        self.image = TopicsImage({"a": ImagedTopic(A, 2), "b": ImagedTopic(B, 1)})
        self.gone: list[tuple[str, str]] = []
        self.commits: set[str] = set()
        self.coordinator = self._made()

    def _made(self) -> GroupCoordinator:
        made = GroupCoordinator(
            self.clock, self.settings, topics=lambda: self.image, has_commits=self.commits.__contains__
        )
        made.share.on_gone = lambda group, member: self.gone.append((group, member))
        return made

    def beat(self, member: str, epoch: int = 0, *topics: str, group: str = "g") -> HeartbeatResult:
        request = ShareHeartbeat(group, member, epoch, topics=tuple(topics) or None, client_id="c", client_host="/h")
        return self.coordinator.share_heartbeat(request)

    def restart(self) -> None:
        records = dict(self.coordinator.take_writes())
        self.coordinator = self._made()
        for key, value in records.items():
            self.coordinator.restore(key, value)
        self.coordinator.restored(is_final=True)


def test_partitions_are_assigned_again_only_after_the_interval() -> None:
    world = Coordinated(GroupSettings(share=ShareGroupSettings(assignment_interval_ms=1_000)))
    first = world.beat("ann", 0, "a")
    assert first.assignment == frozenset({(A, 0), (A, 1)})
    second = world.beat("ben", 0, "a")
    assert (second.assignment, second.member_epoch) == (frozenset(), first.member_epoch)
    world.clock.advance(1_000)
    assert len(world.beat("ben", second.member_epoch).assignment or ()) == 1


def test_a_member_gets_all_partitions_and_shares_them_when_others_come() -> None:
    world = Coordinated()
    first = world.beat("ann", 0, "a")
    assert (first.error, first.assignment) == (GroupErrorCode.NONE, frozenset({(A, 0), (A, 1)}))
    second = world.beat("ben", 0, "a")
    again = world.beat("ann", first.member_epoch)
    assert again.assignment is not None
    assert second.assignment is not None
    assert again.assignment | second.assignment == {(A, 0), (A, 1)}
    assert len(again.assignment) == len(second.assignment) == 1
    assert again.member_epoch == second.member_epoch > first.member_epoch
    assert world.beat("ann", again.member_epoch).assignment is None, "it is as before"


def test_more_members_than_partitions_share_a_partition() -> None:
    world = Coordinated()
    found = [world.beat(name, 0, "b") for name in ("ann", "ben", "cleo")]
    assert [one.assignment for one in found] == [frozenset({(B, 0)})] * 3


def test_epochs_that_the_coordinator_did_not_give_are_fenced() -> None:
    world = Coordinated()
    epoch = world.beat("ann", 0, "a").member_epoch
    assert world.beat("ann", epoch + 1).error is GroupErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("ben", 3).error is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat("", 0, "a").error is GroupErrorCode.INVALID_REQUEST
    assert world.beat("ben", 0).error is GroupErrorCode.INVALID_REQUEST
    assert world.beat("ben", -2).error is GroupErrorCode.INVALID_REQUEST


def test_who_leaves_or_is_silent_is_reported_so_that_its_records_go_to_others() -> None:
    world = Coordinated()
    world.beat("ann", 0, "a")
    world.beat("ben", 0, "a")
    assert world.beat("ann", -1).error is GroupErrorCode.NONE
    assert world.gone == [("g", "ann")]
    world.clock.advance(SESSION_MS)
    world.coordinator.tick()
    assert world.gone == [("g", "ann"), ("g", "ben")]
    assert world.coordinator.describe("g").state is GroupState.EMPTY


def test_a_topic_that_grows_is_shared_out_anew() -> None:
    world = Coordinated()
    epoch = world.beat("ann", 0, "a").member_epoch
    world.image = TopicsImage({"a": ImagedTopic(A, 3)})
    assert world.beat("ann", epoch).assignment == frozenset({(A, 0), (A, 1), (A, 2)})


def test_members_go_on_at_their_epochs_after_a_restart() -> None:
    world = Coordinated()
    epoch = world.beat("ann", 0, "a", "b").member_epoch
    world.restart()
    answer = world.beat("ann", epoch)
    assert (answer.error, answer.member_epoch, answer.assignment) == (GroupErrorCode.NONE, epoch, None)
    (member,) = world.coordinator.describe("g").members
    assert member.consumer is not None
    assert [number for _, _, number in member.consumer.current] == [0, 1, 0]
    world.beat("ann", -1)
    assert world.coordinator.delete("g") is GroupErrorCode.NONE
    world.restart()
    assert world.coordinator.describe("g").state is GroupState.DEAD


def test_a_name_belongs_to_one_kind_of_group() -> None:
    world = Coordinated()
    world.beat("ann", 0, "a")
    assert world.coordinator.list_groups()[0].group_type is GroupType.SHARE
    answers: list[JoinResult] = []
    join = JoinRequest("g", "consumer", (("range", b""),), 10_000, 10_000)
    world.coordinator.join(join, answers.append)
    assert answers[0].error is GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
    newer = MemberHeartbeat("g", "m", 0, rebalance_timeout_ms=1000, topics=("a",), owned=frozenset())
    assert world.coordinator.consumer_heartbeat(newer).error is GroupErrorCode.GROUP_ID_NOT_FOUND
    newer = MemberHeartbeat("other", "m", 0, rebalance_timeout_ms=1000, topics=("a",), owned=frozenset())
    assert world.coordinator.consumer_heartbeat(newer).error is GroupErrorCode.NONE
    assert world.beat("ann", 0, "a", group="other").error is GroupErrorCode.GROUP_ID_NOT_FOUND
    leaving = MemberHeartbeat("other", "m", -1)
    assert world.coordinator.consumer_heartbeat(leaving).error is GroupErrorCode.NONE
    assert world.beat("ann", 0, "a", group="other").error is GroupErrorCode.GROUP_ID_NOT_FOUND, "empty is not gone"
    assert world.coordinator.describe("other").group_type is GroupType.CONSUMER
    world.commits.add("commits-only")
    refused = world.beat("ann", 0, "a", group="commits-only")
    assert refused.error is GroupErrorCode.GROUP_ID_NOT_FOUND
    assert "not a share group" in (refused.message or "")


@given(
    st.dictionaries(
        st.sampled_from("abcdefg"), st.sets(st.sampled_from([A, B]), min_size=1).map(frozenset), min_size=1
    ),
    st.integers(1, 9),
    st.integers(1, 9),
    st.dictionaries(st.sampled_from("abcdefg"), st.frozensets(st.tuples(st.sampled_from([A, B]), st.integers(0, 9)))),
)
def test_every_partition_has_a_taker_and_every_member_a_partition(
    topics: dict[str, frozenset[bytes]],
    of_a: int,
    of_b: int,
    before: dict[str, frozenset[tuple[bytes, int]]],
) -> None:
    members = [Candidate(name, None, wanted, before.get(name, frozenset())) for name, wanted in topics.items()]
    counts = {A: of_a, B: of_b}
    targets = assign_simple(members, counts)
    assert all(targets[name] for name in topics)
    assert all(topic in topics[name] and number < counts[topic] for name in topics for topic, number in targets[name])
    wanted = frozenset().union(*topics.values())
    given_out = frozenset().union(*targets.values())
    assert given_out == {(topic, number) for topic in wanted for number in range(counts[topic])}
    again = [Candidate(name, None, topics[name], targets[name]) for name in topics]
    if len(set(topics.values())) == 1:
        loads = [len(target) for target in targets.values()]
        assert max(loads) - min(loads) <= 1
        assert assign_simple(again, counts) == targets, "nothing moves where nothing has changed"
