"""Static members (group.instance.id): a restart is not a rebalance, and two processes cannot share one id.

Plays restarts of processes that keep their instance id, in every state of the group.
"""

from __future__ import annotations

import pytest

from broker.groups.group_bench import GROUP, REBALANCE_MS, SESSION_MS, Answer, GroupBench, wants
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import GroupState, JoinResult, MemberIdentity

OK = GroupErrorCode.NONE
ORDERS = (("sticky", wants("orders")), ("range", wants("orders")))


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


def stable_pair(bench: GroupBench) -> tuple[str, str]:
    """Two static members 'a' (leader) and 'b', each assigned its own member id."""
    first = bench.join(instance="a", protocols=ORDERS).result.member_id
    second = bench.join(instance="b", protocols=ORDERS)
    again = bench.join(first, instance="a", protocols=ORDERS)
    bench.settle([again, second])
    return first, second.result.member_id


def test_a_returning_static_member_gets_its_assignment_back_and_nobody_else_notices(bench: GroupBench) -> None:
    leader, old = stable_pair(bench)
    back = bench.join(instance="b", protocols=ORDERS).result
    assert (back.error, back.generation, back.leader_id) == (OK, 2, leader)
    assert back.member_id != old
    assert bench.sync(back.member_id, 2, instance="b").result.assignment == old.encode()
    assert bench.heartbeat(leader, 2, "a") is OK
    assert bench.heartbeat(back.member_id, 2, "b") is OK


def test_a_returning_static_leader_is_told_to_follow_so_that_it_just_fetches_its_assignment(bench: GroupBench) -> None:
    leader, _ = stable_pair(bench)
    back = bench.join(instance="a", protocols=ORDERS).result
    assert (back.is_leader, back.leader_id, back.members) == (False, leader, ())
    assert bench.sync(back.member_id, 2, instance="a").result.assignment == leader.encode()
    assert bench.coordinator.describe(GROUP).leader == back.member_id


def test_a_returning_static_leader_that_can_skip_the_assignment_stays_leader(bench: GroupBench) -> None:
    stable_pair(bench)
    back = bench.join(instance="a", protocols=ORDERS, skipping=True).result
    assert (back.is_leader, back.skip_assignment, len(back.members)) == (True, True, 2)
    assert bench.state is GroupState.STABLE


def test_a_change_of_what_it_owned_is_no_reason_to_rebalance_but_a_change_of_topics_is(bench: GroupBench) -> None:
    leader, _ = stable_pair(bench)
    note = b"\x00\x00\x00\x04note"
    other_user_data = (("sticky", wants("orders")[:-8] + note), ("range", wants("orders")))
    assert bench.join(instance="b", protocols=other_user_data).result.error is OK
    assert bench.state is GroupState.STABLE
    more = bench.join(instance="b", protocols=(("sticky", wants("orders", "refunds")), ("range", wants("orders"))))
    assert not more.arrived
    assert bench.heartbeat(leader, 2, "a") is GroupErrorCode.REBALANCE_IN_PROGRESS


def test_a_returning_static_member_that_changes_the_vote_starts_a_rebalance(bench: GroupBench) -> None:
    leader, _ = stable_pair(bench)
    only_range = bench.join(instance="b", protocols=(("range", wants("orders")),))
    assert not only_range.arrived
    again = bench.join(leader, instance="a", protocols=ORDERS)
    assert again.result.protocol == only_range.result.protocol == "range"


def test_while_a_generation_completes_a_returning_static_member_starts_over(bench: GroupBench) -> None:
    leader, follower = stable_pair(bench)
    bench.join(leader, instance="a", protocols=ORDERS)
    bench.join(follower, instance="b", protocols=ORDERS)
    parked = bench.sync(follower, 3, instance="b")
    assert bench.state is GroupState.COMPLETING_REBALANCE
    back = bench.join(instance="b", protocols=ORDERS)
    assert parked.result.error is GroupErrorCode.FENCED_INSTANCE_ID
    assert not back.arrived, "the leader may already have assigned to the old member id"
    assert bench.heartbeat(leader, 3, "a") is GroupErrorCode.REBALANCE_IN_PROGRESS
    bench.join(leader, instance="a", protocols=ORDERS)
    assert back.result.generation == 4


def test_during_a_rebalance_a_returning_static_member_takes_the_old_ones_place(bench: GroupBench) -> None:
    leader, follower = stable_pair(bench)
    newcomer = bench.join(protocols=ORDERS)
    waiting = bench.join(follower, instance="b", protocols=ORDERS)
    back = bench.join(instance="b", protocols=ORDERS)
    assert waiting.result.error is GroupErrorCode.FENCED_INSTANCE_ID
    led = bench.join(leader, instance="a", protocols=ORDERS).result
    assert newcomer.result.generation == back.result.generation == 3
    assert len(led.members) == 3


def test_a_second_process_with_the_same_instance_id_fences_the_first(bench: GroupBench) -> None:
    _, old = stable_pair(bench)
    bench.join(instance="b", protocols=ORDERS)
    fenced = GroupErrorCode.FENCED_INSTANCE_ID
    assert bench.heartbeat(old, 2, "b") is fenced
    assert bench.join(old, instance="b", protocols=ORDERS).result.error is fenced
    assert bench.sync(old, 2, instance="b").result.error is fenced
    assert bench.coordinator.validate_commit(GROUP, old, "b", 2) is fenced
    (left,) = bench.coordinator.leave(GROUP, [MemberIdentity(old, "b")])
    assert left.error is fenced
    assert bench.heartbeat(old, 2) is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_id_nobody_has_is_an_unknown_member(bench: GroupBench) -> None:
    leader, _ = stable_pair(bench)
    assert bench.heartbeat(leader, 2, "c") is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_needs_no_id_first(bench: GroupBench) -> None:
    assert bench.join(instance="a", known_id=True).result.error is OK


def test_a_static_member_that_is_away_keeps_its_place_through_a_rebalance(bench: GroupBench) -> None:
    leader = bench.join(instance="a", protocols=ORDERS, session_ms=20 * REBALANCE_MS).result.member_id
    away = bench.join(instance="b", protocols=ORDERS, session_ms=20 * REBALANCE_MS)
    again = bench.join(leader, instance="a", protocols=ORDERS, session_ms=20 * REBALANCE_MS)
    bench.settle([again, away])
    newcomer = bench.join(protocols=ORDERS)
    again = bench.join(leader, instance="a", protocols=ORDERS, session_ms=20 * REBALANCE_MS)
    bench.pass_time(REBALANCE_MS)
    assert newcomer.result.generation == 3
    assert {member.group_instance_id for member in again.result.members} == {"a", "b", None}
    assigned = {member.member_id: (member.group_instance_id or "new").encode() for member in again.result.members}
    bench.sync(leader, 3, assigned, instance="a")
    bench.sync(newcomer.result.member_id, 3)
    alive = {leader: 3, newcomer.result.member_id: 3}
    bench.pass_time(2 * REBALANCE_MS, heartbeats=alive)
    assert bench.state is GroupState.STABLE, "who was not told of the generation is not late with its sync"
    back = bench.join(instance="b", protocols=ORDERS).result
    assert bench.sync(back.member_id, 3, instance="b").result.assignment == b"b"


def test_a_static_member_that_stays_away_is_dropped_after_its_session(bench: GroupBench) -> None:
    leader, old = stable_pair(bench)
    bench.pass_time(SESSION_MS, heartbeats={leader: 2})
    assert bench.heartbeat(old, 2, "b") is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert bench.join(leader, instance="a", protocols=ORDERS).result.generation == 3


def test_when_only_absent_static_members_are_left_the_group_waits_for_one_of_them(bench: GroupBench) -> None:
    leader = bench.join(instance="a", session_ms=20 * REBALANCE_MS).result.member_id
    dynamic = bench.join()
    bench.settle([bench.join(leader, instance="a", session_ms=20 * REBALANCE_MS), dynamic])
    bench.leave(dynamic.result.member_id)
    bench.pass_time(3 * REBALANCE_MS)
    assert bench.state is GroupState.PREPARING_REBALANCE
    back = bench.join(instance="a").result
    assert (back.is_leader, back.generation, len(back.members)) == (True, 3, 1)


def test_a_rolling_restart_of_static_members_keeps_generation_and_assignments(bench: GroupBench) -> None:
    leader, follower = stable_pair(bench)
    owner = {"a": leader, "b": follower}
    current = dict(owner)
    for _ in range(3):
        for instance in ("a", "b"):
            bench.pass_time(SESSION_MS // 2, heartbeats={member: 2 for key, member in current.items()})
            back = bench.join(instance=instance, protocols=ORDERS).result
            current[instance] = back.member_id
            assert bench.sync(back.member_id, 2, instance=instance).result.assignment == owner[instance].encode()
    assert bench.generation == 2


def test_a_rolling_restart_of_dynamic_members_ends_with_everybody_in_one_generation(bench: GroupBench) -> None:
    members = bench.stable(3)
    for _ in range(3):
        leaving, *staying = members
        bench.leave(leaving)
        newcomer = bench.join()
        rejoined: list[Answer[JoinResult]] = [bench.join(member) for member in staying]
        bench.settle([*rejoined, newcomer])
        members = [answer.result.member_id for answer in (*rejoined, newcomer)]
    assert bench.state is GroupState.STABLE
    assert {bench.heartbeat(member, bench.generation) for member in members} == {OK}
