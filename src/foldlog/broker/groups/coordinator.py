"""The group coordinator: all groups of a broker, in one namespace, without I/O.

Here is Kafka's classic group protocol; groups of the consumer protocol are in `consumer/coordinator.py`, share groups
in `share/membership.py`. This module passes on what is theirs, and moves groups from one protocol to the other.

Events come in as calls, time as the injected clock and `tick`; answers go out through the replies passed with the
requests, records for `__consumer_offsets` through `take_writes`. Members of classic groups exchange opaque bytes, so
eager and cooperative assignors work alike. `state.py` is one such group, `rebalance.py` its state transitions; this
module accepts or refuses requests.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from foldlog.broker.groups.consumer.coordinator import ConsumerGroups, refuse_heartbeat
from foldlog.broker.groups.consumer.messages import JOIN_EPOCH, HeartbeatResult, MemberHeartbeat
from foldlog.broker.groups.consumer.migration import downgraded, upgraded, why_not_upgrade
from foldlog.broker.groups.consumer.records import StoredConsumerGroup, decode_consumer_value
from foldlog.broker.groups.consumer.state import ConsumerGroup
from foldlog.broker.groups.consumer.topics import NO_TOPICS, TopicsImage
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.group_settings import GroupConfigs
from foldlog.broker.groups.messages import (
    NO_MEMBER,
    GroupListing,
    GroupSettings,
    GroupState,
    GroupSummary,
    GroupType,
    JoinReply,
    JoinRequest,
    JoinResult,
    LeaveResult,
    MemberIdentity,
    SyncReply,
    SyncRequest,
    SyncResult,
    refuse_malformed,
)
from foldlog.broker.groups.offsets_format import (
    NO_TIMESTAMP,
    ConsumerKey,
    GroupKey,
    ShareKey,
    decode_group_value,
    decode_key,
    encode_group_key,
    encode_group_value,
)
from foldlog.broker.groups.rebalance import Rebalancer, Timer
from foldlog.broker.groups.state import CONSUMER_PROTOCOL_TYPE, Group, GroupMember, MetadataBudget, check_stored
from foldlog.broker.share.membership import SHARE_PROTOCOL_TYPE, ShareGroups, refuse_share_heartbeat
from foldlog.broker.share.messages import ShareHeartbeat
from foldlog.clock import Clock
from foldlog.errors import CorruptGroupRecord, MalformedBytes, brief_repr
from foldlog.limits import GROUP_DEATHS_MAX, GROUP_METADATA_BYTES_MAX, MEMBER_METADATA_BYTES_MAX

Result = TypeVar("Result", JoinResult, SyncResult)


class GroupCoordinator:
    """All groups of one broker. One owner at a time: the driver holds a lock around every call.

    - Every reply is called exactly once, inside some call of the coordinator (perhaps a later one), after that
      call has changed all it will: a reply may call the coordinator again. A reply must not raise.
    - Records to write are in `take_writes` before the replies that depend on them are called. A driver that
      appends them before it sends those replies knows, after a crash, every assignment that members act on.
    - Call `tick` at `next_deadline_ms`; deadlines are in the clock's monotonic milliseconds.

    Not promised: that the records are durable (members of a lost group just join again), and that a group which only
    ever committed offsets, without members, is known here (`CommittedOffsets` knows it).
    """

    def __init__(
        self,
        clock: Clock,
        settings: GroupSettings | None = None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        topics: Callable[[], TopicsImage] = lambda: NO_TOPICS,
        configs: GroupConfigs | None = None,
        has_commits: Callable[[str], bool] = lambda group: False,
    ) -> None:
        """`topics` returns the topics that exist: the same object until they change. `configs` has the settings of
        single groups. `has_commits` knows the groups that only ever committed offsets."""
        self._clock = clock
        self._settings = settings or GroupSettings()
        self._new_id = new_id
        self._topics = topics
        self._has_commits = has_commits
        self._groups: dict[str, Group] = {}
        self._budget = MetadataBudget()
        self._rebalancer = Rebalancer(clock, self._settings)
        configs = configs or GroupConfigs(None, self._settings)
        self._consumer = ConsumerGroups(
            clock, self._settings.consumer, configs.consumer, new_id, topics, self._budget, self._downgrade
        )
        self.share = ShareGroups(clock, topics, self._budget, configs.share, self._settings.share.members_max)
        self._stored: dict[str, StoredConsumerGroup] = {}
        self._died: dict[str, tuple[int, int]] = {}  # group -> when its last member timed out, and its generation then
        self._delivering = False

    # --- events -------------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        """A member joins, or joins again. Answered when its generation begins, or at once if refused."""
        with self._event():
            consumer_group = self._consumer.groups.get(request.group)
            error = refuse_malformed(request, self._settings)
            if request.group in self.share.groups:
                error = error or GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
            if consumer_group is not None and consumer_group.members and error is GroupErrorCode.NONE:
                self._answer(reply, self._consumer.join_classic(consumer_group, request))
                return
            group = self._groups.get(request.group)
            if error is GroupErrorCode.NONE:
                error = self._refuse_join(group, request)
            if error is not GroupErrorCode.NONE:
                self._answer(reply, JoinResult(error, request.member_id))
                return
            if group is None:
                generation = 0
                if consumer_group is not None:
                    # Nobody is in it: its commits stay, and are this group's. Its generations go on from its epochs, so
                    # that no late commit of a former member looks like one of a member of today.
                    generation = consumer_group.epoch
                    self._consumer.forget(consumer_group)
                group = Group(request.group, state_timestamp_ms=self._clock.now_ms(), generation=generation)
                self._groups[request.group] = group
            if not group.members:
                group.protocol_type = request.protocol_type
            if request.member_id == NO_MEMBER:
                self._join_unknown(group, request, reply)
            elif request.member_id in group.pending_ids:
                self._admit(group, request.member_id, request, reply)
            else:
                self._join_known(group, group.members[request.member_id], request, reply)
            self._count(group)

    def sync(self, request: SyncRequest, reply: SyncReply) -> None:
        """The leader sends the assignments, the others fetch theirs; parked until the leader has sent them."""
        with self._event():
            consumer_group = self._consumer.groups.get(request.group)
            if consumer_group is not None:
                self._answer(reply, self._consumer.sync_classic(consumer_group, request))
                return
            group = self._groups.get(request.group)
            error = self._refuse_sync(group, request)
            if group is None or error is not GroupErrorCode.NONE:
                self._answer(reply, SyncResult(error))
                return
            member = group.members[request.member_id]
            group.awaiting_sync.discard(member.member_id)
            if group.state is GroupState.STABLE:
                self._rebalancer.touch(group, member)
                self._answer(reply, self._rebalancer.assigned(group, member))
            else:
                self._rebalancer.park_sync(group, member, reply)
                if group.is_leader(member.member_id):
                    self._rebalancer.take_assignments(group, request.assignments)
            if not group.awaiting_sync:
                self._rebalancer.cancel_timer(Timer.SYNC, group)
            self._count(group)

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> GroupErrorCode:
        """Renew the member's session. REBALANCE_IN_PROGRESS makes the member join again."""
        consumer_group = self._consumer.groups.get(group_id)
        if consumer_group is not None:
            return self._consumer.heartbeat_classic(consumer_group, member_id, group_instance_id, generation)
        group = self._groups.get(group_id)
        if group is None:
            return GroupErrorCode.UNKNOWN_MEMBER_ID
        return self._sign_of_life(group, member_id, group_instance_id, generation, GroupState.PREPARING_REBALANCE)

    def consumer_heartbeat(self, request: MemberHeartbeat) -> HeartbeatResult:
        """A member of the consumer protocol joins, reports or leaves. Who joins a classic group upgrades it."""
        with self._event():
            refused = refuse_heartbeat(request, self._settings.consumer)
            if refused is None and request.member_epoch == JOIN_EPOCH:
                refused = self._make_way(request)
            return self._consumer.heartbeat(request) if refused is None else refused

    def share_heartbeat(self, request: ShareHeartbeat) -> HeartbeatResult:
        """A member of a share group joins, reports or leaves."""
        with self._event():
            refused = refuse_share_heartbeat(request)
            if refused is None and request.group not in self.share.groups and request.member_epoch == JOIN_EPOCH:
                refused = self._refuse_share_group(request.group)
            return self.share.heartbeat(request) if refused is None else refused

    def _refuse_share_group(self, group_id: str) -> HeartbeatResult | None:
        """The answer if there can be no share group of that name. A group of another kind stays one without members,
        too, as in Kafka: its commits would be lost, and its consumers locked out."""
        if self.describe(group_id).state is not GroupState.DEAD or self._has_commits(group_id):
            return HeartbeatResult(
                GroupErrorCode.GROUP_ID_NOT_FOUND,
                f"group {brief_repr(group_id)} is not a share group, but one of consumers; choose another name",
            )
        if self._is_full():
            return HeartbeatResult(GroupErrorCode.COORDINATOR_NOT_AVAILABLE, "there are too many groups")
        return None

    def _make_way(self, request: MemberHeartbeat) -> HeartbeatResult | None:
        """Let there be a consumer group of that name, or none; the answer if that cannot be."""
        if request.group in self.share.groups:
            sentence = f"group {brief_repr(request.group)} is a share group; choose another name"
            return HeartbeatResult(GroupErrorCode.GROUP_ID_NOT_FOUND, sentence)
        group = self._groups.get(request.group)
        if group is None:
            if request.group not in self._consumer.groups and self._is_full():
                return HeartbeatResult(GroupErrorCode.COORDINATOR_NOT_AVAILABLE, "there are too many groups")
            return None
        if not group.members:
            self._forget(group)
            self._rebalancer.writes.append((encode_group_key(group.group_id), None))
            self._consumer.adopt(ConsumerGroup(group.group_id, group.generation, group.generation))
            return None
        why_not = why_not_upgrade(group, self._settings.consumer)
        try:
            if why_not is None:
                self._upgrade(group, upgraded(group, self._topics()))
        except MalformedBytes as error:
            why_not = f"it is a classic group whose members cannot be understood ({error})"
        if why_not is None:
            return None
        return HeartbeatResult(GroupErrorCode.GROUP_ID_NOT_FOUND, f"group {brief_repr(request.group)}: {why_not}")

    def _upgrade(self, group: Group, made: ConsumerGroup) -> None:
        for member in group.members.values():
            self._rebalancer.turn_away(group, member, GroupErrorCode.REBALANCE_IN_PROGRESS)
        self._forget(group)
        self._rebalancer.writes.append((encode_group_key(group.group_id), None))
        self._consumer.adopt(made)

    def _downgrade(self, group: ConsumerGroup) -> None:
        """The last member of the consumer protocol has gone: those who are left assign partitions themselves again."""
        if len(group.members) > self._settings.members_max:
            return
        made = downgraded(group, self._topics(), self._clock.now_ms())
        self._consumer.forget(group)
        self._groups[made.group_id] = made
        self._rebalancer.write(made)
        for member in made.members.values():
            self._rebalancer.touch(made, member)
        self._rebalancer.rebalance(made)
        self._count(made)

    def _is_full(self) -> bool:
        count = len(self._groups) + len(self._consumer.groups) + len(self.share.groups)
        return count >= self._settings.groups_max

    def has_to_rejoin(self, group_id: str, member_id: str) -> bool:
        """Whether a classic member of a consumer group has to join again, as its next heartbeat would say."""
        group = self._consumer.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        return group is not None and member is not None and group.has_to_rejoin(member)

    def _sign_of_life(
        self, group: Group, member_id: str, group_instance_id: str | None, generation: int, not_in: GroupState | None
    ) -> GroupErrorCode:
        """Renew the session of a member of this generation; REBALANCE_IN_PROGRESS if the group is in `not_in`."""
        error = group.check_member(member_id, group_instance_id)
        if error is not GroupErrorCode.NONE:
            return error
        if generation != group.generation:
            return GroupErrorCode.ILLEGAL_GENERATION
        self._rebalancer.touch(group, group.members[member_id])
        return GroupErrorCode.REBALANCE_IN_PROGRESS if group.state is not_in else GroupErrorCode.NONE

    def leave(self, group_id: str, members: Iterable[MemberIdentity]) -> list[LeaveResult]:
        """Remove members on request: their partitions are free at once, without waiting for a session to expire."""
        with self._event():
            consumer_group = self._consumer.groups.get(group_id)
            if consumer_group is not None:
                return self._consumer.leave(consumer_group, members)
            share_group = self.share.groups.get(group_id)
            if share_group is not None:
                return self.share.leave(share_group, members)
            group = self._groups.get(group_id)
            if group is None:
                return [LeaveResult(member, GroupErrorCode.UNKNOWN_MEMBER_ID) for member in members]
            results = [LeaveResult(member, self._leave_one(group, member)) for member in members]
            self._count(group)
            return results

    def validate_commit(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        partitions: Iterable[tuple[str, int]] = (),
        *,
        transactional: bool = False,
    ) -> GroupErrorCode:
        """Whether this member may commit offsets in these partitions now; a commit renews its session, too.

        Without a generation the caller is a reader that assigns itself, accepted only while the group has no members.
        During PreparingRebalance members of the closing generation may still commit their work. In a consumer group
        the generation is the member's epoch, and the partitions matter. In a transaction, as in Kafka, a producer that
        says nothing of a member is accepted (older ones cannot say it, and are fenced by their epoch), and one that
        does also while the members learn what they are assigned.
        """
        if transactional and generation < 0 and not member_id and group_instance_id is None:
            return GroupErrorCode.NONE
        consumer_group = self._consumer.groups.get(group_id)
        if consumer_group is not None:
            return self._consumer.validate_commit(consumer_group, member_id, group_instance_id, generation, partitions)
        if group_id in self.share.groups:
            return GroupErrorCode.GROUP_ID_NOT_FOUND  # a share group acknowledges records, and commits nothing
        group = self._groups.get(group_id)
        if group is None:
            return GroupErrorCode.NONE if generation < 0 else GroupErrorCode.ILLEGAL_GENERATION
        if generation < 0 and group.state is GroupState.EMPTY:
            return GroupErrorCode.NONE
        not_in = None if transactional else GroupState.COMPLETING_REBALANCE
        return self._sign_of_life(group, member_id, group_instance_id, generation, not_in)

    def speaks_consumer_protocol(self, group_id: str, member_id: str) -> bool:
        """Whether this is a member of a consumer group whose commits carry epochs."""
        group = self._consumer.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        return member is not None and not member.is_classic

    def validate_fetch(self, group_id: str, member_id: str | None, epoch: int) -> GroupErrorCode:
        """Whether who says to be this member may fetch committed offsets: only consumer groups mind."""
        group = self._consumer.groups.get(group_id)
        return GroupErrorCode.NONE if group is None else self._consumer.validate_fetch(group, member_id, epoch)

    def delete(self, group_id: str) -> GroupErrorCode:
        """Delete a group without members; `CommittedOffsets.plan_delete_group` deletes its offsets."""
        consumer_group = self._consumer.groups.get(group_id)
        if consumer_group is not None:
            if consumer_group.members:
                return GroupErrorCode.NON_EMPTY_GROUP
            self._consumer.forget(consumer_group)
            return GroupErrorCode.NONE
        share_group = self.share.groups.get(group_id)
        if share_group is not None:
            if share_group.members:
                return GroupErrorCode.NON_EMPTY_GROUP
            self.share.forget(share_group)
            return GroupErrorCode.NONE
        group = self._groups.get(group_id)
        if group is None:
            return GroupErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY or group.pending_ids:
            return GroupErrorCode.NON_EMPTY_GROUP
        self._forget(group)
        self._rebalancer.writes.append((encode_group_key(group_id), None))
        return GroupErrorCode.NONE

    def sweep(self, has_offsets: Callable[[str], bool]) -> list[str]:
        """Delete the empty groups without committed offsets: nothing is lost with them."""
        empty = [
            group.group_id
            for group in self._groups.values()
            if group.state is GroupState.EMPTY and not group.pending_ids and not has_offsets(group.group_id)
        ]
        empty += [name for name, group in self._consumer.groups.items() if not group.members and not has_offsets(name)]
        for group_id in empty:
            self.delete(group_id)
        return empty

    def tick(self, now_ms: float | None = None) -> None:
        """Process all deadlines up to `now_ms`, by default the clock's monotonic time."""
        with self._event():
            now_ms = self._rebalancer.ticked(now_ms)
            silent = {*self._consumer.tick(now_ms), *self.share.tick(now_ms)}
            for kind, group_id, member_id in self._rebalancer.timers.due(now_ms):
                group = self._groups[group_id]
                had_members = bool(group.members)
                if kind is Timer.SESSION:
                    self._rebalancer.remove_member(group, member_id, GroupErrorCode.UNKNOWN_MEMBER_ID)
                elif kind is Timer.PENDING:
                    self._drop_pending(group, member_id)
                elif kind is Timer.REBALANCE:
                    self._rebalancer.rebalance_due(group)
                else:
                    self._rebalancer.sync_due(group)
                self._count(group)
                if had_members:
                    silent.add(group_id)
            for group_id in silent:
                self._note_death(group_id)

    def _note_death(self, group_id: str) -> None:
        """A deadline of a member has passed: if that was the last one, the group was not left, it died out."""
        found = self.describe(group_id)
        if not found.members and found.state is not GroupState.DEAD:
            self._died.pop(group_id, None)
            self._died[group_id] = (self._clock.now_ms(), found.generation)
            if len(self._died) > GROUP_DEATHS_MAX:
                del self._died[next(iter(self._died))]

    def close(self) -> None:
        """Answer all waiting members with COORDINATOR_NOT_AVAILABLE and forget all groups. Nothing is written."""
        with self._event():
            for group in list(self._groups.values()):
                for member in group.members.values():
                    self._rebalancer.turn_away(group, member, GroupErrorCode.COORDINATOR_NOT_AVAILABLE)
                self._forget(group)
            self._consumer.close()
            self.share.close()

    # --- what the driver asks -------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        """When to call `tick`, in monotonic milliseconds; None if nothing can expire."""
        timers = (self._rebalancer.timers, self._consumer.timers, self.share.timers)
        deadlines = [each.next_deadline_ms() for each in timers]
        return min((deadline_ms for deadline_ms in deadlines if deadline_ms is not None), default=None)

    def take_writes(self) -> list[tuple[bytes, bytes | None]]:
        """Records for `__consumer_offsets` since the last call, in order; a null value is a tombstone."""
        taken = self._rebalancer.writes + self._consumer.writes + self.share.writes
        self._rebalancer.writes, self._consumer.writes, self.share.writes = [], [], []
        return taken

    def list_groups(self) -> list[GroupListing]:
        return [
            *(GroupListing(group.group_id, group.protocol_type, group.state) for group in self._groups.values()),
            *(
                GroupListing(group.group_id, CONSUMER_PROTOCOL_TYPE, group.state, GroupType.CONSUMER)
                for group in self._consumer.groups.values()
            ),
            *(
                GroupListing(group.group_id, SHARE_PROTOCOL_TYPE, group.state, GroupType.SHARE)
                for group in self.share.groups.values()
            ),
        ]

    def describe(self, group_id: str) -> GroupSummary:
        """State, protocol and members. An unknown group is Dead."""
        consumer_group = self._consumer.groups.get(group_id)
        if consumer_group is not None:
            return self._consumer.describe(consumer_group)
        share_group = self.share.groups.get(group_id)
        if share_group is not None:
            return self.share.describe(share_group)
        group = self._groups.get(group_id)
        return GroupSummary(group_id, GroupState.DEAD) if group is None else group.describe()

    def subscribed_topics(self, group_id: str) -> frozenset[str] | None:
        """Topics of the members' subscriptions; None if unknown. Offsets in these may not be deleted."""
        consumer_group = self._consumer.groups.get(group_id)
        if consumer_group is not None:
            return consumer_group.subscribed_topics()
        share_group = self.share.groups.get(group_id)
        if share_group is not None:
            return share_group.subscribed_topics()
        group = self._groups.get(group_id)
        return frozenset() if group is None else group.subscribed_topics()

    def empty_since_ms(self, group_id: str) -> int | None:
        """Wall time since when the group has had no members; None while it has; -1 if it never had any."""
        consumer_group = self._consumer.groups.get(group_id)
        if consumer_group is not None:
            return None if consumer_group.members else consumer_group.empty_since_ms
        group = self._groups.get(group_id)
        if group is None:
            return NO_TIMESTAMP
        return group.state_timestamp_ms if group.state is GroupState.EMPTY else None

    def died_groups(self) -> dict[str, int]:
        """Those of which `members_died_ms` knows a time, with it."""
        known = {group_id: self.members_died_ms(group_id) for group_id in list(self._died)}
        return {group_id: at_ms for group_id, at_ms in known.items() if at_ms is not None}

    def members_died_ms(self, group_id: str) -> int | None:
        """Wall time at which the group's last member timed out; None if it has members, or the last one left by itself,
        or the process was started since."""
        died = self._died.get(group_id)
        if died is None:
            return None
        at_ms, generation = died
        found = self.describe(group_id)
        if found.members or found.generation != generation or found.state is GroupState.DEAD:
            del self._died[group_id]  # somebody joined since: every join begins another generation
            return None
        return at_ms

    # --- persistence ----------------------------------------------------------------------------------------------

    def snapshot(self, group_id: str) -> tuple[bytes, bytes] | None:
        """The group's record as it would be written now, or None if there is no such group."""
        group = self._groups.get(group_id)
        return None if group is None else (encode_group_key(group_id), encode_group_value(group.to_stored()))

    def restore(self, key: bytes, value: bytes | None) -> None:
        """Take in the newest record of a group, or of a part of one, while loading: members go on without a rebalance.

        Each gets a full session timeout from now. What is in parts is there after `restored`. Raises
        `CorruptGroupRecord` and changes nothing if malformed.
        """
        decoded = decode_key(key)
        if isinstance(decoded, ShareKey):
            self.share.restore(key, decoded, value)
            return
        if isinstance(decoded, ConsumerKey):
            part = None if value is None else decode_consumer_value(key, decoded, value)
            self._stored.setdefault(decoded.group, StoredConsumerGroup()).put(decoded, part)
            return
        if not isinstance(decoded, GroupKey):
            raise CorruptGroupRecord(key, "it is not group metadata")
        stored = None if value is None else decode_group_value(key, value)
        if stored is not None:
            check_stored(key, stored)
        existing = self._groups.get(decoded.group)
        if existing is not None:
            self._forget(existing)
        if stored is not None:
            group = Group.from_stored(decoded.group, stored)
            self._groups[group.group_id] = group
            # Sessions begin anew: members could not send heartbeats while no coordinator was there.
            for member in group.members.values():
                self._rebalancer.touch(group, member)
            self._count(group)

    def restored(self, *, is_final: bool) -> None:
        """All records have been taken in; more may come unless this is `is_final`."""
        for group_id, stored in self._stored.items():
            group = stored.build(group_id)
            if group is None:
                self._consumer.drop_stored(group_id)
                continue
            classic = self._groups.get(group_id)
            if classic is not None:
                self._forget(classic)  # the end of an upgrade was written, its beginning lost
            self._consumer.take_in(group)
        self.share.restored(is_final=is_final)
        if is_final:
            self._stored.clear()

    # --- joining --------------------------------------------------------------------------------------------------

    def _refuse_join(self, group: Group | None, request: JoinRequest) -> GroupErrorCode:
        if group is None:
            if request.member_id != NO_MEMBER:
                return GroupErrorCode.UNKNOWN_MEMBER_ID
            full = self._is_full() or not self._budget.has_room(_new_bytes(request))
            return GroupErrorCode.COORDINATOR_NOT_AVAILABLE if full else GroupErrorCode.NONE
        # An id that waits for its first join is not a member yet; such ids are never given to static members.
        is_pending = request.member_id in group.pending_ids and request.group_instance_id is None
        if request.member_id != NO_MEMBER and not is_pending:
            error = group.check_member(request.member_id, request.group_instance_id)
            if error is not GroupErrorCode.NONE:
                return error
        if not group.accepts_protocols(request.protocol_type, [name for name, _ in request.protocols]):
            return GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
        replaced = request.member_id or group.static_ids.get(request.group_instance_id or "", NO_MEMBER)
        if replaced not in group.members and len(group.members) >= self._settings.members_max:
            return GroupErrorCode.GROUP_MAX_SIZE_REACHED
        return self._refuse_metadata(group, replaced, request)

    def _refuse_metadata(self, group: Group, replaced: str, request: JoinRequest) -> GroupErrorCode:
        if group.metadata_bytes(without=replaced) + request.metadata_bytes() > GROUP_METADATA_BYTES_MAX:
            return GroupErrorCode.GROUP_MAX_SIZE_REACHED
        known = group.members.get(replaced)
        more_bytes = _new_bytes(request) if known is None else request.metadata_bytes() - known.metadata_bytes()
        if not self._budget.has_room(more_bytes):
            return GroupErrorCode.COORDINATOR_NOT_AVAILABLE  # other groups use it all; members ask again
        return GroupErrorCode.NONE

    def _count(self, group: Group) -> None:
        """Count the group's bytes again, after members' metadata or assignments may have changed."""
        self._budget.count(group.group_id, group.held_bytes() if self._groups.get(group.group_id) is group else 0)

    def _join_unknown(self, group: Group, request: JoinRequest, reply: JoinReply) -> None:
        member_id = f"{request.group_instance_id or request.client_id or 'member'}-{self._new_id()}"
        known_as = group.static_ids.get(request.group_instance_id) if request.group_instance_id is not None else None
        if known_as is not None:
            self._return_static(group, known_as, member_id, request, reply)
        elif request.require_known_member_id and request.group_instance_id is None:
            if len(group.pending_ids) >= self._settings.pending_members_max:
                self._answer(reply, JoinResult(GroupErrorCode.GROUP_MAX_SIZE_REACHED))
                return
            group.pending_ids.add(member_id)
            self._rebalancer.set_timer(Timer.PENDING, group, member_id, request.session_timeout_ms)
            self._answer(reply, JoinResult(GroupErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._admit(group, member_id, request, reply)

    def _admit(self, group: Group, member_id: str, request: JoinRequest, reply: JoinReply) -> None:
        if member_id in group.pending_ids:
            group.pending_ids.remove(member_id)
            self._rebalancer.cancel_timer(Timer.PENDING, group, member_id)
        member = GroupMember.from_request(member_id, request)
        group.add(member)
        group.joined_during_delay = True
        self._rebalancer.park_join(group, member, reply)
        self._rebalancer.rebalance(group)

    def _join_known(self, group: Group, member: GroupMember, request: JoinRequest, reply: JoinReply) -> None:
        # A member that joins again with the same metadata may just have missed the answer: it gets it again. Not the
        # stable leader: it joins again to have partitions reassigned after topics have changed.
        repeats = member.offers_exactly(request)
        settled = group.state is GroupState.COMPLETING_REBALANCE or (
            group.state is GroupState.STABLE and not group.is_leader(member.member_id)
        )
        member.update(request)
        if repeats and settled:
            self._rebalancer.touch(group, member)
            self._answer(reply, self._rebalancer.joined(group, member))
            return
        self._rebalancer.park_join(group, member, reply)
        self._rebalancer.rebalance(group)

    def _return_static(self, group: Group, old_id: str, new_id: str, request: JoinRequest, reply: JoinReply) -> None:
        """A static member's new process takes over the old one's place and, in a stable group, its assignment."""
        leader_before = group.leader or NO_MEMBER
        self._rebalancer.turn_away(group, group.members[old_id], GroupErrorCode.FENCED_INSTANCE_ID)
        member = group.rename_static(old_id, new_id)
        topics_before = group.topics_of(member)
        member.update(request)
        # Kafka compares only the protocol. New topics would stay unread until the next rebalance, so a change of topics
        # starts one; owned partitions, which differ after every restart, are not compared.
        unchanged = group.select_protocol() == group.protocol and group.topics_of(member) == topics_before
        if group.state is not GroupState.STABLE or not unchanged:
            self._rebalancer.park_join(group, member, reply)
            self._rebalancer.rebalance(group)
            return
        self._rebalancer.write(group)
        self._rebalancer.touch(group, member)
        result = self._rebalancer.joined(group, member)
        if not result.is_leader:
            self._answer(reply, result)
        elif request.supports_skipping_assignment:
            self._answer(reply, replace(result, skip_assignment=True))
        else:
            # Given the leader's former id, the client takes itself for a follower and just fetches its assignment.
            self._answer(reply, replace(result, leader_id=leader_before, members=()))

    # --- syncing --------------------------------------------------------------------------------------------------

    def _refuse_sync(self, group: Group | None, request: SyncRequest) -> GroupErrorCode:
        if group is None:
            return GroupErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not GroupErrorCode.NONE:
            return error
        if request.generation != group.generation:
            return GroupErrorCode.ILLEGAL_GENERATION
        if group.state is GroupState.PREPARING_REBALANCE:
            return GroupErrorCode.REBALANCE_IN_PROGRESS
        if request.protocol_type not in (None, group.protocol_type) or request.protocol not in (None, group.protocol):
            return GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
        sizes = [len(assignment) for assignment in request.assignments.values()]
        if max(sizes, default=0) > MEMBER_METADATA_BYTES_MAX or sum(sizes) > GROUP_METADATA_BYTES_MAX:
            return GroupErrorCode.INVALID_REQUEST
        if not self._budget.has_room(sum(sizes) - sum(len(member.assignment) for member in group.members.values())):
            return GroupErrorCode.COORDINATOR_NOT_AVAILABLE
        return GroupErrorCode.NONE

    # --- leaving and expiring -------------------------------------------------------------------------------------

    def _leave_one(self, group: Group, member: MemberIdentity) -> GroupErrorCode:
        member_id = member.member_id
        if member_id in group.pending_ids:
            self._drop_pending(group, member_id)
            return GroupErrorCode.NONE
        if member_id == NO_MEMBER and member.group_instance_id is not None:
            # An administrator removes a static member knowing only its instance id.
            member_id = group.static_ids.get(member.group_instance_id, NO_MEMBER)
        error = group.check_member(member_id, member.group_instance_id)
        if error is GroupErrorCode.NONE:
            self._rebalancer.remove_member(group, member_id, GroupErrorCode.UNKNOWN_MEMBER_ID)
        return error

    def _drop_pending(self, group: Group, member_id: str) -> None:
        self._rebalancer.cancel_timer(Timer.PENDING, group, member_id)
        group.pending_ids.discard(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            self._rebalancer.try_complete_join(group)
        elif group.is_unused():
            self._forget(group)

    def _forget(self, group: Group) -> None:
        self._rebalancer.cancel_timers(group)
        self._rebalancer.transition(group, GroupState.DEAD)
        del self._groups[group.group_id]
        self._count(group)

    # --- answering ------------------------------------------------------------------------------------------------

    def _answer(self, reply: Callable[[Result], None], result: Result) -> None:
        self._rebalancer.outbox.append(partial(reply, result))

    @contextmanager
    def _event(self) -> Iterator[None]:
        """Call replies at the end of the event, so that a reply that calls back finds the groups between events."""
        try:
            yield
        finally:
            # A reply that calls back begins an event inside this one: its replies go to the same outbox, behind those
            # of this event, and the outer loop delivers them: in the order of the events, with a flat stack.
            if not self._delivering:
                self._delivering = True
                try:
                    while self._rebalancer.outbox:
                        self._rebalancer.outbox.popleft()()
                finally:
                    self._delivering = False


def _new_bytes(request: JoinRequest) -> int:
    """The bytes that a new member adds; its id contains its client id."""
    return len(request.group) + 2 * len(request.client_id) + request.metadata_bytes()
