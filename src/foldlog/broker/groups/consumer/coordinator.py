"""The coordinator of consumer groups: Kafka's consumer protocol (KIP-848) without I/O.

A member only sends heartbeats: what it wants, and what it reads. The coordinator decides the target assignment, and
moves each member towards it with the answers. `state.py` is one group; this module accepts or refuses, keeps time, and
collects the records to write. Members of the classic protocol can be in such a group: their JoinGroup, SyncGroup and
Heartbeat are answered from the same state, so that a group can be moved to the consumer protocol one process at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum, auto

from foldlog.broker.groups import messages
from foldlog.broker.groups.consumer import records
from foldlog.broker.groups.consumer.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_TIMEOUT,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupSettings,
    HeartbeatResult,
    MemberHeartbeat,
    MemberState,
    TopicIdPartition,
)
from foldlog.broker.groups.consumer.state import (
    NO_PARTITIONS,
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    ResolvedRegex,
    named,
    reconciled,
)
from foldlog.broker.groups.consumer.topics import TopicsImage
from foldlog.broker.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.group_settings import ConsumerGroupConfig
from foldlog.broker.groups.messages import (
    GROUP_NAME_BYTES_MAX,
    LABEL_BYTES_MAX,
    NO_MEMBER,
    GroupSummary,
    GroupType,
    JoinRequest,
    JoinResult,
    LeaveResult,
    MemberIdentity,
    MemberSummary,
    SyncRequest,
    SyncResult,
    fits,
)
from foldlog.broker.groups.state import MetadataBudget
from foldlog.broker.groups.timers import Timers
from foldlog.broker.regular_expressions import compile_regex
from foldlog.clock import Clock
from foldlog.errors import InvalidArgument, MalformedBytes, brief_repr
from foldlog.limits import MEMBER_METADATA_BYTES_MAX


class MemberTimer(Enum):
    """The purpose of a member's deadline."""

    SESSION = auto()  # its next sign of life
    REVOCATION = auto()  # it has to give partitions back
    JOIN = auto()  # of a classic member: it has to join again
    SYNC = auto()  # of a classic member: it has to fetch its assignment


MemberTimerName = tuple[MemberTimer, str, str]
"""Kind, group and member."""


class ConsumerGroups:
    """All consumer groups of one broker. Owned by the `GroupCoordinator`, whose promises hold here, too.

    `config` returns the settings of a group, `topics` the topics that exist, the same object until they change.
    `downgrade` is called with a group whose last member of the consumer protocol has gone, if the policy allows it; it
    takes the group over.
    """

    def __init__(
        self,
        clock: Clock,
        settings: ConsumerGroupSettings,
        config: Callable[[str], ConsumerGroupConfig],
        new_id: Callable[[], str],
        topics: Callable[[], TopicsImage],
        budget: MetadataBudget,
        downgrade: Callable[[ConsumerGroup], None],
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._config = config
        self._new_id = new_id
        self._topics = topics
        self._budget = budget
        self._downgrade = downgrade
        self._ticked_ms = float("-inf")
        self.groups: dict[str, ConsumerGroup] = {}
        self.timers: Timers[MemberTimerName] = Timers()
        self.writes: list[records.Record] = []

    # --- the consumer protocol ------------------------------------------------------------------------------------

    def heartbeat(self, request: MemberHeartbeat) -> HeartbeatResult:
        """A member joins, reports or leaves. The request has passed `refuse_heartbeat`."""
        group = self.groups.get(request.group)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(group, request)
        if group is None:
            if request.member_epoch != JOIN_EPOCH:
                # Kafka says GROUP_ID_NOT_FOUND, with which clients give up. A crash may lose the newest groups here:
                # their members shall join again.
                return _refused(request, GroupErrorCode.UNKNOWN_MEMBER_ID, "the group does not exist; join it again")
            group = ConsumerGroup(request.group)
        error, message = self._refuse_member(group, request)
        if error is not GroupErrorCode.NONE:
            return _refused(request, error, message)
        self.groups[request.group] = group
        before = self._member_for(group, request)
        member = self._accept(group, before, _told(before, request), request.owned, request.sees)
        config = self._config(group.group_id)
        self._set_timer(MemberTimer.SESSION, group, member.member_id, config.session_timeout_ms)
        is_news = request.is_full or member.assigned.keys() != before.assigned.keys()
        return HeartbeatResult(
            GroupErrorCode.NONE,
            None,
            member.member_id,
            member.epoch,
            config.heartbeat_interval_ms,
            frozenset(member.assigned) if is_news else None,
        )

    def _refuse_member(self, group: ConsumerGroup, request: MemberHeartbeat) -> tuple[GroupErrorCode, str]:
        """Why this member cannot be, or stay, one of the group. Changes nothing."""
        static_id = group.static_ids.get(request.group_instance_id) if request.group_instance_id is not None else None
        if request.member_epoch != JOIN_EPOCH:
            error = group.check_member(request.member_id, request.group_instance_id)
            if error is not GroupErrorCode.NONE:
                return error, "it is not a member; abandon all partitions and join again"
            error, message = self._refuse_epoch(group.members[request.member_id], request)
            return (error, message) if error is not GroupErrorCode.NONE else self._refuse_size(group, request)
        if static_id is not None and static_id != request.member_id:
            holder = group.members[static_id]
            if not holder.is_classic and holder.epoch != STATIC_LEAVE_EPOCH:
                return (
                    GroupErrorCode.UNRELEASED_INSTANCE_ID,
                    f"instance id {brief_repr(request.group_instance_id)} is in use by member {static_id!r}",
                )
        elif request.member_id not in group.members and len(group.members) >= self._settings.members_max:
            return GroupErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {self._settings.members_max} members already"
        return self._refuse_size(group, request)

    def _refuse_size(self, group: ConsumerGroup, request: MemberHeartbeat) -> tuple[GroupErrorCode, str]:
        if request.topics is None and request.regex is None:
            return GroupErrorCode.NONE, ""
        known = group.members.get(request.member_id)
        if self._budget.has_room(_said_bytes(request) - (0 if known is None else known.said_bytes())):
            return GroupErrorCode.NONE, ""
        return GroupErrorCode.COORDINATOR_NOT_AVAILABLE, "the groups use all their memory; try again later"

    @staticmethod
    def _refuse_epoch(member: ConsumerMember, request: MemberHeartbeat) -> tuple[GroupErrorCode, str]:
        epoch, owned = request.member_epoch, request.owned
        if epoch == member.epoch and member.state is not MemberState.UNKNOWN and not member.is_classic:
            return GroupErrorCode.NONE, ""
        # The answer with the newer epoch may have been lost: the member then reads nothing that it was not given.
        is_retry = epoch == member.previous_epoch and owned is not None and owned <= member.assigned.keys()
        if epoch < member.epoch and is_retry and not member.is_classic:
            return GroupErrorCode.NONE, ""
        return (
            GroupErrorCode.FENCED_MEMBER_EPOCH,
            f"the member is at epoch {member.epoch} and said {epoch}; abandon all partitions and join again",
        )

    def _member_for(self, group: ConsumerGroup, request: MemberHeartbeat) -> ConsumerMember:
        """The member as it was before this heartbeat, as far as it keeps what it had."""
        known = group.members.get(request.member_id)
        if request.member_epoch != JOIN_EPOCH and known is not None:
            return known
        static_id = group.static_ids.get(request.group_instance_id) if request.group_instance_id is not None else None
        if static_id is not None and static_id != request.member_id:
            return self._replace_static(group, static_id, request.member_id)
        if known is None:
            return ConsumerMember(request.member_id)
        # Who joins reads nothing, so it may be given anew what it had. Not what it had to give back: that is free now.
        known = replace(
            known, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH, state=MemberState.STABLE, assigned={}, revoking={}
        )
        group.put(known)
        return known

    def _replace_static(self, group: ConsumerGroup, old_id: str, new_id: str) -> ConsumerMember:
        """The new process of a static member takes over the place of the old one, and its partitions."""
        target = group.targets.get(old_id, NO_PARTITIONS)
        old = group.remove(old_id)
        self._cancel_timers(group, old_id)
        self.writes += records.member_tombstones(group.group_id, old_id)
        member = replace(
            old,
            member_id=new_id,
            epoch=JOIN_EPOCH,
            previous_epoch=JOIN_EPOCH,
            state=MemberState.STABLE,
            revoking={},
        )
        group.put(member)
        group.targets[new_id] = target
        self.writes.append(records.member_record(group.group_id, member))
        self.writes.append(records.target_record(group.group_id, new_id, target))
        return member

    def _accept(
        self,
        group: ConsumerGroup,
        before: ConsumerMember,
        member: ConsumerMember,
        owned: frozenset[TopicIdPartition] | None,
        sees: Callable[[str], bool],
    ) -> ConsumerMember:
        """Take in what the member said, and bring group, target and member up to date, in this order."""
        is_new = before.member_id not in group.members
        is_changed = is_new or member.metadata() != before.metadata()
        if is_changed:
            self.writes.append(records.member_record(group.group_id, member))
            group.put(member)
        self._look_at_topics(group, sees, bump=is_new or _subscription(member) != _subscription(before))
        self._assign(group)
        after = reconciled(
            member,
            group.target_epoch,
            group.targets.get(member.member_id, NO_PARTITIONS),
            group.is_free_for(member.member_id),
            owned,
        )
        if after != member:
            is_changed = True
            group.put(after)
            self.writes.append(records.current_record(group.group_id, after))
            self._time_revocation(group, after)
        if is_changed:  # most heartbeats say nothing new, and counting looks at every member
            self._count(group)
        return after

    def _time_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
            self._set_timer(MemberTimer.REVOCATION, group, member.member_id, member.rebalance_timeout_ms)
        else:
            self.timers.cancel((MemberTimer.REVOCATION, group.group_id, member.member_id))

    def _look_at_topics(self, group: ConsumerGroup, sees: Callable[[str], bool], *, bump: bool) -> None:
        """Raise the group's epoch if `bump` says so, or topics that its members want have changed."""
        image = self._topics()
        if not bump and group.seen is image:
            return
        self._resolve_regexes(group, image, sees)
        topics_hash = image.fingerprint(group.subscribed_topics())
        group.seen = image
        if bump or topics_hash != group.topics_hash:
            group.epoch += 1
            group.topics_hash = topics_hash
            self.writes.append(records.group_record(group))

    def _resolve_regexes(self, group: ConsumerGroup, image: TopicsImage, sees: Callable[[str], bool]) -> None:
        used = {member.regex for member in group.members.values() if member.regex}
        for regex in group.regexes.keys() - used:
            del group.regexes[regex]
            self.writes.append(records.regex_tombstone(group.group_id, regex))
        for regex in used:
            known = group.regexes.get(regex)
            if known is not None and group.seen is image:
                continue
            try:
                topics = image.matching(regex, sees)
            except InvalidArgument:
                continue  # google-re2 was there when the member joined and is not now: what was found stays
            if known is None or known.topics != topics:
                group.regexes[regex] = ResolvedRegex(topics, self._clock.now_ms())
                self.writes.append(records.regex_record(group.group_id, regex, group.regexes[regex]))

    def _assign(self, group: ConsumerGroup) -> None:
        """Make the target assignment for the group's epoch, if there is none yet and the last one is old enough."""
        if group.epoch == group.target_epoch:
            return
        now_ms = self._clock.monotonic_ms()
        interval_ms = self._config(group.group_id).assignment_interval_ms
        is_early = group.assigned_ms is not None and now_ms < group.assigned_ms + interval_ms
        # Members of the classic protocol would join again and again until there is one.
        if is_early and not any(member.is_classic for member in group.members.values()):
            return
        group.assigned_ms = now_ms
        targets = group.new_targets(self._topics(), self._settings.assignors[0])
        for member_id, target in targets.items():
            if target != group.targets.get(member_id):
                self.writes.append(records.target_record(group.group_id, member_id, target))
        group.targets = targets
        group.target_epoch = group.epoch
        self.writes.append(records.target_epoch_record(group))

    # --- leaving --------------------------------------------------------------------------------------------------

    def _leave(self, group: ConsumerGroup | None, request: MemberHeartbeat) -> HeartbeatResult:
        if group is None:
            return _refused(request, GroupErrorCode.GROUP_ID_NOT_FOUND, "the group does not exist")
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not GroupErrorCode.NONE:
            return _refused(request, error, "it is not a member")
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            member = replace(
                group.members[request.member_id],
                epoch=STATIC_LEAVE_EPOCH,
                state=MemberState.STABLE,
                revoking={},
            )
            group.put(member)
            self.writes.append(records.current_record(group.group_id, member))
            self._time_revocation(group, member)
        else:
            self._remove(group, [request.member_id])
        return HeartbeatResult(GroupErrorCode.NONE, None, request.member_id, request.member_epoch)

    def leave(self, group: ConsumerGroup, members: Iterable[MemberIdentity]) -> list[LeaveResult]:
        """LeaveGroup: of members of the classic protocol themselves, and of administrators for any member."""
        results: list[LeaveResult] = []
        leaving: list[str] = []
        for identity in members:
            member_id = identity.member_id
            if member_id == NO_MEMBER and identity.group_instance_id is not None:
                member_id = group.static_ids.get(identity.group_instance_id, NO_MEMBER)
            error = group.check_member(member_id, identity.group_instance_id)
            if error is GroupErrorCode.NONE and member_id in leaving:
                error = GroupErrorCode.UNKNOWN_MEMBER_ID
            if error is GroupErrorCode.NONE:
                leaving.append(member_id)
            results.append(LeaveResult(identity, error))
        if leaving:
            self._remove(group, leaving)
        return results

    def _remove(self, group: ConsumerGroup, member_ids: Iterable[str]) -> None:
        """Remove members: what they own is free. The next heartbeat of another makes the next target."""
        gone = [group.remove(member_id) for member_id in member_ids]
        for member in gone:
            self._cancel_timers(group, member.member_id)
            self.writes += records.member_tombstones(group.group_id, member.member_id)
        if not group.members:
            group.empty_since_ms = self._clock.now_ms()
        # Before the epoch is raised: it becomes the generation, which members that were up to date then have already.
        if not self._downgrade_if_all_classic(group, gone):
            self._look_at_topics(group, lambda topic: True, bump=True)
            self._count(group)

    def _downgrade_if_all_classic(self, group: ConsumerGroup, gone: Iterable[ConsumerMember]) -> bool:
        """Hand the group over if those who are gone were the last of the consumer protocol; whether that was done."""
        lost_last = group.is_all_classic() and any(not member.is_classic for member in gone)
        if lost_last and self._settings.migration_policy.may_downgrade:
            self._downgrade(group)
        return self.groups.get(group.group_id) is not group

    def forget(self, group: ConsumerGroup) -> None:
        """The group is deleted, or taken over by the classic protocol: with its records."""
        self.writes += records.group_tombstones(group)
        self._drop(group)

    def _drop(self, group: ConsumerGroup) -> None:
        for member_id in group.members:
            self._cancel_timers(group, member_id)
        del self.groups[group.group_id]
        self._budget.count(group.group_id, 0)

    def close(self) -> None:
        """Forget all groups. Nothing is written, and nobody waits."""
        for group in list(self.groups.values()):
            self._drop(group)

    # --- members of the classic protocol --------------------------------------------------------------------------

    def adopt(self, group: ConsumerGroup) -> None:
        """Take over a group that was a classic one."""
        self.groups[group.group_id] = group
        self.writes += records.group_records(group)
        for member in group.members.values():
            self._touch(group, member)
        self._count(group)

    def join_classic(self, group: ConsumerGroup, request: JoinRequest) -> JoinResult:
        """JoinGroup: answered at once, since nobody has to be waited for. The request has passed `refuse_malformed`."""
        subscription = _subscription_of(request)
        error = self._refuse_classic(group, request)
        if subscription is None or error is not GroupErrorCode.NONE:
            return JoinResult(error or GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        name = request.group_instance_id or request.client_id or "member"
        member_id = request.member_id or f"{name}-{self._new_id()}"
        asks_for_id = request.require_known_member_id and request.member_id == NO_MEMBER
        if asks_for_id and request.group_instance_id is None:
            return JoinResult(GroupErrorCode.MEMBER_ID_REQUIRED, member_id)
        static_id = group.static_ids.get(request.group_instance_id or "", member_id)
        is_new = static_id not in group.members
        if static_id != member_id:
            before = self._replace_static(group, static_id, member_id)
        else:
            before = group.members.get(member_id) or ConsumerMember(member_id)
        member = self._accept(
            group,
            before,
            _joined(before, request, subscription),
            frozenset(self._by_id(subscription.owned)),
            lambda topic: True,
        )
        self.timers.cancel((MemberTimer.JOIN, group.group_id, member_id))
        self._touch(group, member)
        self._set_timer(MemberTimer.SYNC, group, member_id, request.rebalance_timeout_ms)
        self._downgrade_if_all_classic(group, [] if is_new else [before])
        return JoinResult(
            GroupErrorCode.NONE, member_id, member.epoch, PROTOCOL_TYPE, request.protocols[0][0], leader_id=NO_MEMBER
        )

    def _refuse_classic(self, group: ConsumerGroup, request: JoinRequest) -> GroupErrorCode:
        common = group.common_classic_protocols()
        if common is not None and common.isdisjoint(name for name, _ in request.protocols):
            return GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id != NO_MEMBER and request.group_instance_id is not None:
            error = group.check_member(request.member_id, request.group_instance_id)
            if error is not GroupErrorCode.NONE:
                return error
        replaced = request.member_id or group.static_ids.get(request.group_instance_id or "", NO_MEMBER)
        if replaced not in group.members and len(group.members) >= self._settings.members_max:
            return GroupErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._budget.has_room(request.metadata_bytes()):
            return GroupErrorCode.COORDINATOR_NOT_AVAILABLE
        return GroupErrorCode.NONE

    def _by_id(self, partitions: Iterable[tuple[str, int]]) -> Iterable[TopicIdPartition]:
        known = self._topics().by_name
        return ((known[topic].topic_id, number) for topic, number in partitions if topic in known)

    def sync_classic(self, group: ConsumerGroup, request: SyncRequest) -> SyncResult:
        """SyncGroup: the member's assignment, whatever it or another sends as such."""
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not GroupErrorCode.NONE:
            return SyncResult(error)
        member = group.members[request.member_id]
        if member.classic is None:
            return SyncResult(GroupErrorCode.UNKNOWN_MEMBER_ID)
        if request.generation != member.epoch:
            return SyncResult(GroupErrorCode.ILLEGAL_GENERATION)
        protocol = member.classic.protocols[0][0]
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol not in (None, protocol):
            return SyncResult(GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group, member)
            return SyncResult(GroupErrorCode.REBALANCE_IN_PROGRESS)
        self.timers.cancel((MemberTimer.SYNC, group.group_id, member.member_id))
        self._touch(group, member)
        return SyncResult(GroupErrorCode.NONE, self._encoded(member), PROTOCOL_TYPE, protocol)

    def heartbeat_classic(
        self, group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation: int
    ) -> GroupErrorCode:
        """Heartbeat: REBALANCE_IN_PROGRESS makes the member join again, to give something back or to get something."""
        error = group.check_member(member_id, group_instance_id)
        if error is not GroupErrorCode.NONE:
            return error
        member = group.members[member_id]
        if not member.is_classic:
            return GroupErrorCode.UNKNOWN_MEMBER_ID
        if generation != member.epoch:
            return GroupErrorCode.ILLEGAL_GENERATION
        self._touch(group, member)
        self._look_at_topics(group, lambda topic: True, bump=False)
        if not group.has_to_rejoin(member):
            return GroupErrorCode.NONE
        self._expect_join(group, member)
        return GroupErrorCode.REBALANCE_IN_PROGRESS

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        if (MemberTimer.JOIN, group.group_id, member.member_id) not in self.timers:
            self._set_timer(MemberTimer.JOIN, group, member.member_id, member.rebalance_timeout_ms)

    def _encoded(self, member: ConsumerMember) -> bytes:
        return encode_assignment(Assignment(named(member.assigned, self._topics())))

    # --- offsets --------------------------------------------------------------------------------------------------

    def validate_commit(
        self,
        group: ConsumerGroup,
        member_id: str,
        group_instance_id: str | None,
        epoch: int,
        partitions: Iterable[tuple[str, int]],
    ) -> GroupErrorCode:
        """Whether the member may commit in all these partitions.

        Also at an epoch that it has left, for a partition that it has had since then (KIP-1251): the commit was under
        way when the answer to a heartbeat came.
        """
        if epoch < 0 and not group.members:
            return GroupErrorCode.NONE
        error = group.check_member(member_id, group_instance_id)
        if error is not GroupErrorCode.NONE:
            return error
        member = group.members[member_id]
        if member.is_classic:
            if epoch != member.epoch:
                return GroupErrorCode.ILLEGAL_GENERATION
            self._touch(group, member)
            return GroupErrorCode.NONE
        if epoch < 0 or epoch > member.epoch:
            return GroupErrorCode.STALE_MEMBER_EPOCH
        if epoch == member.epoch:
            return GroupErrorCode.NONE
        wanted = list(partitions)
        since = {**member.assigned, **member.revoking}
        held = [since[one] <= epoch for one in self._by_id(wanted) if one in since]
        is_held = bool(wanted) and len(held) == len(wanted) and all(held)
        return GroupErrorCode.NONE if is_held else GroupErrorCode.STALE_MEMBER_EPOCH

    @staticmethod
    def validate_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> GroupErrorCode:
        """Whether who says to be this member may fetch its commits; who says nothing, as administrators, may."""
        if not member_id and epoch < 0:
            return GroupErrorCode.NONE
        member = group.members.get(member_id or NO_MEMBER)
        if member is None:
            return GroupErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return GroupErrorCode.NONE
        return GroupErrorCode.ILLEGAL_GENERATION if member.is_classic else GroupErrorCode.STALE_MEMBER_EPOCH

    # --- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: float) -> set[str]:
        """Remove the members whose deadline has come: whatever it was for, they are gone or stuck. Returns their
        groups."""
        self._ticked_ms = now_ms
        groups: set[str] = set()
        for _, group_id, member_id in self.timers.due(now_ms):
            groups.add(group_id)
            self._remove(self.groups[group_id], [member_id])
        return groups

    def _set_timer(self, kind: MemberTimer, group: ConsumerGroup, member_id: str, delay_ms: float) -> None:
        now_ms = max(self._clock.monotonic_ms(), self._ticked_ms)
        self.timers.set((kind, group.group_id, member_id), now_ms + delay_ms)

    def _touch(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Restart the session of a member, with its own timeout if it is of the classic protocol."""
        classic = member.classic
        timeout_ms = (classic or self._config(group.group_id)).session_timeout_ms
        self._set_timer(MemberTimer.SESSION, group, member.member_id, timeout_ms)

    def _cancel_timers(self, group: ConsumerGroup, member_id: str) -> None:
        for kind in MemberTimer:
            self.timers.cancel((kind, group.group_id, member_id))

    def _count(self, group: ConsumerGroup) -> None:
        self._budget.count(group.group_id, group.held_bytes())

    # --- what is asked --------------------------------------------------------------------------------------------

    def describe(self, group: ConsumerGroup) -> GroupSummary:
        return GroupSummary(
            group.group_id,
            group.state,
            PROTOCOL_TYPE,
            group.assignor(self._settings.assignors[0]),
            group.epoch,
            NO_MEMBER,
            tuple(self._summary(group, member) for member in group.members.values()),
            GroupType.CONSUMER,
            group.target_epoch,
        )

    def _summary(self, group: ConsumerGroup, member: ConsumerMember) -> MemberSummary:
        return MemberSummary(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            b"",
            self._encoded(member),
            messages.ConsumerMemberSummary(
                member.epoch,
                member.topics,
                member.regex,
                member.rack_id,
                self._by_name({**member.assigned, **member.revoking}),  # it reads on in these until it says otherwise
                self._by_name(group.targets.get(member.member_id, NO_PARTITIONS)),
                member.is_classic,
            ),
        )

    def _by_name(self, partitions: Iterable[TopicIdPartition]) -> tuple[tuple[bytes, str, int], ...]:
        names = self._topics().names
        known = ((topic_id, names.get(topic_id), number) for topic_id, number in sorted(partitions))
        return tuple((topic_id, name, number) for topic_id, name, number in known if name is not None)

    # --- persistence ----------------------------------------------------------------------------------------------

    def take_in(self, group: ConsumerGroup) -> None:
        """A group as its records have it: its members go on at their epochs, each with a full session from now."""
        known = self.groups.get(group.group_id)
        if known is not None:
            self._drop(known)
        self.groups[group.group_id] = group
        group.empty_since_ms = self._clock.now_ms()
        for member in group.members.values():
            self._touch(group, member)
            self._time_revocation(group, member)
        self._count(group)

    def drop_stored(self, group_id: str) -> None:
        """Its records say that the group is gone."""
        if group_id in self.groups:
            self._drop(self.groups[group_id])


def refuse_heartbeat(request: MemberHeartbeat, settings: ConsumerGroupSettings) -> HeartbeatResult | None:
    """The answer to a heartbeat that no group accepts, checked before anything is stored; else None."""
    sentence = _malformed(request)
    if sentence is not None:
        return _refused(request, GroupErrorCode.INVALID_REQUEST, sentence)
    if request.assignor is not None and request.assignor not in settings.assignors:
        return _refused(
            request,
            GroupErrorCode.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {brief_repr(request.assignor)} here; there are {', '.join(settings.assignors)}",
        )
    if request.regex:
        try:
            compile_regex(request.regex)
        except InvalidArgument as error:
            return _refused(request, GroupErrorCode.INVALID_REGULAR_EXPRESSION, str(error))
    return None


def _malformed(request: MemberHeartbeat) -> str | None:
    labels = (request.member_id, request.group_instance_id or "", request.rack_id or "")
    epoch, joins = request.member_epoch, request.member_epoch == JOIN_EPOCH
    checks = {
        "the group id is blank or too long": not request.group.strip() or not fits(request.group, GROUP_NAME_BYTES_MAX),
        "the member id is empty": not request.member_id,
        "the instance id or the rack id is empty; leave it out instead": ""
        in (request.group_instance_id, request.rack_id),
        "an id is too long": not all(
            fits(label, LABEL_BYTES_MAX) for label in (*labels, request.client_id, request.client_host)
        ),
        "the subscription is too long": _said_bytes(request) > MEMBER_METADATA_BYTES_MAX,
        "only a member with an instance id leaves with epoch -2": epoch == STATIC_LEAVE_EPOCH
        and request.group_instance_id is None,
        f"there is no member epoch {epoch}": epoch < STATIC_LEAVE_EPOCH,
        "a joining member must send its rebalance timeout": joins and request.rebalance_timeout_ms < 0,
        "a joining member must own no partitions": joins and (request.owned is None or bool(request.owned)),
        "a joining member must subscribe to topics or to a regular expression": joins
        and request.topics is None
        and request.regex is None,
    }
    return next((sentence for sentence, is_bad in checks.items() if is_bad), None)


def _said_bytes(request: MemberHeartbeat) -> int:
    return sum(map(len, request.topics or ())) + len(request.regex or "") + len(request.member_id)


def _refused(request: MemberHeartbeat, error: GroupErrorCode, sentence: str) -> HeartbeatResult:
    return HeartbeatResult(error, f"group {brief_repr(request.group)}: {sentence}", request.member_id)


def _told(member: ConsumerMember, request: MemberHeartbeat) -> ConsumerMember:
    """The member with what its heartbeat says of it; a member that sends one speaks the consumer protocol."""
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        group_instance_id=member.group_instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=member.topics if request.topics is None else tuple(sorted(set(request.topics))),
        regex=member.regex if request.regex is None else request.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT else timeout_ms,
        assignor=member.assignor if request.assignor is None else request.assignor,
        classic=None,
    )


def _joined(member: ConsumerMember, request: JoinRequest, subscription: Subscription) -> ConsumerMember:
    """The member with what its JoinGroup says of it."""
    return replace(
        member,
        group_instance_id=request.group_instance_id or member.group_instance_id,
        rack_id=subscription.rack or None,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        regex="",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
    )


def _subscription_of(request: JoinRequest) -> Subscription | None:
    """What a classic member wants; None if it is not written in ConsumerProtocol. All its protocols say the same."""
    if request.protocol_type != PROTOCOL_TYPE:
        return None
    try:
        return decode_subscription(request.protocols[0][1])
    except MalformedBytes:
        return None


def _subscription(member: ConsumerMember) -> tuple[tuple[str, ...], str]:
    return member.topics, member.regex
