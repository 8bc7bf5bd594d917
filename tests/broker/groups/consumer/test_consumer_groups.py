"""One thing at a time about consumer groups: who is given what and when, who is fenced, who may commit, how a group
changes its protocol. Members are those of `simulated_consumers`; times are of a clock that the test turns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.groups.consumer.simulated_consumers import (
    GROUP,
    NONE,
    REBALANCE_MS,
    ROUND_MS,
    SESSION_MS,
    World,
    is_consumer_group,
)
from foldlog.broker.groups import state as groups
from foldlog.broker.groups.consumer.coordinator import refuse_heartbeat
from foldlog.broker.groups.consumer.messages import ConsumerGroupSettings, MemberHeartbeat, MigrationPolicy
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import GroupState, GroupType, MemberIdentity
from foldlog.broker.regular_expressions import compile_regex

SETTINGS = ConsumerGroupSettings(session_timeout_ms=SESSION_MS)


def settled(world: World) -> World:
    world.rounds(10)
    world.check_settled()
    return world


# --- assigning and giving back ----------------------------------------------------------------------------------------


def test_a_partition_is_free_only_when_its_member_reports_without_it() -> None:
    world = World(a=2)
    first = world.consumer("a")
    settled(world)
    second = world.consumer("a")
    assert second.beat().assignment == frozenset()
    answer = first.beat()  # it says nothing of what it owns: that confirms nothing
    assert len(answer.assignment or ()) == 1
    assert answer.member_epoch == 1, "it keeps its epoch until it has given back"
    assert first.beat().assignment is None
    assert second.beat().assignment is None
    first.settle()
    assert first.beat().member_epoch == 2
    assert second.beat().assignment is not None


def test_nothing_new_is_given_while_something_has_to_be_given_back() -> None:
    world = World(a=2, b=4)
    first = world.consumer("a")
    settled(world)
    world.consumer("a").beat()
    first.beat()
    before = first.epoch
    world.topics.put("a", 6)  # the target grows meanwhile
    answer = first.beat()
    assert (answer.member_epoch, answer.assignment) == (before, None)
    settled(world)


def test_partitions_are_assigned_again_only_after_the_interval() -> None:
    world = World(replace(SETTINGS, assignment_interval_ms=3 * ROUND_MS), a=3)
    first = world.consumer("a")
    first.step()
    assert len(first.owned) == 3, "the first assignment does not wait"
    others = [world.consumer("a") for _ in range(2)]
    for member in others:
        assert member.beat().assignment == frozenset()
    assert world.coordinator.describe(GROUP).state is GroupState.ASSIGNING
    assert first.beat().assignment is None
    world.wait(3 * ROUND_MS)
    first.beat()
    assert world.coordinator.describe(GROUP).assignment_epoch == 3, "one assignment for both"
    settled(world)


def test_classic_members_do_not_wait_for_the_interval() -> None:
    world = World(replace(SETTINGS, assignment_interval_ms=1_000 * ROUND_MS), a=2)
    world.consumer("a").step()
    world.classic("a")
    settled(world)


def test_who_waits_for_others_writes_nothing_with_each_heartbeat() -> None:
    world = World(a=2)
    first, second = world.consumer("a"), world.consumer("a")
    first.step()
    second.beat()
    second.beat()
    world.store()
    for _ in range(3):
        second.beat()
        first.beat()
    before = len(world.log)
    second.beat()
    world.store()
    assert world.coordinator.describe(GROUP).state is GroupState.RECONCILING
    second.beat()
    world.store()
    assert len(world.log) == before + 1, "the first member was told to give back; since then nothing has happened"


def test_who_does_not_give_back_in_time_is_removed() -> None:
    world = World(a=2)
    slow = world.consumer("a")
    settled(world)
    other = world.consumer("a")
    other.step()
    for _ in range(REBALANCE_MS // ROUND_MS + 2):
        world.wait(ROUND_MS)
        slow.beat()  # its session is alive; what it reads stays the same
        other.step()
    assert world.coordinator.describe(GROUP).generation >= 3, "it was removed, and has joined again"


def test_who_is_silent_for_a_session_is_removed_and_fenced() -> None:
    world = World(a=2)
    silent = world.consumer("a")
    settled(world)
    partition = min(silent.owned)
    world.wait(SESSION_MS + 1)
    assert world.coordinator.describe(GROUP).state is GroupState.EMPTY
    assert silent.commit(partition) is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert silent.beat().error is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_topics_that_change_raise_the_epoch_once() -> None:
    world = World(a=2)
    member = world.consumer("a")
    settled(world)
    world.topics.put("other", 3)
    member.beat()
    assert world.coordinator.describe(GROUP).generation == 1, "nobody reads that topic"
    world.topics.put("a", 3)
    member.step()
    assert world.coordinator.describe(GROUP).generation == 2
    settled(world)
    world.topics.delete("a")
    settled(world)
    assert member.owned == frozenset()


def test_a_subscription_in_another_order_is_no_change() -> None:
    world = World(a=1, b=1)
    member = world.consumer("a", "b")
    settled(world)
    member.topics, member._must_say_all = ("b", "a"), True
    member.beat()
    assert world.coordinator.describe(GROUP).generation == 1


def test_most_members_choose_the_assignor() -> None:
    world = World(a=6)
    for wanted in ("range", "range", "uniform"):
        member = world.consumer("a")
        world.coordinator.consumer_heartbeat(replace(member.request(), assignor=wanted))
    assert world.coordinator.describe(GROUP).protocol == "range"


def test_a_regular_expression_finds_topics_that_come_later() -> None:
    pytest.importorskip("re2")
    world = World(orders=1, orders_eu=2)
    member = world.consumer(regex="orders.*")
    settled(world)
    world.topics.put("orders_us", 2)
    world.topics.put("reorders", 1)
    settled(world)
    names = {world.topics.image.names[topic_id] for topic_id, _ in member.owned}
    assert names == {"orders", "orders_eu", "orders_us"}, "whole names match, not parts"
    world.restart()
    world.rounds(1)
    world.check_settled()


# --- epochs, fencing, commits -----------------------------------------------------------------------------------------


def test_a_retry_after_a_lost_answer_is_taken_and_an_older_epoch_is_fenced() -> None:
    world = World(a=2)
    member = world.consumer("a")
    settled(world)
    world.topics.put("a", 3)
    member.beat(is_lost=True)
    answer = member.beat()
    assert (answer.error, answer.member_epoch) == (NONE, 2)
    stale = replace(member.request(), member_epoch=1, owned=frozenset({*member.owned, (bytes(16), 0)}))
    assert world.coordinator.consumer_heartbeat(stale).error is GroupErrorCode.FENCED_MEMBER_EPOCH, "it reads more"
    silent = replace(member.request(), member_epoch=1, owned=None)
    assert world.coordinator.consumer_heartbeat(silent).error is GroupErrorCode.FENCED_MEMBER_EPOCH
    newer = replace(member.request(), member_epoch=9)
    assert world.coordinator.consumer_heartbeat(newer).error is GroupErrorCode.FENCED_MEMBER_EPOCH


def test_a_commit_at_an_older_epoch_is_taken_where_the_partition_was_its_own_then() -> None:
    world = World(a=1)
    member = world.consumer("a")
    settled(world)
    (old,) = member.owned
    world.topics.put("a", 2)
    settled(world)
    assert member.epoch == 2
    (new,) = member.owned - {old}
    assert member.commit(old, 1) is NONE
    assert member.commit(new, 1) is GroupErrorCode.STALE_MEMBER_EPOCH, "it was assigned at epoch 2"
    assert member.commit(new, 2) is NONE
    assert member.commit(old, 3) is GroupErrorCode.STALE_MEMBER_EPOCH
    both = [("a", 0), ("a", 1)]
    code = world.coordinator.validate_commit(GROUP, member.member_id, None, 1, both)
    assert code is GroupErrorCode.STALE_MEMBER_EPOCH, "all or none"
    assert world.coordinator.validate_commit(GROUP, "", None, -1, both) is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_fetching_commits_needs_the_current_epoch_of_who_says_to_be_a_member() -> None:
    world = World(a=1)
    member = world.consumer("a")
    settled(world)
    ask = world.coordinator.validate_fetch
    assert ask(GROUP, None, -1) is NONE
    assert ask(GROUP, member.member_id, 1) is NONE
    assert ask(GROUP, member.member_id, 2) is GroupErrorCode.STALE_MEMBER_EPOCH
    assert ask(GROUP, "who", 1) is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_members_go_on_at_their_epochs_after_a_restart() -> None:
    world = World(a=3)
    members = [world.consumer("a"), world.consumer("a", instance="i")]
    settled(world)
    before = [(member.epoch, member.owned) for member in members]
    world.restart()
    world.rounds(2)
    assert [(member.epoch, member.owned) for member in members] == before
    assert members[0].history[-1][0] == before[0][0]
    world.restart()
    world.wait(SESSION_MS - 1)
    assert len(world.coordinator.describe(GROUP).members) == 2, "sessions begin anew"
    world.wait(2)
    assert world.coordinator.describe(GROUP).members == ()


def test_a_restart_in_the_middle_of_giving_back_keeps_what_is_owned() -> None:
    world = World(a=2)
    first = world.consumer("a")
    settled(world)
    world.consumer("a").beat()
    first.beat()
    world.restart()
    group = world.group
    assert group is not None
    assert len(group.owners) == 2
    settled(world)


# --- static members ---------------------------------------------------------------------------------------------------


def test_a_static_member_that_leaves_for_a_moment_finds_its_partitions_again() -> None:
    world = World(a=4)
    stays, goes = world.consumer("a"), world.consumer("a", instance="i")
    settled(world)
    owned, epoch = goes.owned, world.coordinator.describe(GROUP).generation
    goes.leave(returns=True)
    world.rounds(2)
    assert len(stays.owned) == 2, "its partitions wait for it"
    back = world.consumer("a", instance="i")
    back.step()
    assert (back.owned, back.epoch) == (owned, epoch), "and nobody else noticed"
    world.restart()
    settled(world)


def test_an_instance_id_has_one_owner() -> None:
    world = World(a=2)
    first = world.consumer("a", instance="i")
    settled(world)
    second = world.consumer("a", instance="i")
    assert second.beat().error is GroupErrorCode.UNRELEASED_INSTANCE_ID
    first.leave(returns=True)
    third = world.consumer("a", instance="i")
    third.step()
    first.is_alive = True
    assert first.beat().error is GroupErrorCode.FENCED_INSTANCE_ID
    partition = min(third.owned)
    assert first.commit(partition) is GroupErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_loses_its_partitions() -> None:
    world = World(a=2)
    stays, goes = world.consumer("a"), world.consumer("a", instance="i")
    settled(world)
    goes.leave(returns=True)
    world.rounds(SESSION_MS // ROUND_MS + 5)
    assert len(stays.owned) == 2


def test_a_static_member_whose_join_was_answered_in_vain_may_ask_again() -> None:
    world = World(a=2)
    member = world.consumer("a", instance="i")
    member.beat(is_lost=True)
    assert member.beat().error is NONE
    settled(world)


# --- leaving, evicting, deleting --------------------------------------------------------------------------------------


def test_members_are_evicted_by_leave_group_and_a_group_without_any_is_deleted() -> None:
    world = World(a=2)
    member = world.consumer("a")
    settled(world)
    assert world.coordinator.delete(GROUP) is GroupErrorCode.NON_EMPTY_GROUP
    (result,) = world.coordinator.leave(GROUP, [MemberIdentity(member.member_id)])
    assert result.error is NONE
    assert world.coordinator.validate_commit(GROUP, "", None, -1, [("a", 0)]) is NONE, "an administrator may commit"
    assert world.coordinator.delete(GROUP) is NONE
    world.restart()
    assert world.coordinator.describe(GROUP).state is GroupState.DEAD
    assert world.coordinator.list_groups() == []


# --- from the classic protocol and back -------------------------------------------------------------------------------


def test_a_classic_group_is_upgraded_by_the_first_consumer_and_downgraded_after_the_last() -> None:
    world = World(a=4)
    classics = [world.classic("a"), world.classic("a")]
    settled(world)
    generation = world.coordinator.describe(GROUP).generation
    consumer = world.consumer("a")
    settled(world)
    assert is_consumer_group(world)
    assert consumer.epoch > generation
    assert consumer.owned
    assert world.coordinator.list_groups()[0].group_type is GroupType.CONSUMER
    world.restart()
    settled(world)
    consumer.leave()
    assert not is_consumer_group(world)
    settled(world)
    assert sum(len(one.owned) for one in classics) == 4
    world.restart()
    assert not is_consumer_group(world)
    settled(world)


def test_a_consumer_that_crashes_leaves_a_classic_group_behind_too() -> None:
    world = World(a=4)
    world.classic("a")
    settled(world)
    consumer = world.consumer("a")
    settled(world)
    consumer.is_alive = False
    world.rounds(SESSION_MS // ROUND_MS + 5)
    assert not is_consumer_group(world)
    world.check_settled()


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_the_policy_can_forbid_an_upgrade(policy: MigrationPolicy) -> None:
    world = World(replace(SETTINGS, migration_policy=policy), a=2)
    world.classic("a")
    settled(world)
    answer = world.consumer("a").beat()
    assert answer.error is GroupErrorCode.GROUP_ID_NOT_FOUND
    assert f"group.consumer.migration.policy is {policy}" in (answer.message or "")


def test_the_policy_can_forbid_a_downgrade() -> None:
    world = World(replace(SETTINGS, migration_policy=MigrationPolicy.UPGRADE), a=2)
    world.classic("a")
    settled(world)
    consumer = world.consumer("a")
    settled(world)
    consumer.leave()
    settled(world)
    assert is_consumer_group(world), "its members go on in it"


def test_an_empty_group_takes_either_protocol_whatever_the_policy() -> None:
    world = World(replace(SETTINGS, migration_policy=MigrationPolicy.DISABLED), a=2)
    classic = world.classic("a")
    settled(world)
    classic.leave()
    consumer = world.consumer("a")
    settled(world)
    assert is_consumer_group(world)
    consumer.leave()
    world.classic("a")
    settled(world)
    assert not is_consumer_group(world)


# --- what no group accepts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"member_id": ""}, "the member id is empty"),
        ({"group_instance_id": ""}, "instance id or the rack id is empty"),
        ({"member_epoch": -3}, "there is no member epoch -3"),
        ({"member_epoch": -2}, "only a member with an instance id leaves with epoch -2"),
        ({"rebalance_timeout_ms": -1}, "must send its rebalance timeout"),
        ({"owned": None}, "must own no partitions"),
        ({"owned": frozenset({(bytes(16), 0)})}, "must own no partitions"),
        ({"topics": None}, "must subscribe"),
        ({"topics": ("x" * (1 << 20), "y")}, "the subscription is too long"),
    ],
)
def test_a_malformed_heartbeat_is_refused_in_a_sentence(changed: dict[str, object], sentence: str) -> None:
    world = World(a=1)
    request = world.consumer("a").request(**changed)
    answer = refuse_heartbeat(request, SETTINGS)
    assert answer is not None
    assert answer.error is GroupErrorCode.INVALID_REQUEST
    assert sentence in (answer.message or "")
    assert world.coordinator.consumer_heartbeat(request) == answer
    assert world.coordinator.list_groups() == []


def test_an_unknown_assignor_and_a_broken_expression_are_refused() -> None:
    request = World(a=1).consumer("a").request()
    answer = refuse_heartbeat(replace(request, assignor="sticky"), SETTINGS)
    assert answer is not None
    assert answer.error is GroupErrorCode.UNSUPPORTED_ASSIGNOR
    assert "there are uniform, range" in (answer.message or "")
    pytest.importorskip("re2")
    for regex in ("(", "a(?=b)", "x" * 5000):
        answer = refuse_heartbeat(replace(request, regex=regex), SETTINGS)
        assert answer is not None
        assert answer.error is GroupErrorCode.INVALID_REGULAR_EXPRESSION


def test_without_google_re2_an_expression_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "re2", None)
    compile_regex.cache_clear()
    request = World(a=1).consumer("a").request(regex="a.*")
    answer = refuse_heartbeat(request, SETTINGS)
    assert answer is not None
    assert answer.error is GroupErrorCode.INVALID_REGULAR_EXPRESSION
    assert "google-re2 is not installed" in (answer.message or "")


def test_a_full_group_refuses_another_member_and_keeps_those_it_has() -> None:
    world = World(replace(SETTINGS, members_max=2), a=2)
    members = [world.consumer("a"), world.consumer("a")]
    settled(world)
    answer = world.consumer("a").beat()
    assert answer.error is GroupErrorCode.GROUP_MAX_SIZE_REACHED
    assert all(member.beat().error is NONE for member in members)


def test_what_members_say_is_bounded_and_those_who_are_there_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUPS_METADATA_BYTES_MAX", 10_000)
    world = World(a=2)
    member = world.consumer("a")
    settled(world)
    large = tuple(f"{number:0200d}" for number in range(60))
    assert world.consumer(*large).beat().error is GroupErrorCode.COORDINATOR_NOT_AVAILABLE
    more = replace(member.request(), topics=large, rebalance_timeout_ms=1)
    assert world.coordinator.consumer_heartbeat(more).error is GroupErrorCode.COORDINATOR_NOT_AVAILABLE
    assert member.beat().error is NONE
    world.classic(*large).step()
    assert len(world.coordinator.describe(GROUP).members) == 1


def test_an_unknown_group_makes_its_members_join_again_and_a_leave_is_told_there_is_none() -> None:
    world = World(a=1)
    beat = MemberHeartbeat(GROUP, "m", 3)
    assert world.coordinator.consumer_heartbeat(beat).error is GroupErrorCode.UNKNOWN_MEMBER_ID
    leave = replace(beat, member_epoch=-1)
    assert world.coordinator.consumer_heartbeat(leave).error is GroupErrorCode.GROUP_ID_NOT_FOUND
