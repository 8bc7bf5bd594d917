"""Moves the commits of a source's groups to its copy, in the copy's offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.eviction import HAS_MEMBERS
from foldlog.client.backends.backend import backend_of
from foldlog.client.copy.offsets import OffsetMap, TranslatedOffset
from foldlog.client.copy.sides import Side, count_records
from foldlog.client.copy.targets import Route
from foldlog.client.groups import OWN_GROUPS, is_of_a_queue, resolve_offsets
from foldlog.client.positions import TopicPartition
from foldlog.errors import UnknownGroup

MOVED: Final = "moved"
MOVED_BACK: Final = "moved back"
QUEUE: Final = "queue"


@dataclass(frozen=True, slots=True)
class GroupMove:
    """The position of a group in one partition: in the source, in its copy, and what was done about it.

    `outcome`: "moved"; "there" if it was there already; "ahead" if it has read further in the copy, and was left there;
    "has members" if it could not be moved because of them. If the source has lost records since they were copied, the
    position may not be known exactly: "moved back" if it was moved to the earliest possible one, and "left back" if it
    was there or further, but perhaps not far enough; `reread_max` is how many records it may then read again, at most.
    No record is skipped. "queue" if it is a queue's, which is not moved. `target_offset` is None if it is
    not known.
    """

    group: str
    route: Route
    source_offset: int
    target_offset: int | None
    outcome: str
    reread_max: int = 0


def translate(source: Side, route: Route, offsets: OffsetMap, offset: int) -> TranslatedOffset:
    """The offset in the copy for an offset of the source."""
    return offsets.translated(
        offset, lambda start, stop: count_records(source, route.topic, route.partition, start, stop)
    )


def committed_in(source: Side, routes: Mapping[TopicPartition, Route]) -> dict[str, dict[Route, int]]:
    """The commits of each group of the source in the copied partitions."""
    found: dict[str, dict[Route, int]] = {}
    for group in source.log.groups():
        if group in OWN_GROUPS:
            continue
        committed = source.log.committed(group)
        ours = {routes[partition]: at.offset for partition, at in committed.items() if partition in routes}
        if ours:
            found[group] = ours
    return found


def taken_in(source: Side, routes: Mapping[TopicPartition, Route]) -> dict[str, dict[Route, int]]:
    """Where the queues of the source are in the copied partitions: what they did is in single records, which a copy
    does not bring."""
    found: dict[str, dict[Route, int]] = {}
    backend = backend_of(source.log)
    for group in source.log.groups():
        if is_of_a_queue(backend, group):
            at = backend.share_offsets(group)
            ours = {routes[partition]: start for partition, (start, _) in at.items() if partition in routes}
            if ours:
                found[group] = ours
    return found


def move_groups(
    source: Side, target: Side, maps: Mapping[Route, OffsetMap], *, mirrors: bool = False
) -> list[GroupMove]:
    """Commit in the target what the groups have committed in the source, in the target's offsets.

    A group is only moved forward: one that reads the copy already is not moved back, unless the copy `mirrors` its
    source, and is not read. A commit behind the end of the copy becomes that end. A mirror also deletes commits that
    the source has no longer, if a copy made them, and no consumer has committed since.
    """
    routes = {TopicPartition(route.topic, route.partition): route for route in maps}
    moves: list[GroupMove] = []
    found = committed_in(source, routes)
    if mirrors:
        _forget_others(source, target, list(routes.values()), found)
    for group, offsets in found.items():
        there = target.log.committed(group)
        planned: list[GroupMove] = []
        for route, offset in offsets.items():
            start, end = target.bounds(route.to_topic)[route.partition]
            translated = translate(source, route, maps[route], offset)
            translated = TranslatedOffset(*(min(max(start, one), end) for one in translated))
            known = there.get(TopicPartition(route.to_topic, route.partition))
            move = GroupMove(group, route, offset, translated.earliest, MOVED)
            is_back = mirrors and known is not None and known.offset > translated.latest
            planned.append(move if is_back else _planned(move, translated, known))
        behind = {
            (move.route.to_topic, move.route.partition): move.target_offset
            for move in planned
            if move.target_offset is not None and move.outcome in (MOVED, MOVED_BACK)
        }
        try:
            _commit(source, target, group, behind)
        except HAS_MEMBERS:
            planned = [
                replace(move, outcome="has members") if move.outcome in (MOVED, MOVED_BACK) else move
                for move in planned
            ]
        moves += planned
    if not mirrors:
        left = taken_in(source, routes)
        moves += [GroupMove(name, one, at, None, QUEUE) for name, places in left.items() for one, at in places.items()]
    return moves


def _commit(source: Side, target: Side, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Raises one of HAS_MEMBERS while the group has members."""
    if offsets:
        committed = resolve_offsets(backend_of(target.log), group, offsets)
        note = _note(source)
        target.commit_offsets(
            group, {TopicPartition(*one): replace(at, metadata=note) for one, at in committed.items()}
        )


def _note(source: Side) -> str:
    """The metadata of commits that a copy makes for a group. A consumer's own commit replaces it, so it shows whether
    the position is still the copy's."""
    return f"foldlog-copy of {source.log.directory_id}"


def _forget_others(
    source: Side, target: Side, routes: Iterable[Route], found: Mapping[str, Mapping[Route, int]]
) -> None:
    """Delete commits by copies of this source for groups that are no longer `found` in it."""
    note, by_target = _note(source), {TopicPartition(one.to_topic, one.partition): one for one in routes}
    for group in target.log.groups():
        if group in OWN_GROUPS:
            continue
        there = target.log.committed(group)
        kept = found.get(group, {})
        gone = [
            one for one, at in there.items() if at.metadata == note and one in by_target and by_target[one] not in kept
        ]
        try:
            if gone and len(gone) == len(there):
                target.log.delete_group(group)
            elif gone:
                target.log.delete_offsets(group, gone)
        except (UnknownGroup, *HAS_MEMBERS):
            continue  # the group is in use now


def _planned(move: GroupMove, translated: TranslatedOffset, known: OffsetAndMetadata | None) -> GroupMove:
    """The move of a group whose position is `translated`, given its commit in the copy."""
    if known is None or known.offset < translated.earliest:
        outcome, at = (MOVED if translated.is_exact else MOVED_BACK), translated.earliest
    elif known.offset < translated.latest:
        outcome, at = "left back", known.offset
    else:
        outcome, at = ("there" if known.offset == translated.latest else "ahead"), translated.latest
    return replace(move, outcome=outcome, target_offset=at, reread_max=translated.latest - at)
