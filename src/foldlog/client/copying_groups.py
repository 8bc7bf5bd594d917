"""What groups have committed in a source, told in the offsets of its copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foldlog.client.copying_notes import COPY_GROUP
from foldlog.client.copying_offsets import OffsetMap, Place
from foldlog.client.copying_sides import Side, count_records
from foldlog.client.copying_targets import Route
from foldlog.client.positions import TopicPartition
from foldlog.errors import GroupNotEmpty


@dataclass(frozen=True, slots=True)
class GroupMove:
    """Where a group stands in one partition: in the source, in its copy, and what became of that.

    `outcome`: "moved"; "there" if it stood there already; "ahead" if it has read further in the copy, and was left
    there; "has members" if it could not be moved because of them.
    """

    group: str
    route: Route
    source_offset: int
    target_offset: int
    outcome: str


def translate(source: Side, route: Route, offsets: OffsetMap, offset: int) -> Place:
    """The same place in the copy."""
    return offsets.translated(
        offset, lambda start, stop: count_records(source, route.topic, route.partition, start, stop)
    )


def committed_in(source: Side, routes: Mapping[TopicPartition, Route]) -> dict[str, dict[Route, int]]:
    """What each group of the source has committed in the partitions that are copied."""
    found: dict[str, dict[Route, int]] = {}
    for group in source.log.groups():
        if group == COPY_GROUP:
            continue
        places = source.log.committed(group)
        ours = {routes[partition]: place.offset for partition, place in places.items() if partition in routes}
        if ours:
            found[group] = ours
    return found


def move_groups(source: Side, target: Side, maps: Mapping[Route, OffsetMap]) -> list[GroupMove]:
    """Commit in the target what the groups have committed in the source, in the target's offsets.

    A group is only moved forward: one that reads the copy already is not sent back. What it has committed behind the
    end of the copy becomes that end.
    """
    routes = {TopicPartition(route.topic, route.partition): route for route in maps}
    moves: list[GroupMove] = []
    for group, places in committed_in(source, routes).items():
        there = target.log.committed(group)
        wanted: dict[Route, int] = {}
        for route, offset in places.items():
            start, end = target.bounds(route.to_topic)[route.partition]
            wanted[route] = min(max(start, translate(source, route, maps[route], offset)), end)
        outcomes: dict[Route, str] = {}
        for route, offset in wanted.items():
            known = there.get(TopicPartition(route.to_topic, route.partition))
            if known is not None and known.offset >= offset:
                outcomes[route] = "there" if known.offset == offset else "ahead"
        behind = {
            (route.to_topic, route.partition): offset for route, offset in wanted.items() if route not in outcomes
        }
        moved = "moved"
        try:
            target.log.move_group(group, behind)
        except GroupNotEmpty:
            moved = "has members"
        moves += [
            GroupMove(group, route, places[route], offset, outcomes.get(route, moved))
            for route, offset in wanted.items()
        ]
    return moves
