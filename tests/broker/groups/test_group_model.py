"""A group under everything that happens to groups, on a simulated clock and a real broker in memory.

First the plain stories, each with eager and with cooperative members, dynamic and static ones: rolling restarts, a
broker that is restarted or killed under members that go on. Then Hypothesis mixes joins that race with heartbeats, slow
members, lost connections, crashes, returning static members and both kinds of restart, in any order. What must never
happen is asserted in `simulated_members`; at the end of each run everybody alive shares one stable generation.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.groups.simulated_members import EVERYTHING, GROUP, REBALANCE_MS, SESSION_MS, Cluster, SimulatedMember
from foldlog.broker.groups.coordinator import GroupCoordinator
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.rebalance import Rebalancer
from foldlog.broker.groups.state import Group
from foldlog.broker.groups.store import GroupStore

MEMBERS_MAX = 6

both_protocols = pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])


def running(cooperative: bool, *instances: str | None) -> Cluster:
    """A group of these members, stable and at work."""
    cluster = Cluster(cooperative=cooperative)
    for instance in instances:
        cluster.start(instance)
    cluster.attentive(2 * REBALANCE_MS)
    cluster.assert_converged()
    return cluster


def generation(cluster: Cluster) -> int:
    return cluster.broker.describe_group(GROUP).generation


@both_protocols
def test_a_rolling_restart_of_dynamic_members_loses_no_commit_and_no_partition(cooperative: bool) -> None:
    cluster = running(cooperative, None, None, None)
    for member in list(cluster.members):
        member.leave()
        cluster.attentive(1_500)
        cluster.start()
        cluster.attentive(3_000)
    cluster.attentive(2 * REBALANCE_MS)
    cluster.assert_converged()
    assert all(member.times_unknown == 0 for member in cluster.members)
    assert cluster.acknowledged.keys() == EVERYTHING


@both_protocols
def test_a_rolling_restart_of_static_members_moves_nothing(cooperative: bool) -> None:
    cluster = running(cooperative, "a", "b", "c")
    before = generation(cluster)
    held = {member.name: set(member.positions) for member in cluster.members}
    for member in list(cluster.members):
        member.crash()
        cluster.attentive(SESSION_MS - 1_000)
        cluster.start(member.instance)
        cluster.attentive(2_000)
    assert generation(cluster) == before
    assert {member.name: set(member.positions) for member in cluster.members} == held
    cluster.assert_converged()


def test_cooperative_members_go_on_reading_what_does_not_move() -> None:
    cluster = running(True, None, None)
    kept = {member.name: set(member.positions) for member in cluster.members}
    stayed = list(cluster.members)
    cluster.start()
    for _ in range(2 * REBALANCE_MS // 500):
        cluster.attentive(500)
        for member in stayed:
            kept[member.name] &= set(member.positions)
    cluster.assert_converged()
    for member in stayed:
        assert kept[member.name] == set(member.positions), "what it holds now it held all the time"


@both_protocols
@pytest.mark.parametrize("instances", [(None, None, None), ("a", "b", "c")], ids=["dynamic", "static"])
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_members_go_on_under_a_broker_that_is_restarted(
    cooperative: bool, instances: tuple[str | None, ...], how: str
) -> None:
    cluster = running(cooperative, *instances)
    before = generation(cluster)
    for _ in range(3):
        getattr(cluster, how)()
        cluster.attentive(2 * SESSION_MS)
    assert generation(cluster) == before, "nobody had to join again"
    assert all(member.times_unknown == 0 for member in cluster.members)
    cluster.assert_converged()


@both_protocols
def test_a_broker_killed_in_the_middle_of_a_rebalance_starts_it_over(cooperative: bool) -> None:
    cluster = running(cooperative, None, None)
    for steps in range(1, 8):
        newcomer = cluster.start()
        for number in range(steps):
            cluster.members[number % len(cluster.members)].step()
        cluster.kill()
        cluster.attentive(2 * REBALANCE_MS)
        cluster.assert_converged()
        newcomer.leave()
        cluster.attentive(2 * REBALANCE_MS)
        cluster.assert_converged()


@both_protocols
def test_a_slow_member_is_left_behind_and_comes_back(cooperative: bool) -> None:
    cluster = running(cooperative, None, None)
    slow = cluster.members[0]
    slow.become_slow()
    cluster.start()
    cluster.attentive(2 * REBALANCE_MS)
    assert not slow.positions
    assert {partition for member in cluster.members for partition in member.positions} == EVERYTHING
    slow.is_slow = False
    cluster.attentive(2 * REBALANCE_MS)
    cluster.assert_converged()


@both_protocols
def test_who_lost_its_partitions_unknowingly_cannot_commit_over_the_new_owner(cooperative: bool) -> None:
    cluster = running(cooperative, None, None)
    zombie = cluster.members[0]
    zombie.crash()  # for the others; it still believes in what it holds
    cluster.attentive(2 * REBALANCE_MS)
    zombie.work()
    assert not zombie.positions
    cluster.attentive(1_000)
    cluster.assert_converged()


def all_stories(cooperative: bool) -> None:
    test_a_rolling_restart_of_dynamic_members_loses_no_commit_and_no_partition(cooperative)
    test_members_go_on_under_a_broker_that_is_restarted(cooperative, (None, "a", None), "kill")
    test_who_lost_its_partitions_unknowingly_cannot_commit_over_the_new_owner(cooperative)


@both_protocols
@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (GroupStore, "_append_group_writes", lambda self: None),
        (GroupCoordinator, "validate_commit", lambda self, *who, transactional: GroupErrorCode.NONE),
        (Group, "all_joined", lambda self: True),
        (Rebalancer, "answer_sync", lambda self, group, member, result: None),
    ],
    ids=["groups are not stored", "anybody may commit", "nobody is waited for", "syncs are not answered"],
)
def test_the_stories_find_a_planted_bug(
    cooperative: bool, owner: type, name: str, bug: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_stories(cooperative)
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises(AssertionError):
        all_stories(cooperative)


class GroupUnderDisturbance(RuleBasedStateMachine):
    """The disturbance as rules; `teardown` ends it and demands that the group settles."""

    cluster: Cluster

    @initialize(cooperative=st.booleans(), members=st.integers(0, 3))
    def begin(self, cooperative: bool, members: int) -> None:
        self.cluster = Cluster(cooperative=cooperative)
        for number in range(members):
            self.cluster.start(f"shelf-{number}" if number % 2 else None)
        self.cluster.attentive(REBALANCE_MS)

    def a_member(self, data: st.DataObject) -> SimulatedMember:
        return data.draw(st.sampled_from(self.cluster.members))

    def has_room(self) -> bool:
        return len(self.cluster.members) < MEMBERS_MAX

    def has_members(self) -> bool:
        return bool(self.cluster.members)

    @precondition(has_room)
    @rule(needs_id_first=st.booleans())
    def start_dynamic(self, needs_id_first: bool) -> None:
        self.cluster.start(needs_id_first=needs_id_first).step()

    @precondition(has_room)
    @rule(number=st.integers(0, 2))
    def start_static(self, number: int) -> None:
        """A new instance, one that comes back, or a second process of one that still runs."""
        self.cluster.start(f"shelf-{number}").step()

    @precondition(has_members)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        self.a_member(data).step()

    @rule()
    def step_all(self) -> None:
        for member in list(self.cluster.members):
            member.step()

    @precondition(has_members)
    @rule(data=st.data())
    def heartbeat_beside_a_request(self, data: st.DataObject) -> None:
        self.a_member(data).heartbeat()

    @precondition(has_members)
    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        self.a_member(data).work()

    @precondition(has_members)
    @rule(data=st.data())
    def lose_connection(self, data: st.DataObject) -> None:
        self.a_member(data).drop_connection()

    @precondition(has_members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.a_member(data).leave()

    @precondition(has_members)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.a_member(data).crash()

    @precondition(has_members)
    @rule(data=st.data())
    def become_slow(self, data: st.DataObject) -> None:
        self.a_member(data).become_slow()

    @precondition(has_members)
    @rule(data=st.data())
    def be_done(self, data: st.DataObject) -> None:
        self.a_member(data).is_slow = False

    @rule(ms=st.sampled_from([500, 1_000, SESSION_MS, REBALANCE_MS]))
    def pass_time_attentively(self, ms: int) -> None:
        self.cluster.attentive(ms)

    @rule(ms=st.sampled_from([1, SESSION_MS - 1, SESSION_MS, REBALANCE_MS]))
    def pass_time_in_silence(self, ms: int) -> None:
        self.cluster.silent(ms)

    @rule()
    def restart_broker(self) -> None:
        self.cluster.restart()

    @rule()
    def kill_broker(self) -> None:
        self.cluster.kill()

    @invariant()
    def no_partition_has_two_owners_and_no_commit_is_lost(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.check_owners()
            self.cluster.check_commits()

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        for member in self.cluster.members:
            member.is_slow = False
        self.cluster.attentive(4 * REBALANCE_MS, working=False)
        self.cluster.assert_converged()
        for member in self.cluster.members:
            member.work()
        self.cluster.restart()
        self.cluster.broker.close()


GroupUnderDisturbance.TestCase.settings = settings(max_examples=2 * settings().max_examples, stateful_step_count=25)
TestGroupUnderDisturbance = GroupUnderDisturbance.TestCase
