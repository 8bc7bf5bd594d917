"""State transitions of one group, and the answers to its members.

    Empty ──join──► PreparingRebalance ──all joined, or rebalance timeout──► CompletingRebalance
      ▲                 ▲        │                                                │
      └──no members─────┼────────┘                       leader sends assignments │
                        └──join, leave, expiry── Stable ◄─────────────────────────┘

`coordinator.py` finds the group and decides whether a request is acceptable; this module does the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial

from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import (
    NO_MEMBER,
    GroupSettings,
    GroupState,
    JoinReply,
    JoinResult,
    SyncReply,
    SyncResult,
)
from foldlog.broker.groups.offsets_format import encode_group_key, encode_group_value
from foldlog.broker.groups.state import Group, GroupMember
from foldlog.broker.groups.timers import Timers
from foldlog.clock import Clock
from foldlog.limits import NEW_MEMBER_JOIN_TIMEOUT_MS


class Timer(Enum):
    """The purpose of a deadline."""

    SESSION = auto()  # a member that is not parked, or a new member's first join
    PENDING = auto()  # an id that was given out and not used yet
    REBALANCE = auto()  # members that have to join again
    SYNC = auto()  # members that have to fetch their assignment


TimerName = tuple[Timer, str, str]
"""Kind, group, and member or NO_MEMBER."""


class Rebalancer:
    """Owned by the coordinator, which delivers `outbox` at the end of each event and hands `writes` to the driver.

    A parked member has no session deadline: it waits for us, so its silence means nothing. Instead, the group's
    rebalance timeout bounds each of the two waits.
    """

    def __init__(self, clock: Clock, settings: GroupSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._ticked_ms = float("-inf")
        self.timers: Timers[TimerName] = Timers()
        self.outbox: deque[Callable[[], None]] = deque()
        self.writes: list[tuple[bytes, bytes | None]] = []

    # --- time -----------------------------------------------------------------------------------------------------

    def ticked(self, now_ms: float | None) -> float:
        """The time of a tick. Deadlines set during it lie after it, whatever the clock says."""
        self._ticked_ms = self._clock.monotonic_ms() if now_ms is None else now_ms
        return self._ticked_ms

    def set_timer(self, kind: Timer, group: Group, member_id: str, delay_ms: float) -> None:
        now_ms = max(self._clock.monotonic_ms(), self._ticked_ms)
        self.timers.set((kind, group.group_id, member_id), now_ms + delay_ms)

    def cancel_timer(self, kind: Timer, group: Group, member_id: str = NO_MEMBER) -> None:
        self.timers.cancel((kind, group.group_id, member_id))

    def cancel_timers(self, group: Group) -> None:
        """Cancel all timers of a group that is removed."""
        for kind in (Timer.REBALANCE, Timer.SYNC):
            self.cancel_timer(kind, group)
        for member_id in group.members:
            self.cancel_timer(Timer.SESSION, group, member_id)
        for member_id in group.pending_ids:
            self.cancel_timer(Timer.PENDING, group, member_id)

    def touch(self, group: Group, member: GroupMember) -> None:
        """Restart the member's session after a sign of life, unless the member is parked."""
        if member.parked_join is None and member.parked_sync is None:
            self.set_timer(Timer.SESSION, group, member.member_id, member.session_timeout_ms)

    # --- states ---------------------------------------------------------------------------------------------------

    def transition(self, group: Group, state: GroupState) -> None:
        group.state = state
        group.state_timestamp_ms = self._clock.now_ms()

    def write(self, group: Group) -> None:
        self.writes.append((encode_group_key(group.group_id), encode_group_value(group.to_stored())))

    def rebalance(self, group: Group) -> None:
        """Start a rebalance, or complete the one under way if possible."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.try_complete_join(group)
            return
        from_empty = group.state is GroupState.EMPTY
        # Members that wait for an assignment of the generation that ends here will not get one: the leader's, if it
        # still comes, is refused, first for the group's state and then for its generation.
        for member in group.members.values():
            if member.parked_sync is not None:
                self.answer_sync(group, member, SyncResult(GroupErrorCode.REBALANCE_IN_PROGRESS))
        group.awaiting_sync.clear()
        self.cancel_timer(Timer.SYNC, group)
        self.transition(group, GroupState.PREPARING_REBALANCE)
        # The longest timeout of all members, as in Kafka: a member may still be processing what it polled, and if it
        # were removed too early, its records would be processed twice.
        timeout_ms = group.rebalance_timeout_ms()
        delay_ms = min(self._settings.initial_rebalance_delay_ms, timeout_ms)
        if not from_empty:
            self.set_timer(Timer.REBALANCE, group, NO_MEMBER, timeout_ms)
            self.try_complete_join(group)
        elif delay_ms > 0:
            group.initial_delay_left_ms = timeout_ms - delay_ms
            group.joined_during_delay = False
            self.set_timer(Timer.REBALANCE, group, NO_MEMBER, delay_ms)
        else:
            self._complete_join(group)

    def try_complete_join(self, group: Group) -> None:
        if group.initial_delay_left_ms is None and group.all_joined():
            self._complete_join(group)

    def rebalance_due(self, group: Group) -> None:
        # KIP-134: when a group starts, members join one at a time, and each would begin a generation. As long as new
        # ones keep joining, the first generation waits, up to the rebalance timeout.
        left_ms = group.initial_delay_left_ms
        if left_ms is not None and left_ms > 0 and group.joined_during_delay:
            more_ms = min(float(self._settings.initial_rebalance_delay_ms), left_ms)
            group.initial_delay_left_ms = left_ms - more_ms
            group.joined_during_delay = False
            self.set_timer(Timer.REBALANCE, group, NO_MEMBER, more_ms)
            return
        self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        """Begin the next generation with the members that have joined; an absent static member keeps its place."""
        group.initial_delay_left_ms = None
        # A dynamic member that did not join again is removed. A static one (KIP-345) may come back within its session
        # timeout, and the leader goes on assigning to it meanwhile.
        absent = [
            member.member_id
            for member in group.members.values()
            if member.parked_join is None and member.group_instance_id is None
        ]
        for member_id in absent:
            self.cancel_timer(Timer.SESSION, group, member_id)
            group.remove(member_id)
        if group.members and not group.elect_joined_leader():
            # Only absent static members are left, and none can lead: wait until one returns or all expire.
            self.set_timer(Timer.REBALANCE, group, NO_MEMBER, group.rebalance_timeout_ms())
            return
        self.cancel_timer(Timer.REBALANCE, group)
        group.begin_generation()
        if not group.members:
            self.transition(group, GroupState.EMPTY)
            self.write(group)
            return
        # Not written yet: a generation without assignments is useless after a restart. `take_assignments` writes it
        # with them, before any member gets its own.
        self.transition(group, GroupState.COMPLETING_REBALANCE)
        for member in group.members.values():
            member.assignment = b""
            if member.parked_join is not None:
                member.is_new = False
                group.awaiting_sync.add(member.member_id)
                self.answer_join(group, member, self.joined(group, member))
        self.set_timer(Timer.SYNC, group, NO_MEMBER, group.rebalance_timeout_ms())

    def take_assignments(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        """Store the leader's assignments: the group is stable, and waiting members get theirs."""
        # By the group's members, not by the given keys: assignments to unknown members are dropped, and a member that
        # is left out gets an empty assignment, which clients read as no partitions.
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.transition(group, GroupState.STABLE)
        self.write(group)
        for member in group.members.values():
            if member.parked_sync is not None:
                self.answer_sync(group, member, self.assigned(group, member))

    def sync_due(self, group: Group) -> None:
        """Remove the members that did not send SyncGroup in time, the leader too, and rebalance."""
        for member_id in list(group.awaiting_sync):
            self.turn_away(group, group.members[member_id], GroupErrorCode.UNKNOWN_MEMBER_ID)
            group.remove(member_id)
        self.rebalance(group)

    def remove_member(self, group: Group, member_id: str, error: GroupErrorCode) -> None:
        self.turn_away(group, group.members[member_id], error)
        group.remove(member_id)
        self.rebalance(group)

    # --- parked requests and their answers ------------------------------------------------------------------------

    def park_join(self, group: Group, member: GroupMember, reply: JoinReply) -> None:
        if member.parked_join is not None:
            # The client gave up on that request and sent another; the real answer goes to the newer one.
            self.outbox.append(partial(member.parked_join, self.refused(member, GroupErrorCode.REBALANCE_IN_PROGRESS)))
        member.parked_join = reply
        if member.is_new:
            # It does not know its id yet and cannot send heartbeats; only this timer notices if it is gone.
            limit_ms = max(NEW_MEMBER_JOIN_TIMEOUT_MS, member.rebalance_timeout_ms)
            self.set_timer(Timer.SESSION, group, member.member_id, limit_ms)
        else:
            self.cancel_timer(Timer.SESSION, group, member.member_id)

    def park_sync(self, group: Group, member: GroupMember, reply: SyncReply) -> None:
        if member.parked_sync is not None:
            self.outbox.append(partial(member.parked_sync, SyncResult(GroupErrorCode.REBALANCE_IN_PROGRESS)))
        member.parked_sync = reply
        self.cancel_timer(Timer.SESSION, group, member.member_id)

    def answer_join(self, group: Group, member: GroupMember, result: JoinResult) -> None:
        if member.parked_join is not None:
            self.outbox.append(partial(member.parked_join, result))
            member.parked_join = None
            self.touch(group, member)

    def answer_sync(self, group: Group, member: GroupMember, result: SyncResult) -> None:
        if member.parked_sync is not None:
            self.outbox.append(partial(member.parked_sync, result))
            member.parked_sync = None
            self.touch(group, member)

    def turn_away(self, group: Group, member: GroupMember, error: GroupErrorCode) -> None:
        """Answer the member's parked requests with `error` and end its session."""
        self.answer_join(group, member, self.refused(member, error))
        self.answer_sync(group, member, SyncResult(error))
        self.cancel_timer(Timer.SESSION, group, member.member_id)

    @staticmethod
    def refused(member: GroupMember, error: GroupErrorCode) -> JoinResult:
        return JoinResult(error, member.member_id)

    @staticmethod
    def joined(group: Group, member: GroupMember) -> JoinResult:
        """The member's answer for the current generation."""
        return JoinResult(
            GroupErrorCode.NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol,
            group.leader or NO_MEMBER,
            group.joined_members() if group.is_leader(member.member_id) else (),
        )

    @staticmethod
    def assigned(group: Group, member: GroupMember) -> SyncResult:
        return SyncResult(GroupErrorCode.NONE, member.assignment, group.protocol_type, group.protocol)
