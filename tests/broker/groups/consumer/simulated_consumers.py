"""Members of the consumer protocol, and of the classic one beside them, over a coordinator on a clock that the test
turns. Each behaves as Kafka's clients do, one step at a time, and may be slow, crash, or lose an answer.

What must never happen is asserted after every step:

- a partition that two members own, as the coordinator has it or as they have it themselves;
- a member that reads what the coordinator has not given to it;
- a commit that is taken from somebody who does not own the partition.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from foldlog.broker.groups.committed import CommittedOffsets, load_records
from foldlog.broker.groups.consumer.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupSettings,
    HeartbeatResult,
    MemberHeartbeat,
    TopicIdPartition,
)
from foldlog.broker.groups.consumer.state import ConsumerGroup
from foldlog.broker.groups.consumer.topics import ImagedTopic, TopicsImage
from foldlog.broker.groups.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from foldlog.broker.groups.coordinator import GroupCoordinator
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import (
    GroupSettings,
    GroupState,
    GroupType,
    JoinRequest,
    JoinResult,
    MemberIdentity,
    SyncRequest,
    SyncResult,
)
from foldlog.testing.sim_clock import SimClock

GROUP = "g"
SESSION_MS = 3_000
REBALANCE_MS = 5_000
ROUND_MS = 200
NONE = GroupErrorCode.NONE


class Topics:
    """The topics that exist; each change is another image."""

    def __init__(self, **counts: int) -> None:
        self._ids = count(1)
        self._topics: dict[str, ImagedTopic] = {}
        self.image = TopicsImage({})
        for name, partitions in counts.items():
            self.put(name, partitions)

    def put(self, name: str, partitions: int) -> None:
        """Create the topic, or give it that many partitions."""
        known = self._topics.get(name)
        topic_id = next(self._ids).to_bytes(16, "big") if known is None else known.topic_id
        self._topics[name] = ImagedTopic(topic_id, partitions)
        self.image = TopicsImage(dict(self._topics))

    def delete(self, name: str) -> None:
        self._topics.pop(name, None)
        self.image = TopicsImage(dict(self._topics))

    def partitions(self, names: tuple[str, ...]) -> frozenset[TopicIdPartition]:
        counts = self.image.counts(names)
        return frozenset((topic_id, number) for topic_id, size in counts.items() for number in range(size))


class World:
    """One coordinator at a time, the log of its records, and the members it has had."""

    def __init__(self, settings: ConsumerGroupSettings | None = None, **counts: int) -> None:
        self.clock = SimClock()
        self.topics = Topics(**counts)
        self._settings = GroupSettings(consumer=settings or ConsumerGroupSettings(session_timeout_ms=SESSION_MS))
        self._ids = count(1)
        self.log: list[tuple[bytes | None, bytes | None]] = []
        self.consumers: list[SimulatedConsumer] = []
        self.classics: list[SimulatedClassic] = []
        self.coordinator = self._new()

    def _new(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.clock, self._settings, lambda: f"{next(self._ids):04d}", topics=lambda: self.topics.image
        )

    def store(self) -> None:
        self.log += self.coordinator.take_writes()

    def restart(self) -> None:
        """The broker ends and comes again: the coordinator is what its records say."""
        self.store()
        self.coordinator.close()
        self.coordinator = self._new()
        assert load_records(self.log, CommittedOffsets(), self.coordinator) == []
        for member in self.classics:
            member.is_waiting = False  # its connection was closed

    @property
    def group(self) -> ConsumerGroup | None:
        return self.coordinator._consumer.groups.get(GROUP)

    def consumer(self, *topics: str, instance: str | None = None, regex: str | None = None) -> SimulatedConsumer:
        member = SimulatedConsumer(self, f"consumer-{next(self._ids)}", topics, instance, regex)
        self.consumers.append(member)
        return member

    def classic(self, *topics: str) -> SimulatedClassic:
        member = SimulatedClassic(self, topics)
        self.classics.append(member)
        return member

    def members(self) -> list[SimulatedConsumer | SimulatedClassic]:
        return [*self.consumers, *self.classics]

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        self.coordinator.tick()
        self.store()

    def rounds(self, number: int) -> None:
        """Everybody who lives does what it has to, in time."""
        for _ in range(number):
            self.wait(ROUND_MS)
            for member in self.members():
                member.step()
                self.check()

    # --- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.store()
        group = self.group
        if group is None:
            return
        seen: set[TopicIdPartition] = set()
        for member in group.members.values():
            mine = {*member.assigned, *member.revoking}
            assert len(mine) == len(member.assigned) + len(member.revoking)
            assert seen.isdisjoint(mine), "two members own a partition"
            assert all(since <= max(member.epoch, group.epoch) for since in member.assigned.values())
            seen |= mine
        assert set(group.owners) == seen
        assert group.target_epoch <= group.epoch
        read: set[TopicIdPartition] = set()
        for client in self.members():
            known = group.members.get(client.member_id)
            if known is None or not client.is_alive or (known.epoch < 0):
                continue
            # Of a deleted topic nobody can read, whatever they think.
            reads = {partition for partition in client.owned if partition[0] in self.topics.image.names}
            assert reads <= {*known.assigned, *known.revoking}, "it reads what it was not given"
            assert read.isdisjoint(reads), "two members read a partition"
            read |= reads

    def check_settled(self) -> None:
        """After long enough without change: every partition that somebody wants is read, by one who wants it."""
        alive = [member for member in self.members() if member.is_alive]
        state = self.coordinator.describe(GROUP).state
        assert state is (GroupState.STABLE if alive else state), state
        wanted = frozenset().union(*(self.topics.partitions(member.wants()) for member in alive))
        read = [partition for member in alive for partition in member.owned]
        assert len(read) == len(set(read))
        assert set(read) == wanted
        for member in alive:
            assert member.owned <= self.topics.partitions(member.wants())


class SimulatedConsumer:
    """A member of the consumer protocol. `owned` is what it reads."""

    def __init__(
        self, world: World, member_id: str, topics: tuple[str, ...], instance: str | None, regex: str | None
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.topics = topics
        self.instance = instance
        self.regex = regex
        self.epoch = JOIN_EPOCH
        self.owned: frozenset[TopicIdPartition] = frozenset()
        self._given: frozenset[TopicIdPartition] = frozenset()
        self._said: frozenset[TopicIdPartition] | None = None
        self._must_say_all = True
        self.is_alive = True
        self.fatal: GroupErrorCode | None = None
        self.history: list[tuple[int, frozenset[TopicIdPartition]]] = []

    def wants(self) -> tuple[str, ...]:
        if self.regex is None:
            return self.topics
        return tuple(self.world.topics.image.matching(self.regex, lambda topic: True)) + self.topics

    def request(self, **changed: object) -> MemberHeartbeat:
        says_all = self._must_say_all or self.epoch == JOIN_EPOCH
        fields: dict[str, object] = {
            "group": GROUP,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "group_instance_id": self.instance,
            "rebalance_timeout_ms": REBALANCE_MS if says_all else -1,
            "topics": self.topics if says_all else None,
            "regex": self.regex if says_all else None,
            "owned": self.owned if says_all or self.owned != self._said else None,
            **changed,
        }
        return MemberHeartbeat(**fields)  # type: ignore[arg-type]

    def beat(self, *, is_lost: bool = False) -> HeartbeatResult:
        """Send a heartbeat, and act on the answer unless it is lost."""
        request = self.request()
        result = self.world.coordinator.consumer_heartbeat(request)
        if is_lost:
            # It is told everything again after this; until then it does not begin to read what it was given before,
            # since it has just said that it does not.
            self._must_say_all = True
            self._given = self.owned
            return result
        if result.error in (GroupErrorCode.UNKNOWN_MEMBER_ID, GroupErrorCode.FENCED_MEMBER_EPOCH):
            self.abandon()
        elif result.error is not NONE:
            self.fatal = result.error
            self.abandon()
            self.is_alive = False
        else:
            self._must_say_all = False
            self._said = request.owned if request.owned is not None else self._said
            self.epoch = result.member_epoch
            if result.assignment is not None:
                self._given = result.assignment
        return result

    def abandon(self) -> None:
        """Stop reading, and join again with the next heartbeat."""
        self.epoch, self.owned, self._given = JOIN_EPOCH, frozenset(), frozenset()
        self._must_say_all = True

    def settle(self) -> None:
        """Stop reading what is not given any more, and begin to read what is."""
        self.owned = self._given
        self.history.append((self.epoch, self.owned))

    def step(self) -> None:
        if self.is_alive:
            self.beat()
            self.settle()

    def leave(self, *, returns: bool = False) -> None:
        if self.is_alive and self.epoch > 0:
            epoch = STATIC_LEAVE_EPOCH if returns and self.instance is not None else LEAVE_EPOCH
            self.world.coordinator.consumer_heartbeat(self.request(member_epoch=epoch))
        self.is_alive = False

    def commit(self, partition: TopicIdPartition, epoch: int | None = None) -> GroupErrorCode:
        name = self.world.topics.image.names.get(partition[0], "gone")
        return self.world.coordinator.validate_commit(
            GROUP, self.member_id, self.instance, self.epoch if epoch is None else epoch, [(name, partition[1])]
        )


class SimulatedClassic:
    """A member of the classic protocol with an eager assignor: it reads nothing from when it joins until it is told."""

    def __init__(self, world: World, topics: tuple[str, ...]) -> None:
        self.world = world
        self.topics = topics
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[TopicIdPartition] = frozenset()
        self.is_waiting = False
        self.is_alive = True
        self._assigned_for: TopicsImage | None = None  # as leader

    def wants(self) -> tuple[str, ...]:
        return self.topics

    def step(self) -> None:
        if not self.is_alive or self.is_waiting:
            return
        if self.generation < 0:
            self.join()
            return
        code = self.world.coordinator.heartbeat(GROUP, self.member_id, self.generation)
        if code in (GroupErrorCode.UNKNOWN_MEMBER_ID, GroupErrorCode.ILLEGAL_GENERATION):
            self.owned, self.generation = frozenset(), -1
            if code is GroupErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        elif code is GroupErrorCode.REBALANCE_IN_PROGRESS or self._assigned_for not in (None, self.world.topics.image):
            self.join()

    def join(self) -> None:
        self.owned, self.generation, self.is_waiting = frozenset(), -1, True
        request = JoinRequest(
            GROUP,
            "consumer",
            (("range", encode_subscription(Subscription(self.topics))),),
            SESSION_MS,
            REBALANCE_MS,
            self.member_id,
        )
        self.world.coordinator.join(request, self._unless_gone(self._joined))

    def _unless_gone(self, then: Callable[..., None]) -> Callable[..., None]:
        asked = self.world.coordinator

        def answer(result: JoinResult | SyncResult) -> None:
            if self.world.coordinator is asked and self.is_alive:
                self.is_waiting = False
                then(result)

        return answer

    def _joined(self, result: JoinResult) -> None:
        if result.error is GroupErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if result.error is not NONE:
            return
        self.member_id, generation = result.member_id, result.generation
        assignments: dict[str, bytes] = {}
        self._assigned_for = None
        if result.is_leader:
            self._assigned_for = self.world.topics.image
            readers = {one.member_id: decode_subscription(one.metadata).topics for one in result.members}
            assignments = {
                member: encode_assignment(Assignment(partitions))
                for member, partitions in _dealt(readers, self.world.topics.image).items()
            }
        self.is_waiting = True
        request = SyncRequest(GROUP, self.member_id, generation, assignments)
        self.world.coordinator.sync(request, self._unless_gone(lambda given: self._synced(given, generation)))

    def _synced(self, result: SyncResult, generation: int) -> None:
        if result.error is not NONE:
            return
        self.generation = generation
        known = self.world.topics.image.by_name
        partitions = decode_assignment(result.assignment).partitions
        self.owned = frozenset((known[topic].topic_id, number) for topic, number in partitions if topic in known)

    def leave(self) -> None:
        if self.is_alive and self.member_id:
            self.world.coordinator.leave(GROUP, [MemberIdentity(self.member_id)])
        self.is_alive = False


def _dealt(readers: dict[str, tuple[str, ...]], image: TopicsImage) -> dict[str, tuple[tuple[str, int], ...]]:
    given: dict[str, list[tuple[str, int]]] = {member: [] for member in readers}
    for topic, facts in sorted(image.by_name.items()):
        those = sorted(member for member, topics in readers.items() if topic in topics)
        for number in range(facts.partition_count if those else 0):
            given[those[number % len(those)]].append((topic, number))
    return {member: tuple(partitions) for member, partitions in given.items()}


def is_consumer_group(world: World) -> bool:
    return world.coordinator.describe(GROUP).group_type is GroupType.CONSUMER
