"""confluent-kafka's ShareConsumer: members share a partition, accept, release and reject, lose locks in time and by
going away, and go on over a restart of the broker.

Nothing waits for a fixed time: polls go on until what is waited for is there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer

from broker.small_broker import write
from foldlog.broker.broker import Broker
from foldlog.broker.groups.messages import GroupSettings
from foldlog.broker.share.messages import ShareGroupSettings, ShareLimits
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server

TOPIC = "jobs"
GROUP = "workers"
BOUND_S = 30.0
LOCK_MS = 1_500
SETTINGS = GroupSettings(
    share=ShareGroupSettings(
        limits=ShareLimits(record_lock_duration_ms=LOCK_MS), heartbeat_interval_ms=200, session_timeout_ms=5_000
    )
)

Got = tuple[int, bytes, int]
"""Offset, value and how often it was delivered."""


class Queueing:
    """A served broker with one topic, restarted at its address, and members of one group."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open("127.0.0.1:0")
        self.broker.create_topic(TOPIC)
        self.broker.group_configs.change(GROUP, lambda own: {"share.auto.offset.reset": "earliest"})
        self.members: list[Any] = []

    def _open(self, address: str) -> None:
        self.broker = Broker.open(str(self._directory), group_settings=SETTINGS)
        self.server = Server.start(self.broker, ServerSettings.parse({"listeners": address}))

    def restart(self) -> None:
        address = self.server.bootstrap
        self._stop()
        self._open(address)

    def _stop(self) -> None:
        self.server.stop()
        self.broker.close()

    def close(self) -> None:
        for member in self.members:
            member.close()
        self._stop()

    def produce(self, *values: bytes) -> None:
        write(self.broker, TOPIC, 0, *values)

    def member(self) -> Any:
        settings = {"bootstrap.servers": self.server.bootstrap, "group.id": GROUP, "log_level": 0}
        made = ShareConsumer({**settings, "share.acknowledgement.mode": "explicit"})
        made.subscribe([TOPIC])
        self.members.append(made)
        return made

    def leave(self, member: Any) -> None:
        self.members.remove(member)
        member.close()

    def left(self) -> int:
        return sum(one.lag for one in self.broker.shares.describe(GROUP))


def poll(member: Any, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> list[Got]:
    """Take what there is now, and say what became of it."""
    got = []
    for message in member.poll(0.2):
        assert message.error() is None, message.error()
        got.append((message.offset(), message.value(), message.delivery_count()))
        member.acknowledge(message, kind)
    if got:
        assert all(error is None for error in member.commit_sync(BOUND_S).values())
    return got


def take(member: Any, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> list[Got]:
    """The next records, whenever they come."""
    until_s = time.monotonic() + BOUND_S
    while time.monotonic() < until_s:
        if got := poll(member, kind):
            return got
    raise AssertionError("no record came")


@pytest.fixture
def queueing(tmp_path: Path) -> Iterator[Queueing]:
    made = Queueing(tmp_path / "data")
    yield made
    made.close()


def test_members_of_one_partition_share_its_records_and_none_comes_twice(queueing: Queueing) -> None:
    members = [queueing.member() for _ in range(3)]
    got: list[Got] = []
    for number in range(300):
        queueing.produce(b"%d" % number)
    until_s = time.monotonic() + BOUND_S
    while len(got) < 300 and time.monotonic() < until_s:
        for member in members:
            got += poll(member)
    assert sorted(int(value) for _, value, _ in got) == list(range(300))
    assert queueing.left() == 0


def test_a_released_record_comes_again_and_a_rejected_one_does_not(queueing: Queueing) -> None:
    queueing.produce(b"first")
    member = queueing.member()
    assert take(member, AcknowledgeType.RELEASE) == [(0, b"first", 1)]
    assert take(member, AcknowledgeType.REJECT) == [(0, b"first", 2)]
    queueing.produce(b"second")
    assert take(member) == [(1, b"second", 1)]


def test_a_record_is_given_five_times_and_then_no_more(queueing: Queueing) -> None:
    queueing.produce(b"poison")
    member = queueing.member()
    assert [take(member, AcknowledgeType.RELEASE)[0][2] for _ in range(5)] == [1, 2, 3, 4, 5]
    queueing.produce(b"next")
    assert take(member) == [(1, b"next", 1)]


def test_what_a_member_does_not_acknowledge_goes_to_another_when_its_lock_times_out(queueing: Queueing) -> None:
    queueing.produce(b"slow")
    holder, other = queueing.member(), queueing.member()
    until_s = time.monotonic() + BOUND_S
    while not len(held := holder.poll(0.2)) and time.monotonic() < until_s:
        pass
    assert [message.value() for message in held] == [b"slow"]
    assert take(other, AcknowledgeType.RELEASE) == [(0, b"slow", 2)]
    holder.acknowledge(held[0])
    (error,) = holder.commit_sync(BOUND_S).values()
    assert error is not None
    assert error.args[0].name() == "INVALID_RECORD_STATE"


def test_what_a_member_held_when_it_left_goes_to_another_at_once(queueing: Queueing) -> None:
    queueing.produce(b"held")
    holder = queueing.member()
    until_s = time.monotonic() + BOUND_S
    while not len(holder.poll(0.2)) and time.monotonic() < until_s:
        pass
    queueing.leave(holder)
    assert take(queueing.member())[0][:2] == (0, b"held")


def test_a_group_goes_on_over_a_restart_with_what_was_accepted_and_how_often_the_rest_was_given(
    queueing: Queueing,
) -> None:
    queueing.produce(b"done")
    member = queueing.member()
    assert take(member) == [(0, b"done", 1)]
    queueing.produce(b"again")
    assert take(member, AcknowledgeType.RELEASE) == [(1, b"again", 1)]
    queueing.leave(member)
    queueing.restart()
    assert take(queueing.member()) == [(1, b"again", 2)]
    assert queueing.left() == 0


def test_a_member_goes_on_by_itself_when_the_broker_comes_back(queueing: Queueing) -> None:
    member = queueing.member()
    queueing.produce(b"before")
    assert take(member) == [(0, b"before", 1)]
    queueing.restart()
    queueing.produce(b"after")
    assert take(member) == [(1, b"after", 1)]
