"""Assignors: pure functions from subscriptions to an assignment of partitions.

The group's leader runs the one that the group chose by votes. Names are Kafka's, so that groups of mixed clients agree
on their meaning. All are deterministic: static members first, by their instance id, then the others by member id;
topics by name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from foldlog.client.consumer.protocol import Subscription, TopicPartition, decode_sticky_user_data
from foldlog.errors import MalformedBytes

Assignments = dict[str, list[TopicPartition]]
Assignor = Callable[[Mapping[str, Subscription], Mapping[str, int]], Assignments]

RANGE = "range"
ROUND_ROBIN = "roundrobin"
STICKY = "sticky"

DEFAULT_ASSIGNOR = STICKY
"""Sticky: a rebalance then moves the fewest partitions, so the fewest readers drop caches and read again."""


def assign_range(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Assignments:
    """Each topic is split into contiguous ranges over its subscribers; the first ones get one more.

    Partition n of two equally sized topics goes to the same member, as joins by key need it.
    """
    assigned: Assignments = {member: [] for member in members}
    for topic, subscribers in _subscribers(members, partitions).items():
        each, extra = divmod(partitions[topic], len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            end = start + each + (1 if index < extra else 0)
            assigned[member].extend((topic, number) for number in range(start, end))
            start = end
    return assigned


def assign_round_robin(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Assignments:
    """All partitions dealt out in turn, skipping members that do not subscribe to the topic."""
    assigned: Assignments = {member: [] for member in members}
    order = _in_order(members)
    turn = 0
    for topic, subscribers in _subscribers(members, partitions).items():
        willing = set(subscribers)
        for number in range(partitions[topic]):
            while order[turn % len(order)] not in willing:
                turn += 1
            assigned[order[turn % len(order)]].append((topic, number))
            turn += 1
    return assigned


def assign_sticky(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Assignments:
    """As balanced as the subscriptions allow, moving as few partitions as that takes.

    Each member keeps what it owns; free partitions go to the least loaded subscriber; then partitions move from loaded
    to idle members until no chain of moves improves the balance. With equal subscriptions the loads differ by at most
    one and the number of moves is minimal; with unequal ones the balance is optimal, the number of moves not
    necessarily.
    """
    return _StickyBalance(members, partitions).solve()


ASSIGNORS: dict[str, Assignor] = {
    STICKY: assign_sticky,
    RANGE: assign_range,
    ROUND_ROBIN: assign_round_robin,
}
"""By protocol name, in the order in which a member offers them."""


def _in_order(members: Mapping[str, Subscription]) -> list[str]:
    def rank(member: str) -> tuple[bool, str, str]:
        instance = members[member].group_instance_id
        return (instance is None, instance or "", member)

    return sorted(members, key=rank)


def _subscribers(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> dict[str, list[str]]:
    """Topic to members, both in order, for existing topics with subscribers."""
    subscribers: dict[str, list[str]] = {topic: [] for topic in sorted(partitions)}
    for member in _in_order(members):
        for topic in dict.fromkeys(members[member].topics):
            if topic in subscribers:
                subscribers[topic].append(member)
    return {topic: wanted_by for topic, wanted_by in subscribers.items() if wanted_by}


def _claims(subscription: Subscription) -> tuple[tuple[TopicPartition, ...], int]:
    """The partitions that the member says it holds, and since which generation."""
    if subscription.owned or not subscription.user_data:
        return subscription.owned, subscription.generation
    try:
        return decode_sticky_user_data(subscription.user_data)
    except MalformedBytes:
        # User data has the format of its writer; other formats than Kafka's sticky one are ignored.
        return (), subscription.generation


class _StickyBalance:
    """One run of the sticky assignor. Mutable, used once.

    Balancing is an optimal semi-matching: there is an edge from member a to b if a holds a partition of a topic that b
    wants too; a path from a member to one that holds at least two fewer improves the balance by moving one partition
    along each edge. If no such path exists, the balance is optimal.
    """

    def __init__(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> None:
        self._members = members
        self._partitions = partitions
        self._subscribers = _subscribers(members, partitions)
        self._order = _in_order(members)
        self._owner_before = self._previous_owners()
        self._held: dict[str, dict[str, set[int]]] = {member: {} for member in members}
        self._load: dict[str, int] = dict.fromkeys(self._order, 0)

    def solve(self) -> Assignments:
        for (topic, number), member in self._owner_before.items():
            self._give(member, topic, number)
        self._assign_free_partitions()
        self._balance()
        return {
            member: [(topic, number) for topic in sorted(held) for number in sorted(held[topic])]
            for member, held in self._held.items()
        }

    def _previous_owners(self) -> dict[TopicPartition, str]:
        """Valid claims; the newest generation wins. Equal claims cancel out: there is no telling which is right."""
        best: dict[TopicPartition, tuple[int, str | None]] = {}
        wanted = {topic: set(members) for topic, members in self._subscribers.items()}
        for member in self._order:
            owned, generation = _claims(self._members[member])
            for topic, number in dict.fromkeys(owned):
                if member not in wanted.get(topic, ()) or number >= self._partitions[topic]:
                    continue
                known_generation, _ = best.get((topic, number), (generation - 1, None))
                if generation > known_generation:
                    best[topic, number] = (generation, member)
                elif generation == known_generation:
                    best[topic, number] = (generation, None)
        return {partition: member for partition, (_, member) in best.items() if member is not None}

    def _give(self, member: str, topic: str, number: int) -> None:
        self._held[member].setdefault(topic, set()).add(number)
        self._load[member] += 1

    def _assign_free_partitions(self) -> None:
        # Topics with the fewest subscribers first: the others have more choices.
        for topic in sorted(self._subscribers, key=lambda name: (len(self._subscribers[name]), name)):
            for number in range(self._partitions[topic]):
                if (topic, number) not in self._owner_before:
                    self._give(min(self._subscribers[topic], key=self._load.__getitem__), topic, number)

    def _balance(self) -> None:
        # A member from which no improvement can be reached is settled, and so is all it reaches: loads there are at
        # least its own less one, and every later source has no more than it. So they are never searched again.
        settled: set[str] = set()
        while True:
            sources = [member for member in self._order if member not in settled]
            if not sources:
                return
            source = max(sources, key=self._load.__getitem__)
            path, reached = self._improving_path(source, settled)
            if path is None:
                settled |= reached
                continue
            for giver, topic, taker in path:
                self._move(giver, topic, taker)

    def _improving_path(self, source: str, settled: set[str]) -> tuple[list[tuple[str, str, str]] | None, set[str]]:
        """Hops (giver, topic, taker) from `source` to a member with two fewer, or None and all it reaches."""
        came_by: dict[str, tuple[str, str]] = {}
        reached = {source}
        opened_topics: set[str] = set()
        queue = deque([source])
        while queue:
            giver = queue.popleft()
            for topic in sorted(self._held[giver]):
                if topic in opened_topics:
                    continue
                opened_topics.add(topic)
                takers = [taker for taker in self._subscribers[topic] if taker not in reached and taker not in settled]
                for taker in takers:
                    came_by[taker] = (giver, topic)
                    reached.add(taker)
                if takers:
                    idlest = min(takers, key=self._load.__getitem__)
                    if self._load[idlest] <= self._load[source] - 2:
                        return _hops(came_by, source, idlest), reached
                queue.extend(takers)
        return None, reached

    def _move(self, giver: str, topic: str, taker: str) -> None:
        """Move a partition: preferably one that the taker had, then one the giver did not have; high numbers first."""
        held = self._held[giver][topic]

        def rank(number: int) -> tuple[bool, bool, int]:
            owner = self._owner_before.get((topic, number))
            return (owner != taker, owner == giver, -number)

        number = min(held, key=rank)
        held.remove(number)
        if not held:
            del self._held[giver][topic]
        self._load[giver] -= 1
        self._give(taker, topic, number)


def _hops(came_by: Mapping[str, tuple[str, str]], source: str, target: str) -> list[tuple[str, str, str]]:
    hops: list[tuple[str, str, str]] = []
    taker = target
    while taker != source:
        giver, topic = came_by[taker]
        hops.append((giver, topic, taker))
        taker = giver
    return hops
