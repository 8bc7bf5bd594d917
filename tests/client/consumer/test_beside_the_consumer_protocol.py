"""A consumer of this process in a group that members of the consumer protocol (KIP-848) join: it gives partitions back,
gets them again, and commits meanwhile, whether it is polled or rests.

The other member is heartbeats to the coordinator, as a handler passes them on; no network and no waiting for intervals.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import foldlog
from foldlog import OffsetAndMetadata, TopicPartition
from foldlog.broker.broker import Broker
from foldlog.broker.groups.consumer.messages import HeartbeatResult, MemberHeartbeat, TopicIdPartition
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import GroupState, GroupType
from foldlog.client.backends.backend import backend_of
from foldlog.client.backends.local import LocalBackend

GROUP = "fraud"
TOPIC = "orders"
BOUND_S = 30.0


class Other:
    """A member of the consumer protocol that does what it is told at once."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._epoch = 0
        self.owned: frozenset[TopicIdPartition] = frozenset()

    def beat(self, epoch: int | None = None) -> HeartbeatResult:
        request = MemberHeartbeat(
            GROUP,
            "other",
            self._epoch if epoch is None else epoch,
            rebalance_timeout_ms=30_000,
            topics=(TOPIC,),
            owned=self.owned,
        )
        with self._broker.coordinator() as coordinator:
            result = coordinator.consumer_heartbeat(request)
        assert result.error is GroupErrorCode.NONE, result
        self._epoch = result.member_epoch
        if result.assignment is not None:
            self.owned = result.assignment
        return result


def until(is_so: Callable[[], bool], do: Callable[[], object]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not is_so():
        assert time.monotonic() < deadline
        do()


def broker_of(log: foldlog.Log) -> Broker:
    backend = backend_of(log)
    assert isinstance(backend, LocalBackend)
    assert isinstance(backend.broker, Broker)
    return backend.broker


def test_a_polled_consumer_shares_with_a_member_of_the_other_protocol_and_takes_over_from_it() -> None:
    with foldlog.open(":memory:") as log:
        log.create_topic(TOPIC, partitions=4)
        with log.consumer([TOPIC], group=GROUP) as consumer:
            broker = broker_of(log)
            assert len(consumer.assignment()) == 4
            other = Other(broker)
            other.beat()
            assert broker.describe_group(GROUP).group_type is GroupType.CONSUMER

            def step() -> None:
                consumer.poll(timeout_ms=0)
                other.beat()

            until(lambda: len(other.owned) == 2 and broker.describe_group(GROUP).state is GroupState.STABLE, step)
            assert len(consumer.assignment()) == 2
            mine = min(consumer.assignment())
            consumer.commit({mine: OffsetAndMetadata(0)})
            assert log.committed(GROUP)[TopicPartition(*mine)].offset == 0
            other.beat(-1)
            until(lambda: len(consumer.assignment()) == 4, lambda: consumer.poll(timeout_ms=0))
            assert broker.describe_group(GROUP).group_type is GroupType.CLASSIC


def test_a_consumer_that_rests_gives_partitions_back_too() -> None:
    """It has handled its records and is not polled: the log it belongs to listens, so others may wait for it."""
    with foldlog.open(":memory:", listen=True) as log:
        log.create_topic(TOPIC, partitions=4)
        with log.consumer([TOPIC], group=GROUP) as consumer:
            other = Other(broker_of(log))
            other.beat()
            until(lambda: len(other.owned) == 2, other.beat)
            assert len(consumer.assignment()) == 2
