"""What a copy notes in its target: of what it is the copy, and how far it has come. The notes are those of offsets that
a group commits there, COPY_GROUP, so that they need no place of their own and everybody can look at them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.client.copy.offsets import CopyPoint
from foldlog.client.copy.sides import Side
from foldlog.client.copy.targets import CopyNumbers, Route
from foldlog.client.groups import CHECK_GROUP
from foldlog.client.positions import TopicPartition


class Note(NamedTuple):
    """How far a copy has come, as it stands in a commit. `source` and `topic_id` say of what it is a copy."""

    source: str
    topic_id: str
    origin: CopyPoint
    at: CopyPoint
    numbers: CopyNumbers

    def to_json(self) -> str:
        """
        >>> note = Note("b1", "77", CopyPoint(5, 0), CopyPoint(9, 4), CopyNumbers(12, 0, 0))
        >>> Note.from_json(note.to_json(), 4) == note
        True
        """
        return json.dumps([self.source, self.topic_id, self.at.source, list(self.origin), list(self.numbers)])

    @classmethod
    def from_json(cls, text: str, target_offset: int) -> Note | None:
        """None if it is not one."""
        try:
            source, topic_id, source_offset, origin, numbers = json.loads(text)
            at = CopyPoint(int(source_offset), target_offset)
            return cls(str(source), str(topic_id), CopyPoint(*map(int, origin)), at, CopyNumbers(*map(int, numbers)))
        except (ValueError, TypeError, RecursionError):
            return None


def checked_up_to(source: Side, target: Side, routes: Iterable[Route]) -> dict[Route, CopyPoint]:
    """How far each partition has been compared with this source, and was the same; left out where nobody has."""
    committed = target.log.committed(CHECK_GROUP)
    found: dict[Route, CopyPoint] = {}
    for route in routes:
        place = committed.get(TopicPartition(route.to_topic, route.partition))
        if place is None:
            continue
        try:
            *whose, source_offset = json.loads(place.metadata)
        except ValueError:
            continue
        if tuple(whose) == identity(source, route) and type(source_offset) is int:
            found[route] = CopyPoint(source_offset, place.offset)
    return found


def note_checked(source: Side, target: Side, ends: Mapping[Route, CopyPoint]) -> None:
    """So that the next copy compares only what is new."""
    places = {
        TopicPartition(route.to_topic, route.partition): OffsetAndMetadata(
            end.target, metadata=json.dumps([*identity(source, route), end.source])
        )
        for route, end in ends.items()
    }
    if places:
        target.commit_places(CHECK_GROUP, places)


def identity(source: Side, route: Route) -> tuple[str, str]:
    """What a source is known by: its directory or cluster, and its topic, each by an id that no other has."""
    return source.log.directory_id, source.log.topic(route.topic).topic_id
