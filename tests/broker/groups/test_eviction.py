"""Moving a group that has members: they are evicted as often as it takes, with a pause, and not for ever."""

from __future__ import annotations

import pytest

from foldlog import limits
from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.eviction import commit_evicting
from foldlog.broker.groups.messages import GroupSettings, JoinRequest, JoinResult
from foldlog.errors import RebalanceInProgress, UnknownMember, UnknownTopic


class Group:
    """A group whose members come back at once, some times."""

    def __init__(self, comes_back: int, is_empty: bool = False) -> None:
        self.comes_back = comes_back
        self.is_empty = is_empty
        self.evictions = 0

    def commit(self) -> None:
        if not self.is_empty:
            raise UnknownMember("has members")

    def evict_and_commit(self) -> None:
        self.evictions += 1
        if self.evictions <= self.comes_back:
            raise RebalanceInProgress("they are back")


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVICTION_PAUSE_MS", 0)


def test_nobody_is_sent_away_from_a_group_without_members() -> None:
    group = Group(0, is_empty=True)
    commit_evicting(group.commit, group.evict_and_commit)
    assert group.evictions == 0


@pytest.mark.parametrize("comes_back", [0, 1, limits.EVICTION_TRIES_MAX - 1])
def test_members_are_sent_away_until_one_commit_is_quicker(comes_back: int) -> None:
    group = Group(comes_back)
    commit_evicting(group.commit, group.evict_and_commit)
    assert group.evictions == comes_back + 1


def test_members_that_are_always_quicker_win_in_the_end() -> None:
    group = Group(limits.EVICTION_TRIES_MAX)
    with pytest.raises(RebalanceInProgress):
        commit_evicting(group.commit, group.evict_and_commit)
    assert group.evictions == limits.EVICTION_TRIES_MAX


def test_what_has_nothing_to_do_with_members_is_not_tried_again() -> None:
    group = Group(0)

    def commit() -> None:
        raise UnknownTopic("orders")

    with pytest.raises(UnknownTopic):
        commit_evicting(commit, group.evict_and_commit)
    assert group.evictions == 0


def test_a_group_that_still_waits_for_more_members_is_moved_when_it_has_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """group.initial.rebalance.delay.ms: a commit from outside is refused until that is over, whoever has left."""
    monkeypatch.setattr(limits, "EVICTION_PAUSE_MS", 100)
    with Broker.open(":memory:", group_settings=GroupSettings(initial_rebalance_delay_ms=300)) as broker:
        broker.create_topic("orders")
        answers: list[JoinResult] = []
        with broker.coordinator() as coordinator:
            coordinator.join(JoinRequest("g", "consumer", (("range", b""),), 60_000, 60_000), answers.append)
        broker.move_offsets("g", {("orders", 0): OffsetAndMetadata(0)}, evict=True)
        assert broker.committed("g")["orders", 0].offset == 0
