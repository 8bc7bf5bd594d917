"""What a copy notes in its target: of what it is the copy, and how far it has come. The notes are those of offsets that
a group commits there, COPY_GROUP, so that they need no place of their own and everybody can look at them."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from foldlog.client.copying_offsets import Point
from foldlog.client.copying_sides import Side
from foldlog.client.copying_targets import Numbers, Route

COPY_GROUP: Final = "foldlog-copy"
"""Its committed offsets are the ends of copies; their notes say of what."""


class Note(NamedTuple):
    """How far a copy has come, as it stands in a commit. `source` and `topic_id` say of what it is a copy."""

    source: str
    topic_id: str
    origin: Point
    at: Point
    numbers: Numbers

    def to_json(self) -> str:
        """
        >>> note = Note("b1", "77", Point(5, 0), Point(9, 4), Numbers(12, 0, 0))
        >>> Note.from_json(note.to_json(), 4) == note
        True
        """
        return json.dumps([self.source, self.topic_id, self.at.source, list(self.origin), list(self.numbers)])

    @classmethod
    def from_json(cls, text: str, target_offset: int) -> Note | None:
        """None if it is not one."""
        try:
            source, topic_id, source_offset, origin, numbers = json.loads(text)
            at = Point(int(source_offset), target_offset)
            return cls(str(source), str(topic_id), Point(*map(int, origin)), at, Numbers(*map(int, numbers)))
        except (ValueError, TypeError):
            return None


def identity(source: Side, route: Route) -> tuple[str, str]:
    """What a source is known by: its directory or cluster, and its topic, each by an id that no other has."""
    return source.log.directory_id, source.log.topic(route.topic).topic_id
