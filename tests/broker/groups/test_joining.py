"""Members come, stay and go: the classic protocol against a clock that the test moves.

Each test plays the requests that clients send, in the order that hurts, and looks at who was answered what.
"""

from __future__ import annotations

import pytest

from broker.groups.group_bench import GROUP, REBALANCE_MS, SESSION_MS, Answer, GroupBench, wants
from foldlog.broker.groups.errors import GroupErrorCode, exception_for, raise_for
from foldlog.broker.groups.messages import (
    GroupSettings,
    GroupState,
    JoinRequest,
    JoinResult,
    MemberIdentity,
    SyncRequest,
    SyncResult,
)
from foldlog.errors import (
    FoldlogError,
    IllegalGeneration,
    InconsistentProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from foldlog.limits import GROUP_METADATA_BYTES_MAX, MEMBER_METADATA_BYTES_MAX, NEW_MEMBER_JOIN_TIMEOUT_MS

OK = GroupErrorCode.NONE


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


# --- the ordinary way ------------------------------------------------------------------------------------------------


def test_the_first_member_leads_generation_one_at_once(bench: GroupBench) -> None:
    first = bench.join().result
    assert (first.error, first.generation, first.is_leader, first.protocol) == (OK, 1, True, "range")
    assert [member.metadata for member in first.members] == [b"topics"]
    assert bench.state is GroupState.COMPLETING_REBALANCE


def test_followers_wait_for_the_leaders_assignments(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    again = [bench.join(leader), bench.join(follower)]
    leads, follows = (answer.result for answer in again)
    assert leads.is_leader
    assert not follows.is_leader
    assert follows.members == ()
    parked = bench.sync(follower, follows.generation)
    assert not parked.arrived
    bench.sync(leader, leads.generation, {leader: b"L", follower: b"F"})
    assert parked.result.assignment == b"F"
    assert bench.state is GroupState.STABLE


def test_a_member_the_leader_left_out_gets_an_empty_assignment(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    bench.join(leader)
    generation = bench.join(follower).result.generation
    bench.sync(leader, generation, {leader: b"all"})
    assert bench.sync(follower, generation).result == SyncResult(OK, b"", "consumer", "range")


def test_a_second_member_waits_until_the_first_has_joined_again(bench: GroupBench) -> None:
    (first,) = bench.stable(1)
    second = bench.join()
    assert not second.arrived
    assert bench.heartbeat(first, 1) is GroupErrorCode.REBALANCE_IN_PROGRESS
    again = bench.join(first)
    assert again.result.generation == second.result.generation == 2
    assert len(again.result.members) == 2


def test_a_member_that_leaves_frees_its_place_without_waiting(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    assert bench.leave(leader) == [OK]
    assert bench.heartbeat(follower, 2) is GroupErrorCode.REBALANCE_IN_PROGRESS
    assert bench.join(follower).result.is_leader


def test_when_all_leave_in_one_request_the_group_is_empty_and_its_generation_has_moved_on(bench: GroupBench) -> None:
    members = bench.stable(3)
    assert bench.leave(*members, "stranger") == [OK, OK, OK, GroupErrorCode.UNKNOWN_MEMBER_ID]
    assert bench.state is GroupState.EMPTY
    assert bench.generation == 4
    assert bench.join().result.generation == 5


def test_leaving_an_unknown_group_says_so_for_each_member(bench: GroupBench) -> None:
    assert bench.leave("a", "b") == [GroupErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_the_protocol_most_members_prefer_is_chosen_among_those_all_offer(bench: GroupBench) -> None:
    first = bench.join(protocols=(("sticky", b"1"), ("range", b"1"))).result
    others = [bench.join(protocols=(("range", b"2"), ("sticky", b"2"), ("own", b"2"))) for _ in range(2)]
    again = bench.join(first.member_id, protocols=(("sticky", b"1"), ("range", b"1")))
    assert again.result.protocol == "range"
    assert {member.metadata for member in again.result.members} == {b"1", b"2"}
    assert all(other.result.protocol == "range" for other in others)


def test_at_a_tie_the_leaders_preference_decides(bench: GroupBench) -> None:
    first = bench.join(protocols=(("sticky", b""), ("range", b""))).result
    bench.join(protocols=(("range", b""), ("sticky", b"")))
    assert bench.join(first.member_id, protocols=(("sticky", b""), ("range", b""))).result.protocol == "sticky"


def test_two_groups_do_not_notice_each_other(bench: GroupBench) -> None:
    (member,) = bench.stable(1)
    assert bench.join(group="audit").result.generation == 1
    assert bench.heartbeat(member, 1) is OK
    assert {listing.group: listing.state for listing in bench.coordinator.list_groups()} == {
        GROUP: GroupState.STABLE,
        "audit": GroupState.COMPLETING_REBALANCE,
    }


def test_describe_shows_metadata_and_assignments_of_a_stable_group_only(bench: GroupBench) -> None:
    (member,) = bench.stable(1)
    described = bench.coordinator.describe(GROUP)
    assert (described.state, described.protocol_type, described.protocol) == (GroupState.STABLE, "consumer", "range")
    (shown,) = described.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (member, "app", "/127.0.0.1")
    assert (shown.metadata, shown.assignment) == (b"topics", member.encode())
    bench.join()
    assert {shown.assignment for shown in bench.coordinator.describe(GROUP).members} == {b""}
    assert bench.coordinator.describe("nobody").state is GroupState.DEAD


def test_subscribed_topics_are_those_of_all_members(bench: GroupBench) -> None:
    bench.join(protocols=(("range", wants("orders", "refunds")),))
    assert bench.coordinator.subscribed_topics(GROUP) == frozenset({"orders", "refunds"})
    bench.join(group="other", protocols=(("range", b"\x00\x01\x7f\xff\xff\xff"),))
    assert bench.coordinator.subscribed_topics("other") is None
    assert bench.coordinator.subscribed_topics("nobody") == frozenset()


def test_only_an_empty_group_can_be_deleted(bench: GroupBench) -> None:
    (member,) = bench.stable(1)
    assert bench.coordinator.delete(GROUP) is GroupErrorCode.NON_EMPTY_GROUP
    bench.leave(member)
    assert bench.coordinator.delete(GROUP) is OK
    assert bench.coordinator.delete(GROUP) is GroupErrorCode.GROUP_ID_NOT_FOUND
    assert bench.coordinator.next_deadline_ms() is None


def test_sweeping_deletes_empty_groups_that_have_no_offsets(bench: GroupBench) -> None:
    (member,) = bench.stable(1)
    assert bench.coordinator.sweep(lambda group: False) == []
    bench.leave(member)
    assert bench.coordinator.sweep(lambda group: True) == []
    assert bench.coordinator.sweep(lambda group: False) == [GROUP]
    assert bench.state is GroupState.DEAD


# --- races -----------------------------------------------------------------------------------------------------------


def test_a_heartbeat_between_join_and_sync_is_welcome(bench: GroupBench) -> None:
    joined = bench.join().result
    assert bench.heartbeat(joined.member_id, joined.generation) is OK


def test_a_heartbeat_of_a_member_whose_join_is_parked_tells_it_to_wait(bench: GroupBench) -> None:
    first, second = bench.stable(2)
    bench.join()
    parked = bench.join(first)
    assert bench.heartbeat(first, 2) is GroupErrorCode.REBALANCE_IN_PROGRESS
    assert not parked.arrived
    bench.join(second)
    assert parked.result.error is OK
    assert bench.heartbeat(first, 2) is GroupErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat(first, 3) is OK


def test_a_parked_join_outlives_any_session_timeout(bench: GroupBench) -> None:
    first, second = bench.stable(2)
    newcomer = bench.join()
    parked = bench.join(first)
    bench.pass_time(3 * SESSION_MS, heartbeats={second: 2})
    assert not parked.arrived
    bench.join(second)
    assert parked.result.error is newcomer.result.error is OK
    assert bench.heartbeat(first, 3) is OK


def test_a_parked_sync_outlives_any_session_timeout(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    bench.join(leader)
    generation = bench.join(follower).result.generation
    parked = bench.sync(follower, generation)
    bench.pass_time(3 * SESSION_MS, heartbeats={leader: generation})
    assert not parked.arrived
    bench.sync(leader, generation, {follower: b"F"})
    assert parked.result.assignment == b"F"


def test_the_session_of_a_parked_member_starts_anew_when_it_is_answered(bench: GroupBench) -> None:
    first, second = bench.stable(2)
    bench.join()
    parked = bench.join(first)
    bench.pass_time(SESSION_MS * 2, heartbeats={second: 2})
    bench.join(second)
    bench.pass_time(SESSION_MS - 1)
    assert bench.heartbeat(first, parked.result.generation) is OK


def test_a_join_sent_twice_is_answered_once_each_and_the_newer_one_counts(bench: GroupBench) -> None:
    first, second = bench.stable(2)
    bench.join()
    given_up = bench.join(first)
    again = bench.join(first)
    assert given_up.result.error is GroupErrorCode.REBALANCE_IN_PROGRESS
    bench.join(second)
    assert again.result.error is OK


def test_a_sync_sent_twice_is_answered_once_each(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    bench.join(leader)
    generation = bench.join(follower).result.generation
    given_up, again = bench.sync(follower, generation), bench.sync(follower, generation)
    assert given_up.result.error is GroupErrorCode.REBALANCE_IN_PROGRESS
    bench.sync(leader, generation, {follower: b"F"})
    assert again.result.assignment == b"F"


def test_a_follower_that_missed_the_answer_gets_it_again_without_a_rebalance(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    assert bench.join(follower).result.generation == 2
    assert bench.state is GroupState.STABLE
    assert bench.sync(follower, 2).result.assignment == follower.encode()
    assert bench.heartbeat(leader, 2) is OK


def test_a_leader_that_missed_the_answer_gets_the_members_again(bench: GroupBench) -> None:
    first = bench.join().result
    assert bench.join(first.member_id).result == first


def test_a_stable_leader_that_joins_again_starts_a_rebalance(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    assert not bench.join(leader).arrived
    assert bench.heartbeat(follower, 2) is GroupErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_with_other_metadata_starts_a_rebalance(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    assert not bench.join(follower, protocols=(("range", b"more topics"),)).arrived
    assert bench.heartbeat(leader, 2) is GroupErrorCode.REBALANCE_IN_PROGRESS


def test_a_join_during_completion_sends_the_parked_syncs_back(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    bench.join(leader)
    generation = bench.join(follower).result.generation
    parked = bench.sync(follower, generation)
    bench.join()
    assert parked.result.error is GroupErrorCode.REBALANCE_IN_PROGRESS
    assert bench.sync(leader, generation, {}).result.error is GroupErrorCode.REBALANCE_IN_PROGRESS
    assert bench.heartbeat(follower, generation) is GroupErrorCode.REBALANCE_IN_PROGRESS


def test_when_the_leader_leaves_before_it_assigned_the_others_elect_another(bench: GroupBench) -> None:
    leader, second, third = bench.stable(3)
    for member in (leader, second, third):
        bench.join(member)
    generation = bench.generation
    parked = [bench.sync(second, generation), bench.sync(third, generation)]
    bench.leave(leader)
    assert [answer.result.error for answer in parked] == [GroupErrorCode.REBALANCE_IN_PROGRESS] * 2
    rejoined = [bench.join(second), bench.join(third)]
    assert [answer.result.is_leader for answer in rejoined] == [True, False]
    bench.settle(rejoined)


def test_a_member_that_leaves_while_parked_is_answered(bench: GroupBench) -> None:
    bench.stable(1)
    newcomer: Answer[JoinResult] = bench.join()
    waiting = next(m.member_id for m in bench.coordinator.describe(GROUP).members if m.member_id.endswith("2"))
    bench.leave(waiting)
    assert newcomer.result.error is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_reply_may_call_the_coordinator_again(bench: GroupBench) -> None:
    synced: Answer[SyncResult] = Answer()

    def sync_at_once(joined: JoinResult) -> None:
        mine = {joined.member_id: b"mine"}
        bench.coordinator.sync(SyncRequest(GROUP, joined.member_id, joined.generation, mine), synced)

    bench.coordinator.join(JoinRequest(GROUP, "consumer", (("range", b""),), SESSION_MS, REBALANCE_MS), sync_at_once)
    assert synced.result.assignment == b"mine"
    assert bench.state is GroupState.STABLE


# --- silence ---------------------------------------------------------------------------------------------------------


def test_a_silent_member_is_dropped_after_its_session_timeout(bench: GroupBench) -> None:
    alive, silent = bench.stable(2)
    bench.pass_time(SESSION_MS + 1, heartbeats={alive: 2})
    assert bench.heartbeat(silent, 2) is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(alive, 2) is GroupErrorCode.REBALANCE_IN_PROGRESS
    assert bench.join(alive).result.generation == 3


def test_a_group_whose_members_all_fall_silent_becomes_empty(bench: GroupBench) -> None:
    bench.stable(3)
    bench.pass_time(SESSION_MS + 1)
    assert bench.state is GroupState.EMPTY
    assert bench.coordinator.next_deadline_ms() is None


def test_a_slow_member_that_heartbeats_is_dropped_at_the_rebalance_timeout(bench: GroupBench) -> None:
    prompt, slow = bench.stable(2)
    newcomer, rejoined = bench.join(), bench.join(prompt)
    bench.pass_time(REBALANCE_MS - 1, heartbeats={slow: 2})
    assert not newcomer.arrived
    bench.pass_time(1, heartbeats={slow: 2})
    assert {newcomer.result.generation, rejoined.result.generation} == {3}
    assert bench.join(slow).result.error is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_does_not_hold_a_rebalance_up_longer_than_its_session(bench: GroupBench) -> None:
    prompt, _silent = bench.stable(2)
    newcomer = bench.join()
    bench.join(prompt)
    bench.pass_time(SESSION_MS)
    assert newcomer.result.error is OK


def test_a_leader_that_never_assigns_is_dropped_at_the_rebalance_timeout(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    bench.join(leader)
    generation = bench.join(follower).result.generation
    parked = bench.sync(follower, generation)
    bench.pass_time(REBALANCE_MS, heartbeats={leader: generation})
    assert parked.result.error is GroupErrorCode.REBALANCE_IN_PROGRESS
    assert bench.heartbeat(leader, generation) is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert bench.join(follower).result.is_leader


def test_a_follower_that_never_fetches_its_assignment_is_dropped_even_from_a_stable_group(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    bench.join(leader)
    generation = bench.join(follower).result.generation
    bench.sync(leader, generation, {})
    bench.pass_time(REBALANCE_MS, heartbeats={leader: generation, follower: generation})
    assert bench.heartbeat(follower, generation) is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_newcomer_whose_first_join_stays_parked_is_given_up_at_last(bench: GroupBench) -> None:
    (first,) = bench.stable(1, rebalance_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    newcomer = bench.join()
    bench.pass_time(NEW_MEMBER_JOIN_TIMEOUT_MS, heartbeats={first: 1})
    assert newcomer.result.error is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_ticking_early_changes_nothing_and_late_heartbeats_before_the_tick_count(bench: GroupBench) -> None:
    (member,) = bench.stable(1)
    bench.clock.advance(SESSION_MS * 5)
    assert bench.heartbeat(member, 1) is OK
    bench.coordinator.tick(bench.clock.monotonic_ms())
    assert bench.heartbeat(member, 1) is OK
    assert bench.coordinator.next_deadline_ms() == bench.clock.monotonic_ms() + SESSION_MS


def test_setting_the_wall_clock_expires_nobody(bench: GroupBench) -> None:
    (member,) = bench.stable(1)
    for wall_ms in (0, 1 << 50):
        bench.clock.set_wall(wall_ms)
        bench.coordinator.tick()
        assert bench.heartbeat(member, 1) is OK


# --- KIP-394: ids before membership ----------------------------------------------------------------------------------


def test_a_network_client_gets_an_id_first_and_joins_with_it(bench: GroupBench) -> None:
    first = bench.join(known_id=True).result
    assert (first.error, first.generation) == (GroupErrorCode.MEMBER_ID_REQUIRED, -1)
    joined = bench.join(first.member_id, known_id=True).result
    assert (joined.error, joined.member_id, joined.generation) == (OK, first.member_id, 1)


def test_a_rebalance_waits_for_ids_that_were_handed_out(bench: GroupBench) -> None:
    (member,) = bench.stable(1)
    pending = bench.join(known_id=True).result.member_id
    other = bench.join(bench.join(known_id=True).result.member_id)
    bench.join(member)
    assert not other.arrived
    bench.join(pending)
    assert other.result.error is OK


def test_an_id_that_is_never_used_expires_and_lets_the_rebalance_go_on(bench: GroupBench) -> None:
    (member,) = bench.stable(1)
    pending = bench.join(known_id=True).result.member_id
    newcomer, rejoined = bench.join(), bench.join(member)
    assert not newcomer.arrived
    bench.pass_time(SESSION_MS)
    assert newcomer.result.error is rejoined.result.error is OK
    assert bench.join(pending).result.error is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_handed_out_can_be_given_back(bench: GroupBench) -> None:
    pending = bench.join(known_id=True).result.member_id
    assert bench.coordinator.delete(GROUP) is GroupErrorCode.NON_EMPTY_GROUP
    assert bench.leave(pending) == [OK]
    assert bench.state is GroupState.DEAD, "a group that never had a member is forgotten"
    assert bench.coordinator.next_deadline_ms() is None


def test_a_heartbeat_with_an_id_that_has_not_joined_is_refused(bench: GroupBench) -> None:
    pending = bench.join(known_id=True).result.member_id
    assert bench.heartbeat(pending, 0) is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_without_an_instance_cannot_be_used_by_a_static_member(bench: GroupBench) -> None:
    pending = bench.join(known_id=True).result.member_id
    assert bench.join(pending, instance="i").result.error is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_joins_sent_at_the_same_time_never_meet_an_unknown_member(bench: GroupBench) -> None:
    ids = [bench.join(known_id=True).result.member_id for _ in range(10)]
    joins = {member: bench.join(member, known_id=True) for member in ids}
    for _ in range(20):
        for member, answer in joins.items():
            if not answer.arrived:
                continue
            assert answer.result.error is OK
            if bench.heartbeat(member, answer.result.generation) is not OK:
                joins[member] = bench.join(member)
    assert {answer.result.generation for answer in joins.values()} == {bench.generation}
    bench.settle(list(joins.values()))


# --- the initial delay -----------------------------------------------------------------------------------------------


def test_with_an_initial_delay_members_that_come_together_share_the_first_generation() -> None:
    bench = GroupBench(GroupSettings(initial_rebalance_delay_ms=3000))
    first = bench.join()
    bench.pass_time(2000)
    second = bench.join()
    bench.pass_time(1000)
    assert not first.arrived, "a newcomer stretches the delay"
    bench.pass_time(3000)
    assert (first.result.generation, second.result.generation) == (1, 1)
    assert len(first.result.members) == 2


def test_the_initial_delay_ends_at_the_rebalance_timeout_however_many_come() -> None:
    bench = GroupBench(GroupSettings(initial_rebalance_delay_ms=3000))
    first = bench.join(rebalance_ms=10_000)
    for _ in range(10):
        assert not first.arrived
        bench.join(rebalance_ms=10_000)
        bench.pass_time(1000)
    assert len(first.result.members) == 11


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"group": ""}, GroupErrorCode.INVALID_GROUP_ID),
        ({"group": "g" * 40_000}, GroupErrorCode.INVALID_GROUP_ID),
        ({"group": "\ud800"}, GroupErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 1}, GroupErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, GroupErrorCode.INVALID_SESSION_TIMEOUT),
        ({"rebalance_ms": 0}, GroupErrorCode.INVALID_SESSION_TIMEOUT),
        ({"rebalance_ms": 1 << 31}, GroupErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("range", b""), ("range", b""))}, GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("p" * 20_000, b""),)}, GroupErrorCode.INVALID_REQUEST),
        ({"protocols": tuple((f"p{n}", b"") for n in range(33))}, GroupErrorCode.INVALID_REQUEST),
        ({"protocols": (("range", bytes(MEMBER_METADATA_BYTES_MAX)),)}, GroupErrorCode.INVALID_REQUEST),
        ({"member_id": "made-up"}, GroupErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_join_that_cannot_be_right_is_refused_and_leaves_no_group_behind(
    bench: GroupBench, change: dict[str, object], error: GroupErrorCode
) -> None:
    assert bench.join(**change).result.error is error  # type: ignore[arg-type]
    assert bench.coordinator.list_groups() == []


def test_a_member_that_shares_no_protocol_is_refused_and_the_group_stays_stable(bench: GroupBench) -> None:
    bench.stable(1)
    assert bench.join(protocols=(("own", b""),)).result.error is GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.join(protocol_type="connect").result.error is GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.state is GroupState.STABLE


def test_an_empty_group_takes_any_protocol(bench: GroupBench) -> None:
    bench.leave(*bench.stable(1))
    assert bench.join(protocol_type="connect", protocols=(("own", b""),)).result.error is OK


def test_a_full_group_refuses_newcomers_and_keeps_its_members() -> None:
    bench = GroupBench(GroupSettings(members_max=2))
    first, second = bench.stable(2)
    assert bench.join().result.error is GroupErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.join(known_id=True).result.error is GroupErrorCode.GROUP_MAX_SIZE_REACHED
    rejoined = bench.join(first)
    assert bench.join(second).result.error is rejoined.result.error is OK


def test_ids_that_wait_are_bounded() -> None:
    bench = GroupBench(GroupSettings(pending_members_max=1))
    assert bench.join(known_id=True).result.error is GroupErrorCode.MEMBER_ID_REQUIRED
    assert bench.join(known_id=True).result.error is GroupErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_number_of_groups_is_bounded() -> None:
    bench = GroupBench(GroupSettings(groups_max=1))
    bench.stable(1)
    assert bench.join(group="one too many").result.error is GroupErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_groups_metadata_is_bounded_as_a_whole(bench: GroupBench) -> None:
    big = (("range", bytes(MEMBER_METADATA_BYTES_MAX - 5)),)
    answers = [bench.join(protocols=big) for _ in range(GROUP_METADATA_BYTES_MAX // MEMBER_METADATA_BYTES_MAX + 1)]
    assert answers[-1].result.error is GroupErrorCode.GROUP_MAX_SIZE_REACHED


def test_assignments_are_bounded(bench: GroupBench) -> None:
    member = bench.join().result.member_id
    too_big = {member: bytes(MEMBER_METADATA_BYTES_MAX + 1)}
    assert bench.sync(member, 1, too_big).result.error is GroupErrorCode.INVALID_REQUEST
    assert bench.sync(member, 1, {member: b"ok"}).result.assignment == b"ok"


def test_a_sync_that_does_not_belong_is_refused(bench: GroupBench) -> None:
    assert bench.sync("nobody", 1).result.error is GroupErrorCode.UNKNOWN_MEMBER_ID
    (member,) = bench.stable(1)
    assert bench.sync("nobody", 1).result.error is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert bench.sync(member, 0).result.error is GroupErrorCode.ILLEGAL_GENERATION
    for wrong in (
        SyncRequest(GROUP, member, 1, {}, protocol="sticky"),
        SyncRequest(GROUP, member, 1, {}, protocol_type="connect"),
    ):
        answer: Answer[SyncResult] = Answer()
        bench.coordinator.sync(wrong, answer)
        assert answer.result.error is GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_closing_answers_everybody_who_waits(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    parked_join = bench.join()
    bench.join(group="other")
    bench.coordinator.close()
    assert parked_join.result.error is GroupErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.coordinator.next_deadline_ms() is None
    assert bench.heartbeat(leader, 2) is bench.heartbeat(follower, 2) is GroupErrorCode.UNKNOWN_MEMBER_ID


# --- commits ---------------------------------------------------------------------------------------------------------


def test_a_commit_from_an_old_generation_is_refused(bench: GroupBench) -> None:
    (first,) = bench.stable(1)
    bench.join()
    bench.join(first)
    assert bench.coordinator.validate_commit(GROUP, first, None, 1) is GroupErrorCode.ILLEGAL_GENERATION


def test_a_member_of_the_closing_generation_may_still_commit_until_it_joins_the_next(bench: GroupBench) -> None:
    (first,) = bench.stable(1)
    bench.join()
    assert bench.coordinator.validate_commit(GROUP, first, None, 1) is OK
    bench.join(first)
    assert bench.coordinator.validate_commit(GROUP, first, None, 2) is GroupErrorCode.REBALANCE_IN_PROGRESS


def test_of_a_commit_in_a_transaction_only_what_it_tells_is_checked(bench: GroupBench) -> None:
    """As in Kafka: who sends it may be of a version that tells no member, and a rebalance does not matter."""
    (first,) = bench.stable(1)
    bench.join()
    bench.join(first)

    def answer(member: str, generation: int) -> GroupErrorCode:
        return bench.coordinator.validate_commit(GROUP, member, None, generation, transactional=True)

    assert bench.coordinator.validate_commit(GROUP, first, None, 2) is GroupErrorCode.REBALANCE_IN_PROGRESS
    assert answer(first, 2) is OK
    assert answer("", -1) is OK
    assert answer(first, 1) is GroupErrorCode.ILLEGAL_GENERATION
    assert answer("zombie", 2) is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_counts_as_a_sign_of_life(bench: GroupBench) -> None:
    (member,) = bench.stable(1)
    for _ in range(4):
        bench.pass_time(SESSION_MS - 1)
        assert bench.coordinator.validate_commit(GROUP, member, None, 1) is OK


def test_a_reader_without_a_group_generation_may_commit_only_where_nobody_is_a_member(bench: GroupBench) -> None:
    assert bench.coordinator.validate_commit(GROUP, "", None, -1) is OK
    assert bench.coordinator.validate_commit(GROUP, "zombie", None, 3) is GroupErrorCode.ILLEGAL_GENERATION
    (member,) = bench.stable(1)
    assert bench.coordinator.validate_commit(GROUP, "", None, -1) is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert bench.coordinator.validate_commit(GROUP, member, None, -1) is GroupErrorCode.ILLEGAL_GENERATION
    bench.leave(member)
    assert bench.coordinator.validate_commit(GROUP, "", None, -1) is OK
    assert bench.coordinator.validate_commit(GROUP, member, None, 1) is GroupErrorCode.UNKNOWN_MEMBER_ID


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (GroupErrorCode.UNKNOWN_MEMBER_ID, UnknownMember),
        (GroupErrorCode.ILLEGAL_GENERATION, IllegalGeneration),
        (GroupErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgress),
        (GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL, InconsistentProtocol),
    ],
)
def test_codes_become_the_librarys_exceptions(code: GroupErrorCode, kind: type[FoldlogError]) -> None:
    with pytest.raises(kind, match="group 'fraud' "):
        raise_for(code, GROUP)


def test_every_code_but_none_has_an_exception() -> None:
    assert exception_for(OK, GROUP) is None
    raise_for(OK, GROUP)
    assert all(exception_for(code, GROUP) for code in GroupErrorCode if code is not OK)


def test_codes_are_kafkas() -> None:
    from kio.schema.errors import ErrorCode

    names = {int(code.value): code.name.upper() for code in ErrorCode}
    assert {code.value: code.name for code in GroupErrorCode} == {
        code.value: names[code.value] for code in GroupErrorCode
    }


def test_leaving_by_instance_id_alone_removes_a_static_member(bench: GroupBench) -> None:
    bench.join(instance="shelf-1")
    assert [result.error for result in bench.coordinator.leave(GROUP, [MemberIdentity("", "shelf-1")])] == [OK]
    assert [result.error for result in bench.coordinator.leave(GROUP, [MemberIdentity("", "shelf-1")])] == [
        GroupErrorCode.UNKNOWN_MEMBER_ID
    ]
    assert bench.state is GroupState.EMPTY
