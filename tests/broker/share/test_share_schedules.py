"""Random schedules of takes, acknowledgements, lock timeouts, members that go, crashes and restarts of the broker, and
records that are deleted: no record is two members' at a time, none that is done is given again, counts are exact and
bounded, and once all is quiet every record was given to somebody."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.share.share_world import LOCK_MS, PARTITIONS, ShareWorld
from budgets import times
from foldlog.broker.share import store
from foldlog.broker.share.messages import AcknowledgeType

MEMBERS = ("ann", "ben", "cleo")

Step = Callable[[ShareWorld, int], None]


def produce(world: ShareWorld, pick: int) -> None:
    world.produce(pick % PARTITIONS, 1 + pick % 23)


def take(world: ShareWorld, pick: int) -> None:
    world.take(MEMBERS[pick % 3], pick % PARTITIONS, 1 + pick % 41, whole_batches=pick % 5 == 0)


def acknowledge(world: ShareWorld, pick: int) -> None:
    """A range of what the member holds, or now and then of what it does not."""
    member, number = MEMBERS[pick % 3], pick % PARTITIONS
    held = world.held(number, member) or world.held(number)
    if not held:
        return
    first = held[pick % len(held)]
    run = [first]
    while run[-1] + 1 in held and len(run) < 1 + pick % 9:
        run.append(run[-1] + 1)
    kinds = list(AcknowledgeType)
    types = [kinds[(pick + offset) % 5] for offset in run] if pick % 4 == 0 else [kinds[pick // 7 % 5]]
    world.acknowledge(member, number, first, run[-1], *types)


def acknowledge_anything(world: ShareWorld, pick: int) -> None:
    world.acknowledge(MEMBERS[pick % 3], pick % PARTITIONS, pick % 60, pick % 60 + pick % 4, AcknowledgeType.ACCEPT)


def leave(world: ShareWorld, pick: int) -> None:
    world.leave(MEMBERS[pick % 3])


def wait_a_little(world: ShareWorld, pick: int) -> None:
    world.advance(1 + pick % LOCK_MS // 3)


def wait_for_a_timeout(world: ShareWorld, pick: int) -> None:
    world.advance(LOCK_MS + pick % 2)


def crash(world: ShareWorld, pick: int) -> None:
    world.crash()


def restart(world: ShareWorld, pick: int) -> None:
    world.restart()


def delete_records(world: ShareWorld, pick: int) -> None:
    number = pick % PARTITIONS
    offsets = [offset for other, offset in world.records if other == number]
    if offsets:
        world.delete_records(number, pick % (len(offsets) + 1))


STEPS: tuple[Step, ...] = (
    produce, produce, take, take, take, acknowledge, acknowledge, acknowledge, acknowledge_anything, leave,
    wait_a_little, wait_for_a_timeout, crash, restart, delete_records,
)  # fmt: skip


@pytest.fixture(autouse=True, params=[500, 3], ids=["few snapshots", "many snapshots"])
def snapshots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many, the head of the topic of states is cut off soon, too."""
    monkeypatch.setattr(store, "SHARE_UPDATES_PER_SNAPSHOT", request.param)
    monkeypatch.setattr(store, "SHARE_STATE_RECORDS_MAX", 20 * request.param)


@pytest.mark.parametrize("count", times(100, 2_000))
def test_no_record_is_lost_or_given_twice_whatever_happens(count: int) -> None:
    @settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 10_000)), min_size=5, max_size=60))
    def holds(schedule: list[tuple[Step, int]]) -> None:
        run(schedule)

    holds()


def run(schedule: list[tuple[Step, int]]) -> None:
    world = ShareWorld()
    world.produce(0, 30)
    world.produce(1, 5)
    for step, pick in schedule:
        step(world, pick)
        world.check()
    world.drain()
    world.crash()
    world.drain()
