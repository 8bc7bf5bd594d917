"""A group that died out is told from one that was left: in every protocol, until somebody joins again."""

from __future__ import annotations

import pytest

from broker.groups.group_bench import GROUP, SESSION_MS, GroupBench
from foldlog.broker.groups.consumer.messages import MemberHeartbeat
from foldlog.broker.groups.consumer.topics import ImagedTopic, TopicsImage
from foldlog.broker.groups.coordinator import GroupCoordinator
from foldlog.broker.groups.messages import MemberIdentity
from foldlog.broker.share.messages import ShareHeartbeat
from foldlog.limits import GROUP_DEATHS_MAX
from foldlog.testing.sim_clock import SimClock

SILENCE_MS = 120_000
LEAVES = -1


def test_a_classic_group_dies_with_its_last_silent_member() -> None:
    bench = GroupBench()
    first, second = bench.stable(2)
    assert bench.coordinator.members_died_ms(GROUP) is None
    bench.coordinator.leave(GROUP, [MemberIdentity(first)])
    bench.pass_time(SESSION_MS * 3)
    died_ms = bench.coordinator.members_died_ms(GROUP)
    assert died_ms is not None
    bench.pass_time(SESSION_MS)
    assert bench.coordinator.members_died_ms(GROUP) == died_ms
    joined = bench.join().result
    assert bench.coordinator.members_died_ms(GROUP) is None
    bench.coordinator.leave(GROUP, [MemberIdentity(joined.member_id)])
    assert bench.coordinator.members_died_ms(GROUP) is None, "the one who joined since has left"
    assert second != joined.member_id


def test_a_classic_group_that_was_left_has_not_died() -> None:
    bench = GroupBench()
    members = bench.stable(2)
    bench.coordinator.leave(GROUP, [MemberIdentity(one) for one in members])
    bench.pass_time(SESSION_MS * 3)
    assert bench.coordinator.members_died_ms(GROUP) is None


class Beats:
    """Members that send heartbeats, of the consumer or of the share protocol."""

    def __init__(self, protocol: str) -> None:
        self.clock = SimClock()
        image = TopicsImage({"orders": ImagedTopic(b"a" * 16, 2)})
        self.coordinator = GroupCoordinator(self.clock, topics=lambda: image)
        self._is_share = protocol == "share"

    def beat(self, member: str, epoch: int = 0) -> int:
        topics = ("orders",) if epoch == 0 else None
        if self._is_share:
            shared = ShareHeartbeat("g", member, epoch, topics=topics, client_id="c", client_host="/h")
            return self.coordinator.share_heartbeat(shared).member_epoch
        request = MemberHeartbeat(
            "g",
            member,
            epoch,
            rebalance_timeout_ms=60_000,
            topics=topics,
            owned=frozenset(),
            client_id="c",
            client_host="/h",
        )
        return self.coordinator.consumer_heartbeat(request).member_epoch

    def silence(self) -> None:
        self.clock.advance(SILENCE_MS)
        self.coordinator.tick()


@pytest.mark.parametrize("protocol", ["consumer", "share"])
def test_a_group_with_heartbeats_dies_with_its_last_silent_member(protocol: str) -> None:
    beats = Beats(protocol)
    beats.beat("ann")
    beats.silence()
    died_ms = beats.coordinator.members_died_ms("g")
    assert died_ms is not None
    epoch = beats.beat("ben")
    assert beats.coordinator.members_died_ms("g") is None
    assert epoch > 0
    beats.beat("ben", LEAVES)
    beats.silence()
    assert beats.coordinator.members_died_ms("g") is None


@pytest.mark.parametrize("protocol", ["consumer", "share"])
def test_nobody_asks_and_a_later_member_leaves_all_the_same(protocol: str) -> None:
    beats = Beats(protocol)
    beats.beat("ann")
    beats.silence()
    beats.beat("ben")
    beats.beat("ben", LEAVES)
    assert beats.coordinator.members_died_ms("g") is None


def test_deaths_that_nobody_asks_for_take_no_more_memory() -> None:
    beats = Beats("share")
    for number in range(GROUP_DEATHS_MAX + 5):
        beats.coordinator.share_heartbeat(
            ShareHeartbeat(f"g{number}", "ann", 0, topics=("orders",), client_id="c", client_host="/h")
        )
    beats.silence()
    died = [beats.coordinator.members_died_ms(f"g{number}") for number in range(GROUP_DEATHS_MAX + 5)]
    assert sum(one is not None for one in died) == GROUP_DEATHS_MAX
