"""Groups as the console shows them, and rewinding one. On a worker thread: it may wait for the groups' lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from foldlog.broker.groups.eviction import HAS_MEMBERS
from foldlog.broker.groups.lag import partition_lags, share_lags
from foldlog.broker.groups.messages import GroupState, GroupSummary, GroupType, check_group_name
from foldlog.broker.share.membership import SHARE_PROTOCOL_TYPE
from foldlog.client.descriptions import assigned_partitions, described_members, full_name, not_empty
from foldlog.client.fold_bulletin import FOLD_GROUP_PREFIX
from foldlog.client.fold_runs import is_of_a_fold, standing_of
from foldlog.client.groups import OWN_GROUPS
from foldlog.errors import InvalidArgument, MalformedBytes, UnknownGroup
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.records import bounds
from foldlog.server.console.topics import open_partition

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.broker.groups.messages import MemberSummary
    from foldlog.broker.groups.offsets_format import CommittedOffset
    from foldlog.server.folds_reader import ServedFoldRuns

BoundsOf = Callable[[str, int], tuple[int, int] | None]
"""Returns start and end of a partition; None if it does not exist any more."""


def bounds_in(broker: Broker) -> BoundsOf:
    """From memory for open partitions; the others do not move, and are looked up together, once."""
    resting: dict[tuple[str, int], tuple[int, int]] = {}

    def bounds_of(topic: str, number: int) -> tuple[int, int] | None:
        partition = broker.opened_partition(topic, number)
        if partition is not None:
            # Records that are written and not durable yet are lag, too.
            return partition.log_start_offset, partition.log_end_offset
        if not resting:
            resting.update(
                {(one.topic, one.number): (one.log_start_offset, one.log_end_offset) for one in broker.overview()}
            )
        return resting.get((topic, number))

    return bounds_of


def group_overviews(broker: Broker, bounds_of: BoundsOf, fold_runs: ServedFoldRuns) -> list[dict[str, Any]]:
    """Every group with its positions. The lock is taken for each, not once for all: members wait for it."""
    found: list[dict[str, Any]] = []
    for listing in broker.list_groups():
        if listing.group in OWN_GROUPS:
            continue
        description = broker.describe_group(listing.group)
        found.append(_overview(broker, description, broker.commits(listing.group), bounds_of, fold_runs))
    return found


def _overview(
    broker: Broker,
    description: GroupSummary,
    commits: Mapping[tuple[str, int], CommittedOffset],
    bounds_of: BoundsOf,
    fold_runs: ServedFoldRuns,
) -> dict[str, Any]:
    standing = standing_of(description.state.value, len(description.members), fold_runs.of(description.group))
    assigned = assigned_partitions(description)
    shared = broker.share_offsets(description.group) if description.group_type is GroupType.SHARE else None
    bounds = {one: bounds_of(*one) or (None, None) for one in {*commits, *assigned, *(shared or ())}}
    if shared is not None:
        found = share_lags(shared, bounds)
    else:
        begins = broker.members_begin(description.group)
        found = partition_lags({one: at.offset for one, at in commits.items()}, assigned, bounds, begins)
    cursors = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "offset": one.next_offset,
            "is_committed": not one.is_uncommitted,
            "lag": one.lag,
            **({"counted_from": one.counted_from} if one.is_uncommitted else {}),
        }
        for one in found
        if one.lag is not None  # else the topic is gone
    ]
    return {
        "group": description.group,
        "type": str(description.group_type),
        "is_fold": is_of_a_fold(description.group),
        "state": standing.state,
        "members": standing.reader_count,
        "cursors": cursors,
    }


def group_details(broker: Broker, group: str, bounds_of: BoundsOf, fold_runs: ServedFoldRuns) -> dict[str, Any]:
    """One group, its members and what each reads. Raises UnknownGroup."""
    description = known_group(broker, group)
    commits = broker.commits(group)
    overview = _overview(broker, description, commits, bounds_of, fold_runs)
    for cursor in overview["cursors"]:
        committed = commits.get((cursor["topic"], cursor["partition"]))
        cursor["end"] = (bounds_of(cursor["topic"], cursor["partition"]) or (0, 0))[1]
        at_ms = -1 if committed is None else committed.commit_timestamp_ms
        cursor["committed_ms"] = at_ms if at_ms >= 0 else None
    return {
        **overview,
        "protocol": description.protocol,
        "generation": description.generation,
        "assignment_epoch": description.assignment_epoch if description.group_type is not GroupType.CLASSIC else None,
        "members": [_member(member, description) for member in description.members],
    }


def known_group(broker: Broker, group: str) -> GroupSummary:
    """Raises UnknownGroup; 404 for a name that no group can have."""
    description = broker.describe_group(_checked(group))
    if description.state is GroupState.DEAD:
        raise UnknownGroup(f"there is no group {group!r}: it has neither members nor committed offsets")
    return description


def _checked(group: str) -> str:
    try:
        return check_group_name(group)
    except InvalidArgument as error:
        raise ApiError(HTTPStatus.NOT_FOUND, str(error)) from error


def _member(member: MemberSummary, description: GroupSummary) -> dict[str, Any]:
    assignment: list[list[Any]] | None = None
    if description.protocol_type in (PROTOCOL_TYPE, SHARE_PROTOCOL_TYPE):
        try:
            assignment = [list(each) for each in decode_assignment(member.assignment).partitions]
        except MalformedBytes:
            assignment = None  # not Kafka's assignment format: what it reads is unknown
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.client_host.removeprefix("/"),  # as Java writes an address without a name
        "instance_id": member.group_instance_id,
        "assignment": None
        if assignment is None
        else [{"topic": topic, "partition": number} for topic, number in sorted(assignment)],
        "epoch": None if member.consumer is None else member.consumer.member_epoch,
        "target": None
        if member.consumer is None
        else [{"topic": topic, "partition": number} for _, topic, number in member.consumer.target],
    }


def rewind(broker: Broker, group: str, topic_partition: tuple[str, int], offset: int, *, evict: bool) -> dict[str, Any]:
    """Move the committed offset of a group in a partition; members rejoin there. Durable on return.

    409 with the members named, unless they may be evicted and stay away for long enough.
    """
    known_group(broker, group)
    refuse_fold(group)
    partition = open_partition(broker, *topic_partition)
    start, end = bounds(partition)
    if not start <= offset <= end:
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            f"offset {offset} is not in {topic_partition[0]}-{topic_partition[1]}; it is from {start} to {end}",
        )
    before = broker.commits(group).get(topic_partition)
    committed = {topic_partition: OffsetAndMetadata(offset, partition.leader_epoch)}
    evicted = commit_moves(broker, group, committed, evict)
    before_offset = before.offset if before is not None and before.offset >= 0 else None
    return {
        "moved": [{"topic": topic_partition[0], "partition": topic_partition[1], "from": before_offset, "to": offset}],
        "read_again": 0 if before_offset is None else max(0, min(before_offset, end) - offset),
        "evicted": evicted,
    }


def refuse_fold(group: str) -> None:
    """Raises 409 for the group of a fold."""
    if is_of_a_fold(group):
        name = group.removeprefix(FOLD_GROUP_PREFIX)
        raise ApiError(
            HTTPStatus.CONFLICT,
            f"group {group!r} only shows where fold {name!r} stands, which keeps its bookmark in its view;"
            " rewind the fold instead",
        )


def commit_moves(
    broker: Broker, group: str, committed: Mapping[tuple[str, int], OffsetAndMetadata], evict: bool
) -> list[str]:
    """Commit; with `evict`, remove the members first, with no join in between. The names of those evicted. Durable on
    return; 409 with the members named if there are any."""
    evicted: list[str] = []
    try:
        broker.move_offsets(
            group,
            committed,
            evict=evict,
            on_evicted=lambda members: evicted.extend(
                full_name(one.group_instance_id, one.client_id, one.member_id) for one in members
            ),
        )
    except HAS_MEMBERS as error:
        members = described_members(broker.describe_group(group))
        refusal = not_empty(group, members, evict="" if evict else "evict")
        raise ApiError(HTTPStatus.CONFLICT, str(refusal), {"members": refusal.members}) from error
    return evicted
