"""Notes of a copy in its target: what it is a copy of, and how far it has come. They are the metadata of offsets that
the group COPY_GROUP commits there, so they need no storage of their own, and any tool can show them."""

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
    """The progress of a copy, as in a commit's metadata. `source` and `topic_id` identify what it is a copy of."""

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
        """Parse a note; None if the text is not one."""
        try:
            source, topic_id, source_offset, origin, numbers = json.loads(text)
            at = CopyPoint(int(source_offset), target_offset)
            return cls(str(source), str(topic_id), CopyPoint(*map(int, origin)), at, CopyNumbers(*map(int, numbers)))
        except (ValueError, TypeError, RecursionError):
            return None


def checked_up_to(source: Side, target: Side, routes: Iterable[Route]) -> dict[Route, CopyPoint]:
    """How far each partition was compared with this source and found the same; left out if it never was."""
    committed = target.log.committed(CHECK_GROUP)
    found: dict[Route, CopyPoint] = {}
    for route in routes:
        at = committed.get(TopicPartition(route.to_topic, route.partition))
        if at is None:
            continue
        try:
            *whose, source_offset = json.loads(at.metadata)
        except ValueError:
            continue
        if tuple(whose) == identity(source, route) and type(source_offset) is int:
            found[route] = CopyPoint(source_offset, at.offset)
    return found


def note_checked(source: Side, target: Side, ends: Mapping[Route, CopyPoint]) -> None:
    """Note how far partitions were compared, so that the next copy compares only what is new."""
    offsets = {
        TopicPartition(route.to_topic, route.partition): OffsetAndMetadata(
            end.target, metadata=json.dumps([*identity(source, route), end.source])
        )
        for route, end in ends.items()
    }
    if offsets:
        target.commit_offsets(CHECK_GROUP, offsets)


def identity(source: Side, route: Route) -> tuple[str, str]:
    """Identifies a source: the unique ids of its directory or cluster, and of its topic."""
    return source.log.directory_id, source.log.topic(route.topic).topic_id
