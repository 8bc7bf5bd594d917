"""A broker on a clock that the test turns, and members that behave as Kafka's clients do.

A member takes one step at a time: look at an answer, join, sync or heartbeat. It reads what it is assigned by counting
up a position for each partition, and commits positions. What must never happen is asserted where it would:

- a partition held by two members in one generation, or by two whose commits would both be taken;
- an acknowledged commit that is gone, or that another one takes back;
- UNKNOWN_MEMBER_ID for a member that kept in touch, or FENCED_INSTANCE_ID for the process that joined last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Generic, TypeVar

from broker.small_broker import at, die, open_broker
from foldlog.broker.broker import Broker
from foldlog.broker.groups.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from foldlog.broker.groups.coordinator import GroupCoordinator
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import JoinRequest, JoinResult, MemberIdentity, SyncRequest, SyncResult
from foldlog.client.consumer.assignors import assign_range, assign_sticky
from foldlog.errors import FencedMember, GroupError, IllegalGeneration, RebalanceInProgress, UnknownMember
from foldlog.files.memory import MemoryFiles
from foldlog.testing.sim_clock import SimClock

GROUP = "g"
COUNTS = {"orders": 5, "refunds": 2}
EVERYTHING = {(topic, number) for topic, size in COUNTS.items() for number in range(size)}
SESSION_MS = 3_000
REBALANCE_MS = 9_000
ATTENTIVE_MS = 500

Result = TypeVar("Result")


class Answer(Generic[Result]):
    """A reply, when it was asked for and when it came."""

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self.result: Result | None = None
        self.asked_ms = self.arrived_ms = clock.monotonic_ms()

    def __call__(self, result: Result) -> None:
        assert self.result is None, "a request was answered twice"
        self.result = result
        self.arrived_ms = self._clock.monotonic_ms()


class Cluster:
    """One broker at a time over the same files, and what its members were promised."""

    def __init__(self, *, cooperative: bool) -> None:
        self.cooperative = cooperative
        self.clock = SimClock()
        self.files = MemoryFiles()
        self._ids = count(1)
        self.broker = self._opened()
        self.incarnation = 0
        self.members: list[SimulatedMember] = []
        self.newest: dict[str, SimulatedMember] = {}
        self.acknowledged: dict[TopicPartition, int] = {}
        self.owners: dict[tuple[int, TopicPartition], str] = {}
        self._named = 0
        for topic, size in COUNTS.items():
            self.broker.create_topic(topic, size)

    # --- what happens -----------------------------------------------------------------------------------------------

    def start(self, instance: str | None = None, *, needs_id_first: bool = True) -> SimulatedMember:
        self._named += 1
        member = SimulatedMember(self, instance or f"member-{self._named}", instance, needs_id_first)
        self.members.append(member)
        return member

    def attentive(self, ms: int, working: bool = True) -> None:
        """Time passes while all members do what they have to, in time."""
        for number in range(max(1, ms // ATTENTIVE_MS)):
            self.silent(ATTENTIVE_MS)
            for member in list(self.members):
                member.step()
                if working and number % 4 == 0:
                    member.work()
            self.check_owners()

    def silent(self, ms: int) -> None:
        """Time passes, and only the broker notices."""
        self.clock.advance(ms)
        self.broker.run_due()

    def restart(self) -> None:
        """The broker closes, as with SIGTERM, and comes again."""
        self.broker.close()
        self._reopen()

    def kill(self) -> None:
        """The broker's process dies: nothing is closed."""
        die(self.files)
        self._reopen()

    def _opened(self) -> Broker:
        broker = open_broker(self.files, self.clock)
        broker._groups._coordinator._new_id = lambda: f"{next(self._ids):04d}"  # the same in each run
        return broker

    def _reopen(self) -> None:
        self.broker = self._opened()
        self.incarnation += 1
        self.broker.describe_group(GROUP)  # sessions begin anew when groups are loaded: now, not at the first request
        for member in self.members:
            member.notice_restart()
        self.check_commits()

    # --- what was promised ------------------------------------------------------------------------------------------

    def check_commits(self) -> None:
        found = {partition: committed.offset for partition, committed in self.broker.committed(GROUP).items()}
        assert found == self.acknowledged

    def check_owners(self) -> None:
        """Of members whose commits would be taken now, no two hold the same partition."""
        described = self.broker.describe_group(GROUP)
        current = {member.member_id for member in described.members}
        held: dict[TopicPartition, str] = {}
        for member in self.members:
            if member.member_id in current and member.generation == described.generation:
                for partition in member.positions:
                    assert partition not in held, f"{partition} is held by {held[partition]} and {member.name}"
                    held[partition] = member.name

    def note_owner(self, generation: int, partition: TopicPartition, name: str) -> None:
        owner = self.owners.setdefault((generation, partition), name)
        assert owner == name, f"generation {generation} gave {partition} to {owner} and to {name}"

    def note_commit(self, partition: TopicPartition, position: int) -> None:
        before = self.acknowledged.get(partition, -1)
        assert position >= before, f"{partition} was committed at {before}, and then at {position}"
        self.acknowledged[partition] = position

    def assert_converged(self) -> None:
        """Everybody alive is in one stable generation that covers everything."""
        alive = [member for member in self.members if not member.is_fenced]
        described = self.broker.describe_group(GROUP)
        if not alive:
            assert not described.members
            return
        assert described.state == "Stable"
        assert {member.member_id for member in described.members} == {member.member_id for member in alive}
        assert {member.generation for member in alive} == {described.generation}
        held = [partition for member in alive for partition in member.positions]
        assert len(held) == len(EVERYTHING)
        assert set(held) == EVERYTHING
        self.check_commits()


class SimulatedMember:
    """A client with one request under way at most. Eager ones give all up before they join again; cooperative ones
    keep what they hold, give up what moves, and then join once more."""

    def __repr__(self) -> str:
        return self.name

    def __init__(self, cluster: Cluster, name: str, instance: str | None, needs_id_first: bool) -> None:
        self.name = name
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.positions: dict[TopicPartition, int] = {}
        self.is_fenced = False
        self.is_slow = False
        self.times_unknown = 0
        self._cluster = cluster
        self._needs_id_first = needs_id_first and instance is None
        self._must_join = True
        self._joining: Answer[JoinResult] | None = None
        self._syncing: Answer[SyncResult] | None = None
        self._abandoned: Answer[Any] | None = None
        self._contact_ms = cluster.clock.monotonic_ms()
        self._was_assigned = False  # under this id: so it is stored
        self._id_since = cluster.incarnation
        self._slow_since_join = False

    # --- what a client does -------------------------------------------------------------------------------------------

    def step(self) -> None:
        """The next thing a client would do now; nothing while a request is under way."""
        if self.is_fenced:
            return
        if self._joining is not None:
            if self._joining.result is not None and not self.is_slow:
                joined, self._joining = self._joining, None
                self._on_join(*self._taken(joined))
        elif self._syncing is not None:
            if self._syncing.result is not None:
                synced, self._syncing = self._syncing, None
                self._on_sync(*self._taken(synced))
        elif self._must_join and not self.is_slow:
            self._join()
        elif self.member_id:
            self.heartbeat()

    def heartbeat(self) -> None:
        """Also beside a request that is under way, as clients with a thread for it do."""
        if self.is_fenced or not self.member_id:
            return
        error = self._ask(
            lambda coordinator: coordinator.heartbeat(GROUP, self.member_id, self.generation, self.instance)
        )
        if error is not GroupErrorCode.NONE:
            self._hear(error)
        if error in (GroupErrorCode.NONE, GroupErrorCode.REBALANCE_IN_PROGRESS):
            self._contact_ms = self._now_ms()

    def work(self) -> None:
        """Read one record of each partition, and commit."""
        for partition in self.positions:
            self.positions[partition] += 1
        self.commit(self.positions)

    def commit(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = {partition: self.positions[partition] for partition in partitions}
        if not wanted or self.is_fenced:
            return
        try:
            self._cluster.broker.commit_offsets(
                GROUP,
                {partition: at(position) for partition, position in wanted.items()},
                member_id=self.member_id,
                generation=self.generation,
                instance_id=self.instance,
            )
        except GroupError as error:
            if not isinstance(error, RebalanceInProgress):
                self._hear(_CODES[type(error)])
            return
        self._contact_ms = self._now_ms()
        for partition, position in wanted.items():
            self._cluster.note_commit(partition, position)

    def drop_connection(self) -> None:
        """The request under way gets its answer, and nobody reads it."""
        self._abandoned = self._joining or self._syncing or self._abandoned
        self._must_join = self._must_join or self._is_waiting()
        self._joining = self._syncing = None

    def notice_restart(self) -> None:
        """The broker ended and came again: connections are gone, and who was known has a new session."""
        self.drop_connection()
        if self._now_ms() - self._last_contact_ms() < SESSION_MS:
            self._contact_ms = self._now_ms()
        self._abandoned = None

    def leave(self) -> None:
        self.commit(list(self.positions))
        if self.member_id:
            self._ask(lambda coordinator: coordinator.leave(GROUP, [MemberIdentity(self.member_id, self.instance)]))
        self._cluster.members.remove(self)

    def crash(self) -> None:
        self._cluster.members.remove(self)

    def become_slow(self) -> None:
        """It works on something long: it heartbeats, and joins when it is done."""
        self.is_slow = self._slow_since_join = True

    # --- joining and syncing ------------------------------------------------------------------------------------------

    def _join(self) -> None:
        if not self._cluster.cooperative:
            self.commit(list(self.positions))
            self.positions.clear()
        self._must_join = True
        claims = Subscription(tuple(COUNTS), tuple(sorted(self.positions)), self.generation)
        protocol = "cooperative-sticky" if self._cluster.cooperative else "range"
        request = JoinRequest(
            GROUP,
            "consumer",
            ((protocol, encode_subscription(claims)),),
            SESSION_MS,
            REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            require_known_member_id=self._needs_id_first,
        )
        if self.instance is not None and not self.member_id:
            self._cluster.newest[self.instance] = self  # it asks for the place of the one before
        answer: Answer[JoinResult] = Answer(self._cluster.clock)
        self._joining = answer
        self._ask(lambda coordinator: coordinator.join(request, answer))

    def _on_join(self, answer: JoinResult, judged_ms: float) -> None:
        if answer.error is GroupErrorCode.MEMBER_ID_REQUIRED:
            self._take_id(answer.member_id)
            self._join()
        elif answer.error is not GroupErrorCode.NONE:
            self._refused(answer.error, judged_ms)
        else:
            if answer.member_id != self.member_id:
                self._take_id(answer.member_id)
            self.generation = answer.generation
            self._slow_since_join = self.is_slow
            assignments = self._assign(answer) if answer.is_leader else {}
            request = SyncRequest(GROUP, self.member_id, self.generation, assignments, self.instance)
            syncing: Answer[SyncResult] = Answer(self._cluster.clock)
            self._syncing = syncing
            self._ask(lambda coordinator: coordinator.sync(request, syncing))

    def _assign(self, answer: JoinResult) -> dict[str, bytes]:
        wishes = {member.member_id: decode_subscription(member.metadata) for member in answer.members}
        if not self._cluster.cooperative:
            plan = assign_range(wishes, COUNTS)
        else:
            plan = assign_sticky(wishes, COUNTS)
            holder = {partition: member for member, wish in wishes.items() for partition in wish.owned}
            for member, assigned in plan.items():
                # What moves is first given up, and assigned in the next generation.
                plan[member] = [partition for partition in assigned if holder.get(partition, member) == member]
        return {member: encode_assignment(Assignment(tuple(assigned))) for member, assigned in plan.items()}

    def _on_sync(self, answer: SyncResult, judged_ms: float) -> None:
        if answer.error is not GroupErrorCode.NONE:
            self._refused(answer.error, judged_ms)
            return
        self._was_assigned = True
        assigned = set(decode_assignment(answer.assignment).partitions)
        revoked = self.positions.keys() - assigned
        self._must_join = bool(revoked)
        self.commit(sorted(revoked))
        if not self._was_assigned:
            return  # the commit was refused, and everything is lost
        for partition in revoked:
            del self.positions[partition]
        fresh = assigned - self.positions.keys()
        committed = self._cluster.broker.committed(GROUP, sorted(fresh))
        for partition in sorted(fresh):
            self.positions[partition] = committed[partition].offset if partition in committed else 0
        for partition in assigned:
            self._cluster.note_owner(self.generation, partition, self.name)

    # --- refusals -----------------------------------------------------------------------------------------------------

    def _hear(self, error: GroupErrorCode) -> None:
        """A refusal. Beside a join or sync, the answer to that will tell what became of the generation."""
        if not self._is_waiting():
            self._refused(error, self._now_ms())
        elif error is GroupErrorCode.UNKNOWN_MEMBER_ID:
            self._check_unknown(self._now_ms())

    def _refused(self, error: GroupErrorCode, judged_ms: float) -> None:
        self._must_join = True
        if error is GroupErrorCode.REBALANCE_IN_PROGRESS:
            if not self._cluster.cooperative:
                self.commit(list(self.positions))
                self.positions.clear()
        elif error is GroupErrorCode.ILLEGAL_GENERATION:
            self.positions.clear()
        elif error is GroupErrorCode.UNKNOWN_MEMBER_ID:
            self._check_unknown(judged_ms)
            self.positions.clear()
            self.member_id, self.generation, self._was_assigned = "", -1, False
        elif error is GroupErrorCode.FENCED_INSTANCE_ID:
            assert self._is_replaced() or self._is_forgotten(), f"{self.name} was fenced without another process"
            self.positions.clear()
            self.is_fenced = True
        else:
            assert error is GroupErrorCode.COORDINATOR_NOT_AVAILABLE, error

    def _check_unknown(self, judged_ms: float) -> None:
        self.times_unknown += 1
        silent_ms = judged_ms - self._last_contact_ms()
        is_excused = self._slow_since_join or self._is_forgotten() or self._is_replaced()
        assert is_excused or silent_ms >= SESSION_MS, (
            f"{self.name} is unknown, though it was in touch {silent_ms} ms ago"
        )

    def _taken(self, answer: Answer[Result]) -> tuple[Result, float]:
        """The result and when it was decided. It is a sign that the member is known, unless it refuses it at once."""
        assert answer.result is not None
        known_ms = self._known_at(answer)
        if known_ms is not None:
            self._contact_ms = known_ms
        return answer.result, answer.arrived_ms

    def _last_contact_ms(self) -> float:
        known_ms = None if self._abandoned is None else self._known_at(self._abandoned)
        return self._contact_ms if known_ms is None else max(self._contact_ms, known_ms)

    def _known_at(self, answer: Answer[Any]) -> float | None:
        """When the broker last counted a request as a sign of life: who waits for an answer has no deadline, it starts
        with the answer, read or not. None if it was refused at once, which tells only of the time before."""
        if answer.result is None:
            return self._now_ms()
        waited = answer.arrived_ms > answer.asked_ms
        return answer.arrived_ms if waited or answer.result.error is GroupErrorCode.NONE else None

    def _is_replaced(self) -> bool:
        return self.instance is not None and self._cluster.newest[self.instance] is not self

    def _is_forgotten(self) -> bool:
        """A broker that ended abruptly knows members that had an assignment, and no others."""
        return not self._was_assigned and self._id_since != self._cluster.incarnation

    # --- the connection -----------------------------------------------------------------------------------------------

    def _is_waiting(self) -> bool:
        return self._joining is not None or self._syncing is not None

    def _take_id(self, member_id: str) -> None:
        self.member_id, self._was_assigned, self._id_since = member_id, False, self._cluster.incarnation

    def _ask(self, question: Callable[[GroupCoordinator], Result]) -> Result:
        with self._cluster.broker.coordinator() as coordinator:
            return question(coordinator)

    def _now_ms(self) -> float:
        return self._cluster.clock.monotonic_ms()


_CODES: dict[type[GroupError], GroupErrorCode] = {
    UnknownMember: GroupErrorCode.UNKNOWN_MEMBER_ID,
    IllegalGeneration: GroupErrorCode.ILLEGAL_GENERATION,
    FencedMember: GroupErrorCode.FENCED_INSTANCE_ID,
}
