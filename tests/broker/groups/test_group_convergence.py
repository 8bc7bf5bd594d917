"""Many simulated members against the coordinator, with crashes, restarts and slowness, in any order.

Members behave as clients do: join, sync, heartbeat, assign with the sticky assignor when they lead. Whatever happens:

- within one generation no partition is held by two members, also across restarts of the coordinator;
- whoever is not parked has a deadline, and nothing else has one;
- once the disturbance ends, everybody alive ends up in one stable generation that covers all partitions,
  and nobody who keeps in touch is told more than once that it is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.groups.group_bench import Answer, counting_ids
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
from foldlog.broker.groups.messages import (
    GroupState,
    JoinRequest,
    JoinResult,
    MemberIdentity,
    SyncRequest,
    SyncResult,
)
from foldlog.broker.groups.rebalance import Timer
from foldlog.client.consumer.assignors import assign_sticky
from foldlog.testing.sim_clock import SimClock

GROUP = "g"
COUNTS = {"orders": 5, "refunds": 2}
EVERYTHING = {(topic, number) for topic, count in COUNTS.items() for number in range(count)}
SESSION_MS = 3_000
REBALANCE_MS = 9_000
MEMBERS_MAX = 6


@dataclass
class SimMember:
    """A client: at most one request under way, an assignment while it believes in its generation."""

    name: str
    coordinator: GroupCoordinator
    history: dict[tuple[int, TopicPartition], str]
    instance: str | None = None
    needs_id_first: bool = False
    member_id: str = ""
    generation: int = -1
    holds: tuple[TopicPartition, ...] | None = None
    last_held: tuple[TopicPartition, ...] = ()
    joining: Answer[JoinResult] | None = None
    syncing: Answer[SyncResult] | None = None
    fenced: bool = False
    times_unknown: int = field(default=0)

    def step(self) -> None:
        """Do the next thing a client would do now; nothing while a request is under way."""
        if self.fenced:
            return
        if self.joining is not None:
            if self.joining.arrived:
                answer, self.joining = self.joining.result, None
                self._on_join(answer)
        elif self.syncing is not None:
            if self.syncing.arrived:
                answered, self.syncing = self.syncing.result, None
                self._on_sync(answered)
        elif self.holds is None:
            self._join()
        else:
            error = self.coordinator.heartbeat(GROUP, self.member_id, self.generation, self.instance)
            if error is not GroupErrorCode.NONE:
                self._start_over(error)

    def lose_connection(self, coordinator: GroupCoordinator) -> None:
        self.coordinator = coordinator
        if self.joining is not None or self.syncing is not None:
            self.joining = self.syncing = None

    def _join(self) -> None:
        owned = Subscription(tuple(COUNTS), self.last_held, self.generation)
        self.joining = Answer()
        request = JoinRequest(
            GROUP,
            "consumer",
            (("sticky", encode_subscription(owned)),),
            SESSION_MS,
            REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            require_known_member_id=self.needs_id_first,
        )
        self.coordinator.join(request, self.joining)

    def _on_join(self, answer: JoinResult) -> None:
        if answer.error is GroupErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif answer.error is not GroupErrorCode.NONE:
            self._start_over(answer.error)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation
            assignments: dict[str, bytes] = {}
            if answer.is_leader:
                wishes = {member.member_id: decode_subscription(member.metadata) for member in answer.members}
                assignments = {
                    member: encode_assignment(Assignment(tuple(held)))
                    for member, held in assign_sticky(wishes, COUNTS).items()
                }
            self.syncing = Answer()
            request = SyncRequest(GROUP, self.member_id, self.generation, assignments, self.instance)
            self.coordinator.sync(request, self.syncing)

    def _on_sync(self, answer: SyncResult) -> None:
        if answer.error is not GroupErrorCode.NONE:
            self._start_over(answer.error)
            return
        self.holds = self.last_held = decode_assignment(answer.assignment).partitions
        for partition in self.holds:
            owner = self.history.setdefault((self.generation, partition), self.name)
            assert owner == self.name, f"generation {self.generation} gave {partition} to {owner} and {self.name}"

    def _start_over(self, error: GroupErrorCode) -> None:
        self.holds = None
        if error is GroupErrorCode.UNKNOWN_MEMBER_ID:
            self.times_unknown += 1
            self.member_id, self.generation, self.last_held = "", -1, ()
        elif error is GroupErrorCode.FENCED_INSTANCE_ID:
            self.fenced = True
        else:
            assert error in (GroupErrorCode.REBALANCE_IN_PROGRESS, GroupErrorCode.ILLEGAL_GENERATION), error


class GroupUnderDisturbance(RuleBasedStateMachine):
    """The disturbance as rules; `teardown` ends it and demands convergence."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SimClock()
        self.new_id = counting_ids()
        self.coordinator = GroupCoordinator(self.clock, new_id=self.new_id)
        self.records: dict[bytes, bytes | None] = {}
        self.history: dict[tuple[int, TopicPartition], str] = {}
        self.members: list[SimMember] = []
        self.named = counting_ids()

    def alive(self) -> list[SimMember]:
        return [member for member in self.members if not member.fenced]

    def save(self) -> None:
        self.records.update(self.coordinator.take_writes())

    @precondition(lambda self: len(self.members) < MEMBERS_MAX)
    @rule(kind=st.sampled_from(["embedded", "network", "static"]))
    def start_member(self, kind: str) -> None:
        instance = f"shelf-{len(self.members)}" if kind == "static" else None
        name = instance or self.named()
        self.members.append(SimMember(name, self.coordinator, self.history, instance, needs_id_first=kind == "network"))
        self.members[-1].step()

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def step_one(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.members)).step()

    @rule()
    def step_all(self) -> None:
        for member in list(self.members):
            member.step()

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.members))
        self.members.remove(member)
        self.coordinator.leave(GROUP, [MemberIdentity(member.member_id, member.instance)])

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.members.remove(data.draw(st.sampled_from(self.members)))

    @precondition(lambda self: any(member.instance for member in self.members))
    @rule(data=st.data())
    def restart_static_member(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from([member for member in self.members if member.instance]))
        self.members.append(SimMember(old.name, self.coordinator, self.history, old.instance))
        if data.draw(st.booleans()):
            self.members.remove(old)
        self.members[-1].step()

    @rule(ms=st.sampled_from([1, 500, SESSION_MS - 1, SESSION_MS, REBALANCE_MS]))
    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.coordinator.tick(self.clock.monotonic_ms())

    @rule()
    def restart_coordinator(self) -> None:
        self.save()
        self.coordinator = GroupCoordinator(self.clock, new_id=self.new_id)
        for key, value in self.records.items():
            self.coordinator.restore(key, value)
        for member in self.members:
            member.lose_connection(self.coordinator)

    @invariant()
    def whoever_is_not_parked_has_a_deadline_and_nothing_else_has(self) -> None:
        self.save()
        expected = set()
        for group in self.coordinator._groups.values():
            for member in group.members.values():
                if (member.parked_join is None and member.parked_sync is None) or member.is_new:
                    expected.add((Timer.SESSION, GROUP, member.member_id))
            expected |= {(Timer.PENDING, GROUP, member_id) for member_id in group.pending_ids}
            if group.state is GroupState.PREPARING_REBALANCE:
                expected.add((Timer.REBALANCE, GROUP, ""))
            if group.awaiting_sync:
                expected.add((Timer.SYNC, GROUP, ""))
                assert group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        assert set(self.coordinator._rebalancer.timers._deadlines) == expected

    @invariant()
    def an_empty_group_has_no_members_and_any_other_has_a_leader_among_them(self) -> None:
        for group in self.coordinator._groups.values():
            if group.state is GroupState.EMPTY:
                assert not group.members
            elif group.members:
                assert group.leader in group.members
            assert group.awaiting_sync <= set(group.members)
            assert set(group.static_ids.values()) <= set(group.members)

    def teardown(self) -> None:
        for member in self.members:
            member.times_unknown = 0
        for _ in range(3 * REBALANCE_MS // 500):
            for member in self.members:
                member.step()
            self.clock.advance(500)
            self.coordinator.tick(self.clock.monotonic_ms())
            self.whoever_is_not_parked_has_a_deadline_and_nothing_else_has()
        alive = self.alive()
        assert all(member.times_unknown <= 1 for member in alive)
        if not alive:
            assert self.coordinator.describe(GROUP).state in (GroupState.EMPTY, GroupState.DEAD)
            return
        described = self.coordinator.describe(GROUP)
        assert described.state is GroupState.STABLE
        assert {member.member_id for member in described.members} == {member.member_id for member in alive}
        assert {member.generation for member in alive} == {described.generation}
        held = [partition for member in alive for partition in member.holds or ()]
        assert len(held) == len(EVERYTHING)
        assert set(held) == EVERYTHING


GroupUnderDisturbance.TestCase.settings = settings(
    max_examples=3 * settings().max_examples, stateful_step_count=40, deadline=None, print_blob=True
)
TestGroupUnderDisturbance = GroupUnderDisturbance.TestCase
