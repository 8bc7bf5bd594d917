"""Random schedules of joins, leaves, crashes, lost answers, topic changes, restarts and changes of protocol: what
`simulated_consumers` says must never happen does not, and once all is quiet everything is read by somebody."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from broker.groups.consumer.simulated_consumers import (
    NONE,
    ROUND_MS,
    SESSION_MS,
    SimulatedConsumer,
    World,
)
from budgets import times
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import MemberIdentity

MEMBERS_MAX = 6
SUBSCRIPTIONS = (("a",), ("b",), ("a", "b"), ("a", "c"))
QUIET_ROUNDS = 80


def join(world: World, pick: int) -> None:
    if _has_room(world):
        world.consumer(*SUBSCRIPTIONS[pick % len(SUBSCRIPTIONS)]).beat()


def join_static(world: World, pick: int) -> None:
    """A process with an instance id starts; another one with it may be running, or may have left for a moment."""
    if _has_room(world):
        world.consumer("a", "b", instance=f"instance-{pick % 2}").beat()


def join_by_regex(world: World, pick: int) -> None:
    if _has_room(world):
        world.consumer(regex="[ac]" if pick % 2 else "b|c").beat()


def join_classic(world: World, pick: int) -> None:
    if _has_room(world):
        world.classic(*SUBSCRIPTIONS[pick % len(SUBSCRIPTIONS)]).step()


def beat(world: World, pick: int) -> None:
    if (member := _consumer(world, pick)) and member.is_alive:
        member.beat()


def beat_in_vain(world: World, pick: int) -> None:
    if (member := _consumer(world, pick)) and member.is_alive:
        member.beat(is_lost=True)


def settle(world: World, pick: int) -> None:
    if (member := _consumer(world, pick)) and member.is_alive:
        member.settle()


def step_classic(world: World, pick: int) -> None:
    if world.classics:
        world.classics[pick % len(world.classics)].step()


def leave(world: World, pick: int) -> None:
    if world.members():
        world.members()[pick % len(world.members())].leave()


def leave_for_a_moment(world: World, pick: int) -> None:
    if member := _consumer(world, pick):
        member.leave(returns=True)


def crash(world: World, pick: int) -> None:
    if world.members():
        world.members()[pick % len(world.members())].is_alive = False


def change_subscription(world: World, pick: int) -> None:
    member = _consumer(world, pick)
    if member is not None and member.epoch > 0 and member.is_alive and member.regex is None:
        member.topics = SUBSCRIPTIONS[pick % len(SUBSCRIPTIONS)]
        member._must_say_all = True
        member.beat()


def commit(world: World, pick: int) -> None:
    """At its epoch, and at one it had before: taken only of who owns the partition."""
    member = _consumer(world, pick)
    if member is None:
        return
    for epoch, owned in [(member.epoch, member.owned), *member.history[-2:]]:
        for partition in owned:
            code = member.commit(partition, epoch)
            group = world.group
            owner = None if group is None else group.owners.get(partition)
            if code is NONE:
                assert owner == member.member_id, "a commit of somebody who does not own the partition was taken"
                assert group is not None
                known = group.members[owner]
                assert {**known.assigned, **known.revoking}[partition] <= epoch, "it did not own it then"
            else:
                assert code in (GroupErrorCode.UNKNOWN_MEMBER_ID, GroupErrorCode.STALE_MEMBER_EPOCH,
                                GroupErrorCode.FENCED_INSTANCE_ID, GroupErrorCode.ILLEGAL_GENERATION)  # fmt: skip


def commit_of_the_dead(world: World, pick: int) -> None:
    """Who was removed commits as it was: never taken."""
    for member in world.consumers:
        group = world.group
        if group is not None and member.member_id not in group.members and member.epoch > 0:
            assert all(member.commit(partition) is not NONE for partition in member.owned)


def evict(world: World, pick: int) -> None:
    members = world.coordinator.describe("g").members
    if members:
        world.coordinator.leave("g", [MemberIdentity(members[pick % len(members)].member_id)])


def grow(world: World, pick: int) -> None:
    name = "abc"[pick % 3]
    known = world.topics.image.by_name.get(name)
    world.topics.put(name, 1 if known is None else min(known.partition_count + 1 + pick % 2, 8))


def delete(world: World, pick: int) -> None:
    world.topics.delete("abc"[pick % 3])


def pass_time(world: World, pick: int) -> None:
    world.wait((ROUND_MS, SESSION_MS // 2, SESSION_MS + 1)[pick % 3])


def live(world: World, pick: int) -> None:
    world.rounds(1 + pick % 3)


def restart(world: World, pick: int) -> None:
    world.restart()


def _consumer(world: World, pick: int) -> SimulatedConsumer | None:
    return world.consumers[pick % len(world.consumers)] if world.consumers else None


def _has_room(world: World) -> bool:
    return sum(member.is_alive for member in world.members()) < MEMBERS_MAX


Action = Callable[[World, int], None]

WEIGHTS: dict[Action, int] = {
    join: 6, join_static: 3, join_by_regex: 2, join_classic: 3, beat: 12, beat_in_vain: 6, settle: 12, step_classic: 6,
    leave: 3, leave_for_a_moment: 2, crash: 2, change_subscription: 3, commit: 12, commit_of_the_dead: 3, evict: 1,
    grow: 2, delete: 1, pass_time: 4, live: 3, restart: 2,
}  # fmt: skip
ACTIONS = tuple(WEIGHTS)
SCHEDULES = times(40, 2_000)
LENGTH = 120


def run(schedule: Iterable[tuple[Action, int]]) -> None:
    world = World(a=4, b=3)
    for action, pick in schedule:
        action(world, pick)
        world.check()
    world.rounds(QUIET_ROUNDS)
    world.check_settled()
    world.restart()
    world.rounds(1)
    world.check_settled()


@pytest.mark.timeout(900)  # two thousand schedules, beside whatever else the machine does
@pytest.mark.parametrize("count", SCHEDULES)
def test_no_partition_has_two_owners_and_in_the_end_each_has_one(count: int) -> None:
    for seed in range(count):
        source = random.Random(seed)
        actions = source.choices(ACTIONS, list(WEIGHTS.values()), k=LENGTH)
        try:
            run((action, source.randrange(12)) for action in actions)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("count", SCHEDULES)
def test_it_holds_of_short_schedules_too(count: int) -> None:
    @given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 11)), min_size=1, max_size=60))
    @settings(
        max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
    )
    @example([(join_classic, 0), (live, 0), (join, 0), (live, 2), (leave, 1), (live, 2)])
    @example([(join, 0), (live, 0), (join, 0), (beat_in_vain, 0), (restart, 0), (beat, 0), (commit, 0)])
    def holds(schedule: list[tuple[Action, int]]) -> None:
        run(schedule)

    holds()
