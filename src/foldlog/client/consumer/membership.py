"""Embedded members of consumer groups: the driver of the group coordinator for consumers of this process.

The coordinator speaks Kafka's classic protocol: members join, the leader assigns, all sync. Members here share a
process, so there is no need to wait for a member's next poll: a call that makes or closes a consumer joins all the
others again on the spot, and when it returns every member has its assignment. A member finds it in `Member.held`, which
is replaced whole.

Locks: everything about joining happens inside `broker.coordinator()`; of a consumer only its `Member` is used here, so
the consumer needs no lock.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections import deque
from collections.abc import Mapping
from functools import partial
from threading import Thread

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.consumer_protocol import PROTOCOL_TYPE
from foldlog.broker.groups.coordinator import GroupCoordinator
from foldlog.broker.groups.errors import GroupErrorCode, exception_for
from foldlog.broker.groups.messages import (
    NO_GENERATION,
    NO_MEMBER,
    GroupState,
    JoinRequest,
    JoinResult,
    MemberIdentity,
    SyncRequest,
    SyncResult,
)
from foldlog.client.consumer.assignments import (
    NOTHING_HELD,
    Member,
    Since,
    beginnings,
    commit_as_member,
    counts_of,
    offered_protocols,
    shares,
    subscriptions_of,
    take_share,
)
from foldlog.client.positions import TopicPartition
from foldlog.errors import FoldlogError, GroupError, IllegalGeneration, LogClosed, StorageError, UnknownMember

_log = logging.getLogger("foldlog")

_WATCH_S = 0.05
"""How often to look for rebalances of members in other processes: so long these may have to wait."""

EMBEDDED_HOST = "embedded"
"""The host of such members. After a crash they are recognized by it: they died with the process."""


class Memberships:
    """All embedded members of one log, by group."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._members: dict[str, list[Member]] = {}
        self._absent: dict[str, list[MemberIdentity]] = {}
        self._abandoned: deque[Member] = deque()
        self._meets_others = False
        self._watcher: Thread | None = None
        alive = weakref.ref(self)  # the broker must not keep a dropped log alive

        def members_begin(group: str) -> dict[tuple[str, int], int]:
            memberships = alive()
            return {} if memberships is None else dict(memberships.begins(group).items())

        broker.members_begin = members_begin

    def begins(self, group: str) -> dict[TopicPartition, int]:
        """See `GroupMemberships`."""
        return beginnings(tuple(self._members.get(group, ())))

    # --- members of other processes -------------------------------------------------------------------------------

    def meet_others(self) -> None:
        """From now on members of other processes may join. The members here then take part in their rebalances without
        waiting for a poll, as they do in their own."""
        self._meets_others = True

    def _watch_rebalances(self) -> None:
        """Look for such rebalances, as long as there is a member here."""
        try:
            while not self._is_alone():
                time.sleep(_WATCH_S)
                self.bury_abandoned()
                for group in list(self._members):
                    self._take_part(group)
        except (LogClosed, StorageError) as error:
            # Polls report it, too.
            _log.debug("members of other processes are not looked after any more: %s", error)

    def _is_alone(self) -> bool:
        """Whether there is no member left here; the next one starts another thread."""
        with self._broker.coordinator():
            if any(self._members.values()):
                return False
            self._watcher = None
            return True

    def _take_part(self, group: str) -> None:
        """Join the members that have handled their records; the others join when they are polled."""
        for member in self._awaited(group):
            if member.is_busy():
                member.is_called = True
                member.wake()
                continue
            member.before_rebalance()
            with self._broker.coordinator() as coordinator:
                if member in self._members[group]:
                    self._start_join(coordinator, member)

    def _awaited(self, group: str) -> list[Member]:
        with self._broker.coordinator() as coordinator:
            state = coordinator.describe(group).state
            return [
                member
                for member in self._members[group]
                if not member.is_joining
                and (
                    state is GroupState.PREPARING_REBALANCE
                    or coordinator.has_to_rejoin(group, member.member_id)  # of a consumer group
                )
            ]

    # --- what consumers ask ---------------------------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """Become a member. On return it has its assignment, and the others have theirs."""
        self.bury_abandoned()
        self._before_rebalance(member.group)
        with self._broker.coordinator() as coordinator:
            self._meet(coordinator, member.group)
            self._members[member.group].append(member)
            self._start_join(coordinator, member)
            self._join_all(coordinator, member.group)
            refusal, member.refusal = member.refusal, None
            if refusal is not None:
                self._members[member.group].remove(member)
            if self._meets_others and self._watcher is None:
                self._watcher = Thread(target=self._watch_rebalances, name="foldlog-members", daemon=True)
                self._watcher.start()
        if refusal is not None:
            raise refusal

    def leave(self, member: Member) -> None:
        """Leave the group; on return the others have its partitions.

        A member with a group.instance.id only steps out: its membership is kept for the next consumer with that id,
        until max_poll_interval_ms have passed or another member makes the group rebalance.
        """
        if member not in self._members.get(member.group, ()):
            return
        self._before_rebalance(member.group, apart_from=member)
        with self._broker.coordinator() as coordinator:
            self._remove(coordinator, member)
            self._join_all(coordinator, member.group)

    def abandon(self, member: Member) -> None:
        """Note that a consumer was dropped without being closed. Takes no lock: the garbage collector calls it."""
        self._abandoned.append(member)

    def bury_abandoned(self) -> None:
        """Remove members whose consumers are gone."""
        while self._abandoned:
            try:
                self.leave(self._abandoned.popleft())
            except LogClosed:
                return

    def serve(self, member: Member) -> None:
        """A sign of life, from every poll or so. Joins again if the group asks for it or has removed the member."""
        self.bury_abandoned()
        member.is_called = False
        with self._broker.coordinator() as coordinator:
            if member.is_joining:
                return  # waiting for members of other processes
            code = coordinator.heartbeat(member.group, member.member_id, member.generation, member.instance_id)
            if code is GroupErrorCode.FENCED_INSTANCE_ID:
                raise _error(code, member.group)
            if code in (GroupErrorCode.UNKNOWN_MEMBER_ID, GroupErrorCode.ILLEGAL_GENERATION):
                # It was silent for too long; its partitions were assigned to others.
                member_id = member.member_id
                member.lose_membership()
                if code is GroupErrorCode.ILLEGAL_GENERATION:
                    member.member_id = member_id  # the group still has it: as a new one it would be in it twice
        if code is not GroupErrorCode.NONE or counts_of(self._broker, member.topics) != member.counts:
            self._rebalance(member)

    def commit(
        self, member: Member, offsets: Mapping[TopicPartition, OffsetAndMetadata], since: Mapping[TopicPartition, Since]
    ) -> None:
        """See `GroupMemberships`."""
        try:
            commit_as_member(self._broker, member, offsets, since)
        except (IllegalGeneration, UnknownMember):
            member.is_called = True  # the next poll, or the one that waits, asks the group and joins it again
            member.wake()
            raise

    # --- joining --------------------------------------------------------------------------------------------------

    def _rebalance(self, member: Member) -> None:
        self._before_rebalance(member.group)
        with self._broker.coordinator() as coordinator:
            self._meet(coordinator, member.group)
            leader = coordinator.describe(member.group).leader
            ours = self._members[member.group]
            # Only a join of the leader makes a stable group reassign; joins of others might just be answered again.
            self._start_join(coordinator, next((one for one in ours if one.member_id == leader), member))
            self._start_join(coordinator, member)
            self._join_all(coordinator, member.group)
            refusal, member.refusal = member.refusal, None
        if refusal is not None:
            raise refusal

    def _before_rebalance(self, group: str, apart_from: Member | None = None) -> None:
        for member in list(self._members.get(group, ())):
            if member is not apart_from:
                member.before_rebalance()

    def _join_all(self, coordinator: GroupCoordinator, group: str) -> None:
        """While the group waits for its members to join, join those of this process."""
        while coordinator.describe(group).state is GroupState.PREPARING_REBALANCE:
            absent = self._absent.pop(group, [])
            if absent:
                coordinator.leave(group, absent)
                continue
            waiting = [member for member in self._members[group] if not member.is_joining and member.refusal is None]
            late = next(iter(waiting), None)
            if late is None:
                return  # waiting for members of other processes; the answers come later
            self._start_join(coordinator, late)

    def _start_join(self, coordinator: GroupCoordinator, member: Member) -> None:
        if member.is_joining:
            return
        member.is_joining = True
        member.refusal = None
        absent = self._absent.get(member.group, [])
        absent[:] = [one for one in absent if one.group_instance_id != member.instance_id]
        coordinator.join(_join_request(member), partial(self._joined, coordinator, member))

    def _joined(self, coordinator: GroupCoordinator, member: Member, result: JoinResult) -> None:
        if result.error is not GroupErrorCode.NONE:
            member.is_joining = False
            self._refused(member, result.error)
            return
        member.member_id = result.member_id
        member.generation = result.generation
        assignments: dict[str, bytes] = {}
        try:
            if result.is_leader and not result.skip_assignment:
                assignments = shares(self._broker, result.protocol, subscriptions_of(result.members))
            request = SyncRequest(
                member.group, member.member_id, member.generation, assignments, member.instance_id, PROTOCOL_TYPE
            )
            # Joining until its share is known: a leader in another process may take its time.
            coordinator.sync(request, partial(self._synced, member, result.generation))
        except FoldlogError:
            member.is_joining = False
            raise

    def _synced(self, member: Member, generation: int, result: SyncResult) -> None:
        try:
            if result.error is not GroupErrorCode.NONE:
                self._refused(member, result.error)
            else:
                take_share(self._broker, member, generation, result.assignment)
        finally:
            member.is_joining = False
        member.wake()

    def _refused(self, member: Member, code: GroupErrorCode) -> None:
        if code is GroupErrorCode.UNKNOWN_MEMBER_ID:
            member.member_id, member.generation = NO_MEMBER, NO_GENERATION
        if code is not GroupErrorCode.REBALANCE_IN_PROGRESS:
            member.refusal = _error(code, member.group)
        member.wake()

    # --- bookkeeping ----------------------------------------------------------------------------------------------

    def _meet(self, coordinator: GroupCoordinator, group: str) -> None:
        """At the first use of a group: embedded members of earlier processes are dead, but static ones may return."""
        if group in self._members:
            return
        self._members[group] = []
        ghosts = [
            MemberIdentity(one.member_id, one.group_instance_id)
            for one in coordinator.describe(group).members
            if one.client_host == EMBEDDED_HOST
        ]
        self._absent[group] = [one for one in ghosts if one.group_instance_id is not None]
        dead = [one for one in ghosts if one.group_instance_id is None]
        if dead:
            coordinator.leave(group, dead)

    def _remove(self, coordinator: GroupCoordinator, member: Member) -> None:
        self._members[member.group].remove(member)
        identity = MemberIdentity(member.member_id, member.instance_id)
        member.held = NOTHING_HELD
        if member.instance_id is not None:
            self._absent.setdefault(member.group, []).append(identity)
        else:
            coordinator.leave(member.group, [identity])


def _join_request(member: Member) -> JoinRequest:
    return JoinRequest(
        member.group,
        PROTOCOL_TYPE,
        offered_protocols(member),
        # Members here need no heartbeats to prove that their process is alive; only their polling can stop.
        session_timeout_ms=member.max_poll_interval_ms,
        rebalance_timeout_ms=member.max_poll_interval_ms,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id="foldlog",
        client_host=EMBEDDED_HOST,
        supports_skipping_assignment=True,
    )


def _error(code: GroupErrorCode, group: str) -> FoldlogError:
    return exception_for(code, group) or GroupError(f"group {group!r} answered {code.name}")
