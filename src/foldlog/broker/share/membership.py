"""The coordinator of share groups: who is a member, and from which partitions each takes records. Without I/O.

A member sends heartbeats, and is told what it is assigned. Partitions are shared, so nobody has to give one back before
another may have it: a member is at its target with its next heartbeat. What members do with records is no concern of
this module (`partition.py`); it only tells who has gone, so that their records can be given to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from foldlog.broker.groups.consumer.assignors import Candidate
from foldlog.broker.groups.consumer.messages import JOIN_EPOCH, LEAVE_EPOCH, HeartbeatResult, TopicIdPartition
from foldlog.broker.groups.consumer.topics import TopicsImage
from foldlog.broker.groups.consumer_protocol import Assignment, encode_assignment
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.group_settings import ShareGroupConfig
from foldlog.broker.groups.messages import (
    GROUP_NAME_BYTES_MAX,
    LABEL_BYTES_MAX,
    NO_MEMBER,
    ConsumerMemberSummary,
    GroupState,
    GroupSummary,
    GroupType,
    LeaveResult,
    MemberIdentity,
    MemberSummary,
    fits,
)
from foldlog.broker.groups.offsets_format import ShareKey, ShareRecord
from foldlog.broker.groups.state import MetadataBudget
from foldlog.broker.groups.timers import Timers
from foldlog.broker.share import member_records as records
from foldlog.broker.share.assignor import assign_simple
from foldlog.broker.share.member_records import (
    StoredShareEpoch,
    StoredShareMember,
    StoredShareProgress,
    StoredShareValue,
)
from foldlog.broker.share.messages import ShareHeartbeat
from foldlog.clock import Clock
from foldlog.errors import brief_repr
from foldlog.limits import MEMBER_METADATA_BYTES_MAX

SHARE_PROTOCOL_TYPE: Final = "share"
ASSIGNOR: Final = "simple"
_NOTHING: Final[frozenset[TopicIdPartition]] = frozenset()


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member of a share group. Immutable. `topics` are sorted, so that another order is no change."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    assigned: frozenset[TopicIdPartition] = _NOTHING

    def metadata(self) -> StoredShareMember:
        return StoredShareMember(self.rack_id, self.client_id, self.client_host, self.topics)

    def progress(self) -> StoredShareProgress:
        return StoredShareProgress(self.epoch, self.previous_epoch, self.assigned)

    def held_bytes(self) -> int:
        texts = (self.member_id, self.client_id, self.client_host, self.rack_id or "", *self.topics)
        return sum(map(len, texts)) + 32 * len(self.assigned)


@dataclass(slots=True)
class ShareGroup:
    """Mutable, owned by the coordinator. `seen` is the image of topics that the group's epoch takes into account."""

    group_id: str
    epoch: int = 0
    target_epoch: int = 0
    topics_hash: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, frozenset[TopicIdPartition]] = field(default_factory=dict)
    seen: TopicsImage | None = None
    assigned_ms: float | None = None

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset(topic for member in self.members.values() for topic in member.topics)

    def held_bytes(self) -> int:
        return len(self.group_id) + sum(member.held_bytes() for member in self.members.values())


class ShareGroups:
    """All share groups of one broker. Owned by the `GroupCoordinator`, whose promises hold here, too.

    `topics` returns the topics that exist, the same object until they change; `config` the settings of a group;
    `members_max` how many members one may have. `on_gone` is called with each member that has left or was silent.
    """

    def __init__(
        self,
        clock: Clock,
        topics: Callable[[], TopicsImage],
        budget: MetadataBudget,
        config: Callable[[str], ShareGroupConfig],
        members_max: int,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._budget = budget
        self._config = config
        self._members_max = members_max
        self._ticked_ms = float("-inf")
        self.on_gone: Callable[[str, str], None] = lambda group, member: None
        self.groups: dict[str, ShareGroup] = {}
        self.timers: Timers[tuple[str, str]] = Timers()
        self.writes: list[records.Record] = []
        self._stored: dict[str, dict[tuple[ShareRecord, str], StoredShareValue]] = {}

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    def heartbeat(self, request: ShareHeartbeat) -> HeartbeatResult:
        """A member joins, reports or leaves. The request has passed `refuse_share_heartbeat`."""
        group = self.groups.get(request.group)
        member = None if group is None else group.members.get(request.member_id)
        if request.member_epoch == LEAVE_EPOCH:
            if group is None or member is None:
                return _refused(request, GroupErrorCode.UNKNOWN_MEMBER_ID, "it is not a member")
            self._remove(group, request.member_id)
            return HeartbeatResult(GroupErrorCode.NONE, None, request.member_id, LEAVE_EPOCH)
        error, sentence = self._refuse(group, member, request)
        if error is not GroupErrorCode.NONE:
            return _refused(request, error, sentence)
        if group is None:
            group = self.groups[request.group] = ShareGroup(request.group)
        before = member or ShareMember(request.member_id)
        after = self._accept(group, before, _told(before, request), is_new=member is None)
        config = self._config(group.group_id)
        now_ms = max(self._clock.monotonic_ms(), self._ticked_ms)
        self.timers.set((group.group_id, after.member_id), now_ms + config.session_timeout_ms)
        is_news = request.topics is not None or after.assigned != before.assigned
        return HeartbeatResult(
            GroupErrorCode.NONE,
            None,
            after.member_id,
            after.epoch,
            config.heartbeat_interval_ms,
            after.assigned if is_news or request.member_epoch == JOIN_EPOCH else None,
        )

    def _refuse(
        self, group: ShareGroup | None, member: ShareMember | None, request: ShareHeartbeat
    ) -> tuple[GroupErrorCode, str]:
        epoch = request.member_epoch
        if epoch != JOIN_EPOCH:
            if member is None:
                return GroupErrorCode.UNKNOWN_MEMBER_ID, "it is not a member; join again"
            # The answer with the newer epoch may have been lost.
            if epoch not in (member.epoch, member.previous_epoch):
                return (
                    GroupErrorCode.FENCED_MEMBER_EPOCH,
                    f"the member is at epoch {member.epoch} and said {epoch}; join again",
                )
        elif member is None and group is not None and len(group.members) >= self._members_max:
            return GroupErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {self._members_max} members already"
        if not self._budget.has_room(_said_bytes(request)):
            return GroupErrorCode.COORDINATOR_NOT_AVAILABLE, "the groups use all their memory; try again later"
        return GroupErrorCode.NONE, ""

    def _accept(self, group: ShareGroup, before: ShareMember, member: ShareMember, *, is_new: bool) -> ShareMember:
        """Take in what the member said, and bring group, target and member up to date, in this order."""
        if is_new or member.metadata() != before.metadata():
            self.writes.append(records.member_record(group.group_id, member.member_id, member.metadata()))
        group.members[member.member_id] = member
        self._look_at_topics(group, bump=is_new or member.topics != before.topics)
        self._assign(group)
        target = group.targets.get(member.member_id, _NOTHING)
        if (member.epoch, member.assigned) != (group.target_epoch, target):
            member = replace(member, epoch=group.target_epoch, previous_epoch=member.epoch, assigned=target)
            group.members[member.member_id] = member
            self.writes.append(records.current_record(group.group_id, member.member_id, member.progress()))
        self._budget.count(group.group_id, group.held_bytes())
        return member

    def _look_at_topics(self, group: ShareGroup, *, bump: bool) -> None:
        """Raise the group's epoch if `bump` says so, or topics that its members want have changed."""
        image = self._topics()
        if not bump and group.seen is image:
            return
        topics_hash = image.fingerprint(group.subscribed_topics())
        group.seen = image
        if bump or topics_hash != group.topics_hash:
            group.epoch += 1
            group.topics_hash = topics_hash
            self.writes.append(records.group_record(group.group_id, group.epoch, topics_hash))

    def _assign(self, group: ShareGroup) -> None:
        if group.epoch == group.target_epoch:
            return
        now_ms = self._clock.monotonic_ms()
        interval_ms = self._config(group.group_id).assignment_interval_ms
        if group.assigned_ms is not None and now_ms < group.assigned_ms + interval_ms:
            return
        group.assigned_ms = now_ms
        image = self._topics()
        candidates = [
            Candidate(member_id, None, image.ids(member.topics), group.targets.get(member_id, _NOTHING))
            for member_id, member in group.members.items()
        ]
        targets = assign_simple(candidates, image.counts(group.subscribed_topics()))
        for member_id, target in targets.items():
            if target != group.targets.get(member_id):
                self.writes.append(records.target_record(group.group_id, member_id, target))
        group.targets = targets
        group.target_epoch = group.epoch
        self.writes.append(records.target_epoch_record(group.group_id, group.target_epoch))

    # --- leaving ------------------------------------------------------------------------------------------------------

    def _remove(self, group: ShareGroup, member_id: str) -> None:
        del group.members[member_id]
        group.targets.pop(member_id, None)
        self.timers.cancel((group.group_id, member_id))
        self.writes += records.member_tombstones(group.group_id, member_id)
        self._look_at_topics(group, bump=True)
        self._budget.count(group.group_id, group.held_bytes())
        self.on_gone(group.group_id, member_id)

    def leave(self, group: ShareGroup, members: Iterable[MemberIdentity]) -> list[LeaveResult]:
        """Administrators remove members."""
        results = []
        for identity in members:
            is_known = identity.member_id in group.members
            if is_known:
                self._remove(group, identity.member_id)
            error = GroupErrorCode.NONE if is_known else GroupErrorCode.UNKNOWN_MEMBER_ID
            results.append(LeaveResult(identity, error))
        return results

    def forget(self, group: ShareGroup) -> None:
        """The group is deleted, with its records."""
        self.writes += records.group_tombstones(group.group_id, group.members)
        self._drop(group)

    def _drop(self, group: ShareGroup) -> None:
        for member_id in group.members:
            self.timers.cancel((group.group_id, member_id))
        del self.groups[group.group_id]
        self._budget.count(group.group_id, 0)

    def close(self) -> None:
        """Forget all groups. Nothing is written."""
        for group in list(self.groups.values()):
            self._drop(group)

    def tick(self, now_ms: float) -> set[str]:
        """Remove the members that were silent for too long; the groups of these."""
        self._ticked_ms = now_ms
        groups: set[str] = set()
        for group_id, member_id in self.timers.due(now_ms):
            groups.add(group_id)
            self._remove(self.groups[group_id], member_id)
        return groups

    # --- what is asked ------------------------------------------------------------------------------------------------

    def describe(self, group: ShareGroup) -> GroupSummary:
        return GroupSummary(
            group.group_id,
            group.state,
            SHARE_PROTOCOL_TYPE,
            ASSIGNOR,
            group.epoch,
            NO_MEMBER,
            tuple(self._summary(group, member) for member in group.members.values()),
            GroupType.SHARE,
            group.target_epoch,
        )

    def _summary(self, group: ShareGroup, member: ShareMember) -> MemberSummary:
        return MemberSummary(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            b"",
            encode_assignment(Assignment(tuple((name, number) for _, name, number in self._by_name(member.assigned)))),
            ConsumerMemberSummary(
                member.epoch,
                member.topics,
                "",
                member.rack_id,
                self._by_name(member.assigned),
                self._by_name(group.targets.get(member.member_id, _NOTHING)),
                is_classic=False,
            ),
        )

    def _by_name(self, partitions: Iterable[TopicIdPartition]) -> tuple[tuple[bytes, str, int], ...]:
        names = self._topics().names
        known = ((topic_id, names.get(topic_id), number) for topic_id, number in sorted(partitions))
        return tuple((topic_id, name, number) for topic_id, name, number in known if name is not None)

    # --- persistence --------------------------------------------------------------------------------------------------

    def restore(self, raw_key: bytes, key: ShareKey, value: bytes | None) -> None:
        """Take in the newest record of a part of a group, while loading. Raises CorruptGroupRecord."""
        parts = self._stored.setdefault(key.group, {})
        name = (key.record, key.name)
        if value is None:
            parts.pop(name, None)
        else:
            parts[name] = records.decode_share_value(raw_key, key, value)

    def restored(self, *, is_final: bool) -> None:
        """All records were taken in. Members go on at their epochs, each with a full session from now."""
        for group_id, parts in self._stored.items():
            known = self.groups.get(group_id)
            if known is not None:
                self._drop(known)
            group = _built(group_id, parts)
            if group is None:
                continue
            self.groups[group_id] = group
            timeout_ms = self._config(group_id).session_timeout_ms
            for member_id in group.members:
                self.timers.set((group_id, member_id), self._clock.monotonic_ms() + timeout_ms)
            self._budget.count(group_id, group.held_bytes())
        if is_final:
            self._stored.clear()


def _built(group_id: str, parts: Mapping[tuple[ShareRecord, str], StoredShareValue]) -> ShareGroup | None:
    """The group of its stored parts; None if it is gone."""
    stored = parts.get((ShareRecord.GROUP, ""))
    if not isinstance(stored, StoredShareEpoch):
        return None
    target_epoch = parts.get((ShareRecord.TARGET_EPOCH, ""))
    group = ShareGroup(
        group_id,
        stored.epoch,
        min(target_epoch, stored.epoch) if isinstance(target_epoch, int) else 0,
        stored.topics_hash,
    )
    for (record, name), value in parts.items():
        if record is ShareRecord.MEMBER and isinstance(value, StoredShareMember):
            member = ShareMember(name, *value)
            progress = parts.get((ShareRecord.CURRENT, name))
            if isinstance(progress, StoredShareProgress):
                member = replace(member, **progress._asdict())
            group.members[name] = member
            target = parts.get((ShareRecord.TARGET, name))
            group.targets[name] = target if isinstance(target, frozenset) else _NOTHING
    return group


def refuse_share_heartbeat(request: ShareHeartbeat) -> HeartbeatResult | None:
    """The answer to a heartbeat that no group accepts, checked before anything is stored; else None."""
    labels = (request.member_id, request.rack_id or "", request.client_id, request.client_host)
    checks = {
        "the group id is empty or too long": not request.group or not fits(request.group, GROUP_NAME_BYTES_MAX),
        "the member id is empty": not request.member_id,
        "the rack id is empty; leave it out instead": request.rack_id == "",
        "an id is too long": not all(fits(label, LABEL_BYTES_MAX) for label in labels),
        "the subscription is too long": _said_bytes(request) > MEMBER_METADATA_BYTES_MAX,
        f"there is no member epoch {request.member_epoch}": request.member_epoch < LEAVE_EPOCH,
        "a joining member must name its topics": request.member_epoch == JOIN_EPOCH and not request.topics,
    }
    sentence = next((sentence for sentence, is_bad in checks.items() if is_bad), None)
    return None if sentence is None else _refused(request, GroupErrorCode.INVALID_REQUEST, sentence)


def _said_bytes(request: ShareHeartbeat) -> int:
    return sum(map(len, request.topics or ())) + len(request.member_id)


def _refused(request: ShareHeartbeat, error: GroupErrorCode, sentence: str) -> HeartbeatResult:
    return HeartbeatResult(error, f"group {brief_repr(request.group)}: {sentence}", request.member_id)


def _told(member: ShareMember, request: ShareHeartbeat) -> ShareMember:
    """The member with what its heartbeat says of it."""
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=member.topics if request.topics is None else tuple(sorted(set(request.topics))),
    )
